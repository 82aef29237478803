"""What every sampler keeps to: states, copies, threads, its state as a module, and refusals that change nothing."""

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, ParallelTempering, TrajectoryTempering
from discrete_vae.config import (
    BlockGibbsConfig,
    DimodSamplerConfig,
    ParallelTemperingConfig,
    TrajectoryTemperingConfig,
    instantiate,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod import DimodSampler
from discrete_vae.samplers import TellsLogPartition, TellsMetrics, UsesSolver
from discrete_vae.samplers.gibbs import Sampler
from tests.log_partition.machines import random_rbm
from tests.refusals import refused_argument

SEED = 2**64 - 1
CONFIGS = {
    "block-gibbs": (BlockGibbsConfig, BlockGibbs),
    "parallel-tempering": (ParallelTemperingConfig, ParallelTempering),
    "trajectory-tempering": (TrajectoryTemperingConfig, TrajectoryTempering),
    "dimod": (DimodSamplerConfig, DimodSampler),
}


def make(kind, energy, seed=SEED):
    """Seven chains."""
    ladder = {"inverse_temperatures": [0.0, 0.3, 1.0]} if kind == "parallel-tempering" else {}
    return CONFIGS[kind][1](energy, 7, seed=seed, **ladder)


class Training(nn.Module):
    """What a user writes: a module with a machine and its chains."""

    def __init__(self, kind, seed=SEED):
        super().__init__()
        self.prior = random_rbm(5, 4, 0.5)
        self.chains = make(kind, self.prior, seed)


@pytest.fixture(params=CONFIGS)
def kind(request):
    if request.param == "dimod":
        pytest.importorskip("dwave.samplers", reason="dwave-samplers is not installed (extra dwave)")
    return request.param


def test_its_config_builds_it_with_the_abilities_that_it_has(kind):
    config, made = CONFIGS[kind]
    chains = instantiate(config(num_chains=3), energy=random_rbm(5, 4), seed=1)
    assert isinstance(chains, made)
    assert isinstance(chains, Sampler)
    assert chains.num_chains == 3
    assert isinstance(chains, TellsLogPartition) == (kind == "trajectory-tempering")
    assert isinstance(chains, TellsMetrics) == isinstance(chains, UsesSolver) == (kind == "dimod")
    assert "7 chains of 9 units after 0 sweeps" in repr(Training(kind))


@pytest.mark.parametrize("energy", [random_rbm(5, 4), FactorialBernoulli(3)], ids=["rbm", "factorial"])
def test_states_are_binary_copies_without_gradient(kind, energy):
    chains, twin = make(kind, energy), make(kind, energy)
    z = chains.step(2)
    assert (z.shape, z.dtype, z.requires_grad) == ((7, energy.num_units), torch.float32, False)
    assert set(z.unique().tolist()) <= {0.0, 1.0}
    chains.z.fill_(7)
    z.fill_(7)
    twin.step(2)
    assert torch.equal(chains.z, twin.z)
    assert torch.equal(chains.step(2), twin.step(2))


def test_chains_of_inference_mode_go_on_outside_of_it(kind):
    energy = random_rbm(5, 4)
    with torch.inference_mode():
        chains = make(kind, energy)
        chains.step(2)
    twin = make(kind, energy)
    twin.step(2)
    assert torch.equal(chains.step(2), twin.step(2))


def test_changed_weights_are_seen(kind):
    both = Training(kind)
    both.chains.step(1)
    for value in (100.0, -100.0):
        both.prior.bias = nn.Parameter(torch.full((9,), value))
        assert bool((both.chains.step(1) == (value > 0)).all())


def test_the_machine_is_there_once(kind):
    both = Training(kind)
    assert {name for name, _ in both.named_parameters()} == {"prior.weight", "prior.bias"}
    assert not any("weight" in name or "bias" in name for name in both.chains.state_dict())
    assert {name.split(".")[0] for name in both.state_dict()} == {"prior", "chains"}
    both.chains.energy = random_rbm(5, 4)  # another machine does not become a submodule either
    assert list(both.chains.parameters()) == []


def test_the_default_device_changes_nothing(kind):
    """All that samplers make lies where the machine lies; "meta" has no values to go on with."""
    energy, seen = random_rbm(5, 4, 2.0), []
    for device in ("cpu", "meta"):
        with torch.device(device):
            chains = CONFIGS[kind][1](energy, 200, seed=SEED)
            chains.step(30)  # a ladder of temperatures is tuned, one of snapshots grows
            again = CONFIGS[kind][1](energy, 200, seed=0)
            again.load_state_dict(chains.state_dict())
            seen.append(again.state_dict())
            if kind == "trajectory-tempering":
                seen[-1]["log_z"] = torch.tensor(chains.log_partition().value, device="cpu")
    for name, value in seen[0].items():
        assert torch.equal(value, seen[1][name])


def test_a_checkpoint_of_the_module_goes_on_bit_for_bit(kind):
    both, file = Training(kind), io.BytesIO()
    both.chains.step(3)
    state = both.state_dict()
    torch.save(state, file)
    before = {name: value.clone() for name, value in state.items()}
    expected = both.chains.step(5)
    assert all(torch.equal(value, state[name]) for name, value in before.items())  # it is a copy
    file.seek(0)
    resumed = Training(kind, seed=4)
    resumed.chains.step(1)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(resumed.chains.step(5), expected)
    assert (resumed.chains.seed, resumed.chains.sweep) == (SEED, 8)
    last, other = both.state_dict(), resumed.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in last.items())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_keep_machine_and_chains_tied(kind, copied):
    both = Training(kind)
    both.chains.step(2)
    twin, alone = copied(both), copied(both.chains)
    assert twin.chains.energy is twin.prior is not both.prior
    assert alone.energy is not both.prior
    expected = both.chains.step(4)
    assert torch.equal(twin.chains.step(4), expected)
    assert torch.equal(alone.step(4), expected)
    with torch.no_grad():
        twin.prior.bias.fill_(100.0)
    assert bool((twin.chains.step(1) == 1).all())
    assert not bool((both.chains.step(1) == 1).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_dtypes_of_the_module_leave_the_chains_as_they_are(kind, dtype):
    chains = Training(kind).chains
    chains.step(2)
    before = {name: value.clone() for name, value in chains.named_buffers()}
    chains.to(dtype)
    for name, value in chains.named_buffers():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])


