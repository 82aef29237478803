"""Whether compiled loops may take the place of plain torch: nothing but torch's plain arithmetic is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from discrete_vae.compiled.recording import is_recording

_PLAIN = (Tensor, nn.Parameter)
_DTYPES = (torch.float32, torch.bfloat16)
_FLOAT32 = (torch.float32,)


def is_ordinary() -> bool:
    """Whether torch computes as it stands: nothing compiles, traces, transforms, intercepts or casts operations."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or (torch._C._len_torch_dispatch_stack() and not is_recording())
        or forward_ad._current_level >= 0
    )


def are_plain(tensors: Iterable[Tensor], dtypes: Sequence[torch.dtype] = _DTYPES) -> bool:
    """Whether all are ordinary tensors on the CPU, of one of these types."""
    # a plain loop is three times as fast as all() of a generator, and this runs at every step
    for value in tensors:  # noqa: SIM110
        if type(value) not in _PLAIN or value.dtype not in dtypes or not value.is_cpu:
            return False
    return True


def fuses(*tensors: Tensor) -> bool:
    """Whether a compiled pass over rows can read all of them: ordinary, float32, none of them empty."""
    return is_ordinary() and are_plain(tensors, _FLOAT32) and all(map(Tensor.numel, tensors))
