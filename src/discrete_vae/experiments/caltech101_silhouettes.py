"""Caltech-101 Silhouettes with 12 Gaussian layers that share all prior parameters."""

from __future__ import annotations

from discrete_vae.config import (
    BernoulliLikelihoodConfig,
    Caltech101SilhouettesConfig,
    CompleteSharingConfig,
    ExperimentConfig,
    GaussianHierarchyConfig,
    HierarchicalPosteriorConfig,
    ModelConfig,
    RBMConfig,
)
from discrete_vae.experiments.paper_training import paper_evaluation, paper_training


def caltech101_silhouettes(size: str) -> ExperimentConfig:
    """Caltech-101 Silhouettes, RBM 64 + 64, 12 layers of 80 Gaussian units, complete parameter sharing.

    Command: dvae train caltech101-silhouettes --size paper, then dvae evaluate RUN.

    The prior's network has one hidden layer of 100 units, posterior networks two of 2000, the decoder is linear.

    Data: official split of 4,100 / 2,264 / 2,307 images, object = 1.

    Expected test log-likelihood: -97.6 +- 0.11 nats in the paper (10^4 importance samples, mean and standard deviation
    of 16 runs); ours in size paper: not measured yet. Size short (4 layers, posterior networks of 400): not measured
    yet.

    Time: smoke within a minute and short within 45 minutes on two cores are the aim, paper needs a GPU; not measured
    yet. ``dvae validate caltech101-silhouettes`` times a step on the machine at hand.
    """
    widths = {"smoke": (100, 100), "short": (400, 400), "paper": (2000, 2000)}[size]
    hierarchy = {
        "smoke": GaussianHierarchyConfig(
            num_layers=2,
            num_units=16,
            posterior_hidden=widths,
            prior_hidden=(50,),
            sharing=CompleteSharingConfig(),
        ),
        "short": GaussianHierarchyConfig(
            num_layers=4,
            num_units=80,
            posterior_hidden=widths,
            prior_hidden=(100,),
            sharing=CompleteSharingConfig(),
        ),
        "paper": GaussianHierarchyConfig(
            num_layers=12,
            num_units=80,
            posterior_hidden=widths,
            prior_hidden=(100,),
            sharing=CompleteSharingConfig(),
        ),
    }[size]
    num_epochs = {"smoke": 10, "short": 300, "paper": 1000}[size]
    return ExperimentConfig(
        name="caltech101-silhouettes",
        size=size,
        data=Caltech101SilhouettesConfig(),
        model=ModelConfig(
            num_features=784,
            prior=RBMConfig(num_left=64, num_right=64),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=widths),
            hierarchy=hierarchy,
            likelihood=BernoulliLikelihoodConfig(hidden=()),
        ),
        training=paper_training(size, num_epochs, steps_per_epoch=41),
        evaluation=paper_evaluation(size),
    )
