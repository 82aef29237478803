"""Numbers brought back between bounds, in one compiled pass."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from discrete_vae.compiled.elementary import magnitude
from discrete_vae.compiled.rows import RowPass
from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.compiled.vector_ir import Vector


def project_(value: Tensor, low: Tensor, high: Tensor) -> None:
    """Move numbers between bounds; what is infinite stays.

    Args:
        value: Contiguous, float32, not empty; changed.
        low: One number.
        high: One number, at least low.
    """
    flat = value.view(-1)
    _PROJECT([flat], [low, high], [flat])


def moved(value: Vector, low: Vector | float, high: Vector | float) -> Vector:
    """The numbers between the bounds, what is infinite as it is."""
    return value.where(magnitude(value).reaches(math.inf), value.between(low, high))


def _project(elements: list[Vector], per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    return [moved(elements[0], *per_row)], []


_PROJECT = RowPass("projection", _project, elements=1, per_row=2, outputs=1)


@tried("The compiled projection", "plain torch is used")
def works() -> None:
    """Whether it gives what plain torch gives."""
    low, high = torch.tensor(2.0), torch.tensor(3.0)
    found = torch.tensor([1.0, 2.5, 4.0, math.inf, -math.inf])
    project_(found, low, high)
    check_close((found, torch.tensor([2.0, 2.5, 3.0, math.inf, -math.inf])), tolerance=0)
