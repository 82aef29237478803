"""What the means of the features alone explain: the log-likelihood that a model has to beat."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_tensor, check_unit_interval

_ROWS = 4096  # rows in double precision at a time


@dataclass(frozen=True)
class IndependentFeatures:
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
def independent_features(train: Tensor, x: Tensor) -> IndependentFeatures:
    """Log-likelihood of examples under independent binary features with the means of the training examples.

    p_i = (sum_n t_ni + 1/2) / (N + 1) for the N training examples t: half a count for each value keeps log p finite
    where a feature is constant. A model that stays below has learned less than these means.

    Source: Krichevsky & Trofimov 1981 (the half counts).

    Args:
        train: Training examples, (example, feature), in [0, 1].
        x: Examples to score, (example, feature), in {0,1}; values between count as expected bits.

    Returns:
        The log-likelihood.

    Raises:
        InvalidInputError: If x has another number of features, or a value lies outside [0, 1].

    Examples:
        >>> coins = independent_features(torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [0.0], [1.0]]))
        >>> round(coins.value, 3), coins.std_error
        (-0.693, 0.0)
    """
    check_unit_interval("train", check_tensor("train", train, ("example", "feature")))
    check_unit_interval("x", check_tensor("x", x, ("example", train.shape[1])))
    p = (train.sum(0, dtype=torch.float64) + 0.5) / (len(train) + 1)
    logit, log_off = p.log() - (-p).log1p(), (-p).log1p()
    value = torch.cat([rows.double() @ logit + log_off.sum() for rows in x.split(_ROWS)])
    return IndependentFeatures(
        value=float(value.mean()),
        std_error=float(value.std()) / math.sqrt(len(value)) if len(value) > 1 else math.nan,
        num_examples=len(value),
    )
