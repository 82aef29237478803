"""Linear maps of rows outside training, where a row gets the same digits wherever it stands."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.compiled.choice import are_plain


def row_products(
    rows: Tensor, weight: Tensor, bias: Tensor | None = None, *, rectify: bool = False
) -> Tensor:
    """A linear map and, if asked for, a rectifier; no gradient passes through.

    oneDNN gives a row digits that do not depend on its place among at least two rows. What torch calls otherwise does
    not on every processor: those without AVX-512 round the rows of small matrices by where they lie in memory. A
    weight that is a slice is copied: without AVX-512 oneDNN multiplies by one with its reference kernel, far slower.

    Args:
        rows: (..., input), on any device.
        weight: (output, input), of the same precision; best contiguous.
        bias: (output,).
        rectify: Whether negative results become 0.

    Returns:
        (..., output).
    """
    if are_plain((rows, weight)) and _multiplies(rows.dtype):
        kind = "relu" if rectify else "none"
        return torch.ops.mkldnn._linear_pointwise(rows, weight.contiguous(), bias, kind, [], "")
    out = F.linear(rows, weight, bias)
    return out.relu_() if rectify else out


@cache
def _multiplies(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies matrices of a precision on this processor: bfloat16 not without AVX-512 or its like."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
