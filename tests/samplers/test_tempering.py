"""Parallel tempering: its law, exchanges, ladders, jumps between modes, state."""

import pytest
import torch
from scipy import special

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, ParallelTempering
from discrete_vae.config import ParallelTemperingConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import softplus_sum
from discrete_vae.samplers.gibbs import Sampler, pack_bits
from discrete_vae.samplers.modes import local_minima
from discrete_vae.samplers.tempering import (
    MAX_REPLICAS,
    ModeJumps,
    check_ladder,
    exchanged_order,
    retuned_ladder,
    start_ladder,
    swap_probabilities,
)
from discrete_vae.testing.enumeration import all_states, enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_frequencies
from tests.log_partition.machines import random_rbm, two_far_modes
from tests.oracles.replica_exchange import joint_law, joint_swap_matrix, joint_sweep_matrix
from tests.oracles.transitions import check_transitions, invariance_error, sweep_matrix


def make_rbm(left=5, right=4, scale=0.5):
    return random_rbm(left, right, scale)


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
    with pytest.raises(InvalidInputError, match=r"^retune\(\) "):
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
    with pytest.raises(InvalidInputError, match="^z "):
        chains.start_from(torch.ones(5, 9))


CASES = [
    (random_rbm(1, 1, 2.0), [0.0, 0.3, 0.6, 1.0]),
    (random_rbm(2, 1, 2.0), [0.0, 0.4, 1.0]),
    (random_rbm(2, 2, 2.0), [0.2, 1.0]),
    (random_rbm(3, 3, 2.0), [1.0]),
]


@pytest.mark.parametrize(
    ("rbm", "ladder"), CASES, ids=["4 replicas", "3 replicas", "2 replicas", "1 replica"]
)
@pytest.mark.parametrize("parity", [0, 1])
def test_sweeps_and_swaps_leave_the_joint_law_invariant(rbm, ladder, parity):
    ladder = torch.tensor(ladder, dtype=torch.float64)
    law = joint_law(rbm, ladder)
    assert float(law.sum()) == pytest.approx(1, abs=1e-12)
    swap = joint_swap_matrix(rbm, ladder, parity)
    torch.testing.assert_close(swap.sum(1), torch.ones(len(law), dtype=torch.float64))
    assert invariance_error(law, swap) < 1e-12
    assert invariance_error(law, joint_sweep_matrix(rbm, ladder) @ swap) < 1e-12


def test_swapping_with_free_energies_is_a_fault_that_is_caught():
    rbm, ladder = random_rbm(2, 1, 2.0), torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    fault = joint_swap_matrix(rbm, ladder, 0, lambda z: rbm.free_energy(z[:, :2]))
    assert invariance_error(joint_law(rbm, ladder), fault) > 1e-3


def test_probabilities_against_the_ratio_of_joint_laws():
    energies = torch.tensor([[3.0, 1.0, 2.5, -1.0]], dtype=torch.float64)
    ladder = torch.tensor([0.0, 0.2, 0.7, 1.0], dtype=torch.float64)
    got = swap_probabilities(energies, ladder)[0]
    for r in range(3):
        before = -(ladder[r] * energies[0, r] + ladder[r + 1] * energies[0, r + 1])
        after = -(ladder[r] * energies[0, r + 1] + ladder[r + 1] * energies[0, r])
        assert float(got[r]) == pytest.approx(min(1.0, float((after - before).exp())))


@pytest.mark.parametrize(("parity", "expected"), [(0, [1, 0, 3, 2, 4]), (1, [0, 2, 1, 4, 3])])
def test_each_parity_moves_its_own_pairs(parity, expected):
    order = torch.arange(5)[None]
    assert exchanged_order(order, torch.ones(1, 4, dtype=torch.bool), parity).tolist() == [expected]
    assert exchanged_order(order, torch.zeros(1, 4, dtype=torch.bool), parity).tolist() == order.tolist()


def normal_rates(ladder, deviation):
    """Rates between neighbors whose energies are normal with one deviation at all temperatures."""
    return torch.from_numpy(special.erfc((ladder.diff() * deviation / 2).numpy()))


@pytest.mark.parametrize("deviation", [2.0, 9.0, 40.0])
def test_normal_energies_get_rates_near_one_half_in_one_step(deviation):
    ladder = torch.tensor([0.0, 0.05, 0.1, 0.3, 0.4, 0.6, 0.65, 0.9, 1.0], dtype=torch.float64)
    ladder = retuned_ladder(ladder, normal_rates(ladder, deviation).clamp_min(1e-300))
    for _ in range(2):  # gaps too wide to be measured take another step
        ladder = retuned_ladder(ladder, normal_rates(ladder, deviation))
    rates = normal_rates(ladder, deviation)
    torch.testing.assert_close(rates, rates.mean().expand(len(rates)))
    assert len(ladder) == round(deviation / 0.9539) + 1
    assert float(rates[0]) == pytest.approx(0.5, abs=0.02 if deviation > 9 else 0.05)
    assert (float(ladder[0]), float(ladder[-1])) == (0.0, 1.0)


