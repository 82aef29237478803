"""The embedded default: scikit-learn's 8x8 digits, no download."""

from __future__ import annotations

from discrete_vae.config import (
    BetaBoundConfig,
    BlockGibbsConfig,
    DigitsConfig,
    EvaluationConfig,
    ExperimentConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    ModelConfig,
    OptimizerConfig,
    RBMConfig,
    TrainingConfig,
    WarmUpConfig,
)


def digits(size: str) -> ExperimentConfig:
    """8x8 digits, RBM 16 + 16, four groups, no Gaussian layers.

    Command: dvae train digits, then dvae evaluate runs/digits-short; or make demo.

    Data: scikit-learn's digits, 1,297 / 250 / 250 examples, intensities as probabilities, a new binarization each step.

    Expected test log-likelihood: short -22.56 +- 0.22 nats (docs/results.md).

    Time: short, which cpu equals, half a minute on one core, smoke 2 seconds.
    """
    return ExperimentConfig(
        name="digits",
        size=size,
        data=DigitsConfig(),
        model=ModelConfig(
            event_shape=(1, 8, 8),
            prior=RBMConfig(num_left=16, num_right=16),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=(200,)),
            decoder=MLPDecoderConfig(hidden=(200,)),
        ),
        training=TrainingConfig(
            num_epochs={"smoke": 10, "short": 200, "cpu": 200, "paper": 1000}[size],
            batch_size=100,
            optimizer=OptimizerConfig(learning_rate=3e-3),
            warm_up=WarmUpConfig(epochs=10, prior_epochs=30),
            beta_bound=BetaBoundConfig(start=3.0, slope=0.006 if size == "paper" else 0.03),
            sampler=BlockGibbsConfig(num_chains=500),
            num_sweeps=20,
            log_every=100,
            validate_every={"smoke": 60, "short": 200, "cpu": 200, "paper": 600}[size],
        ),
        evaluation=EvaluationConfig(num_samples=1000),
    )
