"""Caltech-101 Silhouettes with 12 Gaussian layers that share all prior parameters."""

from __future__ import annotations

from discrete_vae.config import Caltech101SilhouettesConfig, CompleteSharingConfig, ExperimentConfig
from discrete_vae.experiments.paper_experiment import paper_experiment


def caltech101_silhouettes(size: str) -> ExperimentConfig:
    """Caltech-101 Silhouettes, RBM 64 + 64, 12 layers of 80 Gaussian units, complete parameter sharing.

    Command: dvae train caltech101-silhouettes --size paper, then dvae evaluate RUN.

    The prior's network has one hidden layer of 100 units, posterior networks two of 2000, the decoder is linear.

    Data: official split of 4,100 / 2,264 / 2,307 images, object = 1.

    Expected test log-likelihood: -97.6 +- 0.11 nats in the paper (10^4 importance samples, mean and standard deviation
    of 16 runs); ours in size paper: not measured yet. Size short (4 layers, posterior networks of 400):
    -109.6 +- 1.6 (ELBO -122.4) over 1,000 shuffled test images with 1,000 importance samples, whose last doubling
    brought 0.5.

    Time: short 23 minutes on one of two cores beside other work; paper needs a GPU and was not run yet. ``dvae
    validate caltech101-silhouettes`` times a step on the machine at hand.
    """
    return paper_experiment(
        "caltech101-silhouettes",
        size,
        data=Caltech101SilhouettesConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 80, 100),
            "paper": (12, 80, 100),
        },
        sharing=CompleteSharingConfig(),
        num_epochs={"smoke": 10, "short": 300, "paper": 1000},
        steps_per_epoch=41,
    )
