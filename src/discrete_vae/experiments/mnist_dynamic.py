"""Dynamically binarised MNIST with 18 Gaussian layers, the paper's largest data set."""

from __future__ import annotations

from discrete_vae.config import (
    BernoulliLikelihoodConfig,
    ExperimentConfig,
    GaussianHierarchyConfig,
    HierarchicalPosteriorConfig,
    MNISTDynamicConfig,
    ModelConfig,
    NoSharingConfig,
    RBMConfig,
)
from discrete_vae.experiments.paper_training import paper_evaluation, paper_training


def mnist_dynamic(size: str) -> ExperimentConfig:
    """Dynamic MNIST, RBM 64 + 64, 18 layers of 64 Gaussian units, no parameter sharing.

    Command: dvae train mnist-dynamic --size paper, then dvae evaluate RUN.

    Prior networks have one hidden layer of 1000 units, posterior networks two of 2000, the decoder is linear.

    Data: binarised afresh in each step; validation (the last 10,000 training images) and test once, with seed 0.

    Expected test log-likelihood: -80.15 +- 0.08 nats in the paper (10^4 importance samples, mean and standard deviation
    of 16 runs); ours in size paper: not measured yet. Size short (4 layers of 32, posterior networks of 400, prior
    networks of 200): not measured yet.

    Time: smoke within a minute and short within 45 minutes on two cores are the aim, paper needs a GPU; not measured
    yet. ``dvae validate mnist-dynamic`` times a step on the machine at hand.
    """
    widths = {"smoke": (100, 100), "short": (400, 400), "paper": (2000, 2000)}[size]
    hierarchy = {
        "smoke": GaussianHierarchyConfig(
            num_layers=2, num_units=16, posterior_hidden=widths, prior_hidden=(50,), sharing=NoSharingConfig()
        ),
        "short": GaussianHierarchyConfig(
            num_layers=4,
            num_units=32,
            posterior_hidden=widths,
            prior_hidden=(200,),
            sharing=NoSharingConfig(),
        ),
        "paper": GaussianHierarchyConfig(
            num_layers=18,
            num_units=64,
            posterior_hidden=widths,
            prior_hidden=(1000,),
            sharing=NoSharingConfig(),
        ),
    }[size]
    num_epochs = {"smoke": 1, "short": 100, "paper": 1000}[size]
    return ExperimentConfig(
        name="mnist-dynamic",
        size=size,
        data=MNISTDynamicConfig(),
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
