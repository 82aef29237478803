"""Trajectory tempering: its law against exact matrices and enumeration, its log Z, its state, planted faults."""

import math

import pytest
import torch
from scipy import special

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, GraphBoltzmann
from discrete_vae.log_partition.estimate import exact_log_partition
from discrete_vae.samplers import trajectory
from discrete_vae.samplers.gibbs import pack_bits
from discrete_vae.samplers.tempering import exchange_probabilities, reduced_energy
from discrete_vae.samplers.trajectory import TrajectoryTempering, TrajectoryWarning
from discrete_vae.testing import all_states, enumerate_machine
from discrete_vae.testing.reference import ALPHA, check_frequencies
from tests.boltzmann.graphs import randomize, state_counts
from tests.log_partition.machines import random_rbm, two_far_modes
from tests.oracles.transitions import check_transitions, invariance_error, sweep_matrix
from tests.refusals import refused_argument


def set_to_(machine, other, share=1.0):
    with torch.no_grad():
        for parameter, value in zip(machine.parameters(), other.parameters(), strict=True):
            parameter.copy_(share * value)


def grown(goal, num_chains, *, seed=0, steps=40, sweeps=10):
    """Chains of a machine that grows from nothing to a goal along a line."""
    machine = type(goal)(goal.num_left, goal.num_right)
    chains = TrajectoryTempering(machine, num_chains, seed=seed)
    for number in range(steps):
        set_to_(machine, goal, (number + 1) / steps)
        chains.step(sweeps)
    return chains


def renewal_matrix(now, last, probabilities=exchange_probabilities, block_of=None):
    """From a state x of now to the next one, over members y of an exact reservoir of last; exact."""
    states = all_states(now.num_units)
    free = reduced_energy if block_of is None else (lambda m, z: m.free_energy(z, block_of))
    work = (free(now, states) - free(last, states)).detach()
    accepted = probabilities(work[:, None], work[None])
    weighted = accepted * enumerate_machine(last).prob.detach()
    sweep = sweep_matrix(now)
    return weighted @ sweep + (1 - weighted.sum(1, keepdim=True)) * sweep


MACHINES = {
    "3 + 3": (random_rbm(3, 3, 1.5, seed=1), random_rbm(3, 3, 1.0, seed=2)),
    "2 + 1": (random_rbm(2, 1, 2.0, seed=3), RBM(2, 1)),
    "graph": (randomize(GraphBoltzmann(5, "complete")), GraphBoltzmann(5, "complete")),
    "factorial": (randomize(FactorialBernoulli(4)), FactorialBernoulli(4)),
}


@pytest.mark.parametrize("pair", MACHINES.values(), ids=MACHINES)
def test_a_renewal_and_a_sweep_leave_the_present_law_invariant(pair):
    now, last = (machine.double() for machine in pair)
    assert invariance_error(enumerate_machine(now).prob, renewal_matrix(now, last)) < 1e-12


def test_the_wrong_sign_and_the_wrong_side_are_faults_that_are_caught():
    now, last = (machine.double() for machine in MACHINES["3 + 3"])
    law = enumerate_machine(now).prob
    wrong_sign = renewal_matrix(now, last, lambda here, there: exchange_probabilities(there, here))
    assert invariance_error(law, wrong_sign) > 1e-3
    second = renewal_matrix(now, last, block_of=1)  # not the one that is drawn first
    assert invariance_error(law, second) > 1e-3


@pytest.mark.parametrize("sizes", [(2, 1), (2, 2)])
def test_an_exchange_of_replicas_and_sweeps_leave_the_joint_law_invariant(sizes):
    upper, lower = (random_rbm(*sizes, 1.5, seed=seed).double() for seed in (4, 5))
    states = all_states(upper.num_units)
    count = len(states)
    work = (reduced_energy(upper, states) - reduced_energy(lower, states)).detach()
    accepted = exchange_probabilities(work[:, None], work[None]).flatten()  # (upper's, lower's)
    swapped = torch.arange(count**2).view(count, count).T.flatten()
    swap = torch.diag(1 - accepted)
    swap[torch.arange(count**2), swapped] += accepted
    law = torch.kron(enumerate_machine(upper).prob.detach(), enumerate_machine(lower).prob.detach())
    sweeps = torch.kron(sweep_matrix(upper), sweep_matrix(lower))
    assert invariance_error(law, swap @ sweeps) < 1e-12


def renewed(machine, z, num_sweeps=1):
    """Steps of a sampler whose chains start in given states, with a reservoir of fair coins."""
    chains = TrajectoryTempering(machine, len(z), seed=7, sweeps_per_swap=1)
    free = reduced_energy(machine, z).detach()
    chains.load_state_dict(chains.state_dict() | {"z": pack_bits(z), "free": free})
    assert chains.num_rungs == 1
    return chains.step(num_sweeps)


