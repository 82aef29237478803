"""Scale and offset of a bounded norm brought back inside their bounds, in one compiled pass."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.compiled.projection import moved
from discrete_vae.compiled.rows import RowPass
from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.compiled.vector_ir import Vector
from discrete_vae.nets.kernels.form import SCALE_BOUNDS


def project_norm_(scale: Tensor, offset: Tensor) -> None:
    """Move a scale between its bounds, then an offset between minus and plus the scale; what is infinite stays.

    Args:
        scale: (feature,), contiguous, float32; changed.
        offset: Likewise.
    """
    _PROJECT([scale, offset], outputs=[scale, offset])


def _project(elements: list[Vector], _per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    scale, offset = elements
    scale = moved(scale, *SCALE_BOUNDS)
    return [scale, moved(offset, -scale, scale)], []


_PROJECT = RowPass("projection of a norm", _project, elements=2, outputs=2)


@tried("The compiled projection of norms", "plain torch is used")
def works() -> None:
    """Whether it gives what plain torch gives, on a small norm."""
    scale, offset = torch.linspace(1, 4, 43), torch.linspace(5, -5, 43)
    right = scale.clamp(*SCALE_BOUNDS)
    expected = offset.clamp(-right, right)
    project_norm_(scale, offset)
    check_close((scale, right), (offset, expected), tolerance=0)