def test_threads_that_step_one_sampler_lose_no_sweep(kind):
    alone, shared = Training(kind).chains, Training(kind).chains
    for _ in range(20):
        expected = alone.step(1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(shared.step, [1] * 20))
    assert shared.sweep == 20
    assert torch.equal(shared.z, expected)


@pytest.mark.parametrize("kind", ["block-gibbs", "parallel-tempering"])
def test_what_a_thread_reads_while_another_steps_are_states_between_steps(kind):
    alone, shared = Training(kind).chains, Training(kind).chains
    between = torch.stack([alone.z, *(alone.step(1) for _ in range(100))])
    with ThreadPoolExecutor(1) as pool:
        stepping, read = pool.submit(lambda: [shared.step(1) for _ in range(100)]), [shared.z]
        while not stepping.done():
            read.append(shared.z)
    assert all(bool((z == between).all((1, 2)).any()) for z in read)


@pytest.mark.parametrize("kind", ["block-gibbs", "parallel-tempering"])
def test_steps_can_be_divided_and_chains_do_not_depend_on_their_number(kind):
    rbm, ladder = random_rbm(5, 4), {} if kind == "block-gibbs" else {"inverse_temperatures": (0.0, 0.5, 1.0)}
    one, ten, few = (CONFIGS[kind][1](rbm, number, seed=SEED, **ladder) for number in (20, 20, 4))
    for _ in range(10):
        ten.step(3)
    assert torch.equal(one.step(30), ten.z)
    assert one.sweep == ten.sweep == 30
    assert torch.equal(few.step(30), one.z[:4])


def test_seeds_give_different_chains(kind):
    states = [make(kind, random_rbm(5, 4), seed).step(5) for seed in (0, 1, 2**63, SEED)]
    assert not any(torch.equal(states[a], states[b]) for a in range(4) for b in range(a))


WRONG = {
    "block-gibbs": [("z", torch.zeros(6, 2, dtype=torch.uint8))],
    "parallel-tempering": [
        ("order", torch.zeros(7, 3, dtype=torch.int64)),
        ("order", None),
        ("round_trips", torch.zeros(3, dtype=torch.int64)),
        ("swap_sum", torch.zeros(3)),
        ("swap_sum", torch.full((2,), torch.nan).double()),
        ("inverse_temperatures", torch.tensor([1.0, 0.0])),
        ("inverse_temperatures", torch.tensor([1.0, 0.5, 0.0]).double()),
        ("inverse_temperatures", "0, 1"),
        ("measured", torch.tensor(1.5)),
    ],
    "trajectory-tempering": [
        ("free", torch.zeros(7)),
        ("reservoir", torch.zeros(7, 2, dtype=torch.uint8)),
        ("reservoir_free", torch.full((70,), torch.nan).double()),
        ("numbers", torch.zeros(1).double()),
        ("numbers", torch.tensor([0.0, 0.5]).double()),
        ("rung_parameters_of", torch.zeros(1, 3)),
        ("rung_parameters_of", "snapshots"),
        ("rung_walkers", torch.zeros(2, 7, 2, dtype=torch.uint8)),
        ("rung_guess", torch.zeros(1).double()),
        ("rung_sweep", torch.tensor(-1)),
    ],
    "dimod": [("temperature", torch.tensor([torch.nan, 1.0]).double()), ("calls", torch.tensor(-1))],
}
WRONG_EVERYWHERE = [
    *(("z", wrong) for wrong in (None, torch.zeros(7, 1, dtype=torch.uint8), torch.zeros(7, 2))),
    *(("sweep", wrong) for wrong in (torch.tensor(-1), torch.tensor(1.5), torch.tensor([1]), 3)),
    ("num_units", torch.tensor(10)),
    ("seed", None),
]


