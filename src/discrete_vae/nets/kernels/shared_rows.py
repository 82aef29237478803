"""What all samples of an example share, added to the rows of each of them, with a rectifier, in one compiled pass."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.compiled.sample_rows import Made, SamplePass
from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.compiled.vector_ir import Vector


def add_shared_(rows: Tensor, shared: Tensor, *, rectify: bool) -> None:
    """Add, in place.

    Args:
        rows: (sample, example, feature), float32 or bfloat16.
        shared: (example, feature), float32.
        rectify: Whether numbers below 0 become 0; NaN stays NaN.
    """
    total = torch.empty((), dtype=torch.float32, device="cpu").expand(
        rows.shape[:2]
    )  # nothing is added to it
    _PASSES[rows.dtype, rectify]([rows, shared.expand(rows.shape)], [rows], total=total)


def _add(elements: list[Vector], _numbers: list[Vector], _words: list[Vector]) -> Made:
    return Made([elements[0] + elements[1]])


def _add_and_rectify(elements: list[Vector], _numbers: list[Vector], _words: list[Vector]) -> Made:
    found = elements[0] + elements[1]
    return Made([found.filled(0).where(found.below(0), found)])


_PASSES = {
    (dtype, rectify): SamplePass(
        f"add shared {rectify}",
        _add_and_rectify if rectify else _add,
        elements=[dtype == torch.bfloat16, False],
        outputs=[dtype == torch.bfloat16],
    )
    for dtype in (torch.float32, torch.bfloat16)
    for rectify in (True, False)
}


@tried("The compiled sum of rows and what they share", "plain torch is used")
def works() -> None:
    """Whether it gives what plain torch gives, on a small batch."""
    start, shared = torch.linspace(-2, 2, 3 * 2 * 37).view(3, 2, 37), torch.linspace(-1, 1, 74).view(2, 37)
    for (dtype, rectify), _ in _PASSES.items():
        rows = start.to(dtype)
        right = rows.float() + shared
        add_shared_(rows, shared, rectify=rectify)
        check_close((rows, (right.relu() if rectify else right).to(dtype)), tolerance=1e-2)
