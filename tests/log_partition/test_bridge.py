"""Bridge sampling against enumeration, far modes included; Bennett's ratio, works, the gradient of log Z."""

import math
import operator
from functools import reduce

import pytest
import torch

from discrete_vae import (
    RBM,
    BlockGibbs,
    FactorialBernoulli,
    ParallelTempering,
    bennett_log_partition,
    exact_log_partition,
)
from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.log_partition import bridge
from discrete_vae.log_partition.estimate import log_partition_surrogate
from discrete_vae.testing import check_mean, enumerate_machine
from tests.boltzmann.graphs import small_graph, with_parameters
from tests.exact_paths import flat_gradient
from tests.log_partition.machines import random_rbm, two_far_modes, wide_and_deep_mode


def error_of(rbm, **settings):
    estimate = bennett_log_partition(rbm, **settings)
    return estimate.value - exact_log_partition(rbm).value, estimate


@pytest.mark.parametrize(
    ("left", "right", "scale", "std_error"), [(14, 14, 3.0, 0.01), (4, 12, 1.0, 0.03), (12, 4, 1.0, 0.03)]
)
def test_random_machines(left, right, scale, std_error):
    error, estimate = error_of(random_rbm(left, right, scale), std_error=std_error, num_chains=200)
    assert estimate.converged
    assert estimate.std_error <= std_error
    assert abs(error) < 4 * estimate.std_error
    assert estimate.inverse_temperatures[0] == 0.0
    assert all(0.3 < rate < 0.8 for rate in estimate.swap_rates)
    assert estimate.round_trips >= 10
    assert estimate.effective_samples > 1
    assert estimate.seconds > 0


@pytest.mark.parametrize(
    ("energy", "std_error"),
    [
        (two_far_modes(10, 3.0), 0.015),
        (wide_and_deep_mode(10, 16, 2.0, 14.0), 0.03),  # of which annealing misses the deep one
        (with_parameters(FactorialBernoulli(5), bias=[1.0, -2.0, 0.5, 3.0, 0.0]), 0.3),
        (with_parameters(RBM(3, 4), bias=[1.0, -2.0, 0.5, 3.0, 0.0, 0.0, 0.0]), 0.3),
    ],
    ids=["two far modes", "deep mode", "factorial", "no couplings"],
)
def test_far_modes_are_found_and_without_couplings_the_value_is_exact(energy, std_error):
    error, estimate = error_of(energy, std_error=std_error, num_chains=200)
    assert estimate.converged
    assert abs(error) < 4 * estimate.std_error + 1e-5
    assert (estimate.std_error < 1e-5) == isinstance(energy, FactorialBernoulli)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rbm",
    [
        *(random_rbm(14, 14, scale) for scale in (0.1, 1.0, 3.0)),
        random_rbm(64, 18, 1.0),
        two_far_modes(),
        two_far_modes(20, 1.0, 0.0),
        two_far_modes(20, 4.0, 0.05),
        wide_and_deep_mode(),
        wide_and_deep_mode(8, 12, 3.0, 10.5),
        wide_and_deep_mode(10, 16, 2.0, 14.0),
    ],
    ids=["weak", "unit", "strong", "64+18", "far", "equal", "farther", "deep", "deeper", "deepest"],
)
def test_a_hundredth_of_a_nat(rbm):
    error, estimate = error_of(rbm, std_error=0.0025)
    assert estimate.converged
    assert abs(error) < 0.01
    assert abs(error) < 4 * estimate.std_error


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_two_standard_errors_cover_as_often_as_they_should(scale):
    rbm = random_rbm(6, 6, scale)
    exact = exact_log_partition(rbm).value
    inside = 0
    for seed in range(200):
        estimate = bennett_log_partition(rbm, std_error=0.05, num_chains=40, seed=seed)
        inside += abs(estimate.value - exact) < 2 * estimate.std_error
    assert 180 <= inside <= 198


