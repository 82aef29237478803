"""Products of matrices that neither autocast nor a setting of torch rounds."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor


class RoundedProductsWarning(UserWarning):
    """A compiled graph computes energies with products that torch rounds."""


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """A block in which neither autocast nor TF32 rounds products: energies of tens of nats need their digits.

    It costs next to nothing where neither is on. Autocast is switched off inside compiled graphs too. TF32 and
    bfloat16 products (`torch.set_float32_matmul_precision`) are a setting of the process, read when a product runs,
    which no graph can switch: if they are on while the block is compiled, a warning says so; if they are put on later,
    nothing does.

    Args:
        like: A tensor on the device where they are computed.

    Examples:
        >>> ones = torch.ones(1, 1)
        >>> with torch.autocast("cpu", torch.bfloat16), full_precision(ones):
        ...     (ones @ ones).dtype
        torch.float32
    """
    device = like.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if torch.compiler.is_compiling():
        _warn_of_rounding(device)
        rounds = False
    else:
        rounds = rounds_products(device)
    return _full_precision(device, autocast, rounds) if autocast or rounds else nullcontext()


def guard_products(cls: type, names: Iterable[str]) -> None:
    """Let methods of a class compute in `full_precision` for their first argument, as far as it defines them itself.

    Args:
        cls: The class.
        names: Names of the methods.
    """
    for name in names:
        method = cls.__dict__.get(name)
        if method is not None:
            setattr(cls, name, _in_full_precision(method))


def _in_full_precision(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The method with products as its first argument's dtype says."""

    @wraps(method)
    def guarded(self: object, z: Tensor, *arguments: Any) -> Tensor:
        with full_precision(z):
            return method(self, z, *arguments)

    return guarded


@contextmanager
def _full_precision(device: str, autocast: bool, rounds: bool) -> Iterator[None]:
    """`full_precision` where something is to be switched off; what was on is on again afterwards."""
    with (
        torch.autocast(device, enabled=False) if autocast else nullcontext(),
        _unrounded(device) if rounds else nullcontext(),
    ):
        yield


@contextmanager
def _unrounded(device: str) -> Iterator[None]:
    """Switch rounding off for the whole process, until the last of the threads that are inside leaves."""
    products = _products(device)
    with _lock:
        inside, before = _inside.get(device, (0, ""))
        _inside[device] = inside + 1, before if inside else products.fp32_precision
        products.fp32_precision = "ieee"
    try:
        yield
    finally:
        with _lock:
            inside, before = _inside.pop(device)
            if inside == 1:
                products.fp32_precision = before
            else:
                _inside[device] = inside - 1, before


_lock = threading.Lock()
_inside: dict[str, tuple[int, str]] = {}  # threads in `_unrounded`, and what is on again afterwards


def rounds_products(device: str) -> bool:
    """Whether torch's settings round float32 products, though some thread may just have switched that off.

    Args:
        device: The kind of device.
    """
    return device in _inside or _products(device).fp32_precision in ("tf32", "bf16")


def _warn_of_rounding(device: str) -> None:
    """Warn while a graph is compiled, which is when this runs; the graph keeps nothing of it."""
    if rounds_products(device):
        warnings.warn(
            f"torch rounds float32 products on {device}, and a compiled graph cannot switch that off for the energies: "
            "they lose digits, a relative 1e-3 (TF32) to 1e-2 (bfloat16) of each product. Call "
            "torch.set_float32_matmul_precision('highest') before the compiled function is called, or call it "
            "uncompiled, where energies are exact.",
            RoundedProductsWarning,
            stacklevel=2,
        )


# what torch.compiler.assume_constant_result does, without the seconds that its import takes
_warn_of_rounding._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def _products(device: str) -> Any:
    """Torch's settings of matrix products on a device."""
    backend: Any = torch.backends.cuda if device == "cuda" else torch.backends.mkldnn
    return backend.matmul
