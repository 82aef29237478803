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
    least, greatest = low.min(), high.max()
    if least > greatest or (least >= 0 and greatest <= 1):  # nothing is observed, or probabilities and bits
        return Ink(torch.tensor(0.0), torch.tensor(1.0), "black is 1")
    if not per_feature:
        return Ink(least, greatest, f"white is {float(least):g}, black is {float(greatest):g}")
    low, high = low.amin(0), high.amax(0)
    seen = low <= high
    words = "white is a feature's least value among the examples, black its greatest"
    return Ink(torch.where(seen, low, 0.0), torch.where(seen, high, 1.0), words)
