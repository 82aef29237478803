"""Samplers and estimates of log Z on fake CUDA tensors: nothing mixes devices, and nothing waits for a value."""

import copy

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily

from discrete_vae import (
    RBM,
    BlockGibbs,
    FactorialBernoulli,
    GraphBoltzmann,
    ParallelTempering,
    RunningMoments,
)
from discrete_vae.boltzmann import graph
from discrete_vae.kernels import gibbs
from discrete_vae.log_partition.bridge import bridge_terms, tempered_work
from discrete_vae.log_partition.estimate import annealed_weights
from discrete_vae.samplers.tempering import ModeJumps
from tests.boltzmann.graphs import randomize
from tests.devices.models import empty_twin

MACHINES = {
    "rbm": lambda: randomize(RBM(5, 4)),
    "graph": lambda: randomize(GraphBoltzmann(9, "complete")),
    "factorial": lambda: randomize(FactorialBernoulli(9)),
}


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    """Fake tensors. Without CUDA the noise's source is the CPU's, and for sparse products dense ones stand in."""
    monkeypatch.setattr(gibbs, "keyed_generator", lambda *key, device: torch.Generator())

    def product(values, z, places, num_rows, coalesced):
        terms = values[:, None] * z.index_select(0, places[1])
        return z.new_zeros(num_rows, z.shape[1]).index_add(0, places[0], terms)

    monkeypatch.setattr(graph, "_multiply", product)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


@pytest.fixture(params=MACHINES)
def machine(request):
    return with_real_tensors(MACHINES[request.param])


def with_real_tensors(make):
    """Make something on the real CPU, as a program does before it moves it."""
    with unset_fake_temporarily():
        return make()


def on_cuda(*tensors):
    return all(tensor.device.type == "cuda" for tensor in tensors)


def chains_on_cuda(make, machine, moved):
    """Chains of a machine that is moved before they are made or after, and perhaps with them."""
    if moved == "before":
        return make(empty_twin(machine, "cuda"))
    energy = with_real_tensors(lambda: copy.deepcopy(machine))
    chains = with_real_tensors(lambda: make(energy))
    empty_twin(energy, "cuda")
    return chains.to("cuda") if moved == "both" else chains


@pytest.mark.parametrize(
    ("machine", "moved"),
    [("rbm", "before"), ("rbm", "after"), ("graph", "before"), ("graph", "both"), ("factorial", "after")],
)
def test_block_gibbs(machine, moved):
    machine = MACHINES[machine]

    def held(energy):
        given = {"start": torch.zeros(6, 9), "clamped": torch.arange(9) < 2, "inverse_temperature": 0.5}
        return BlockGibbs(energy, 6, seed=1, **given)

    for make in (lambda energy: BlockGibbs(energy, 6, seed=1), held):
        chains = chains_on_cuda(make, with_real_tensors(machine), moved)
        moments = RunningMoments(chains.energy, 6)
        z = chains.step(3, moments=moments)
        assert on_cuda(z, chains.z, *chains.buffers(), moments.value().pair)
        state = chains.state_dict()
        assert on_cuda(state["z"])
        chains.load_state_dict(state)
        assert on_cuda(chains.step(2))


@pytest.mark.parametrize(("moved", "ladder"), [("before", None), ("after", (0.0, 0.5, 1.0)), ("both", None)])
def test_parallel_tempering(moved, ladder):
    def make(energy):
        chains = ParallelTempering(energy, 6, ladder, seed=1)
        if moved != "before":
            chains.jumps = ModeJumps(energy, torch.eye(9))
        return chains

    chains = chains_on_cuda(make, with_real_tensors(MACHINES["rbm"]), moved)
    z = chains.step(9)
    assert on_cuda(z, chains.replicas, chains.swap_rates, *chains.buffers())


def test_annealed_weights(machine):
    empty_twin(machine, "cuda")
    z = torch.zeros(6, 9, device="cuda")
    assert on_cuda(annealed_weights(machine, z, [0.0, 0.5, 1.0], key=3))


def test_pieces_of_bridge_sampling(machine):
    empty_twin(machine, "cuda")
    z = torch.zeros(6, 3, 9, device="cuda")
    t = torch.linspace(0, 1, 3, dtype=torch.float64, device="cuda").expand(6, 3)
    for energies in (None, machine.compute_energy(z)):
        down, up = tempered_work(machine, z, 0, (t / 2, t, t), energies=energies)
        constants = torch.zeros(2, device="cuda", dtype=torch.float64)
        sums = bridge_terms(down, up, constants, constants)
        assert on_cuda(sums.forward, sums.backward, sums.squares, sums.round_trips)


def test_sides_of_an_rbm():
    rbm = empty_twin(with_real_tensors(MACHINES["rbm"]), "cuda")
    visible = torch.zeros(6, 5, device="cuda")
    assert on_cuda(rbm.hidden_given_visible(visible), rbm.sample_hidden(visible), rbm.free_energy(visible))
