"""The simplified model of the supplement whose prior and posterior have no couplings."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, FactorialBernoulliConfig
from discrete_vae.experiments.simplified_experiment import simplified_experiment


def mnist_static_factorial(size: str) -> ExperimentConfig:
    """Static MNIST, 200 independent units, one group, linear decoder, no Gaussian layers.

    Command: dvae train mnist-static-factorial, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 1,455 for its 960 epochs, -104.42 +- 0.24 nats (docs/results.md); -102.9 in
    the paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps; ``dvae validate mnist-static-factorial`` times one.
    """
    return simplified_experiment(
        "mnist-static-factorial",
        size,
        prior=FactorialBernoulliConfig(num_units=200),
        groups=1,
        linear=True,
    )
