"""Moments of features over training data with unobserved entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.records import ShowsShapes

_ROWS = 4096


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMoments(ShowsShapes):
    """Moments of each feature over its observed entries, on the CPU.

    Attributes:
        count: Number of observed entries, (*event), float64.
        mean: (*event), float64; 0 where nothing was observed.
        variance: Mean squared deviation, (*event), float64; exactly 0 for a constant feature.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor


def feature_moments(x: Tensor, observed: Tensor | None = None) -> FeatureMoments:
    """Count, mean and variance of each feature in two passes of float64.

    Args:
        x: (example, *event); NaN marks unobserved entries.
        observed: Bool, of x's shape; None: every entry that is not NaN is observed.

    Examples:
        >>> feature_moments(torch.tensor([[1.0, 5.0], [3.0, torch.nan]])).mean
        tensor([2., 5.], dtype=torch.float64)
    """
    shape = x.shape[1:]
    count, total = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    low = torch.full(shape, torch.inf, dtype=torch.float64)
    high = -low
    for part, seen in _parts(x, observed):
        count += seen.sum(0)
        total += part.masked_fill(~seen, 0).sum(0)
        low = torch.minimum(low, part.masked_fill(~seen, torch.inf).amin(0))
        high = torch.maximum(high, part.masked_fill(~seen, -torch.inf).amax(0))
    constant = low == high  # by value: rounding of the mean would leave a variance
    mean = torch.where(constant, low, total / count.clamp_min(1))
    squares = torch.zeros(shape, dtype=torch.float64)
    for part, seen in _parts(x, observed):
        squares += (part - mean).masked_fill(~seen, 0).square().sum(0)
    return FeatureMoments(count, mean, squares / count.clamp_min(1))


def _parts(x: Tensor, observed: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of rows in float64, each with its mask."""
    for first in range(0, len(x), _ROWS):
        part = x[first : first + _ROWS].detach().to("cpu", torch.float64)
        yield part, ~part.isnan() if observed is None else observed[first : first + _ROWS].cpu()
