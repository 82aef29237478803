"""What the values of data are, found in one pass over blocks of rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from discrete_vae.domains import ValueSummary

_ROWS = 4096


def summarize(x: Tensor) -> ValueSummary:
    """Range of the observed values, whether all are whole numbers, and how many are missing.

    Args:
        x: (example, ...), floating-point; NaN marks missing values.

    Examples:
        >>> summarize(torch.tensor([[1.0, torch.nan], [3.0, 2.0]]))
        ValueSummary(low=1.0, high=3.0, whole=True, num_missing=1, num_values=4)
    """
    total = ValueSummary(math.inf, -math.inf, True)
    for rows in x.split(_ROWS):
        missing = rows.isnan()
        count = int(missing.sum())
        seen = rows[~missing] if count else rows
        if seen.numel():
            low, high = (float(value) for value in torch.aminmax(seen))
            whole = bool((seen == seen.trunc()).all()) and math.isfinite(high - low)
            total += ValueSummary(low, high, whole)
        total += ValueSummary(math.inf, -math.inf, True, count, rows.numel())
    return total