def test_scores_of_independent_chains_are_neither_wide_nor_narrow():
    """The quick form of the coverage above: mean square of (value - exact) / std_error over groups of 40 chains."""
    rbm = random_rbm(5, 5, 1.0)
    sampler = ParallelTempering(rbm, 2000, (0.0, 0.5, 1.0), seed=1)
    sampler.step(40)
    run = bridge.BridgeRun(sampler)
    for _ in range(8):
        run.add_block()
    sums = reduce(operator.add, run.blocks)
    found = [bridge.solve_bridge(sums.of_chains(slice(i, i + 40)), run.reference) for i in range(0, 2000, 40)]
    exact = exact_log_partition(rbm).value - 10 * math.log(2)
    scores = torch.tensor([(each.value - exact) / each.std_error for each in found])

    def fits(scores):  # chi-square of 50 with errors known to a ninth, alpha below 1e-4 on each side
        return 0.4 < float(scores.square().mean()) < 2.1

    assert fits(scores)
    assert not fits(1.8 * scores)  # planted: errors that leave out what is correlated
    assert not fits(scores / 1.8)


@pytest.mark.parametrize(
    ("std_error", "trips", "apart", "ends"),
    [(0.01, 10.0, 3.5, True), (0.011, 99.0, 0.0, False), (0.0, 9.9, 0.0, False), (0.0, 99.0, 3.6, False)],
)
def test_a_run_ends_where_it_is_known_mixes_and_agrees(std_error, trips, apart, ends):
    estimate = LogPartition(1.0, std_error, "bridge sampling", 100, round_trips=trips)
    assert bridge.RunCheck(estimate, apart).reaches(0.01) == ends


def test_a_run_that_does_not_get_there_says_so_with_figures():
    with pytest.warns(bridge.LogPartitionWarning, match="max_sweeps") as caught:
        estimate = bennett_log_partition(random_rbm(14, 14, 3.0), num_chains=50, max_sweeps=60)
    assert estimate.converged is False
    assert f"{estimate.std_error:.4f}" in str(caught[0].message)


def test_a_deep_mode_that_replicas_do_not_find_is_not_overlooked(monkeypatch):
    """From coins alone all chains agree on the wide mode, 3 nats too low; those that start low disagree."""
    monkeypatch.setattr(bridge, "_MODES", 1)  # no jumps between modes
    rbm = wide_and_deep_mode(10, 16, 2.0, 14.0)
    with pytest.warns(bridge.LogPartitionWarning, match="max_sweeps"):
        estimate = error_of(rbm, num_chains=100, std_error=1.0, max_sweeps=200)[1]
    assert not estimate.converged


def test_the_seed_decides_and_progress_is_reported():
    seen, settings = [], {"num_chains": 20, "std_error": 0.5}

    def report(sweeps, now):
        seen.append((sweeps, now.value))

    rbm = random_rbm(3, 3)
    first = bennett_log_partition(rbm, seed=1, report=report, **settings)
    again, other = (bennett_log_partition(rbm, seed=seed, **settings) for seed in (1, 2))
    assert first.value == again.value != other.value
    assert seen[-1] == (first.num_sweeps, first.value)


