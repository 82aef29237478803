"""The health of chains, and the modes of priors whose modes are known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, GraphBoltzmann, LogPartition, ParallelTempering
from discrete_vae.evaluation.diagnostics import (
    ChainHealthWarning,
    chain_health,
    communities,
    find_prior_modes,
    repeat_log_partition,
)
from tests.boltzmann.graphs import with_parameters
from tests.log_partition.machines import random_rbm, two_far_modes
from tests.refusals import refused_argument


def autoregression(chains, draws, factor, seed=0):
    """Stationary AR(1), whose autocorrelation time is (1 + factor) / (1 - factor)."""
    noise = torch.randn(chains, draws, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    series = [noise[:, 0]]
    for step in range(1, draws):
        series.append(factor * series[-1] + (1 - factor**2) ** 0.5 * noise[:, step])
    return torch.stack(series, 1)


class Series:
    """Chains whose energies are a given series."""

    def __init__(self, series):
        self.draws = iter(series.T)
        self.energy = SimpleNamespace(energy=lambda z: z)

    def step(self, num_sweeps):
        assert num_sweeps == 1
        return next(self.draws)


def health_of(series):
    return chain_health(Series(series), num_sweeps=series.shape[1])


@pytest.mark.parametrize(("factor", "tolerance"), [(0.0, 0.05), (0.5, 0.06), (0.9, 0.12)])
def test_effective_samples_of_autoregressions(factor, tolerance):
    series = autoregression(50, 2000, factor)
    health, time = health_of(series), (1 + factor) / (1 - factor)
    assert health.effective_samples == pytest.approx(series.numel() / time, rel=tolerance)
    assert health.autocorrelation_time == pytest.approx(time, rel=tolerance)
    assert health.r_hat == pytest.approx(1.0, abs=0.02)


def test_chains_with_different_means_are_told_and_alike_ones_are_no_error():
    series = autoregression(10, 500, 0.0)
    drifting = series + torch.linspace(0, 4, 500)
    for wrong, least in ((series + torch.arange(10.0)[:, None], 2.0), (drifting, 1.2)):
        with pytest.warns(ChainHealthWarning):
            health = health_of(wrong)
        assert health.r_hat > least
        assert health.effective_samples < 100
    alone = health_of(autoregression(1, 400, 0.0))  # compared with itself
    assert alone.r_hat == pytest.approx(1.0, abs=0.02)
    still = health_of(torch.ones(3, 20))
    assert (still.r_hat, still.effective_samples, still.autocorrelation_time) == (1.0, 60.0, 1.0)


@pytest.mark.parametrize("make", [BlockGibbs, ParallelTempering])
def test_chains_that_mix_are_told_from_chains_that_are_stuck(make):
    chains = make(random_rbm(5, 5, 0.5), 50, seed=0)
    chains.step(100)
    health = chain_health(chains, num_sweeps=200)
    assert health.r_hat < 1.02
    assert 0.5 < health.autocorrelation_time < 5
    assert (health.num_chains, health.num_sweeps) == (50, 200)
    apart = two_far_modes(10, 4.0, excess=1.0)  # by 20 nats of energy
    with pytest.warns(ChainHealthWarning):
        assert chain_health(BlockGibbs(apart, 40, seed=0), num_sweeps=50).r_hat > 1.1


def test_two_wells_are_two_modes_with_the_shares_of_their_chains():
    rbm, start = two_far_modes(6, excess=0.0), torch.zeros(200, 12)
    start[:140] = 1.0
    modes = find_prior_modes(rbm, start)
    assert len(modes) == 2
    assert modes.share.tolist() == pytest.approx([0.7, 0.3], abs=0.02)
    assert modes.share_std_error.tolist() == pytest.approx([(0.21 / 200) ** 0.5] * 2, rel=0.1)
    assert bool((modes.stay > 0.99).all())
    assert modes.num_states == 200 * 41
    noisy = torch.tensor([[1.0] * 11 + [0.0], [0.0] * 11 + [1.0]])
    assert modes.assign(noisy).tolist() == [0, 1]
    for flipped in range(12):
        other = modes.maxima.clone()
        other[:, flipped] = 1 - other[:, flipped]
        assert bool((rbm.energy(other) >= rbm.energy(modes.maxima)).all())


def test_a_prior_without_couplings_has_one_mode_and_one_chain_no_error():
    prior = with_parameters(FactorialBernoulli(5), bias=[1.0, -1.0, 0.5, -0.5, 2.0])
    modes = find_prior_modes(prior, torch.bernoulli(torch.full((50, 5), 0.5)), num_sweeps=5)
    assert (len(modes), modes.maxima.tolist()) == (1, [[1.0, 0.0, 1.0, 0.0, 1.0]])
    assert modes.share.tolist() == [1.0]
    graph = GraphBoltzmann(3, [(0, 1), (1, 2), (0, 2)])
    modes = find_prior_modes(graph, torch.zeros(1, 3), num_sweeps=3)
    assert float(modes.share.sum()) == pytest.approx(1.0)
    assert bool(modes.share_std_error.isnan().all())


def test_more_maxima_than_are_grouped_belong_to_the_nearest():
    """Units in pairs that are alike: every pattern of pairs is a local maximum, 1024 in all."""
    machine = with_parameters(RBM(10, 10), weight=8 * torch.eye(10), bias=-4.0)
    start = torch.bernoulli(torch.full((1000, 10), 0.5), generator=torch.Generator().manual_seed(0))
    modes = find_prior_modes(machine, torch.cat([start, start], 1), num_sweeps=1)
    assert len(modes.maxima) == 400 < modes.num_visited
    assert float(modes.share.sum()) == pytest.approx(1.0)
    assert modes.assign(modes.maxima).tolist() == modes.mode_of_maximum.tolist()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: find_prior_modes(RBM(6, 6), torch.zeros(3, 11)), "start"),
        (lambda: find_prior_modes(RBM(6, 6), torch.full((3, 12), 0.5)), "start"),
        (lambda: chain_health(BlockGibbs(RBM(2, 2), 3), num_sweeps=5), "num_sweeps"),
        (lambda: chain_health(BlockGibbs(RBM(2, 2), 3), num_sweeps=25.5), "num_sweeps"),
        (lambda: repeat_log_partition(lambda seed: LogPartition(1.0, 0.1, "x", 1), 0), "repeats"),
    ],
)
def test_wrong_arguments_are_named(call, argument):
    assert refused_argument(call) == argument


def test_repeats_are_in_order_and_have_seeds_of_their_own():
    values, seeds, seen = iter([1.0, 2.0, 3.0]), [], []

    def estimate(seed):
        seeds.append(seed)
        return LogPartition(next(values), 0.5, "bridge sampling", 10)

    repeated = repeat_log_partition(estimate, 3, seed=7, report=lambda number, found: seen.append(number))
    assert [each.value for each in repeated] == [1.0, 2.0, 3.0]
    assert len(set(seeds)) == 3
    assert seen == [1, 2, 3]


def test_communities_are_what_nothing_joins_and_their_modularity_is_that_of_the_flow():
    counts = np.zeros((9, 9))
    for members in ([0, 3, 6], [1, 4], [2, 5, 7, 8]):
        counts[np.ix_(members, members)] = 5.0
    assert communities(counts)[0].tolist() == [1, 2, 0, 1, 2, 0, 1, 0, 0]
    noisy = np.random.default_rng(0).poisson(1.0, (12, 12)) + 20.0 * np.kron(np.eye(3), np.ones((4, 4)))
    for each, number in ((counts, 3), (noisy, 3), (np.ones((6, 6)), 1), (np.array([[4.0]]), 1)):
        groups, modularity = communities(each)
        flow = (each + each.T) / (2 * each.sum())
        visits = flow.sum(1)
        same = groups[:, None] == groups
        assert np.isclose(modularity, (flow - np.outer(visits, visits))[same].sum())
        assert len(set(groups.tolist())) == number
