"""Block Gibbs, packed states, and samplers as modules."""

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from discrete_vae import (
    RBM,
    BlockGibbs,
    FactorialBernoulli,
    GraphBoltzmann,
    ParallelTempering,
    TrajectoryTempering,
)
from discrete_vae.config import BlockGibbsConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod import DimodSampler
from discrete_vae.kernels.gibbs import run_sweeps
from discrete_vae.samplers import gibbs
from discrete_vae.samplers.gibbs import Sampler, pack_bits, unpack_bits
from discrete_vae.testing.enumeration import all_states, enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_frequencies
from tests.boltzmann.graphs import randomize
from tests.log_partition.machines import random_rbm
from tests.oracles.transitions import check_transitions, sweep_matrix


def make_rbm(left=5, right=4):
    return random_rbm(left, right, 0.5)


def test_satisfies_the_protocol_and_its_config_builds_it():
    chains = instantiate(BlockGibbsConfig(num_chains=3), energy=make_rbm())
    assert isinstance(chains, BlockGibbs)
    assert isinstance(chains, Sampler)
    assert chains.num_chains == 3


@pytest.mark.parametrize("energy", [make_rbm(), FactorialBernoulli(3)], ids=["rbm", "factorial"])
def test_states_are_binary_float32_without_gradient(energy):
    z = BlockGibbs(energy, 6, seed=1).step(2)
    assert z.shape == (6, energy.num_units)
    assert z.dtype == torch.float32
    assert not z.requires_grad
    assert set(z.unique().tolist()) <= {0.0, 1.0}


def test_step_and_z_return_copies():
    chains, twin = BlockGibbs(make_rbm(), 6, seed=1), BlockGibbs(make_rbm(), 6, seed=1)
    chains.z.fill_(7)
    chains.step(2).fill_(7)
    twin.step(2)
    assert torch.equal(chains.z, twin.z)
    assert torch.equal(chains.step(2), twin.step(2))


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_hundred_sweeps_in_one_step_or_in_ten(seed):
    one, ten = BlockGibbs(make_rbm(), 20, seed=seed), BlockGibbs(make_rbm(), 20, seed=seed)
    for _ in range(10):
        ten.step(10)
    assert torch.equal(one.step(100), ten.z)
    assert one.sweep == ten.sweep == 100


def test_seeds_give_different_chains():
    states = [BlockGibbs(make_rbm(), 20, seed=seed).step(5) for seed in (0, 1, 2, 2**63, 2**64 - 1)]
    pairs = [(a, b) for a in range(5) for b in range(a)]
    assert not any(torch.equal(states[a], states[b]) for a, b in pairs)


def test_the_first_chains_do_not_depend_on_how_many_there_are():
    few, many = BlockGibbs(make_rbm(), 3, seed=1), BlockGibbs(make_rbm(), 30, seed=1)
    assert torch.equal(few.z, many.z[:3])
    assert torch.equal(few.step(4), many.step(4)[:3])


def test_changed_weights_are_seen():
    rbm = make_rbm()
    chains = BlockGibbs(rbm, 50, seed=1)
    chains.step(1)
    with torch.no_grad():
        rbm.bias.fill_(100.0)
    assert bool((chains.step(1) == 1).all())
    rbm.bias = torch.nn.Parameter(torch.full((9,), -100.0))
    assert bool((chains.step(1) == 0).all())


def test_energy_gets_no_gradient_from_a_step():
    rbm = make_rbm()
    z = BlockGibbs(rbm, 5, seed=1).step(1)
    rbm.free_energy(z).sum().backward()
    assert rbm.weight.grad is not None


