"""The simplified model of the supplement: 128 RBM units, no continuous layers, a deep decoder."""

from __future__ import annotations

from discrete_vae.config import (
    BetaBoundConfig,
    BlockGibbsConfig,
    EvaluationConfig,
    ExperimentConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    MNISTStaticConfig,
    ModelConfig,
    OptimizerConfig,
    RBMConfig,
    TrainingConfig,
    WarmUpConfig,
)


def mnist_static_rbm128(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, four groups, no Gaussian layers.

    Command: dvae train mnist-static-rbm128, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    The decoder has one hidden layer, the posterior's networks two.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: short, of 80 epochs, between -94.45 +- 0.78 nats after 34 and -91.50 +- 0.77
    after 100 (docs/results.md).

    Time: short 40,000 steps of 14 ms on two cores; ``dvae validate mnist-static-rbm128 --size paper`` times a step of
    paper.
    """
    width = {"smoke": 100, "short": 500, "paper": 2000}[size]
    return ExperimentConfig(
        name="mnist-static-rbm128",
        size=size,
        data=MNISTStaticConfig(),
        model=ModelConfig(
            event_shape=(1, 28, 28),
            prior=RBMConfig(num_left=64, num_right=64),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=(width, width)),
            decoder=MLPDecoderConfig(hidden=(width,)),
        ),
        training=TrainingConfig(
            num_epochs={"smoke": 1, "short": 80, "paper": 1000}[size],
            batch_size=100,
            optimizer=OptimizerConfig(learning_rate=3e-3),
            warm_up=WarmUpConfig(),
            beta_bound=BetaBoundConfig(start=3.0, slope=0.06),
            sampler=BlockGibbsConfig(num_chains=2000),
            num_sweeps={"smoke": 10, "short": 30, "paper": 100}[size],
            log_every=100,
            validate_every={"smoke": 250, "short": 1000, "paper": 5000}[size],
        ),
        evaluation=(
            EvaluationConfig(num_samples=100, num_examples=100)
            if size == "smoke"
            else EvaluationConfig(num_samples=10_000)
        ),
    )
