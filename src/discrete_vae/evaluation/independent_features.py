"""What the features explain one by one: the log-likelihood that a model has to beat."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_tensor
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.records import ShowsTable

_ROWS = 4096  # rows in double precision at a time


@dataclass(frozen=True)
class IndependentFeatures(ShowsTable):
    """Mean log-likelihood of examples whose features are independent, in nats.

    Attributes:
        value: Mean over examples.
        std_error: Its standard error over examples; NaN for one example.
        num_examples: Examples.
    """

    value: float
    std_error: float
    num_examples: int


@torch.no_grad()
def independent_features(likelihood: Likelihood, train: Tensor, x: Tensor) -> IndependentFeatures:
    """Log-likelihood of examples whose features are independent, each with the law that fits the training examples.

    The law is the likelihood's own with the same parameters for every example, `Likelihood.fit_marginals_`: for bits
    their means, for real values mean and variance, for counts mean and dispersion, for codes their frequencies; missing
    values count nowhere. A model that stays below has learned less than that.

    Args:
        likelihood: The kind of law; it stays as it is.
        train: Training examples, (example, feature) or in the event's shape.
        x: Examples to score, likewise.

    Returns:
        The log-likelihood of the observed values.

    Raises:
        InvalidInputError: If train or x has another number of features, or values that the likelihood cannot read.

    Examples:
        >>> from discrete_vae.likelihoods.bernoulli import BernoulliLikelihood
        >>> coin = BernoulliLikelihood((1,))
        >>> found = independent_features(coin, torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [0.0], [1.0]]))
        >>> round(found.value, 3), found.std_error
        (-0.693, 0.0)
    """
    law = deepcopy(likelihood).cpu().double()
    parameters = law.fit_marginals_(_examples("train", train, law)).double()
    parts = []
    for rows in _examples("x", x, law).split(_ROWS):
        observed = law.observed_mask(law.check(rows))
        parts.append(
            law.log_prob(parameters.expand(len(rows), *law.parameter_shape), rows.double(), observed)
        )
    value = torch.cat(parts)
    return IndependentFeatures(
        value=float(value.mean()),
        std_error=float(value.std()) / math.sqrt(len(value)) if len(value) > 1 else math.nan,
        num_examples=len(value),
    )


def _examples(name: str, x: Tensor, law: Likelihood) -> Tensor:
    """Flat or not, in the event's shape, on the CPU."""
    return check_tensor(name, x.flatten(1), ("example", law.num_features)).cpu().reshape(-1, *law.event_shape)
