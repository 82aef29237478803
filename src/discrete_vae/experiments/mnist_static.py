"""Statically binarised MNIST with 20 Gaussian layers in two groups."""

from __future__ import annotations

from discrete_vae.config import (
    BernoulliLikelihoodConfig,
    ExperimentConfig,
    GaussianHierarchyConfig,
    GroupSharingConfig,
    HierarchicalPosteriorConfig,
    MNISTStaticConfig,
    ModelConfig,
    NoSharingConfig,
    RBMConfig,
)
from discrete_vae.experiments.paper_training import paper_evaluation, paper_training


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
    widths = {"smoke": (100, 100), "short": (400, 400), "paper": (2000, 2000)}[size]
    hierarchy = {
        "smoke": GaussianHierarchyConfig(
            num_layers=2,
            num_units=16,
            posterior_hidden=widths,
            prior_hidden=(50,),
            sharing=GroupSharingConfig(num_groups=2),
        ),
        "short": GaussianHierarchyConfig(
            num_layers=4,
            num_units=32,
            posterior_hidden=widths,
            prior_hidden=(200,),
            sharing=NoSharingConfig(),
        ),
        "paper": GaussianHierarchyConfig(
            num_layers=20,
            num_units=256,
            posterior_hidden=widths,
            prior_hidden=(2000,),
            sharing=GroupSharingConfig(num_groups=2),
        ),
    }[size]
    num_epochs = {"smoke": 1, "short": 100, "paper": 1000}[size]
    return ExperimentConfig(
        name="mnist-static",
        size=size,
        data=MNISTStaticConfig(),
        model=ModelConfig(
            num_features=784,
            prior=RBMConfig(num_left=64, num_right=64),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=widths),
            hierarchy=hierarchy,
            likelihood=BernoulliLikelihoodConfig(hidden=()),
        ),
        training=paper_training(size, num_epochs, steps_per_epoch=500),
        evaluation=paper_evaluation(size),
    )
