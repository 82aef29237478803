"""Compiled loops: threads, cache on disk, and the trial before first use."""

from __future__ import annotations

import inspect
import os
import stat
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from numba import njit, prange
from numba.core.caching import FunctionCache
from torch.overrides import TorchFunctionMode

from discrete_vae.errors import KernelWarning
from discrete_vae.kernels import openmp
from discrete_vae.kernels.capture import unrecorded

# How many threads a compiled loop uses: torch's number, at most as many as numba may use.
#
# Where torch's own threads can be used (`discrete_vae.kernels.openmp`), numba's are never launched. Elsewhere
# numba fixes its threading layer once per process, when the first parallel function runs. Unless the user
# chose a layer (`NUMBA_THREADING_LAYER` or `numba.config.THREADING_LAYER`) or another library already
# launched one, OpenMP is put first for that moment and then the order restored: beside OpenMP, numba's own
# pool nearly halves the speed.


SMALLEST_SHARED = 1_000_000
"""Spin updates of a call from which it is divided among threads.

Waking a second thread costs as much as this many updates gain by it, and far more where another program has its core.
Other loops have other work; `threads_for` takes their bound.
"""

_ORDER, _LIMIT = "THREADING_LAYER_PRIORITY", "NUMBA_NUM_THREADS"
_lock = threading.Lock()
_process_of_threads: int | None = None


def threads_for(work: int, smallest: int | None = None) -> int:
    """The threads for a call of so much work.

    Args:
        work: Spin updates, or what else the loop counts.
        smallest: The least work that is divided; None means `SMALLEST_SHARED`.

    Returns:
        ``torch.get_num_threads()``, or ``NUMBA_NUM_THREADS`` where that is smaller; 1 for a small call. Where they are
        numba's, at most the number of `numba.set_num_threads`, and 1 in a forked child of a process that launched them,
        since GNU OpenMP ends a forked child that starts threads; they are launched only if more than one is to be
        used.
    """
    threads = torch.get_num_threads()
    if threads == 1 or work < (SMALLEST_SHARED if smallest is None else smallest):
        return 1
    import numba  # takes a while
    from numba.core import config

    from discrete_vae.kernels import openmp

    if getattr(config, _LIMIT) == 1:
        return 1
    if openmp.has_team():
        return min(threads, getattr(config, _LIMIT))
    _launch()
    return min(threads, numba.get_num_threads()) if _process_of_threads == os.getpid() else 1


@contextmanager
def numba_threads(num_threads: int) -> Iterator[None]:
    """Within the block, this thread's parallel numba functions use so many threads."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(num_threads)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def _launch() -> None:
    """Launch numba's threads once in a process, without changing torch's number.

    numba tells OpenMP its own number of threads. OpenMP keeps that number for each thread that asks, and torch reads
    the same one, so a thread that then ends does it.
    """
    global _process_of_threads
    with _lock:
        if _process_of_threads is not None:
            return
        launcher = threading.Thread(target=_launch_here, name="discrete_vae-launch")
        launcher.start()
        launcher.join()
        _process_of_threads = os.getpid()


def _launch_here() -> None:
    import numba
    from numba.core import config

    order = getattr(config, _ORDER)
    setattr(config, _ORDER, ["omp", "tbb", "workqueue"])
    try:
        numba.get_num_threads()
    finally:
        setattr(config, _ORDER, order)


# How loops are compiled: by numba, with its cache on disk where there is a place for one.


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
        if openmp.has_team():
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
        return self._compiled("team", openmp.share, openmp.on_team)

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
        modules = (*self._sources, openmp, *([] if own is None else [own]))
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


# A compiled loop is tried before it is used; where it does not work, that is said and a slower way steps in.


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
