import pytest
import torch

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli
from discrete_vae.config import BlockGibbsConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.gibbs import run_sweeps
from discrete_vae.samplers.gibbs import Sampler


def make_rbm(num_left: int = 5, num_right: int = 4) -> RBM:
    rbm = RBM(num_left, num_right)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        rbm.weight.normal_(0, 0.5, generator=generator)
        rbm.bias.normal_(0, 0.5, generator=generator)
    return rbm


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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"energy": torch.nn.Linear(2, 2)}, "energy"),
        ({"num_chains": 0}, "num_chains"),
        ({"num_chains": 2.0}, "num_chains"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_wrong_arguments_are_refused(arguments, name):
    with pytest.raises(InvalidInputError) as caught:
        BlockGibbs(**{"energy": make_rbm(), "num_chains": 2, "seed": 0, **arguments})
    assert caught.value.argument == name


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