def test_transitions_of_the_sampler_against_the_exact_matrix(monkeypatch):
    machine = random_rbm(2, 2, 1.5, seed=1)
    matrix = renewal_matrix(machine, RBM(2, 2))
    check_transitions(lambda z: renewed(machine, z), matrix, 4, repeats=4000)
    check_transitions(lambda z: renewed(machine, z, 2), matrix @ matrix, 4, repeats=4000)
    turned = lambda here, there: exchange_probabilities(there, here)  # noqa: E731
    monkeypatch.setattr(trajectory, "exchange_probabilities", turned)
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(lambda z: renewed(machine, z), matrix, 4, repeats=4000)


def test_states_follow_p_while_the_weights_change():
    goal = random_rbm(3, 3, 4.0, seed=3)
    chains = grown(goal, 5000)
    assert chains.num_rungs > 1
    for share in (1.0, 0.9, 1.1):
        set_to_(chains.energy, goal, share)
        z = chains.step(20)
        counts = state_counts(z)
        check_frequencies(counts, enumerate_machine(chains.energy).prob.detach())


def z_scores(num_runs=8):
    """Deviations of log Z in standard errors, for machines that grow along a path, one per seed."""
    scores, sizes = [], []
    for seed in range(num_runs):
        chains = grown(random_rbm(6, 5, 1.5, seed=seed), 100, seed=seed, steps=25)
        found = chains.log_partition()
        scores.append((found.value - exact_log_partition(chains.energy).value) / found.std_error)
        sizes.append(chains.num_rungs)
    return torch.tensor(scores), sizes


def covers(scores):
    """Whether deviations are within their errors, which are known to a tenth; false alarms at a rate of 1e-6."""
    return float((scores / 1.1).square().sum()) < float(special.chdtri(len(scores), ALPHA))


def test_log_z_is_within_its_error_of_enumeration():
    scores, sizes = z_scores()
    assert max(sizes) > 1
    assert covers(scores), scores
    assert abs(float(scores.mean())) * math.sqrt(len(scores)) < 1.1 * -float(special.ndtri(ALPHA / 2))


@pytest.mark.slow
def test_the_stated_error_of_log_z_is_the_spread_over_seeds():
    """Errors of gaps that share replicas add, not their squares: a seventh more here."""
    goal, scores = random_rbm(6, 5, 2.0, seed=1), []
    answer = exact_log_partition(goal).value
    for seed in range(200):
        found = grown(goal, 100, seed=seed, steps=10, sweeps=5).log_partition()
        scores.append((found.value - answer) / found.std_error)
    assert 0.88 < float(torch.tensor(scores).std()) < 1.07  # known to a twentieth


@pytest.mark.parametrize("fault", ["chains", "snapshots"])
def test_bennett_s_ratio_the_wrong_way_round_is_a_fault_that_is_caught(monkeypatch, fault):
    name = {"chains": "weighted_ratio", "snapshots": "solve_gaps"}[fault]
    right = getattr(trajectory, name)

    def turned(*arguments, **options):
        value, *rest = right(*arguments, **options)
        return -value, *rest

    monkeypatch.setattr(trajectory, name, turned)
    assert not covers(z_scores(4)[0])


def two_modes_that_change(monkeypatch, trade=False):
    """Modes that sweeps do not cross between go from shares of 0.1 and 0.9 to 0.4 and 0.6, and stay there.

    Chains lag behind a machine that moves; in the last steps, where it stands still, they catch up.

    Returns the deviation of log Z in standard errors, and the share of the first mode in the chains.
    """
    chains = grown(modes_of_odds(1 / 9), 4000, steps=30, sweeps=5)
    with monkeypatch.context() as patch:
        patch.setattr(trajectory, "LOW_RATE", 2.0)  # freezes at once
        chains.log_partition()
    if trade:
        make_traded(chains)
    for step in range(1, 41):
        set_to_(chains.energy, modes_of_odds(6 ** min(step / 20, 1) / 9))
        z = chains.step(5)
    found = chains.log_partition()
    deviation = found.value - exact_log_partition(chains.energy).value
    return deviation / found.std_error, float((z.mean(1) > 0.5).float().mean()), chains


def modes_of_odds(odds):
    return two_far_modes(12, 2.0, excess=math.log(odds) / 24)