def test_wrong_states_are_refused_by_entry_and_change_nothing(kind):
    both = Training(kind)
    both.chains.step(3)
    before = both.state_dict()
    cases = [*WRONG_EVERYWHERE, *WRONG[kind], *((name, ...) for name in both.chains.state_dict())]
    for name, wrong in cases:
        state = before | {f"chains.{name}": wrong}
        if wrong is ...:
            del state[f"chains.{name}"]
        with pytest.raises(InvalidInputError) as caught:
            both.load_state_dict(state)
        named = {f"state['chains.{name}']"} if wrong is not ... else {"state"}
        assert caught.value.argument in named | ({name} if name == "inverse_temperatures" else set())
        assert wrong is not ... or f"chains.{name}" in str(caught.value)
        after = both.state_dict()
        assert all(torch.equal(value, after[entry]) for entry, value in before.items())


def test_a_state_of_another_number_of_chains_says_what_to_do():
    state = BlockGibbs(RBM(3, 2), 3).state_dict()
    with pytest.raises(InvalidInputError) as caught:
        BlockGibbs(RBM(3, 2), 7).load_state_dict(state)
    assert "num_chains=3" in caught.value.repair


def test_a_checkpoint_without_chains_loads_where_that_is_asked_for(kind):
    both = Training(kind)
    weights = {name: value for name, value in both.state_dict().items() if name.startswith("prior")}
    assert "chains.z" in Training(kind).load_state_dict(weights, strict=False).missing_keys
    for state in (weights, both.state_dict() | {"chains.other": torch.ones(1)}):
        with pytest.raises(RuntimeError, match="chains"):
            both.load_state_dict(state)


def test_a_failed_step_changes_nothing(kind):
    both = Training(kind)
    before = both.chains.z
    with torch.no_grad():
        both.prior.weight[0, 0] = float("nan")
    calls = [lambda: both.chains.step(3)]
    calls += [both.chains.log_partition] if kind == "trajectory-tempering" else []
    for call in calls:
        assert refused_argument(call) == "energy.weight"
    assert torch.equal(both.chains.z, before)
    assert both.chains.sweep == 0


class WithOffset(FactorialBernoulli):
    def compute_energy(self, z):
        return super().compute_energy(z) + 1


LADDERS = ([], [0.5], [0, 0.5], [0, 0.6, 0.4, 1], [-0.1, 1], [0, 1, 1], [[0, 1]])
LADDERS += (object(), "text", [[0.0], [0.5, 1.0]], {"a": 1}, [None])
ONES, CLAMPED = torch.ones(4, 5), torch.tensor([True, False, False, True, False])


@pytest.mark.parametrize(
    ("kind", "arguments", "name"),
    [
        *(
            (kind, *case)
            for _, kind in CONFIGS.values()
            for case in (
                ({"energy": nn.Linear(2, 2)}, "energy"),
                ({"num_chains": 0}, "num_chains"),
                ({"seed": -1}, "seed"),
            )
        ),
        (BlockGibbs, {"start": torch.ones(3, 5)}, "start"),
        (BlockGibbs, {"start": torch.full((4, 5), 0.5)}, "start"),
        (BlockGibbs, {"first_chain": -1}, "first_chain"),
        (BlockGibbs, {"first_chain": 2**32 - 3}, "first_chain"),
        (BlockGibbs, {"clamped": CLAMPED}, "start"),
        (BlockGibbs, {"clamped": CLAMPED.float(), "start": ONES}, "clamped"),
        (BlockGibbs, {"clamped": CLAMPED[:4], "start": ONES}, "clamped"),
        (BlockGibbs, {"clamped": [True] * 5, "start": ONES}, "clamped"),
        *(
            (BlockGibbs, {"inverse_temperature": wrong}, "inverse_temperature")
            for wrong in (torch.nan, "cold", 1e7, torch.ones(3), torch.tensor([1.0, 1, 1, torch.inf]))
        ),
        *(
            (ParallelTempering, {"inverse_temperatures": ladder}, "inverse_temperatures")
            for ladder in LADDERS
        ),
        (TrajectoryTempering, {"energy": WithOffset(3)}, "energy"),
        (TrajectoryTempering, {"num_chains": 1}, "num_chains"),
        (TrajectoryTempering, {"sweeps_per_swap": 0}, "sweeps_per_swap"),
        (DimodSampler, {"num_gibbs_sweeps": -1}, "num_gibbs_sweeps"),
    ],
)
def test_wrong_arguments_are_named(kind, arguments, name):
    assert refused_argument(kind, **{"energy": RBM(3, 2), "num_chains": 4, **arguments}) == name
