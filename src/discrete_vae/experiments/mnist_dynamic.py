"""Dynamically binarized MNIST with 18 Gaussian layers, the paper's largest data set."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, MNISTDynamicConfig, NoSharingConfig
from discrete_vae.experiments.paper_experiment import paper_experiment


def mnist_dynamic(size: str) -> ExperimentConfig:
    """Dynamic MNIST, RBM 64 + 64, 4 Gaussian layers of 32 units; size paper: 18 layers of 64.

    Command: dvae train mnist-dynamic [--size paper], then dvae evaluate RUN.

    Prior networks have one hidden layer and posterior networks two, in size paper of 1000 and 2000 units; no layers
    share one. The decoder is linear, in sizes short and cpu it has one hidden layer of 800. Size cpu: 8 layers.

    Data: binarized afresh in each step; validation (the last 10,000 training images) and test once, with seed 0.

    Expected test log-likelihood: cpu -81.03 +- 0.21 nats (docs/results.md); paper -80.15 +- 0.08 in the paper.

    Time: short a quarter of an hour on two cores, cpu two hours on one thread;
    ``dvae validate mnist-dynamic --size paper`` times a step of paper.
    """
    return paper_experiment(
        "mnist-dynamic",
        size,
        data=MNISTDynamicConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 32, 200),
            "cpu": (8, 32, 200),
            "paper": (18, 64, 1000),
        },
        sharing=NoSharingConfig(),
        decoder_hidden={"smoke": (), "short": (800,), "cpu": (800,), "paper": ()},
        num_epochs={"smoke": 1, "short": 128, "cpu": 440, "paper": 1000},
        num_training=50_000,
    )
