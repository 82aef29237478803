"""Statically binarized MNIST with 20 Gaussian layers in two groups."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, GroupSharingConfig, MNISTStaticConfig, NoSharingConfig
from discrete_vae.experiments.paper_experiment import paper_experiment


def mnist_static(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, 20 layers of 256 Gaussian units in two groups.

    Command: dvae train mnist-static --size paper, then dvae evaluate RUN.

    Prior networks have one hidden layer of 2000 units, posterior networks two of 2000, the decoder is linear.

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: -81.01 +- 0.04 (ELBO -84.58) nats in the paper (10^4 importance samples, mean and
    standard deviation of 16 runs); ours in size paper: not measured yet. Size short -85.69 +- 0.69 (ELBO -90.49) over
    1,000 shuffled test images with 1,000 importance samples, whose last doubling brought 0.12; log Z 86.622 +- 0.003 by
    bridge sampling, 86.614 and 86.620 by forward and reverse annealing. It has 4 layers of 32, posterior networks of
    400, prior networks of 200, no sharing (a sum of 32 units would be all that the decoder reads) and a decoder with
    one hidden layer of 400: linear and after 40,000 steps it reached -88.12.

    Time: short 32,000 steps of 45 to 47 ms on two cores, about half an hour; the run above took 44 minutes on one core
    beside other work. Paper needs a GPU and was not run yet. ``dvae validate mnist-static`` times a step on the machine
    at hand.
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
