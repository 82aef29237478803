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
    """Static MNIST, RBM 64 + 64, four groups.

    Command: dvae train mnist-static-rbm128, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    The decoder has one hidden layer, the posterior's networks two; there are no continuous layers.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Measured test log-likelihood, networks of size short: -94.45 +- 0.78 nats after 34 epochs (--training.num-epochs 34
    --training.beta-bound.slope 0.14) and -91.50 +- 0.77 after 100 (slope 0.05), over 1,000 shuffled test images with
    1,000 importance samples, Monte-Carlo error 0.02; size short itself has 80 epochs. log Z after 34 epochs 93.993 +-
    0.003 by bridge sampling, 93.992 and 94.005 by forward and reverse annealing. Size paper: not measured yet.

    Time: 31 to 43 ms per step on two cores, 4 of them for the chains: 21 to 29 minutes for the 40,000 steps of size
    short; the 34 epochs took 13. With plain torch in place of the compiled kernel a step takes 2.0 to 2.3 times as long
    (benchmarks/training_step.py).
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
