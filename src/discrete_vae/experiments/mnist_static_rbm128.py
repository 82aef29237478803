"""The simplified model of the supplement: 128 RBM units, no continuous layers, a deep decoder."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, RBMConfig
from discrete_vae.experiments.simplified_experiment import simplified_experiment


def mnist_static_rbm128(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, four groups, no Gaussian layers.

    Command: dvae train mnist-static-rbm128, then dvae evaluate RUN --num-samples 1000 --num-examples 1000.

    The decoder has one hidden layer, the posterior's networks two.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: cpu, with 1,011 for its 960 epochs, -86.72 +- 0.23 nats; short, of 80 epochs,
    between -94.45 +- 0.78 after 34 and -91.50 +- 0.77 after 100 (docs/results.md); -86.9 in the paper.

    Time: short 40,000 steps of 14 ms on two cores; ``dvae validate mnist-static-rbm128 --size paper`` times a step of
    paper.
    """
    return simplified_experiment("mnist-static-rbm128", size, prior=RBMConfig(num_left=64, num_right=64))
