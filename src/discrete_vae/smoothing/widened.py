"""The precision in which transformations compute."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(*tensors: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """Tensors of one shape in one dtype, float32 or wider, and the dtype that they have together.

    Inverse CDFs lose z itself in bfloat16, so networks that give it do not push them below float32.
    """
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    return tuple(tensor.to(wide) for tensor in torch.broadcast_tensors(*tensors)), dtype
