"""A compiled loop is tried before it is used; where it does not work, that is said and a slower way steps in."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from discrete_vae.compiled.recording import unrecorded
from discrete_vae.errors import KernelWarning


def tried(what: str, instead: str) -> Callable[[Callable[[], None]], Callable[[], bool]]:
    """Make of a trial a function that says whether it succeeds; it runs once in a process.

    Args:
        what: What the trial compiles, and compares with plain torch; it raises an error where they differ.
        instead: What is used where it fails.

    Returns:
        A decorator; what it makes warns with a `KernelWarning` where the trial fails.
    """

    def of(trial: Callable[[], None]) -> Callable[[], bool]:
        @cache
        @wraps(trial)
        def works() -> bool:
            try:
                with unrecorded(), torch.device("cpu"), _Float32(), torch.no_grad():
                    trial()
            except Warning:  # the user made warnings errors
                raise
            except Exception as error:
                warn_of_failure(what, error, instead)
                return False
            return True

        return works

    return of


class _Float32(TorchFunctionMode):
    """A block that makes float32 tensors, whatever torch's default dtype is."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return (
            result.float() if isinstance(result, torch.Tensor) and result.dtype == torch.float64 else result
        )


def check_close(*pairs: tuple[torch.Tensor, torch.Tensor], tolerance: float = 1e-5) -> None:
    """Compare what a loop gives with what plain torch gives.

    Raises:
        RuntimeError: If they differ by more than the tolerance, relative to numbers above 1.
    """
    for mine, plain in pairs:
        if not torch.allclose(mine.float(), plain.float(), rtol=tolerance, atol=tolerance):
            raise RuntimeError("its numbers are wrong")


def warn_of_failure(
    what: str, error: Exception, instead: str, *, where: str = "", package: str = "numba"
) -> None:
    """Warn that something compiled does not work here.

    A compiler's interface is not a stable one in all that is used of it, so a release of it may break a loop.

    Args:
        what: What does not work.
        error: What was raised.
        instead: What is used in its place.
        where: Under which circumstances it does not work.
        package: The compiler.

    Warns:
        KernelWarning: Always.
    """
    message = str(error).strip()
    reason = f"{type(error).__name__}: {message.splitlines()[0] if message else 'no message'}"
    warnings.warn(
        f"{what} does not work{where} with this {package} ({reason}); {instead}. "
        f"Install a version of {package} that is known to work.",
        KernelWarning,
        stacklevel=3,
    )
