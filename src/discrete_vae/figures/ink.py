"""From values to ink: 0 is paper, 1 is black."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Ink:
    """A scale of gray for values of some range.

    Attributes:
        low: What is white, a value or one per feature.
        high: What is black, likewise.
        words: What black is, for captions.
    """

    low: Tensor
    high: Tensor
    words: str

    def __call__(self, values: Tensor) -> Tensor:
        """Ink in [0, 1], values beyond the range cut off, (..., feature); NaN stays."""
        span = self.high - self.low
        return ((values - self.low) / torch.where(span > 0, span, 1.0)).clamp(0, 1)


def ink_for(x: Tensor, *, per_feature: bool) -> Ink:
    """The scale for given examples: as they are where all lie in [0, 1], otherwise from the least to the greatest.

    Args:
        x: (example, feature); NaN marks missing values.
        per_feature: Whether each feature has a scale of its own, as those of a table need.

    Examples:
        >>> ink = ink_for(torch.tensor([[-1.0], [3.0]]), per_feature=False)
        >>> ink(torch.tensor([[1.0], [7.0]])).flatten().tolist(), ink.words
        ([0.5, 1.0], 'white is -1, black is 3')
    """
    low = torch.where(x.isnan(), torch.inf, x)
    high = torch.where(x.isnan(), -torch.inf, x)
    least, greatest = float(low.min()), float(high.max())
    if not per_feature or not _exceeds(least, greatest):
        return ink_of_range(least, greatest)
    low, high = low.amin(0), high.amax(0)
    seen = low <= high
    words = "white is a feature's least value among the examples, black its greatest"
    return Ink(torch.where(seen, low, 0.0), torch.where(seen, high, 1.0), words)


def ink_of_range(low: float, high: float) -> Ink:
    """The scale for values of a range: as they are where it lies in [0, 1], otherwise from its one end to the other.

    Args:
        low: The least value.
        high: The greatest.

    Examples:
        >>> ink_of_range(0.0, 1.0).words, ink_of_range(-1.0, 3.0).words
        ('black is 1', 'white is -1, black is 3')
    """
    if not _exceeds(low, high):
        return Ink(torch.tensor(0.0), torch.tensor(1.0), "black is 1")
    return Ink(torch.tensor(low), torch.tensor(high), f"white is {low:g}, black is {high:g}")


def _exceeds(low: float, high: float) -> bool:
    """Whether values are neither probabilities nor bits; they are taken for such where none is observed."""
    return low < 0 or high > 1
