"""The simplified model of the supplement with 200 RBM units and a linear decoder."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, RBMConfig
from discrete_vae.experiments.simplified_experiment import simplified_experiment


def mnist_static_rbm200_linear(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 100 + 100, four groups, linear decoder, no Gaussian layers.

    Command: dvae train mnist-static-rbm200-linear, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 870 of its 960 epochs, -88.86 +- 0.23 nats (docs/results.md); -88.8 in the
    paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps; ``dvae validate mnist-static-rbm200-linear`` times one.
    """
    return simplified_experiment(
        "mnist-static-rbm200-linear", size, prior=RBMConfig(num_left=100, num_right=100), linear=True
    )