def test_rates_of_one_leave_two_replicas():
    assert retuned_ladder(start_ladder(), torch.ones(len(start_ladder()) - 1)).tolist() == [0.0, 1.0]


def test_the_number_of_replicas_is_bounded():
    ladder = torch.linspace(0, 1, 200, dtype=torch.float64)
    assert len(retuned_ladder(ladder, torch.zeros(199))) == MAX_REPLICAS


@pytest.mark.parametrize(
    "ladder",
    [
        *([], [0.5], [0, 0.5], [0, 0.6, 0.4, 1], [-0.1, 1], [0, 1, 1], [[0, 1]]),
        *(object(), "text", [[0.0], [0.5, 1.0]], {"a": 1}, [None]),
    ],
)
def test_ladders_that_do_not_rise_to_one_are_refused(ladder):
    with pytest.raises(InvalidInputError, match="^inverse_temperatures "):
        check_ladder(ladder)


def test_one_replica_is_a_ladder():
    assert check_ladder([1]).tolist() == [1.0]


MODES = torch.tensor([[0, 0, 0, 0, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 0]]).float()


def jump_matrix(rbm, masks, t, block, free_energy=None):
    """The exact matrix: flip outside the block, accept by free energies, draw the block given the others."""
    states = all_states(rbm.num_units)
    free = (free_energy or rbm.free_energy)(states, block, t).detach()
    matrix = torch.zeros(len(states), len(states), dtype=torch.float64)
    others = torch.ones(rbm.num_units, dtype=torch.bool)
    others[rbm.blocks[block]] = False
    here = torch.arange(len(states))
    for mask in masks:
        code = int(((mask & others).long() << torch.arange(rbm.num_units)).sum())
        accept = (free - free[here ^ code]).clamp(max=0).exp()
        matrix[here, here ^ code] += accept / len(masks)
        matrix[here, here] += (1 - accept) / len(masks)
    return matrix @ sweep_matrix(rbm, inverse_temperature=t, clamped=others)


@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("t", [1.0, 0.4])
def test_moves_follow_the_exact_matrix_which_leaves_p_invariant(block, t):
    rbm = random_rbm(3, 2, 1.5)
    jumps = ModeJumps(rbm, MODES, seed=3)
    matrix = jump_matrix(rbm, jumps.masks, t, block)
    law = (-t * rbm.energy(all_states(5)).detach()).softmax(0)
    assert invariance_error(law, matrix) < 1e-12
    check_transitions(
        lambda z: jumps(z, torch.full((len(z),), t), sweep=1, block=block)[0], matrix, 5, repeats=2000
    )


def test_accepting_by_the_free_energy_of_another_temperature_is_a_fault_that_is_caught():
    rbm = random_rbm(3, 2, 1.5)
    masks = ModeJumps(rbm, MODES).masks
    law = (-0.4 * rbm.energy(all_states(5)).detach()).softmax(0)
    fault = jump_matrix(rbm, masks, 0.4, 1, lambda z, block, t: 0.4 * rbm.free_energy(z, block))
    assert invariance_error(law, fault) > 1e-3


def test_replicas_cross_between_far_modes_at_once():
    rbm = two_far_modes()
    chains = ParallelTempering(rbm, 2000, [1.0], seed=0)
    chains.jumps = ModeJumps(rbm, local_minima(rbm, 4), seed=0)
    share = (chains.step(400).mean(1) > 0.5).double().mean()
    expected = torch.sigmoid(torch.tensor(4.0))
    assert abs(float(share) - float(expected)) < 5 * float((expected * (1 - expected) / 2000).sqrt())
    assert chains.jumped > 1000


def test_pairs_of_equal_states_give_no_masks():
    assert ModeJumps(RBM(2, 1), torch.ones(3, 3)).masks.shape == (0, 3)
    prior = FactorialBernoulli(2)
    z, accepted = ModeJumps(prior, torch.eye(2))(torch.zeros(4, 2), torch.ones(4), sweep=1, block=0)
    assert z.shape == (4, 2)
    assert not bool(accepted.any())  # all units are in the block that is drawn
    with pytest.raises(InvalidInputError, match="^modes "):
        ModeJumps(RBM(2, 1), torch.full((2, 3), 0.5))


@pytest.mark.parametrize("width", [1, 64, 65, 300])
def test_softplus_sum(width):
    x = 40 * torch.randn(5, width, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.softplus(x.double()).sum(-1)
    torch.testing.assert_close(softplus_sum(x).double(), expected, rtol=1e-5, atol=1e-4)
