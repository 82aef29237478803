"""Statically binarised MNIST with 20 Gaussian layers in two groups."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, GroupSharingConfig, MNISTStaticConfig, NoSharingConfig
from discrete_vae.experiments.paper_experiment import paper_experiment


def mnist_static(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, 20 layers of 256 Gaussian units in two groups.

    Command: dvae train mnist-static --size paper, then dvae evaluate RUN.

    Prior networks have one hidden layer of 2000 units, posterior networks two of 2000, the decoder is linear.

    Data: the published binarisation, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: -81.01 +- 0.04 (ELBO -84.58) nats in the paper (10^4 importance samples, mean and
    standard deviation of 16 runs); ours in size paper: not measured yet. Size short (4 layers of 32, posterior networks
    of 400, prior networks of 200, no sharing, since a sum of 32 units would be all that the linear decoder reads) is
    meant to reach -88 on 1,000 test images: not measured yet.

    Time: smoke within a minute and short within 45 minutes on two cores are the aim, paper needs a GPU; not measured
    yet. ``dvae validate mnist-static`` times a step on the machine at hand.
    """
    return paper_experiment(
        "mnist-static",
        size,
        data=MNISTStaticConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 32, 200),
            "paper": (20, 256, 2000),
        },
        sharing=NoSharingConfig() if size == "short" else GroupSharingConfig(num_groups=2),
        decoder_hidden={"smoke": (), "short": (400,), "paper": ()},
        num_epochs={"smoke": 1, "short": 64, "paper": 1000},
        steps_per_epoch=500,
    )
