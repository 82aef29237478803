"""Block Gibbs: its law, clamped units, temperatures; packed states."""

import copy

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, GraphBoltzmann
from discrete_vae.kernels.gibbs import run_sweeps
from discrete_vae.rng import key_to_seed
from discrete_vae.samplers import gibbs
from discrete_vae.samplers.gibbs import pack_bits, unpack_bits
from discrete_vae.testing import all_states, enumerate_machine
from tests.boltzmann.graphs import randomize, with_parameters
from tests.log_partition.machines import random_rbm
from tests.oracles.transitions import check_transitions, invariance_error, sweep_matrix

MACHINES = {
    "rbm": lambda: random_rbm(3, 2, 0.5),
    "graph": lambda: randomize(GraphBoltzmann(5, "complete")),
    "factorial": lambda: randomize(FactorialBernoulli(5)),
}
CLAMPED = torch.tensor([True, False, False, True, False])


@pytest.mark.parametrize("clamped", [None, CLAMPED], ids=["free", "clamped"])
def test_independent_units_end_where_all_sweeps_would(clamped):
    energy = with_parameters(FactorialBernoulli(5), bias=torch.linspace(-2, 2, 5))
    whole, single = (BlockGibbs(energy, 6, seed=4, start=torch.ones(6, 5), clamped=clamped) for _ in range(2))
    mask = None if clamped is None else whole.clamped
    expected = run_sweeps(energy, whole.z, 30, key=key_to_seed(4), first_sweep=1, clamped=mask)
    found = whole.step(30)
    for _ in range(30):
        last = single.step(1)
    assert torch.equal(found, expected)
    assert torch.equal(found, last)
    assert whole.sweep == single.sweep == 30


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("scale", "clamped"), [(1.0, None), (0.4, None), (2.0, CLAMPED)])
def test_a_sweep_from_given_states_has_the_exact_matrix(machine, scale, clamped):
    """Which leaves the machine's law at this temperature invariant, given the clamped units."""
    machine = MACHINES[machine]()

    def step(z):
        options = {"start": z, "clamped": clamped, "inverse_temperature": scale}
        return BlockGibbs(machine, len(z), seed=5, **options).step(1)

    matrix = sweep_matrix(machine, inverse_temperature=scale, clamped=clamped)
    check_transitions(step, matrix, 5, repeats=2000)
    law = scale * enumerate_machine(machine).log_prob.detach()
    if clamped is not None:
        law[(all_states(5)[:, clamped] != torch.tensor([1.0, 0.0])).any(1)] = -torch.inf
    assert invariance_error(law.softmax(0), matrix) < 1e-12
    wrong = sweep_matrix(machine, inverse_temperature=1.3 * scale, clamped=clamped)
    with pytest.raises(AssertionError):  # planted fault: another temperature
        check_transitions(step, wrong, 5, repeats=2000)


def test_each_chain_has_its_own_mask_and_temperature():
    rbm, start = MACHINES["rbm"](), torch.tensor([[1.0, 0, 1, 0, 1]]).repeat(3, 1)
    masks = torch.stack([CLAMPED, torch.ones(5, dtype=torch.bool), ~CLAMPED])
    scale = torch.tensor([0.0, 1.0, 2.0])
    chains = BlockGibbs(rbm, 3, seed=1, start=start, clamped=masks, inverse_temperature=scale)
    single = BlockGibbs(rbm, 1, seed=1, start=start[:1], clamped=CLAMPED, inverse_temperature=0.0)
    assert torch.equal(chains.z, start)
    z = chains.step(5)
    assert torch.equal(z[1], start[1])
    assert torch.equal(z[masks], start[masks])
    assert torch.equal(z[:1], single.step(5))


def test_start_is_copied_and_a_resumed_run_goes_on():
    rbm, start = MACHINES["rbm"](), torch.ones(4, 5)
    chains = BlockGibbs(rbm, 4, seed=1, start=start, clamped=CLAMPED)
    start.zero_()
    assert bool((chains.step(3)[:, CLAMPED] == 1).all())
    resumed = BlockGibbs(rbm, 4, start=start, clamped=CLAMPED)
    resumed.load_state_dict(chains.state_dict())
    assert torch.equal(resumed.step(3), chains.step(3))


@pytest.mark.parametrize("num_units", [1, 8, 9, 128])
def test_packed_states_come_back_and_other_devices_pack_as_the_cpu_does(num_units):
    z = torch.randint(0, 2, (5, num_units), generator=torch.Generator().manual_seed(num_units)).float()
    packed = pack_bits(z)
    assert (packed.dtype, packed.shape) == (torch.uint8, (5, (num_units + 7) // 8))
    assert torch.equal(unpack_bits(packed, num_units), z)
    assert torch.equal(gibbs._pack_anywhere(z), packed)
    assert torch.equal(gibbs._unpack_anywhere(packed, num_units), z)


def test_bit_order_is_fixed():
    z = torch.zeros(1, 16)
    z[0, 1] = z[0, 15] = 1
    assert pack_bits(z).tolist() == [[2, 128]]


def test_blocks_of_machines_are_buffers_outside_the_state():
    for machine in (RBM(2, 3), randomize(GraphBoltzmann(5, "complete"))):
        assert len([name for name, _ in machine.named_buffers() if "block" in name]) == len(machine.blocks)
        assert set(machine.state_dict()) == {"weight", "bias"}
        twin = copy.deepcopy(machine)
        assert all(torch.equal(a, b) for a, b in zip(machine.blocks, twin.blocks, strict=True))
