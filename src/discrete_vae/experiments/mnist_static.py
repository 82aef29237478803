"""Statically binarized MNIST with 20 Gaussian layers in two groups."""

from __future__ import annotations

from discrete_vae.config import ExperimentConfig, GroupSharingConfig, MNISTStaticConfig, NoSharingConfig
from discrete_vae.experiments.paper_experiment import CpuChoices, paper_experiment


def mnist_static(size: str) -> ExperimentConfig:
    """Static MNIST, RBM 64 + 64, 4 Gaussian layers of 32 units; size paper: 20 layers of 256 in two groups.

    Command: dvae train mnist-static [--size paper], then dvae evaluate RUN.

    Prior networks have one hidden layer and posterior networks two, in size paper of 2000 units each, where the decoder
    is linear. Sizes short and cpu share no networks, since a sum of 32 units would be all that the decoder reads, and
    their decoder has one hidden layer: of 800 in size short; of 200, with decay, in size cpu, which has 10 layers, no
    importance samples, and is long enough for the wider one to overfit (docs/results.md).

    Data: the published binarization, 50,000 / 10,000 / 10,000 images.

    Expected test log-likelihood: short -84.44 +- 0.70 nats, cpu -82.48 +- 0.21 (docs/results.md);
    paper -81.01 +- 0.04 in the paper.

    Time: short 14 minutes on two cores, cpu an hour and a half on one; ``dvae validate mnist-static --size paper``
    times a step of paper.
    """
    return paper_experiment(
        "mnist-static",
        size,
        data=MNISTStaticConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 32, 200),
            "cpu": (10, 32, 200),
            "paper": (20, 256, 2000),
        },
        sharing=NoSharingConfig() if size in ("short", "cpu") else GroupSharingConfig(num_groups=2),
        decoder_hidden={"smoke": (), "short": (800,), "cpu": (200,), "paper": ()},
        num_epochs={"smoke": 1, "short": 128, "cpu": 480, "paper": 1000},
        num_training=50_000,
        cpu=CpuChoices(warm_up_epochs=8, num_importance_samples=1, decoder_weight_decay=0.1),
    )
