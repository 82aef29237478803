"""Parallel tempering: its law, exchanges, ladders, jumps between modes, state."""

import pytest
import torch
from scipy import special

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, ParallelTempering
from discrete_vae.samplers.gibbs import pack_bits
from discrete_vae.samplers.tempering import (
    MAX_REPLICAS,
    ModeJumps,
    check_ladder,
    local_minima,
    retuned_ladder,
    start_ladder,
)
from discrete_vae.testing import all_states, check_frequencies
from tests.boltzmann.graphs import state_counts, with_parameters
from tests.log_partition.machines import random_rbm, two_far_modes, wide_and_deep_mode
from tests.oracles.replica_exchange import joint_law, joint_swap_matrix, joint_sweep_matrix
from tests.oracles.transitions import check_transitions, invariance_error, sweep_matrix
from tests.refusals import refused_argument


def with_replicas(rbm, ladder, replicas, seed=0):
    """A sampler whose replicas, (chain, replica, unit), start in given states."""
    chains = ParallelTempering(rbm, len(replicas), ladder, seed=seed)
    chains.load_state_dict(chains.state_dict() | {"z": pack_bits(replicas.flatten(0, 1))})
    return chains


@pytest.mark.parametrize("sweeps", [1, 2])
def test_transitions_against_the_exact_matrix_of_all_replicas(sweeps):
    rbm, ladder = random_rbm(2, 1, 2.0), torch.tensor([0.0, 1.0], dtype=torch.float64)

    def step(joint):
        chains = with_replicas(rbm, ladder, joint.view(len(joint), 2, 3))
        chains.step(sweeps)
        return chains.replicas.flatten(1)

    sweep = joint_sweep_matrix(rbm, ladder)
    rounds = [sweep @ joint_swap_matrix(rbm, ladder, parity) for parity in (1, 0)]  # the first sweep is odd
    matrix = rounds[0] if sweeps == 1 else rounds[0] @ rounds[1]
    check_transitions(step, matrix, 6, repeats=3000)


def test_states_follow_p_at_every_temperature():
    rbm, ladder = random_rbm(3, 2, 1.5), torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    chains = ParallelTempering(rbm, 20_000, ladder, seed=3)
    chains.step(60)
    energy = rbm.energy(all_states(5)).detach()
    for r, t in enumerate(ladder):
        check_frequencies(state_counts(chains.replicas[:, r]), (-t * energy).softmax(0))


def test_far_modes_get_their_weights_where_single_chains_stay_put():
    rbm = two_far_modes()
    alone = BlockGibbs(rbm, 500, seed=1).step(300).mean(1)
    tempered = ParallelTempering(rbm, 500, seed=1)
    tempered.step(300)
    draws = torch.stack([tempered.step(20).mean(1) for _ in range(20)])
    expected = float(torch.sigmoid(torch.tensor(4.0)))
    # chains correlate over 20 sweeps, so the error is taken over the 500 chains
    share = (draws > 0.5).float().mean(0)
    error = float(share.std()) / 500**0.5
    assert error < 0.01
    assert abs(float(share.mean()) - expected) < 5 * error
    assert abs(float((alone > 0.5).float().mean()) - expected) > 20 * error


@pytest.mark.parametrize("energy", [random_rbm(30, 12, 1.0), two_far_modes()])
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


def test_the_ladder_follows_weights_that_grow_while_memory_lasts(monkeypatch):
    rbm = RBM(12, 12)
    chains = ParallelTempering(rbm, 100, seed=0)
    chains.step(60)
    assert chains.num_replicas == 2  # no couplings: all temperatures are alike
    with torch.no_grad():
        rbm.weight.normal_(0, 2.0, generator=torch.Generator().manual_seed(0))
    with monkeypatch.context() as little:
        little.setattr("discrete_vae.system.available_memory", lambda: 16 * 5 * 100 * 24)  # five replicas
        assert refused_argument(chains.step, 200) == "num_chains"
    chains.step(200)
    assert chains.num_replicas > 5


def test_one_replica_is_block_gibbs():
    rbm = random_rbm(5, 4, 0.5)
    tempered, plain = ParallelTempering(rbm, 6, [1.0], seed=4), BlockGibbs(rbm, 6, seed=4)
    assert torch.equal(tempered.step(5), plain.step(5))


def test_a_state_before_and_after_tuning_goes_on_bit_for_bit():
    rbm = random_rbm(5, 4, 2.0)
    chains, other = (ParallelTempering(rbm, 100, seed=seed) for seed in (2**64 - 1, 4))
    for num_sweeps in (3, 87):
        chains.step(num_sweeps)
        other.load_state_dict(chains.state_dict())
        assert torch.equal(chains.step(30), other.step(30))
        assert torch.equal(chains.swap_rates, other.swap_rates)
        assert torch.equal(chains.inverse_temperatures, other.inverse_temperatures)


def test_retuning_needs_rates_that_one_replica_has_not():
    chains = ParallelTempering(random_rbm(5, 4, 0.5), 4, [1.0], seed=1)
    assert refused_argument(chains.retune) == "retune()"
    chains.step(2)
    assert not chains.retune()
    assert chains.inverse_temperatures.tolist() == check_ladder([1]).tolist() == [1.0]