def make_traded(chains):
    """A fault: members of the reservoir are traded away, so that modes keep their numbers."""

    def go_on(z, pairs):
        after, kept = TrajectoryTempering._go_on(chains, z, pairs), chains.reservoir
        taken = (after != z).any(1)
        kept.packed[pairs.slots] = torch.where(taken[:, None], pack_bits(z), kept.packed[pairs.slots])
        free = kept.free[pairs.slots]
        kept.free[pairs.slots] = torch.where(taken, pairs.free - pairs.work_here, free)
        return after

    chains._go_on = go_on


def test_modes_change_their_shares_where_plain_chains_stay_put(monkeypatch):
    score, share, chains = two_modes_that_change(monkeypatch)
    assert abs(score) < 5
    assert abs(share - 0.4) < 5 * math.sqrt(0.25 / 2000)  # chains that have the same ancestor count once
    plain = BlockGibbs(modes_of_odds(6 / 9), 1000, start=torch.zeros(1000, 24))
    assert float(plain.step(500).mean()) < 0.1
    assert chains.num_rungs > 2


def test_a_reservoir_that_is_traded_and_not_renewed_is_a_fault_that_is_caught(monkeypatch):
    score, _, _ = two_modes_that_change(monkeypatch, trade=True)
    assert abs(score) > 5


def test_a_jump_of_the_weights_is_followed_with_a_warning():
    rbm = RBM(12, 10)
    chains = TrajectoryTempering(rbm, 200, seed=1)
    chains.step(3)
    set_to_(rbm, random_rbm(12, 10, 3.0, seed=2))
    with pytest.warns(TrajectoryWarning, match="were put on the way"):
        chains.step(1)
    assert chains.num_rungs > 4
    found = chains.log_partition()
    assert abs(found.value - exact_log_partition(rbm).value) < 5 * found.std_error


def test_a_machine_out_of_reach_is_an_error_that_leaves_the_chains(monkeypatch):
    monkeypatch.setattr(trajectory, "MAX_SNAPSHOTS", 2)
    chains = TrajectoryTempering(random_rbm(6, 6, 4.0, seed=2), 50, seed=1)
    assert refused_argument(chains.step, 1) == "energy"


def test_memory_is_that_of_chains_and_reservoirs(monkeypatch):
    monkeypatch.setattr(
        "discrete_vae.system.available_memory", lambda: 16 * 4 * 100 * 24
    )  # four states per chain
    BlockGibbs(RBM(12, 12), 100)
    assert refused_argument(TrajectoryTempering, RBM(12, 12), 100) == "num_chains"


@pytest.mark.parametrize("machine", [pair[0] for pair in MACHINES.values()], ids=MACHINES)
def test_every_machine_has_a_log_z_with_its_error(machine):
    machine = machine.float()
    chains = TrajectoryTempering(machine, 400, seed=1)
    assert set(chains.step(5).unique().tolist()) <= {0.0, 1.0}
    found = chains.log_partition()
    assert found.std_error < 0.1
    assert abs(found.value - exact_log_partition(machine).value) < 5 * found.std_error + 1e-5


def test_the_error_of_log_z_has_the_part_of_the_reservoir(monkeypatch):
    """That of ten independent coins per chain, were the chains without an error."""
    right, kept = trajectory.weighted_ratio, []

    def exact_chains(*given, **more):
        value, influence, _ = right(*given, **more)
        kept.append(influence)
        return value, influence, 0.0

    monkeypatch.setattr(trajectory, "weighted_ratio", exact_chains)
    chains = TrajectoryTempering(random_rbm(3, 3, 0.5), 2000, seed=1)
    found = chains.log_partition()
    assert chains.num_rungs == 1
    assert found.std_error == pytest.approx(float(kept[-1].std()) / math.sqrt(20_000), rel=0.1)


def test_a_machine_without_energy_is_known_exactly():
    found = TrajectoryTempering(RBM(3, 2), 5).log_partition()
    assert (found.value, found.std_error) == (pytest.approx(5 * math.log(2)), pytest.approx(0.0, abs=1e-9))


def test_a_state_goes_on_bit_for_bit_over_a_new_snapshot():
    goal = random_rbm(5, 4, 2.0)
    chains = grown(goal, 60, seed=2**64 - 1, steps=30)
    assert chains.num_rungs > 1
    twin = TrajectoryTempering(RBM(5, 4), 60, seed=3)
    twin.load_state_dict(chains.state_dict())
    for share in (1.0, 2.0):
        set_to_(chains.energy, goal, share)
        set_to_(twin.energy, goal, share)
        assert torch.equal(chains.step(30), twin.step(30))
    first, second = chains.state_dict(), twin.state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert chains.log_partition() == twin.log_partition()
