"""How far guesses are from the truth, per observed value."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discrete_vae.errors import InvalidInputError
from discrete_vae.records import with_error


@dataclass(frozen=True)
class GuessError:
    """A mean error over examples.

    Attributes:
        value: The share of wrong values; or the root mean square error, in standard deviations of each feature.
        std_error: Its standard error over examples; NaN for one.
        is_share: Whether it is a share of wrong values.
    """

    value: float
    std_error: float
    is_share: bool

    def __str__(self) -> str:
        """For the output of verbs.

        Examples:
            >>> str(GuessError(0.1, 0.002, True))
            '10.00 % +- 0.20 % of the values are wrong'
        """
        if self.is_share:
            return f"{with_error(100 * self.value, 100 * self.std_error, 2, ' %')} of the values are wrong"
        found = with_error(self.value, self.std_error, 4)
        return f"{found} standard deviations of a feature (root mean square)"


def guess_error(truth: np.ndarray, guess: np.ndarray, *, is_share: bool) -> GuessError:
    """Compare guesses with what was observed.

    Args:
        truth: (row, feature) or (row, *event); NaN marks missing values, which do not count.
        guess: Of as many values.
        is_share: Whether values are names, such as bits, which are right or wrong: means of bits are rounded.

    Raises:
        InvalidInputError: If there are not as many guesses as values, or no value is observed.

    Examples:
        >>> guess_error(np.array([[0.0, 1.0], [1.0, np.nan]]), np.array([[0.2, 0.3], [0.9, 0.0]]), is_share=True).value
        0.3333333333333333
    """
    if truth.shape[:1] != guess.shape[:1] or truth.size != guess.size or np.isnan(truth).all():
        received = f"shapes {truth.shape} and {guess.shape}"
        raise InvalidInputError("guess", "must be of the truth's shape", received, "Give one per value.")
    flat = truth.reshape(len(truth), -1).astype(np.float64)
    seen, guesses = ~np.isnan(flat), guess.reshape(len(guess), -1)
    if is_share:
        losses = np.rint(guesses) != flat
    else:
        known = np.where(seen, flat, 0.0)
        count = np.maximum(seen.sum(0), 1)
        mean = known.sum(0) / count
        scale = np.sqrt((np.where(seen, flat - mean, 0.0) ** 2).sum(0) / count)
        losses = ((guesses - flat) / np.where(scale > 0, scale, 1.0)) ** 2
    per_row, weights = np.where(seen, losses, 0.0).sum(1), seen.sum(1)
    value = per_row.sum() / weights.sum()
    # of a ratio of sums over rows
    rows = len(flat)
    error = math.sqrt(((per_row - value * weights) ** 2).sum() / max(rows - 1, 1) * rows) / weights.sum()
    error = error if rows > 1 else math.nan
    if is_share:
        return GuessError(float(value), float(error), True)
    root = math.sqrt(value)
    return GuessError(root, float(error / (2 * root)) if root > 0 else 0.0, False)
