"""Autocorrelation, R-hat and effective samples on series whose values are known; chains that are stuck."""

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, ParallelTempering
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.chain_health import (
    ChainHealthWarning,
    chain_health,
    effective_samples,
    split_r_hat,
)
from tests.log_partition.machines import random_rbm


def autoregression(chains, draws, factor, seed=0):
    """Stationary AR(1), whose autocorrelation time is (1 + factor) / (1 - factor)."""
    noise = torch.randn(chains, draws, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    series = [noise[:, 0]]
    for step in range(1, draws):
        series.append(factor * series[-1] + (1 - factor**2) ** 0.5 * noise[:, step])
    return torch.stack(series, 1)


@pytest.mark.parametrize(("factor", "tolerance"), [(0.0, 0.05), (0.5, 0.06), (0.9, 0.12)])
def test_effective_samples_of_autoregressions(factor, tolerance):
    series = autoregression(50, 2000, factor)
    expected = series.numel() * (1 - factor) / (1 + factor)
    assert effective_samples(series) == pytest.approx(expected, rel=tolerance)
    assert split_r_hat(series) == pytest.approx(1.0, abs=0.02)


def test_chains_with_different_means():
    series = autoregression(10, 500, 0.0)
    shifted = series + torch.arange(10.0)[:, None]
    assert split_r_hat(shifted) > 2.5
    assert effective_samples(shifted) < 50
    drifting = series + torch.linspace(0, 4, 500)
    assert split_r_hat(drifting) > 1.3


def test_series_that_do_not_vary():
    assert split_r_hat(torch.ones(3, 10)) == 1.0
    assert effective_samples(torch.ones(3, 10)) == 30
    with pytest.raises(InvalidInputError, match="series must have at least 4 draws; received 3"):
        split_r_hat(torch.ones(2, 3))


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
    with pytest.warns(ChainHealthWarning, match="split R-hat"):
        assert chain_health(chains, num_sweeps=50).r_hat > 1.1
    with pytest.raises(InvalidInputError, match="num_sweeps must be at least 20"):
        chain_health(chains, num_sweeps=5)
