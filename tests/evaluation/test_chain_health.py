"""Autocorrelation, R-hat and effective samples on series whose values are known; chains that are stuck."""

from types import SimpleNamespace

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, ParallelTempering
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.diagnostics import ChainHealthWarning, chain_health
from tests.log_partition.machines import random_rbm


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
    health = health_of(series)
    assert health.effective_samples == pytest.approx(
        series.numel() * (1 - factor) / (1 + factor), rel=tolerance
    )
    assert health.autocorrelation_time == pytest.approx((1 + factor) / (1 - factor), rel=tolerance)
    assert health.r_hat == pytest.approx(1.0, abs=0.02)


def test_chains_with_different_means():
    series = autoregression(10, 500, 0.0)
    for wrong, least in (
        (series + torch.arange(10.0)[:, None], 2.0),
        (series + torch.linspace(0, 4, 500), 1.2),
    ):
        with pytest.warns(ChainHealthWarning):
            health = health_of(wrong)
        assert health.r_hat > least
        assert health.effective_samples < 100


def test_one_chain_is_compared_with_itself_and_chains_that_stand_still_are_no_error():
    assert health_of(autoregression(1, 400, 0.0)).r_hat == pytest.approx(1.0, abs=0.02)
    still = health_of(torch.ones(3, 20))
    assert (still.r_hat, still.effective_samples, still.autocorrelation_time) == (1.0, 60.0, 1.0)


@pytest.mark.parametrize("make", [BlockGibbs, ParallelTempering])
def test_chains_that_mix(make):
    chains = make(random_rbm(5, 5, 0.5), 50, seed=0)
    chains.step(100)
    health = chain_health(chains, num_sweeps=200)
    assert health.r_hat < 1.02
    assert 0.5 < health.autocorrelation_time < 5
    assert (health.num_chains, health.num_sweeps) == (50, 200)


def test_chains_that_are_stuck_are_reported():
    rbm = RBM(10, 10)
    with torch.no_grad():
        rbm.weight.fill_(4.0)
        rbm.bias.fill_(-19.0)  # the modes differ by 20 nats of energy, and chains do not cross
    chains = BlockGibbs(rbm, 40, seed=0)
    with pytest.warns(ChainHealthWarning, match="R-hat"):
        assert chain_health(chains, num_sweeps=50).r_hat > 1.1
    with pytest.raises(InvalidInputError, match="num_sweeps must be at least 20"):
        chain_health(chains, num_sweeps=5)
