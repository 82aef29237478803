"""The simplified model of the supplement whose prior has no couplings."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, FactorialBernoulliConfig
from discrete_vae.experiments.simplified_experiment import simplified_experiment


def mnist_static_factorial_prior(size: str) -> ExperimentConfig:
    """Static MNIST, 200 independent units, four groups, linear decoder, no Gaussian layers.

    Command: dvae train mnist-static-factorial-prior, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 584 of its 960 epochs, -100.56 +- 0.24 nats (docs/results.md); -97.0 in
    the paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps; ``dvae validate mnist-static-factorial-prior`` times one.
    """
    return simplified_experiment(
        "mnist-static-factorial-prior", size, prior=FactorialBernoulliConfig(num_units=200), linear=True
    )
