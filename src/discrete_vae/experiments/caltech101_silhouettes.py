"""Caltech-101 Silhouettes with 12 Gaussian layers that share all prior parameters."""

from __future__ import annotations

from discrete_vae.config import Caltech101SilhouettesConfig, CompleteSharingConfig, ExperimentConfig
from discrete_vae.experiments.paper_experiment import CpuChoices, paper_experiment


def caltech101_silhouettes(size: str) -> ExperimentConfig:
    """Caltech-101 Silhouettes, RBM 64 + 64, 4 Gaussian layers of 80 units; size paper: 12 layers of 80.

    Command: dvae train caltech101-silhouettes [--size paper], then dvae evaluate RUN.

    One prior network, with a hidden layer of 100 units, serves all layers; posterior networks have two, in size paper
    of 2000 units; the decoder is linear. Size cpu: 12 layers, no importance samples, and decay of the decoder's
    matrix, without which it overfits (docs/results.md).

    Data: official split of 4,100 / 2,264 / 2,307 images, object = 1.

    Expected test log-likelihood: short -104.7 +- 1.6 nats, cpu -96.90 +- 0.95 (docs/results.md); paper -97.6 +- 0.11 in
    the paper.

    Time: short 6 minutes on two cores, cpu two hours on one; ``dvae validate caltech101-silhouettes --size
    paper`` times a step of paper.
    """
    return paper_experiment(
        "caltech101-silhouettes",
        size,
        data=Caltech101SilhouettesConfig(),
        layers={  # number of layers, units of each, width of the prior's networks
            "smoke": (2, 16, 50),
            "short": (4, 80, 100),
            "cpu": (12, 80, 100),
            "paper": (12, 80, 100),
        },
        sharing=CompleteSharingConfig(),
        num_epochs={"smoke": 10, "short": 600, "cpu": 3200, "paper": 1000},
        num_training=4_100,
        batch_sizes={"smoke": 100, "short": 200, "cpu": 200, "paper": 100},
        cpu=CpuChoices(warm_up_epochs=50, num_importance_samples=1, decoder_weight_decay=0.4),
    )
