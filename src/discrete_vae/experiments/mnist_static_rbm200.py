"""The simplified model of the supplement with 200 RBM units."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, RBMConfig
from discrete_vae.experiments.simplified_experiment import simplified_experiment


def mnist_static_rbm200(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 100 + 100, four groups, no Gaussian layers.

    Command: dvae train mnist-static-rbm200, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    The decoder has one hidden layer, the posterior's networks two.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 599 of its 960 epochs, -85.76 +- 0.22 nats (docs/results.md); -85.2 in the
    paper, whose widths and length are not known; short was not measured.

    Time: short 40,000 steps, cpu 120,000 steps of 35 to 48 ms on one thread with bfloat16; ``dvae validate
    mnist-static-rbm200`` times one.
    """
    return simplified_experiment("mnist-static-rbm200", size, prior=RBMConfig(num_left=100, num_right=100))
