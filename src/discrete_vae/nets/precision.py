"""The precision in which the products of networks are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from discrete_vae.nets.convolutional import Convolution, TransposedConvolution
from discrete_vae.nets.mlp import ConcatLinear
from discrete_vae.nets.weights import MixedPrecisionLayer, MixedPrecisionWeight

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Precisions by their names in settings."""

_LAYERS = (ConcatLinear, Convolution, TransposedConvolution)  # a subclass may compute otherwise


def set_precision(module: nn.Module, dtype: torch.dtype) -> list[MixedPrecisionWeight]:
    """Let products of the multilayer perceptrons and convolutional networks in a module be float32 or bfloat16.

    Parameters and the state stay float32: products read copies beside them, which follow their changes, and are
    returned for an optimizer that keeps them. What enters a product is rounded, and so is what comes out; sums inside
    are float32. Networks of other kinds are left alone.
    """
    found = []
    for part in module.modules():
        if isinstance(part, MixedPrecisionLayer) and type(part) in _LAYERS:
            part.mixed_precision = MixedPrecisionWeight(part.weight, dtype)  # pyright: ignore[reportArgumentType]
            found.append(part.mixed_precision)
    return found


@contextmanager
def precision_of_products(module: nn.Module, dtype: torch.dtype) -> Iterator[list[MixedPrecisionWeight]]:
    """Within the block, the products of a module's networks are computed in a precision, see `set_precision`."""
    before = [
        (part, part.mixed_precision) for part in module.modules() if isinstance(part, MixedPrecisionLayer)
    ]
    try:
        yield set_precision(module, dtype)
    finally:
        for part, weight in before:
            part.mixed_precision = weight


MIN_PRODUCTS = 2e6
"""Multiplications in the mean product of networks from which bfloat16 gains, if the processor has instructions for it.

It is twice the number at which what they save pays for the longer call of a layer; docs/results.md, Times.
"""


def gains_by_bfloat16(module: nn.Module, rows: int) -> bool:
    """True if the products of a module's multilayer perceptrons are large enough to be faster in bfloat16."""
    sizes = [part.weight.numel() for part in module.modules() if type(part) is ConcatLinear]
    return bool(sizes) and rows * sum(sizes) / len(sizes) >= MIN_PRODUCTS


def precision_for(module: nn.Module, asked: str, device: torch.device | str, *, rows: int) -> str:
    """Resolve a setting of the precision, a key of `DTYPES` or "auto", for products of so many rows on a device.

    "auto" is bfloat16 where device and networks gain by it.
    """
    if asked != "auto":
        return asked
    return "bfloat16" if has_fast_bfloat16(device) and gains_by_bfloat16(module, rows) else "float32"


def has_fast_bfloat16(device: torch.device | str = "cpu") -> bool:
    """True if the processor has instructions for products of bfloat16."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return False
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return False
