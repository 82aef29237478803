"""Importance-weighted estimates of log p(x)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class LogLikelihood(ShowsShapes):
    """Estimates of log p(x), one per example.

    Attributes:
        value: log (1/K) sum_k w_k, (batch,), nats; a lower bound of log p(x) in expectation, and consistent.
        std_error: Monte-Carlo standard error of value by the delta method, (batch,), nats; too small where ess is.
        ess: Effective number of samples, (sum w)^2 / sum w^2, (batch,), between 1 and K.
        doubling_gain: value minus the mean of the estimates from either half of the samples, (batch,), nats: what
            doubling them brought. A bias remains that is about as large or larger, and is not part of std_error.
        num_samples: K.
    """

    value: Tensor
    std_error: Tensor
    ess: Tensor
    doubling_gain: Tensor
    num_samples: int


def importance_weighted(log_weights: Tensor) -> LogLikelihood:
    """Average importance weights in the log domain, in float64.

    Source: Rolfe 2017, section results (10^4 importance samples); Burda, Grosse & Salakhutdinov 2016.

    Args:
        log_weights: log p(x, z, zeta) - log q(z, zeta | x), (sample, batch), nats.

    Returns:
        The estimate; with one sample std_error and doubling_gain are NaN.

    Raises:
        InvalidInputError: If log_weights is not a floating-point tensor with two axes and a sample at least.

    Examples:
        >>> importance_weighted(torch.zeros(10, 1)).value.item()
        0.0
    """
    num_samples = check_tensor("log_weights", log_weights, ("sample", "batch")).shape[0]
    if num_samples == 0:
        raise InvalidInputError("log_weights", "must hold at least one sample", 0, "Draw more samples.")
    log_weights = (
        log_weights.double().T.contiguous()
    )  # an example's own row, added up alike wherever it stands
    value = torch.logsumexp(log_weights, 1) - math.log(num_samples)
    relative = torch.exp(log_weights - value[:, None])  # w / mean w
    std_error = (
        relative.std(1) / math.sqrt(num_samples) if num_samples > 1 else torch.full_like(value, math.nan)
    )
    ess = num_samples**2 / relative.square().sum(1)
    size = num_samples // 2
    halves = (log_weights[:, :size], log_weights[:, num_samples - size :])
    doubling_gain = (
        value - sum(torch.logsumexp(half, 1) - math.log(size) for half in halves) / 2
        if size
        else value * math.nan
    )
    return LogLikelihood(value, std_error, ess, doubling_gain, num_samples)
