"""Parallel tempering: its law against exact matrices and enumeration, its tuning, its state."""

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, ParallelTempering
from discrete_vae.config import ParallelTemperingConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.gibbs import Sampler, pack_bits
from discrete_vae.testing.enumeration import all_states, enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_frequencies
from tests.log_partition.machines import two_far_modes
from tests.oracles.replica_exchange import joint_swap_matrix, joint_sweep_matrix
from tests.oracles.transitions import check_transitions


def make_rbm(left=5, right=4, scale=0.5):
    rbm = RBM(left, right)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        rbm.weight.normal_(0, scale, generator=generator)
        rbm.bias.normal_(0, scale, generator=generator)
    return rbm


def with_replicas(rbm, ladder, replicas, seed=0):
    """A sampler whose replicas, (chain, replica, unit), start in given states."""
    chains = ParallelTempering(rbm, len(replicas), ladder, seed=seed)
    chains.load_state_dict(chains.state_dict() | {"z": pack_bits(replicas.flatten(0, 1))})
    return chains


@pytest.mark.parametrize("sweeps", [1, 2])
def test_transitions_against_the_exact_matrix_of_all_replicas(sweeps):
    rbm, ladder = make_rbm(2, 1, 2.0), torch.tensor([0.0, 1.0], dtype=torch.float64)

    def step(joint):
        chains = with_replicas(rbm, ladder, joint.view(len(joint), 2, 3))
        chains.step(sweeps)
        return chains.replicas.flatten(1)

    sweep = joint_sweep_matrix(rbm, ladder)
    rounds = [sweep @ joint_swap_matrix(rbm, ladder, parity) for parity in (1, 0)]  # the first sweep is odd
    matrix = rounds[0] if sweeps == 1 else rounds[0] @ rounds[1]
    check_transitions(step, matrix, 6, repeats=3000)


def test_states_follow_p_at_every_temperature():
    rbm, ladder = make_rbm(3, 2, 1.5), torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    chains = ParallelTempering(rbm, 20_000, ladder, seed=3)
    chains.step(60)
    energy = rbm.energy(all_states(5)).detach()
    codes = (chains.replicas.long() << torch.arange(5)).sum(-1)
    for r, t in enumerate(ladder):
        check_frequencies(torch.bincount(codes[:, r], minlength=32), (-t * energy).softmax(0))


def test_far_modes_get_their_weights_where_single_chains_stay_put():
    rbm = two_far_modes()
    alone = BlockGibbs(rbm, 500, seed=1).step(500).mean(1)
    tempered = ParallelTempering(rbm, 500, seed=1)
    tempered.step(1000)
    draws = torch.stack([tempered.step(20).mean(1) for _ in range(20)])
    expected = torch.sigmoid(torch.tensor(4.0))
    # chains correlate over 20 sweeps, so the error is taken over the 500 chains
    share = (draws > 0.5).float().mean(0)
    error = float(share.std()) / 500**0.5
    assert error < 0.01
    assert abs(float(share.mean()) - float(expected)) < 5 * error
    assert abs(float((alone > 0.5).float().mean()) - float(expected)) > 20 * error


@pytest.mark.parametrize("energy", [make_rbm(14, 14, 1.0), make_rbm(30, 12, 1.0), two_far_modes()])
def test_tuning_brings_all_rates_near_one_half(energy):
    chains = ParallelTempering(energy, 100, seed=0)
    chains.step(400)
    chains.adapting = False
    ladder = chains.inverse_temperatures.clone()
    chains.reset_statistics()
    chains.step(100)
    assert torch.equal(chains.inverse_temperatures, ladder)
    assert (float(ladder[0]), float(ladder[-1])) == (0.0, 1.0)
    assert 0.35 < float(chains.swap_rates.min()) <= float(chains.swap_rates.max()) < 0.65
    assert float(chains.round_trips.double().mean()) > 0.5


def test_the_ladder_follows_weights_that_grow():
    rbm = RBM(12, 12)
    chains = ParallelTempering(rbm, 100, seed=0)
    chains.step(60)
    assert chains.num_replicas == 2  # no couplings: all temperatures are alike
    with torch.no_grad():
        rbm.weight.normal_(0, 2.0, generator=torch.Generator().manual_seed(0))
    chains.step(200)
    assert chains.num_replicas > 5


def test_satisfies_the_protocol_and_its_config_builds_it():
    chains = instantiate(ParallelTemperingConfig(num_chains=3), energy=make_rbm())
    assert isinstance(chains, ParallelTempering)
    assert isinstance(chains, Sampler)
    assert (chains.num_chains, chains.adapting) == (3, True)
    fixed = instantiate(ParallelTemperingConfig(inverse_temperatures=(0.5, 1.0)), energy=make_rbm())
    assert (fixed.num_replicas, fixed.adapting) == (2, False)


@pytest.mark.parametrize("energy", [make_rbm(), FactorialBernoulli(3)], ids=["rbm", "factorial"])
def test_states_are_binary_float32_without_gradient(energy):
    z = ParallelTempering(energy, 6, seed=1).step(2)
    assert (z.shape, z.dtype, z.requires_grad) == ((6, energy.num_units), torch.float32, False)
    assert set(z.unique().tolist()) <= {0.0, 1.0}


