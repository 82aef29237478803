"""Shapes of the step size along a run: its share of the largest one after a share of the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


class ConstantRate:
    """1 throughout."""

    def __call__(self, progress: float) -> float:
        """The share after a share of the run, which is from 0 to 1."""
        return 1.0


@dataclass(frozen=True)
class ExponentialRate:
    """f^t after a share t of the run.

    Args:
        final_fraction: f, what is left at the end.

    Examples:
        >>> round(ExponentialRate(0.01)(0.5), 6)
        0.1
    """

    final_fraction: float

    def __call__(self, progress: float) -> float:
        """The share after a share of the run, which is from 0 to 1."""
        return self.final_fraction**progress


@dataclass(frozen=True)
class CosineRate:
    """f + (1 - f) (1 + cos pi t) / 2 after a share t of the run.

    Args:
        final_fraction: f, what is left at the end.

    Examples:
        >>> round(CosineRate(0.5)(0.5), 6)
        0.75
    """

    final_fraction: float

    def __call__(self, progress: float) -> float:
        """The share after a share of the run, which is from 0 to 1."""
        return self.final_fraction + (1 - self.final_fraction) * (1 + math.cos(math.pi * progress)) / 2


class StepRate:
    """factor^n after n drops.

    Args:
        at: Shares of the run at which it drops.
        factor: What a drop leaves.

    Examples:
        >>> [StepRate((0.6, 0.75), 0.5)(t) for t in (0.5, 0.6, 1.0)]
        [1.0, 0.5, 0.25]
    """

    def __init__(self, at: Sequence[float], factor: float) -> None:
        self.at, self.factor = tuple(at), factor

    def __call__(self, progress: float) -> float:
        """The share after a share of the run, which is from 0 to 1."""
        return self.factor ** sum(progress >= share for share in self.at)