def gaussian_works(number, *, answer, spread, seed=0):
    """Works with log Z_1 - log Z_0 = answer: those of machine 0 are normal, those of 1 the same less their variance."""
    noise = torch.randn(2, number, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    middle = -answer + spread**2 / 2
    return middle + spread * noise[0], middle - spread**2 + spread * noise[1]


def deviations(solve, num_runs=60):
    """Deviations from the answer in standard errors."""
    scores = []
    for seed in range(num_runs):
        up, down = gaussian_works(2000, answer=3.0, spread=1.2, seed=seed)
        value, error = solve(up, down)
        scores.append((value - 3.0) / error)
    return torch.tensor(scores)[:, None]


def ratio_and_error(up, down, weights, *, num_down):
    """Of independent states."""
    value, influence, error = bridge.weighted_ratio(up, down, weights, num_up=len(up), num_down=num_down)
    return value, math.hypot(float(influence.std()) / math.sqrt(len(up)), error)


def unweighted(up, down):
    return ratio_and_error(up, down[:500], torch.full((500,), 1 / 500).double(), num_down=500)


def test_the_answer_is_found_within_its_error_with_unequal_numbers():
    scores = deviations(unweighted)
    check_mean(scores, torch.zeros(1))
    assert 0.7 < float(scores.std()) < 1.4
    with pytest.raises(AssertionError):  # planted: states swapped for each other's
        check_mean(deviations(lambda up, down: unweighted(down, up)), torch.zeros(1))


def test_weights_bring_states_of_another_law_to_that_of_machine_1():
    """States of machine 0 with weights exp(-w) are such states."""
    up, _ = gaussian_works(200_000, answer=1.0, spread=0.8)
    weights = (-up[100_000:]).softmax(0)
    value, error = ratio_and_error(
        up[:100_000], up[100_000:], weights, num_down=1 / float(weights.square().sum())
    )
    assert abs(value - 1.0) < 5 * error < 0.05


def test_gaps_are_the_same_for_any_constant_and_their_influences_sum_to_the_deviation():
    up, down = (works.view(1000, 2) for works in gaussian_works(2000, answer=0.5, spread=0.6))
    for constants in (torch.tensor([0.5, 0.5]).double(), torch.tensor([0.2, 0.9]).double()):
        gaps, influence = bridge.solve_gaps(*bridge.bridge_term(up, down, constants), constants)
        error = float(influence.std()) / math.sqrt(1000)
        assert abs(float(gaps.sum()) - 1.0) < 5 * error < 0.3
        assert float(influence.mean()) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("shape", "block"), [((3, 2), 0), ((70, 130), 0), ((70, 130), 1)])
def test_work_is_a_difference_of_free_energies(shape, block):
    rbm = random_rbm(*shape)
    generator = torch.Generator().manual_seed(1)
    z = torch.bernoulli(torch.full((50, sum(shape)), 0.5), generator=generator)
    below, here, above = torch.rand(3, 50, dtype=torch.float64, generator=generator).sort(0).values
    with torch.no_grad():
        free = [rbm.free_energy(z.double(), block, t) for t in (below, here, above)]
        for energies in (None, rbm.energy(z)):
            down, up = bridge.tempered_work(rbm, z, block, (below, here, above), energies=energies)
            torch.testing.assert_close(down, free[1] - free[0], rtol=0, atol=2e-4)
            torch.testing.assert_close(up, free[2] - free[1], rtol=0, atol=2e-4)
    steep, t = random_rbm(5, 5, 1000.0), torch.ones(1)
    down, up = bridge.tempered_work(steep, torch.ones(1, 10), 1, (t / 2, t, t))
    assert bool(down.isfinite().all())
    assert up.item() == 0


MACHINES = {"rbm": random_rbm(6, 5, 0.7), "graph": small_graph("odd cycle, chord, end and loner", scale=0.7)}


def gradients_from_chains(machine, change=lambda z: z):
    """The gradient of log Z from each of 40 independent sets of chains, and the exact one."""
    z = change(BlockGibbs(machine, 4000, seed=3).step(200))
    values = [log_partition_surrogate(machine, chains, 1.5) for chains in z.split(100)]
    assert all(value.item() == 1.5 for value in values)
    exact = flat_gradient(enumerate_machine(machine).log_partition, machine)
    return torch.stack([flat_gradient(value, machine) for value in values]), exact


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_the_negative_phase_agrees_with_enumeration(machine):
    check_mean(*gradients_from_chains(machine), resolution=0.02)
    with pytest.raises(AssertionError):  # planted: units in another order
        check_mean(*gradients_from_chains(machine, lambda z: z.roll(2, -1)))
    z = BlockGibbs(machine, 4000, seed=3).step(200)
    (exact,) = torch.autograd.grad(enumerate_machine(machine).log_partition, machine.weight)
    both = [log_partition_surrogate(machine, z), -machine.energy(z).mean()]
    errors = [(torch.autograd.grad(value, machine.weight)[0] - exact).square().mean() for value in both]
    assert errors[0] < errors[1] or not isinstance(machine, RBM)  # it is Rao-Blackwellized
