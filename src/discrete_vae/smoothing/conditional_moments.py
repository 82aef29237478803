"""Means and variances of r(zeta|z), from which those of the marginal follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalMoments(ShowsShapes):
    """Mean and variance of zeta given z; scalars, or of the shape of the parameters of x.

    Attributes:
        mean_of_zero: E[zeta | z=0].
        variance_of_zero: Var[zeta | z=0].
        mean_of_one: E[zeta | z=1].
        variance_of_one: Var[zeta | z=1].
    """

    mean_of_zero: Tensor
    variance_of_zero: Tensor
    mean_of_one: Tensor
    variance_of_one: Tensor


class TruncatedExponential(NamedTuple):
    """The density beta e^(beta (x - 1)) / (1 - e^-beta) on [0, 1]; float64 scalars.

    Attributes:
        log_scale: log of beta / (1 - e^-beta), the log density at 1.
        mean: E x.
        variance: Var x.
    """

    log_scale: Tensor
    mean: Tensor
    variance: Tensor


def truncated_exponential(beta: Tensor) -> TruncatedExponential:
    """The constants of the exponential on [0, 1], differentiable in beta.

    Mean and variance are differences of terms as large as 1 / beta and 1 / beta^2, hence float64.

    Args:
        beta: Scalar, at least 0.01.
    """
    wide = beta.double()
    minus_c = torch.expm1(-wide)  # -(1 - e^-beta)
    mean = -1 / minus_c - 1 / wide
    variance = 1 / wide.square() - torch.exp(-wide) / minus_c.square()
    return TruncatedExponential(torch.log(-wide / minus_c), mean, variance)