def test_state_round_trip():
    chains = BlockGibbs(make_rbm(), 7, seed=2**64 - 1)
    chains.step(3)
    state = chains.state_dict()
    assert {key: (value.dtype, value.ndim) for key, value in state.items()} == {
        "z": (torch.uint8, 2),
        "num_units": (torch.int64, 0),
        "sweep": (torch.int64, 0),
        "seed": (torch.int64, 0),
    }
    before = {key: value.clone() for key, value in state.items()}
    expected = chains.step(5)
    assert torch.equal(state["z"], before["z"])
    other = BlockGibbs(make_rbm(), 7, seed=4)
    other.load_state_dict(before)
    state["z"].zero_()
    assert torch.equal(other.step(5), expected)
    assert (other.seed, other.sweep) == (2**64 - 1, 8)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"z": None}, "state['z']"),
        ({"z": torch.zeros(6, 2, dtype=torch.uint8)}, "state['z']"),
        ({"z": torch.zeros(7, 1, dtype=torch.uint8)}, "state['z']"),
        ({"z": torch.zeros(7, 2)}, "state['z']"),
        ({"num_units": torch.tensor(10)}, "state['num_units']"),
        ({"sweep": torch.tensor(-1)}, "state['sweep']"),
        ({"sweep": torch.tensor(1.5)}, "state['sweep']"),
        ({"sweep": torch.tensor([1])}, "state['sweep']"),
        ({"sweep": 3}, "state['sweep']"),
        ({"seed": None}, "state['seed']"),
    ],
)
def test_wrong_states_are_refused_and_change_nothing(change, name):
    chains = BlockGibbs(make_rbm(), 7, seed=1)
    before, state = chains.state_dict(), chains.state_dict()
    with pytest.raises(InvalidInputError) as caught:
        chains.load_state_dict({**state, **change})
    assert caught.value.argument == name
    after = chains.state_dict()
    assert torch.equal(before["z"], after["z"])
    assert before["sweep"] == after["sweep"]


@pytest.mark.parametrize("key", ["z", "num_units", "sweep", "seed"])
def test_missing_entries_are_named(key):
    chains = BlockGibbs(make_rbm(), 7, seed=1)
    state = chains.state_dict()
    del state[key]
    with pytest.raises(InvalidInputError, match=key):
        chains.load_state_dict(state)


def test_state_of_another_number_of_chains_says_what_to_do():
    with pytest.raises(InvalidInputError, match="num_chains=3"):
        BlockGibbs(make_rbm(), 7, seed=1).load_state_dict(BlockGibbs(make_rbm(), 3, seed=1).state_dict())


def test_failed_step_changes_nothing():
    rbm = make_rbm()
    chains = BlockGibbs(rbm, 4, seed=1)
    before = chains.z
    with torch.no_grad():
        rbm.weight[0, 0] = float("nan")
    with pytest.raises(InvalidInputError, match=r"energy\.weight"):
        chains.step(3)
    assert torch.equal(chains.z, before)
    assert chains.sweep == 0


@pytest.mark.parametrize("clamped", [False, True])
def test_independent_units_take_one_sweep_and_end_where_all_would(monkeypatch, clamped):
    energy = FactorialBernoulli(9)
    with torch.no_grad():
        energy.bias.copy_(torch.linspace(-2, 2, 9))
    settings = {"start": torch.ones(6, 9), "clamped": torch.arange(9) < 3} if clamped else {}
    whole, single = (BlockGibbs(energy, 6, seed=4, **settings) for _ in range(2))
    asked = []

    def counted(machine, z, num_sweeps, **rest):
        asked.append(num_sweeps)
        return run_sweeps(machine, z, num_sweeps, **rest)

    before = run_sweeps(energy, whole.z, 30, key=whole._key, first_sweep=1, clamped=whole.clamped)
    monkeypatch.setattr("discrete_vae.samplers.gibbs.run_sweeps", counted)
    found = whole.step(30)
    assert asked == [1]
    assert torch.equal(found, before)
    for _ in range(30):
        last = single.step(1)
    assert torch.equal(found, last)
    assert whole.sweep == single.sweep == 30
    assert torch.equal(whole.step(2), single.step(2))


MACHINES = {
    "rbm": lambda: make_rbm(3, 2),
    "graph": lambda: randomize(GraphBoltzmann(5, "complete")),
    "factorial": lambda: randomize(FactorialBernoulli(5)),
}
CLAMPED = torch.tensor([True, False, False, True, False])


@pytest.fixture(params=MACHINES)
def machine(request):
    return MACHINES[request.param]()


@pytest.mark.parametrize("scale", [1.0, 0.4, 2.0])
@pytest.mark.parametrize("clamped", [None, CLAMPED], ids=["free", "clamped"])
def test_a_sweep_from_given_states_has_the_exact_matrix(machine, scale, clamped):
    def step(z):
        options = {"start": z, "clamped": clamped, "inverse_temperature": scale}
        return BlockGibbs(machine, len(z), seed=5, **options).step(1)

    matrix = sweep_matrix(machine, inverse_temperature=scale, clamped=clamped)
    check_transitions(step, matrix, 5, repeats=2000)
    wrong = sweep_matrix(machine, inverse_temperature=1.3 * scale, clamped=clamped)
    with pytest.raises(AssertionError):  # planted fault: another temperature
        check_transitions(step, wrong, 5, repeats=2000)


