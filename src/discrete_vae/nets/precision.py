"""The precision of networks' products, and weights read from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.convolutional import Convolution, TransposedConvolution
from discrete_vae.nets.mlp import ConcatLinear
from discrete_vae.nets.weights import WorkingLayer, WorkingWeight

# Weights out of a file: checked against the module that they are for before anything changes.


OTHER_MODEL = "It belongs to another model: check config.json."


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, prefix: str = "") -> None:
    """Copy weights into a model.

    Raises:
        InvalidInputError: If they belong to another model or one is not finite; nothing is changed.

    Examples:
        >>> import torch
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> load_weights(layer, {"weight": torch.zeros(2, 1)})
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: weight must be float32 of shape (1, 1); received ...
    """
    check_weights(model, tensors, prefix=prefix)
    model.load_state_dict({name: tensors[f"{prefix}{name}"] for name in model.state_dict()})


def check_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, prefix: str = "") -> None:
    """Check that saved weights have a model's names, shapes and types, and that all are finite."""
    wanted = {f"{prefix}{name}": value for name, value in model.state_dict().items()}
    saved = {name: value for name, value in tensors.items() if name.startswith(prefix)}
    for name in sorted(wanted.keys() | saved.keys()):
        check_like(name, saved.get(name), wanted.get(name))
    for name, value in saved.items():
        finite = value.isfinite()
        if not bool(finite.all()):
            repair = "The file was changed by other means than training: restore it from a copy."
            received = f"a value of {float(value[~finite].flatten()[0])}"
            raise InvalidInputError(name, "must hold finite weights", received, repair)


def check_like(name: str, saved: Tensor | None, wanted: Tensor | None) -> None:
    """Check that a saved tensor is there, or not there, as wanted, with its shape and type."""
    if wanted is None:
        raise InvalidInputError(name, "must not be there", described(saved), OTHER_MODEL)
    if saved is None or saved.shape != wanted.shape or saved.dtype != wanted.dtype:
        raise InvalidInputError(name, f"must be {described(wanted)}", described(saved), OTHER_MODEL)


def described(value: object) -> str:
    """A tensor's type and shape in words; of something else its beginning."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return "no such tensor" if value is None else f"{value!r}"[:80]


# The precision in which the products of networks are computed.


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What settings call the precisions."""

_LAYERS = (ConcatLinear, Convolution, TransposedConvolution)  # a subclass may compute otherwise


def set_precision(module: nn.Module, dtype: torch.dtype) -> list[WorkingWeight]:
    """Let the products of all multilayer perceptrons and convolutional networks in a module be computed in a precision.

    Parameters and the state stay float32: products read copies beside them, which follow their changes. What enters
    a product is rounded, and so is what comes out; sums inside are float32. Networks of other kinds are left alone.

    Args:
        module: The model.
        dtype: float32 or bfloat16.

    Returns:
        The weights that products read from now on, for an optimizer that keeps them.
    """
    found = []
    for part in module.modules():
        if isinstance(part, WorkingLayer) and type(part) in _LAYERS:
            part.working = WorkingWeight(part.weight, dtype)  # pyright: ignore[reportArgumentType]
            found.append(part.working)
    return found


@contextmanager
def precision_of_products(module: nn.Module, dtype: torch.dtype) -> Iterator[list[WorkingWeight]]:
    """Within the block, the products of a module's networks are computed in a precision, see `set_precision`."""
    before = [(part, part.working) for part in module.modules() if isinstance(part, WorkingLayer)]
    try:
        yield set_precision(module, dtype)
    finally:
        for part, working in before:
            part.working = working


MIN_PRODUCTS = 2e6
"""Multiplications in the mean product of networks from which bfloat16 gains, if the processor has instructions for it.

A layer's call costs 0.06 ms more in bfloat16, and a million multiplications of a training step save as much, by whole
steps on one thread with AVX512-bf16 (docs/results.md, Times). Twice that is asked for.
"""


def gains_by_bfloat16(module: nn.Module, rows: int) -> bool:
    """True if the products of a module's multilayer perceptrons are large enough to be faster in bfloat16.

    Args:
        module: The model; its weights may be on the meta device.
        rows: Rows that enter a product, such as the examples of a minibatch.
    """
    sizes = [part.weight.numel() for part in module.modules() if type(part) is ConcatLinear]
    return bool(sizes) and rows * sum(sizes) / len(sizes) >= MIN_PRODUCTS


def precision_for(module: nn.Module, asked: str, device: torch.device | str, *, rows: int) -> str:
    """Resolve a setting of the precision for a module on a device.

    Args:
        module: The model.
        asked: "float32", "bfloat16" or "auto", which is bfloat16 where device and networks gain by it.
        device: Where products are computed.
        rows: Rows that enter a product.

    Returns:
        A key of `DTYPES`.
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