def test_one_replica_is_block_gibbs():
    tempered, plain = ParallelTempering(make_rbm(), 6, [1.0], seed=4), BlockGibbs(make_rbm(), 6, seed=4)
    assert torch.equal(tempered.step(5), plain.step(5))


def test_steps_can_be_divided_and_chains_do_not_depend_on_their_number():
    ladder = (0.0, 0.5, 1.0)
    one, ten = (ParallelTempering(make_rbm(), 20, ladder, seed=2) for _ in range(2))
    for _ in range(10):
        ten.step(3)
    assert torch.equal(one.step(30), ten.z)
    assert torch.equal(one.swap_rates, ten.swap_rates)
    few = ParallelTempering(make_rbm(), 4, ladder, seed=2)
    assert torch.equal(few.step(30), one.z[:4])


def test_copies_are_given():
    chains = ParallelTempering(make_rbm(), 6, [0.0, 1.0], seed=1)
    chains.z.fill_(7)
    chains.replicas.fill_(7)
    chains.step(2).fill_(7)
    assert set(chains.z.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("num_sweeps", [3, 90])
def test_state_round_trip(num_sweeps):
    """Before and after the ladder has been tuned."""
    chains = ParallelTempering(make_rbm(scale=2.0), 100, seed=2**64 - 1)
    chains.step(num_sweeps)
    state = chains.state_dict()
    other = ParallelTempering(make_rbm(scale=2.0), 100, seed=4)
    other.load_state_dict(state)
    assert torch.equal(chains.step(50), other.step(50))
    first, second = chains.state_dict(), other.state_dict()
    for name, value in first.items():
        assert torch.equal(value, second[name]) if torch.is_tensor(value) else value == second[name]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"z": torch.zeros(7, 2, dtype=torch.uint8)}, "state['z']"),
        ({"order": torch.zeros(7, 2, dtype=torch.int64)}, "state['order']"),
        ({"order": None}, "state['order']"),
        ({"round_trips": torch.zeros(3, dtype=torch.int64)}, "state['round_trips']"),
        ({"swap_sum": torch.zeros(3)}, "state['swap_sum']"),
        ({"inverse_temperatures": torch.tensor([1.0, 0.0])}, "state['inverse_temperatures']"),
        ({"inverse_temperatures": torch.tensor([1.0, 0.0]).double()}, "inverse_temperatures"),
        ({"inverse_temperatures": "0, 1"}, "state['inverse_temperatures']"),
        ({"num_units": torch.tensor(10)}, "state['num_units']"),
        ({"sweep": torch.tensor(-1)}, "state['sweep']"),
        ({"measured": torch.tensor(1.5)}, "state['measured']"),
        ({"seed": 1}, "state['seed']"),
    ],
)
def test_wrong_states_are_refused_and_change_nothing(change, name):
    chains = ParallelTempering(make_rbm(), 7, [0.0, 1.0], seed=1)
    chains.step(3)
    before = chains.state_dict()
    with pytest.raises(InvalidInputError) as caught:
        chains.load_state_dict(chains.state_dict() | change)
    assert caught.value.argument == name
    assert torch.equal(before["z"], chains.state_dict()["z"])
    assert chains.seed == 1
    del before["order"]
    with pytest.raises(InvalidInputError, match=r"none of \['order'\]"):
        chains.load_state_dict(before)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"energy": torch.nn.Linear(2, 2)}, "energy"),
        ({"num_chains": 0}, "num_chains"),
        ({"seed": -1}, "seed"),
        ({"inverse_temperatures": [0.0, 0.5]}, "inverse_temperatures"),
    ],
)
def test_wrong_arguments_are_refused(arguments, name):
    with pytest.raises(InvalidInputError) as caught:
        ParallelTempering(**{"energy": make_rbm(), "num_chains": 2, "seed": 0, **arguments})
    assert caught.value.argument == name


def test_a_single_replica_has_nothing_to_retune():
    chains = ParallelTempering(make_rbm(), 4, inverse_temperatures=[1.0], seed=1)
    chains.step(2)
    assert not chains.retune()
    assert chains.inverse_temperatures.tolist() == [1.0]


def test_a_failed_step_and_a_retune_without_a_measurement():
    rbm = make_rbm()
    chains = ParallelTempering(rbm, 4, seed=1)
    with pytest.raises(InvalidInputError, match="needs measured exchange rates"):
        chains.retune()
    before = chains.z
    with torch.no_grad():
        rbm.weight[0, 0] = float("nan")
    with pytest.raises(InvalidInputError, match=r"energy\.weight"):
        chains.step(3)
    assert torch.equal(chains.z, before)
    assert chains.sweep == 0


def test_the_weight_of_the_far_mode_is_known():
    """The machine of the tests above, by enumeration of a small one of its kind."""
    machine = enumerate_machine(two_far_modes(4, 4.0))
    on = machine.prob[(machine.states.mean(1) > 0.5)].sum().item()
    assert on == pytest.approx(torch.sigmoid(torch.tensor(0.8)).item(), abs=0.01)


def test_chains_start_from_given_states():
    chains = ParallelTempering(make_rbm(), 4, [0.5, 1.0], seed=1)
    before = chains.replicas
    chains.start_from(torch.ones(2, 9))
    assert bool((chains.replicas[:2] == 1).all())
    assert torch.equal(chains.replicas[2:], before[2:])
    with pytest.raises(InvalidInputError, match="z must have at most 4 rows; received 5"):
        chains.start_from(torch.ones(5, 9))
