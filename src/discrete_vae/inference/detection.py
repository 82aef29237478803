"""How well scores tell two kinds of examples apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from discrete_vae.errors import InvalidInputError


@dataclass(frozen=True)
class RocArea:
    """The area under a ROC curve.

    Attributes:
        value: The probability that a strange example has a lower score than a familiar one, ties counted by half: 1
            tells all apart, 1/2 none.
        std_error: Its standard error over both kinds of examples; NaN where there is but one of a kind.
    """

    value: float
    std_error: float


def roc_area(familiar: np.ndarray, strange: np.ndarray) -> RocArea:
    """The area under the ROC curve of low scores as a sign of what is strange.

    Source: DeLong, DeLong & Clarke-Pearson 1988, by ranks as in Sun & Xu 2014.

    Args:
        familiar: Scores of examples like those of training, (row,).
        strange: Scores of the others, (row,).

    Raises:
        InvalidInputError: If there is none of a kind, or a score is NaN.

    Examples:
        >>> roc_area(np.array([-1.0, -2.0, -3.0]), np.array([-2.5, -4.0])).value
        0.8333333333333334
    """
    for name, scores in (("familiar", familiar), ("strange", strange)):
        if np.ndim(scores) != 1 or len(scores) == 0 or np.isnan(scores).any():
            rule = "must be (row,) numbers of at least one example, none of them NaN"
            raise InvalidInputError(name, rule, f"shape {np.shape(scores)}", "Score some examples for it.")
    many, few = len(familiar), len(strange)
    both = rankdata(np.concatenate([familiar, strange]))
    # of each example, the share of the other kind that it is told apart from
    of_familiar = (both[:many] - rankdata(familiar)) / few
    of_strange = 1 - (both[many:] - rankdata(strange)) / many
    error = math.nan
    if min(many, few) > 1:
        error = math.sqrt(of_familiar.var(ddof=1) / many + of_strange.var(ddof=1) / few)
    return RocArea(float(of_familiar.mean()), error)
