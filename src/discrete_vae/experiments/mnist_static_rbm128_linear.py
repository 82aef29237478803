"""The simplified model of the supplement with 128 RBM units and a linear decoder."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, RBMConfig
from discrete_vae.experiments.simplified_experiment import simplified_experiment


def mnist_static_rbm128_linear(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, four groups, linear decoder, no Gaussian layers.

    Command: dvae train mnist-static-rbm128-linear, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 1,065 for its 960 epochs, -92.21 +- 0.24 nats (docs/results.md); -92.7 in
    the paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps; ``dvae validate mnist-static-rbm128-linear`` times one.
    """
    return simplified_experiment(
        "mnist-static-rbm128-linear", size, prior=RBMConfig(num_left=64, num_right=64), linear=True
    )
