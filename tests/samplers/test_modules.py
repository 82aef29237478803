"""Samplers as modules: a user's checkpoint, device, copy and pickle hold them, and the machine occurs once."""

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from discrete_vae import RBM, BlockGibbs, GraphBoltzmann, ParallelTempering, TrajectoryTempering
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod import DimodSampler
from tests.boltzmann.graphs import randomize
from tests.samplers.test_block_gibbs import make_rbm

KINDS = {
    "block-gibbs": lambda energy: BlockGibbs(energy, 7, seed=2**64 - 1),
    "parallel-tempering": lambda energy: ParallelTempering(energy, 7, [0.0, 0.3, 1.0], seed=2**64 - 1),
    "trajectory-tempering": lambda energy: TrajectoryTempering(energy, 7, seed=2**64 - 1),
    "dimod": lambda energy: DimodSampler(energy, 7, seed=2**64 - 1),
}


class Training(nn.Module):
    """What a user writes: a module with a machine and its chains."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.prior = make_rbm()
        self.chains = KINDS[kind](self.prior)


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param == "dimod":
        pytest.importorskip("dwave.samplers", reason="dwave-samplers is not installed (extra dwave)")
    return request.param


def test_the_machine_is_there_once(kind):
    both = Training(kind)
    assert {name for name, _ in both.named_parameters()} == {"prior.weight", "prior.bias"}
    assert list(both.chains.parameters()) == []
    assert {name.split(".")[0] for name in both.state_dict()} == {"prior", "chains"}
    assert not any("weight" in name or "bias" in name for name in both.chains.state_dict())
    both.chains.energy = make_rbm()  # another machine does not become a submodule either
    assert list(both.chains.parameters()) == []


def test_a_checkpoint_of_the_module_goes_on_bit_for_bit(kind):
    both, file = Training(kind), io.BytesIO()
    both.chains.step(3)
    torch.save(both.state_dict(), file)
    expected = both.chains.step(5)
    file.seek(0)
    resumed = Training(kind)
    resumed.chains.step(1)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(resumed.chains.step(5), expected)
    assert (resumed.chains.seed, resumed.chains.sweep) == (2**64 - 1, 8)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_keep_machine_and_chains_tied(kind, copied):
    both = Training(kind)
    both.chains.step(2)
    twin = copied(both)
    assert twin.chains.energy is twin.prior
    assert twin.prior is not both.prior
    assert torch.equal(twin.chains.step(4), both.chains.step(4))
    with torch.no_grad():
        twin.prior.bias.fill_(100.0)
    assert bool((twin.chains.step(1) == 1).all())
    assert not bool((both.chains.step(1) == 1).all())


def test_a_copy_of_the_chains_alone_has_its_own_machine(kind):
    chains = KINDS[kind](make_rbm())
    twin = copy.deepcopy(chains)
    assert twin.energy is not chains.energy
    assert torch.equal(twin.step(4), chains.step(4))


@pytest.mark.parametrize("change", [lambda m: m.half(), lambda m: m.double(), lambda m: m.to(torch.bfloat16)])
def test_other_dtypes_of_the_module_leave_the_chains_as_they_are(kind, change):
    chains = KINDS[kind](make_rbm())
    chains.step(2)
    before = {name: (value.dtype, value.clone()) for name, value in chains.named_buffers()}
    change(chains)
    for name, value in chains.named_buffers():
        assert value.dtype == before[name][0]
        assert torch.equal(value, before[name][1])


def test_errors_name_the_entry_within_the_module(kind):
    both = Training(kind)
    state = both.state_dict()
    for change, words in (
        ({"chains.sweep": torch.tensor(-1)}, r"state\['chains.sweep'\] must be at least 0"),
        ({"chains.z": torch.zeros(1)}, r"state\['chains.z'\] must"),
        ({"chains.num_units": torch.tensor(3)}, r"state\['chains.num_units'\] must be the energy's 9"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            Training(kind).load_state_dict(state | change)
    del state["chains.z"]
    with pytest.raises(InvalidInputError, match=r"none of \['chains.z'\]"):
        Training(kind).load_state_dict(state)


def test_a_checkpoint_without_chains_loads_where_that_is_asked_for(kind):
    both = Training(kind)
    weights = {name: value for name, value in both.state_dict().items() if name.startswith("prior")}
    missing = Training(kind).load_state_dict(weights, strict=False).missing_keys
    assert "chains.z" in missing
    with pytest.raises(RuntimeError, match="Missing key.*chains.z"):
        both.load_state_dict(weights)
    with pytest.raises(RuntimeError, match="Unexpected key.*chains.other"):
        both.load_state_dict(both.state_dict() | {"chains.other": torch.ones(1)})


def test_sizes_are_printed(kind):
    assert "7 chains of 9 units after 0 sweeps" in repr(Training(kind))


def test_blocks_of_machines_are_buffers_outside_the_state():
    for machine in (RBM(2, 3), randomize(GraphBoltzmann(5, "complete"))):
        assert len([name for name, _ in machine.named_buffers() if "block" in name]) == len(machine.blocks)
        assert set(machine.state_dict()) == {"weight", "bias"}
        twin = copy.deepcopy(machine)
        assert all(torch.equal(a, b) for a, b in zip(machine.blocks, twin.blocks, strict=True))


def test_threads_that_step_one_sampler_lose_no_sweep(kind):
    alone, shared = Training(kind).chains, Training(kind).chains
    for _ in range(40):
        expected = alone.step(1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(shared.step, [1] * 40))
    assert shared.sweep == 40
    assert torch.equal(shared.z, expected)
