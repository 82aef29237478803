"""What changes along a run."""

import pytest

from discrete_vae.config import BetaBoundConfig, OptimizerConfig, WarmUpConfig
from discrete_vae.training import schedules


def test_the_papers_warm_up():
    config = WarmUpConfig()
    start, five, twenty = (schedules.kl_weights(config, epoch) for epoch in (0.0, 5.0, 20.0))
    assert (start.continuous, start.discrete) == (1 / 20, 1 / 40)
    assert five.continuous == 1.0
    assert five.discrete == pytest.approx(0.5 + 0.5 * 5 / 20)
    assert (twenty.continuous, twenty.discrete) == (1.0, 1.0)
    half = schedules.kl_weights(config, 2.5)
    assert half.continuous == pytest.approx((1 / 20 + 1) / 2)


def test_no_warm_up():
    weights = schedules.kl_weights(WarmUpConfig(epochs=0, prior_epochs=0), 0.0)
    assert (weights.discrete, weights.continuous) == (1.0, 1.0)


def test_the_bound_of_beta_is_a_line():
    config = BetaBoundConfig(start=2.0, slope=0.25)
    assert [schedules.max_beta(config, epoch) for epoch in (0.0, 4.0, 8.0)] == [2.0, 3.0, 4.0]


def test_the_step_size_decays_geometrically():
    config = OptimizerConfig(learning_rate=1e-2, final_fraction=1e-2)
    rates = [schedules.learning_rate(config, progress) for progress in (0.0, 0.5, 1.0)]
    assert rates == pytest.approx([1e-2, 1e-3, 1e-4])
