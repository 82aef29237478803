"""Dynamically binarized MNIST with 18 Gaussian layers, the paper's largest data set."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, MNISTDynamicConfig, NoSharingConfig
from discrete_vae.experiments.paper_experiment import paper_experiment


def mnist_dynamic(size: str) -> ExperimentConfig:
    """Dynamic MNIST, RBM 64 + 64, 18 layers of 64 Gaussian units, no parameter sharing.

    Command: dvae train mnist-dynamic --size paper, then dvae evaluate RUN.

    Prior networks have one hidden layer of 1000 units, posterior networks two of 2000, the decoder is linear.

    Data: binarized afresh in each step; validation (the last 10,000 training images) and test once, with seed 0.

    Expected test log-likelihood: -80.15 +- 0.08 nats in the paper (10^4 importance samples, mean and standard deviation
    of 16 runs); ours in size paper: not measured yet. Size short (4 layers of 32, posterior networks of 400, prior
    networks of 200, a decoder with one hidden layer of 400): not measured yet, on static MNIST -85.69.

    Time: short about half an hour on two cores, as on static MNIST; paper needs a GPU and was not run yet. ``dvae
    validate mnist-dynamic`` times a step on the machine at hand.
    """
    return paper_experiment(
        "mnist-dynamic",
        size,
        data=MNISTDynamicConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 32, 200),
            "paper": (18, 64, 1000),
        },
        sharing=NoSharingConfig(),
        decoder_hidden={"smoke": (), "short": (400,), "paper": ()},
        num_epochs={"smoke": 1, "short": 64, "paper": 1000},
        steps_per_epoch=500,
    )
