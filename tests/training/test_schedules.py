"""What changes along a run."""

import pytest

from discrete_vae import load_experiment
from discrete_vae.config import (
    BetaBoundConfig,
    ConstantRateConfig,
    CosineRateConfig,
    ExponentialRateConfig,
    OptimizerConfig,
    StepRateConfig,
    TrainingConfig,
    WarmUpConfig,
)
from discrete_vae.training import schedules
from tests.refusals import refused_argument
from tests.training.tiny import changed


def test_the_papers_warm_up():
    config = WarmUpConfig()
    start, five, twenty = (schedules.kl_weights(config, epoch) for epoch in (0.0, 5.0, 20.0))
    assert start == (1 / 40, 1 / 20)
    assert five == (pytest.approx(0.5 + 0.5 * 5 / 20), 1.0)
    assert twenty == (1.0, 1.0)
    assert schedules.kl_weights(config, 2.5)[1] == pytest.approx((1 / 20 + 1) / 2)
    assert schedules.kl_weights(WarmUpConfig(epochs=0, prior_epochs=0), 0.0) == (1.0, 1.0)


def test_the_bound_of_beta_is_a_line():
    config = BetaBoundConfig(start=2.0, slope=0.25)
    assert [schedules.max_beta(config, epoch) for epoch in (0.0, 4.0, 8.0)] == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("rate", "shares"),
    [
        (ConstantRateConfig(), [1.0, 1.0, 1.0, 1.0]),
        (ExponentialRateConfig(final_fraction=1e-2), [1.0, 0.1, 10**-1.5, 1e-2]),
        (CosineRateConfig(final_fraction=0.2), [1.0, 0.6, 0.2 + 0.8 * (1 - 0.5**0.5) / 2, 0.2]),
        (StepRateConfig(at=(0.5, 0.75), factor=0.5), [1.0, 0.5, 0.25, 0.25]),
    ],
)
def test_shapes_of_the_step_size(rate, shares):
    config = OptimizerConfig(learning_rate=2.0, rate=rate)
    rates = [schedules.learning_rate(config, progress) for progress in (0.0, 0.5, 0.75, 1.0)]
    assert rates == pytest.approx([2.0 * share for share in shares])


def test_the_step_size_rises_on_a_line():
    config = OptimizerConfig(learning_rate=2.0, rate=ConstantRateConfig(), rise=0.1)
    assert [schedules.learning_rate(config, t) for t in (0.0, 0.05, 0.1, 0.5)] == [0.0, 1.0, 2.0, 2.0]


def test_importance_samples_start_after_a_share_of_the_run():
    config = TrainingConfig(num_epochs=100, num_importance_samples=7, importance_start=0.05)
    found = [schedules.num_importance_samples(config, t) for t in (0.0, 0.049, 0.05, 1.0)]
    assert found == [1, 1, 7, 7]


def test_importance_samples_of_zeta_may_start_with_the_run():
    words = {"model.smoothing": "ramps", "training.importance-start": "0"} | SAMPLES
    assert changed(load_experiment("digits"), words).training.importance_start == 0


RATE = "training.optimizer.rate"
SAMPLES = {"training.num-importance-samples": "2"}
LAYERS = SAMPLES | {"model.hierarchy": "gaussian"}


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        (SAMPLES, "num_importance_samples"),
        ({"training.optimizer.layers-weight-decay": "0.1"}, "layers_weight_decay"),
        (LAYERS | {"training.importance-start": "0.01"}, "importance_start"),
        (LAYERS | {"training.num-epochs": "3", "training.warm-up.epochs": "15"}, "epochs"),
        ({RATE: "steps", f"{RATE}.at": "0.5 0.2"}, "at"),
        ({RATE: "constant", f"{RATE}.final-fraction": "0.5"}, "final-fraction"),
    ],
)
def test_what_does_not_fit_is_refused(settings, argument):
    found = refused_argument(changed, load_experiment("digits", size="short"), settings)
    assert found.rpartition(".")[2] == argument
