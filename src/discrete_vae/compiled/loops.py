"""How loops are compiled: by numba, with its cache on disk where there is a place for one."""

from __future__ import annotations

import inspect
import os
import stat
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from numba import njit, prange
from numba.core.caching import FunctionCache

from discrete_vae.compiled import team
from discrete_vae.compiled.threads import numba_threads
from discrete_vae.errors import KernelWarning

_REPAIR = "Set the environment variable NUMBA_CACHE_DIR to a folder that has free space and is writable by you alone."
_PACKAGE = Path(__file__).resolve().parents[1]


class ChunkLoop:
    """A loop over chunks of independent work: on the calling thread, or divided among torch's threads, else numba's.

    Args:
        make: Takes `range`, `numba.prange` or another way to divide ``range(n)`` and returns the function with the loop
            over it. The function must not touch Python objects, as it runs without the interpreter's lock, nor raise.
            Every thread runs what stands around the loop. It returns an integer.
        prepare: Function to compile that takes the same arguments and is called once before the loop.
        sources: Modules that the machine code depends on, so that a change of them compiles it anew; the loop's own is
            always among them.
    """

    def __init__(
        self,
        make: Callable[[Any], Callable[..., Any]],
        *,
        prepare: Callable[..., Any] | None = None,
        sources: Sequence[ModuleType] = (),
    ) -> None:
        self._make, self._sources = make, sources
        self._prepare = None if prepare is None else _compile(prepare, self._key("prepare"))
        self._serial = self._compiled("serial", range)

    def __call__(self, num_threads: int, *arguments: Any) -> Any:
        """Run the loop; the first call of each form compiles it, or loads it from the cache."""
        if self._prepare is not None:
            self._prepare(*arguments)
        if num_threads == 1:
            return self._serial(*arguments)
        if team.has_team():
            return self._on_team(num_threads, *arguments)
        with numba_threads(num_threads):
            return self._parallel(*arguments)

    def bind(self, num_threads: int, *arguments: Any) -> Callable[[], Any]:
        """A function without arguments that runs the loop on these, as a recorded step calls it again and again."""
        if num_threads == 1 and self._prepare is None:
            return partial(self._serial, *arguments)
        return partial(self, num_threads, *arguments)

    @cached_property
    def _on_team(self) -> Any:
        return self._compiled("team", team.share, team.on_team)

    @cached_property
    def _parallel(self) -> Any:
        return self._compiled("parallel", prange, parallel=True)

    def _compiled(
        self,
        form: str,
        divide: Any,
        around: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda loop: loop,
        *,
        parallel: bool = False,
    ) -> Any:
        """The loop in one form; ``around`` gives what is called in its place."""
        key = self._key(form)
        return _compile(_named(around(_named(self._make(divide), key)), key), key, parallel=parallel)

    def _key(self, form: str) -> tuple[Any, ...]:
        """What, beside the types of the arguments and the processor, the machine code depends on."""
        function = self._make(range)
        cells = [cell.cell_contents for cell in function.__closure__ or () if cell.cell_contents is not range]
        constants = [value for value in cells if isinstance(value, (int, float))]
        own = inspect.getmodule(self._make)
        modules = (*self._sources, team, *([] if own is None else [own]))
        return form, function.__qualname__, tuple(constants), source_digest(*modules)


def _named(function: Callable[..., Any], key: tuple[Any, ...]) -> Callable[..., Any]:
    """A function with a name of its own, which is that of its machine code.

    numba tells functions of one name apart by how many it has compiled before in the process. Code from its cache keeps
    the number of another process: two loops that differ in a constant alone could have one name, and be called in each
    other's place.
    """
    digest = zlib.crc32(repr(key).encode())
    function.__qualname__ = f"{function.__qualname__}_{digest:08x}"
    return function


def _compile(function: Callable[..., Any], key: tuple[Any, ...], *, parallel: bool = False) -> Any:
    compiled = njit(nogil=True, parallel=parallel)(function)
    try:
        kept = _KernelCache(function, key)
    except RuntimeError:  # numba found no folder that is writable
        _warn_without_cache("numba finds no writable folder for its cache")
        return compiled
    if (folder := _writable_by_others(Path(kept.cache_path))) is not None:
        _warn_without_cache(f"anyone may write in {folder}, and code in numba's cache there would be run")
    else:
        compiled._cache = kept  # pyright: ignore[reportAttributeAccessIssue]
    return compiled


def _writable_by_others(path: Path) -> Path | None:
    """The folder through which anyone could plant files in a cache; None if there is none, or it is the package's."""
    path = path.resolve()
    if os.name == "nt" or path.is_relative_to(_PACKAGE):  # who may write there may write the code itself
        return None
    for folder in (path, *path.parents):
        mode = folder.stat().st_mode if folder.exists() else 0
        # in a folder above the cache's own the sticky bit keeps others from replacing what is not theirs
        if mode & stat.S_IWOTH and (folder == path or not mode & stat.S_ISVTX):
            return folder
    return None


def source_digest(*modules: ModuleType) -> int:
    """A number that changes with the source of modules."""
    return zlib.crc32("".join(map(inspect.getsource, modules)).encode())


class _KernelCache(FunctionCache):
    """numba's cache, for which damaged files are missing files and a full disk is no reason to stop.

    Args:
        function: What is compiled.
        key: Takes the place of the function's code and closure, which numba looks at, but which may look different in
            each process.
    """

    def __init__(self, function: Callable[..., Any], key: tuple[Any, ...]) -> None:
        super().__init__(function)
        self._key = key

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple(), self._key

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