def test_clamped_chains_follow_the_conditional_and_tempered_ones_their_power():
    rbm = make_rbm(3, 2)
    states, scale = all_states(5), 0.5
    log_prob = scale * enumerate_machine(rbm).log_prob.detach()
    held = (states[:, CLAMPED] == torch.tensor([1.0, 0.0])).all(1)
    expected = torch.where(held, log_prob, -torch.inf).softmax(0)
    start = torch.tensor([1.0, 0, 0, 0, 0]).repeat(20_000, 1)
    chains = BlockGibbs(rbm, 20_000, seed=1, start=start, clamped=CLAMPED, inverse_temperature=scale)
    codes = (chains.step(40).long() << torch.arange(5)).sum(-1)
    counts = torch.bincount(codes, minlength=32)
    check_frequencies(counts, expected)
    with pytest.raises(AssertionError):  # planted fault: the law at t = 1
        check_frequencies(counts, torch.where(held, log_prob / scale, -torch.inf).softmax(0))


def test_each_chain_has_its_own_mask_and_temperature():
    rbm, start = make_rbm(3, 2), torch.tensor([[1.0, 0, 1, 0, 1]]).repeat(3, 1)
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
    rbm, start = make_rbm(3, 2), torch.ones(4, 5)
    chains = BlockGibbs(rbm, 4, seed=1, start=start, clamped=CLAMPED)
    start.zero_()
    assert bool((chains.step(3)[:, CLAMPED] == 1).all())
    resumed = BlockGibbs(rbm, 4, start=start, clamped=CLAMPED)
    resumed.load_state_dict(chains.state_dict())
    assert torch.equal(resumed.step(3), chains.step(3))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"energy": torch.nn.Linear(2, 2)}, "energy"),
        ({"num_chains": 0}, "num_chains"),
        ({"num_chains": 2.0}, "num_chains"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"start": torch.ones(3, 5)}, "start"),
        ({"start": torch.full((4, 5), 0.5)}, "start"),
        ({"start": "ones"}, "start"),
        ({"clamped": CLAMPED}, "start"),
        ({"clamped": CLAMPED.float(), "start": torch.ones(4, 5)}, "clamped"),
        ({"clamped": CLAMPED[:4], "start": torch.ones(4, 5)}, "clamped"),
        ({"clamped": [True] * 5, "start": torch.ones(4, 5)}, "clamped"),
        ({"inverse_temperature": float("nan")}, "inverse_temperature"),
        ({"inverse_temperature": "cold"}, "inverse_temperature"),
        ({"inverse_temperature": 1e7}, "inverse_temperature"),
        ({"inverse_temperature": torch.ones(3)}, "inverse_temperature"),
        ({"inverse_temperature": torch.tensor([1.0, 1, 1, torch.inf])}, "inverse_temperature"),
    ],
)
def test_wrong_arguments_are_refused(arguments, name):
    with pytest.raises(InvalidInputError) as caught:
        BlockGibbs(**{"energy": make_rbm(3, 2), "num_chains": 4, **arguments})
    assert caught.value.argument == name


@pytest.mark.parametrize("num_units", [1, 7, 8, 9, 61, 128])
def test_round_trip(num_units):
    z = torch.randint(0, 2, (5, num_units), generator=torch.Generator().manual_seed(num_units)).float()
    packed = pack_bits(z)
    assert packed.dtype == torch.uint8
    assert packed.shape == (5, (num_units + 7) // 8)
    assert torch.equal(unpack_bits(packed, num_units), z)


def test_bit_order_is_fixed():
    z = torch.zeros(1, 16)
    z[0, 1] = z[0, 15] = 1
    assert pack_bits(z).tolist() == [[2, 128]]


@pytest.mark.parametrize("num_units", [1, 7, 8, 9, 128])
def test_other_devices_pack_as_the_cpu_does(num_units):
    z = torch.randint(2, (5, num_units), generator=torch.Generator().manual_seed(0)).float()
    packed = gibbs._pack_anywhere(z)
    assert torch.equal(packed, gibbs.pack_bits(z))
    assert torch.equal(gibbs._unpack_anywhere(packed, num_units), z)
    assert torch.equal(gibbs.unpack_bits(packed, num_units), z)


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
    for name, wrong in (("sweep", torch.tensor(-1)), ("z", torch.zeros(1)), ("num_units", torch.tensor(3))):
        with pytest.raises(InvalidInputError, match=rf"^state\['chains.{name}'\] "):
            Training(kind).load_state_dict(state | {f"chains.{name}": wrong})
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
