"""How loops are compiled: by numba, with its cache on disk where there is a place for one."""

from __future__ import annotations

import inspect
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

from numba import njit, prange
from numba.core.caching import FunctionCache

from discrete_vae.compiled.threads import numba_threads
from discrete_vae.errors import KernelWarning

_REPAIR = "Set the environment variable NUMBA_CACHE_DIR to a folder that is writable and has free space."


class ChunkLoop:
    """A loop over chunks of independent work in two forms, on the calling thread and divided among numba's threads.

    numba's cache notices a change of the loop's own file only. What the loop calls in other files must enter the
    cache's key as a variable of its closure: `source_digest` of those files.

    Args:
        make: Takes `range` or `numba.prange` and returns the function with the loop over it. The function must not
            touch Python objects: it runs without the interpreter's lock.
    """

    def __init__(self, make: Callable[[Any], Callable[..., Any]]) -> None:
        self._serial = _compile(make(range), parallel=False)
        self._parallel = _compile(make(prange), parallel=True)

    def __call__(self, num_threads: int, *arguments: Any) -> Any:
        """Run the loop; the first call of each form compiles it, or loads it from the cache."""
        if num_threads == 1:
            return self._serial(*arguments)
        with numba_threads(num_threads):
            return self._parallel(*arguments)


def _compile(function: Callable[..., Any], *, parallel: bool) -> Any:
    compiled = njit(nogil=True, parallel=parallel)(function)
    try:
        compiled._cache = _KernelCache(function)  # pyright: ignore[reportAttributeAccessIssue]
    except RuntimeError:  # numba found no folder that is writable
        _warn_without_cache("numba finds no writable folder for its cache")
    return compiled


def source_digest(*modules: ModuleType) -> int:
    """A number that changes with the source of modules."""
    return zlib.crc32("".join(map(inspect.getsource, modules)).encode())


class _KernelCache(FunctionCache):
    """numba's cache, for which damaged files are missing files and a full disk is no reason to stop."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # what a truncated file holds may fail in any way
            with suppress(OSError):
                self.flush()  # the index too may be damaged, and saving reads it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_without_cache(
                f"numba's cache in {self.cache_path} cannot be written ({error.strerror or error})"
            )


@cache
def _warn_without_cache(reason: str) -> None:
    warnings.warn(
        f"{reason}, so each process compiles its loops anew, which takes some seconds. {_REPAIR}",
        KernelWarning,
        stacklevel=2,
    )
