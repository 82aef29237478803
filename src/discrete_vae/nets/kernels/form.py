"""What is not a tensor of an L1 batch norm, as the compiled passes take it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

SCALE_BOUNDS = (2.0, 3.0)
"""Of the scale of bounded norms (Rolfe 2017, appendix laplacian-batch-normalization)."""

INFINITY, ZERO, ONE = np.float32(math.inf), np.float32(0), np.float32(1)


class Form:
    """The numbers of a norm in float32, in the order of the loops' arguments.

    Args:
        eps: Added to the deviation.
        momentum: Weight of a batch in the running averages.
        bounds: Of the scale, which then also bounds the offset; None for none.
        rectify: Whether the output is at least 0.

    Attributes:
        floor: The least output.
        forward: For the forward pass.
        backward: For the backward pass.
    """

    def __init__(
        self, eps: float, momentum: float, bounds: tuple[float, float] | None, rectify: bool
    ) -> None:
        low, high = (-math.inf, math.inf) if bounds is None else bounds
        slack = INFINITY if bounds is None else ZERO
        self.floor = ZERO if rectify else -INFINITY
        limits = np.float32(low), np.float32(high), slack, self.floor
        self.forward = (np.float32(eps), np.float32(momentum), *limits)
        self.backward = (np.float32(eps), *limits)


@cache
def norm_form(eps: float, momentum: float, bounds: tuple[float, float] | None, rectify: bool) -> Form:
    """A `Form`, made once."""
    return Form(eps, momentum, bounds, rectify)