def test_chains_start_from_given_states():
    chains = ParallelTempering(random_rbm(5, 4, 0.5), 4, [0.5, 1.0], seed=1)
    before = chains.replicas
    chains.start_from(torch.ones(2, 9, requires_grad=True))
    assert not chains.z.requires_grad
    assert bool((chains.replicas[:2] == 1).all())
    assert torch.equal(chains.replicas[2:], before[2:])
    assert refused_argument(chains.start_from, torch.ones(5, 9)) == "z"


def test_states_from_outside_have_no_trip_behind_them():
    chains = ParallelTempering(random_rbm(5, 4, 0.5), 200, [0.9, 1.0], seed=1)
    chains.step(20)
    before = chains.round_trips
    assert bool((before > 0).any())
    chains.start_from(torch.ones(200, 9))
    chains.step(3)  # fewer than there and back take
    assert torch.equal(chains.round_trips, before)


@pytest.mark.parametrize(("sizes", "ladder"), [((1, 1), [0.0, 0.3, 0.6, 1.0]), ((2, 1), [0.0, 0.4, 1.0])])
@pytest.mark.parametrize("parity", [0, 1])
def test_sweeps_and_swaps_leave_the_joint_law_invariant(sizes, ladder, parity):
    rbm, ladder = random_rbm(*sizes, 2.0), torch.tensor(ladder, dtype=torch.float64)
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


def test_the_number_of_replicas_is_bounded():
    start = start_ladder()
    assert retuned_ladder(start, torch.ones(len(start) - 1)).tolist() == [0.0, 1.0]
    ladder = torch.linspace(0, 1, 200, dtype=torch.float64)
    assert len(retuned_ladder(ladder, torch.zeros(199))) == MAX_REPLICAS


def test_minima_cannot_go_lower_and_come_in_order():
    rbm = random_rbm(7, 6, 2.0)
    z = local_minima(rbm, 20)
    energies = rbm.energy(z).detach()
    for unit in range(13):
        flipped = z.clone()
        flipped[:, unit] = 1 - flipped[:, unit]
        assert bool((rbm.energy(flipped) >= energies - 1e-6).all())
    assert bool((energies[: len(z.unique(dim=0))].diff() >= 0).all())
    for rbm in (two_far_modes(), two_far_modes(20, 4.0)):
        assert local_minima(rbm, 2).mean(1).tolist() == [1.0, 0.0]
    deep = local_minima(wide_and_deep_mode(10, 16, 2.0, 14.0), 1)[0]
    assert deep.tolist() == [1.0] * 20 + [0.0] * 16
    prior = with_parameters(FactorialBernoulli(3), bias=[1.0, -1.0, 2.0])
    assert local_minima(prior, 3).tolist() == [[1.0, 0.0, 1.0]] * 3  # the only one
    assert local_minima(RBM(2, 2), 5).shape == (5, 4)


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


@pytest.mark.parametrize(("t", "block"), [(1.0, 0), (0.4, 1)])
def test_moves_follow_the_exact_matrix_which_leaves_p_invariant(block, t):
    rbm = random_rbm(3, 2, 1.5)
    jumps = ModeJumps(rbm, MODES, seed=3)
    matrix = jump_matrix(rbm, jumps.masks, t, block)
    law = (-t * rbm.energy(all_states(5)).detach()).softmax(0)
    assert invariance_error(law, matrix) < 1e-12
    check_transitions(
        lambda z: jumps(z, torch.full((len(z),), t), sweep=1, block=block)[0], matrix, 5, repeats=2000
    )
    # planted: accepting by the free energy of temperature 1
    fault = jump_matrix(rbm, jumps.masks, t, block, lambda z, block, t: t * rbm.free_energy(z, block))
    assert (invariance_error(law, fault) > 1e-3) == (t != 1)


def test_replicas_cross_between_far_modes_at_once():
    rbm = two_far_modes()
    chains = ParallelTempering(rbm, 2000, [1.0], seed=0)
    chains.jumps = ModeJumps(rbm, local_minima(rbm, 4), seed=0)
    share = (chains.step(50).mean(1) > 0.5).double().mean()
    expected = torch.sigmoid(torch.tensor(4.0))
    assert abs(float(share) - float(expected)) < 5 * float((expected * (1 - expected) / 2000).sqrt())
    assert chains.jumped > 1000


def test_pairs_of_equal_states_give_no_masks():
    assert ModeJumps(RBM(2, 1), torch.ones(3, 3)).masks.shape == (0, 3)
    prior = FactorialBernoulli(2)
    z, accepted = ModeJumps(prior, torch.eye(2))(torch.zeros(4, 2), torch.ones(4), sweep=1, block=0)
    assert z.shape == (4, 2)
    assert not bool(accepted.any())  # all units are in the block that is drawn
    assert refused_argument(ModeJumps, RBM(2, 1), torch.full((2, 3), 0.5)) == "modes"


def test_jumps_among_a_single_minimum_change_nothing():
    rbm = with_parameters(RBM(2, 2), bias=1.0)
    chains, plain = (ParallelTempering(rbm, 5, [0.5, 1.0], seed=0) for _ in range(2))
    chains.jumps = ModeJumps(rbm, local_minima(rbm, 4))
    assert torch.equal(chains.step(8), plain.step(8))
    assert int(chains.jumped) == 0
