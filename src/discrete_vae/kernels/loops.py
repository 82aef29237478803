"""Compiled loops: numba functions divided among OpenMP threads, with their machine code kept on disk."""

from __future__ import annotations

import ctypes
import inspect
import logging
import os
import stat
import sys
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import torch
from llvmlite import binding, ir
from numba import njit, prange, types
from numba.core import cgutils, config
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

from discrete_vae.errors import KernelWarning
from discrete_vae.kernels import codegen
from discrete_vae.kernels.codegen import INT32, INT64, builder_intrinsic

_log = logging.getLogger(__name__)
_SOURCES = (codegen, sys.modules[__name__])  # of all machine code

INNER: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of compiled functions that only others call."""

# Loops over chunks of work. Where torch's OpenMP is GNU's, a loop runs in a parallel region of that library: numba's
# own OpenMP layer would load a second copy, whose idle threads spin on the cores that torch's threads need.


class ChunkLoop:
    """A loop over chunks of independent work: on the calling thread, or divided among torch's threads, else numba's.

    Args:
        make: Takes `range`, `numba.prange` or another way to divide ``range(n)`` and returns the function with the loop
            over it. The function must not touch Python objects, as it runs without the interpreter's lock, nor raise.
            Every thread runs what stands around the loop. It returns an integer.
        prepare: Function to compile that takes the same arguments and is called once before the loop.
        sources: Modules beside the loop's own that the machine code depends on: a change of them compiles it anew.

    Attributes:
        serial: The loop on the calling thread, without what is prepared.
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
        self.serial = self._compiled("serial", range)

    def __call__(self, num_threads: int, *arguments: Any) -> Any:
        """Run the loop; the first call of each form compiles it, or loads it from the cache."""
        if self._prepare is not None:
            self._prepare(*arguments)
        if num_threads == 1:
            return self.serial(*arguments)
        if has_parallel_regions():
            return self._in_region(num_threads, *arguments)
        with numba_threads(num_threads):
            return self._parallel(*arguments)

    @cached_property
    def _in_region(self) -> Any:
        return self._compiled("region", share, parallel_region)

    @cached_property
    def _parallel(self) -> Any:
        return self._compiled("parallel", prange, parallel=True)

    def _compiled(
        self, form: str, divide: Any, around: Any = lambda loop: loop, *, parallel: bool = False
    ) -> Any:
        """The loop in one form; ``around`` gives what is called in its place."""
        key = self._key(form)
        return _compile(named(around(named(self._make(divide), key)), key), key, parallel=parallel)

    def _key(self, form: str) -> tuple[Any, ...]:
        """All that the machine code depends on, beside the types of the arguments and the processor."""
        function = self._make(range)
        cells = [cell.cell_contents for cell in function.__closure__ or () if cell.cell_contents is not range]
        constants = [value for value in cells if isinstance(value, (int, float))]
        own = inspect.getmodule(self._make)
        modules = {*self._sources, *_SOURCES, *([] if own is None else [own])}
        sources = "".join(map(inspect.getsource, sorted(modules, key=lambda module: module.__name__)))
        return form, function.__qualname__, tuple(constants), zlib.crc32(sources.encode())


# The number of threads.


SMALLEST_SHARED = 1_000_000
"""Spin updates of a call from which it is divided among threads: waking a second one costs as much as it gains."""

_ORDER, _LIMIT = "THREADING_LAYER_PRIORITY", "NUMBA_NUM_THREADS"
_lock = threading.Lock()
_process_of_threads: int | None = None


def threads_for(work: int) -> int:
    """The threads for a call of so much work."""
    return 1 if work < SMALLEST_SHARED else available_threads()


def available_threads() -> int:
    """The threads for a call that is large enough to be divided.

    ``torch.get_num_threads()``, or ``NUMBA_NUM_THREADS`` where that is smaller. Where threads are numba's, at most the
    number of `numba.set_num_threads`, and 1 in a forked child of a process that launched them, since GNU OpenMP ends a
    forked child that starts threads; they are launched only if more than one is to be used.
    """
    threads = torch.get_num_threads()
    if threads == 1 or getattr(config, _LIMIT) == 1:
        return 1
    if has_parallel_regions():
        return min(threads, getattr(config, _LIMIT))
    _launch()
    return min(threads, numba.get_num_threads()) if _process_of_threads == os.getpid() else 1


@contextmanager
def numba_threads(num_threads: int) -> Iterator[None]:
    """A block in which this thread's parallel numba functions use so many threads."""
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
    """Launch with OpenMP first, unless the user chose another layer: beside it numba's own pool is far slower."""
    order = getattr(config, _ORDER)
    setattr(config, _ORDER, ["omp", "tbb", "workqueue"])
    try:
        numba.get_num_threads()
    finally:
        setattr(config, _ORDER, order)


# OpenMP parallel regions of the library that torch has loaded.


_NAMES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads")
_LIBRARIES = ("libgomp*.so*", "libiomp5.so", "libomp.so")
_POINTER = ir.IntType(8).as_pointer()


@cache
def has_parallel_regions() -> bool:
    """True if torch's OpenMP was found, with GNU's entry point; makes its functions known to LLVM."""
    library = _library()
    if library is None:
        return False
    for name in _NAMES[:3]:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        binding.add_symbol(f"discrete_vae_{name}", address)
    return True


def _library() -> ctypes.CDLL | None:
    """The OpenMP library that torch has loaded; None if there is none of a known kind."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    folder = Path(torch.__file__).parent / "lib"
    own = [str(path) for pattern in _LIBRARIES for path in sorted(folder.glob(pattern))]
    for path in (*own, "libgomp.so.1", "libiomp5.so", "libomp.so.5"):
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:  # it is not loaded
            continue
        # torch tells its OpenMP how many threads it wants; of another library's that is not known
        if all(hasattr(library, name) for name in _NAMES):
            return library if library.omp_get_max_threads() == torch.get_num_threads() else None
    return None


def _openmp_number(name: str) -> Any:
    """An intrinsic: the result of one of OpenMP's functions without arguments."""

    @builder_intrinsic(types.int64)
    def number(builder):
        kind = ir.FunctionType(INT32, [])
        function = cgutils.get_or_insert_function(builder.module, kind, f"discrete_vae_{name}")
        return builder.zext(builder.call(function, []), INT64)

    return number


_thread, _threads = map(_openmp_number, _NAMES[1:3])


@njit(nogil=True)
def share(count):
    """This thread's part of ``range(count)`` in a parallel region; the threads' parts are consecutive."""
    thread, threads = _thread(), _threads()
    return range(thread * count // threads, (thread + 1) * count // threads)


def parallel_region(loop: Callable[..., Any]) -> Callable[..., Any]:
    """A function ``(num_threads, *arguments)`` for numba to compile, which lets each thread of a region run a loop.

    The loop takes the arguments, divides its work by `share`, raises nothing and returns an integer.
    """
    body: Any = njit(**INNER)(loop)

    @intrinsic
    def start(_typing, num_threads, arguments):
        def generate(context, builder, signature, values):
            kinds = signature.args[1]
            inner = types.int64(*kinds.types)
            body.compile(inner.args)
            compiled = body.overloads[inner.args]
            context.add_linking_libs([compiled.library])
            place = cgutils.alloca_once_value(builder, values[1])
            module = builder.module
            kind = ir.FunctionType(ir.VoidType(), [_POINTER])
            # though internal, names are looked up among those of all that was compiled
            entry = ir.Function(module, kind, name=module.get_unique_name(f"region_{loop.__qualname__}"))
            entry.linkage = "internal"
            inside = ir.IRBuilder(entry.append_basic_block("entry"))
            packed = inside.load(inside.bitcast(entry.args[0], place.type))
            members = cgutils.unpack_tuple(inside, packed, len(kinds.types))
            context.call_internal_no_propagate(inside, compiled.fndesc, inner, members)
            inside.ret_void()
            run = cgutils.get_or_insert_function(
                module,
                ir.FunctionType(ir.VoidType(), [entry.type, _POINTER, INT32, INT32]),
                "discrete_vae_GOMP_parallel",
            )
            number = builder.trunc(values[0], INT32)
            builder.call(run, [entry, builder.bitcast(place, _POINTER), number, ir.Constant(INT32, 0)])
            return ir.Constant(INT64, 0)

        return types.int64(types.int64, arguments), generate

    def call(num_threads, *arguments):
        return start(num_threads, arguments)  # pyright: ignore[reportCallIssue]

    return call


# Compilation, with numba's cache on disk where there is a safe place for one.


_REPAIR = "Set the environment variable NUMBA_CACHE_DIR to a folder that has free space and is writable by you alone."
_PACKAGE = Path(__file__).resolve().parents[1]


def named(function: Callable[..., Any], key: tuple[Any, ...]) -> Callable[..., Any]:
    """A function with a name of its own, which is that of its machine code.

    numba tells functions of one name apart by how many it has compiled before in the process. Code from its cache keeps
    the number of another process: two functions that differ in what they close over alone, loops or what these call,
    could have one name, and be called in each other's place.
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


class _KernelCache(FunctionCache):
    """numba's cache, for which damaged files are missing files and a full disk is no reason to stop.

    The key takes the place of the function's code and closure, which may look different in each process.
    """

    def __init__(self, function: Callable[..., Any], key: tuple[Any, ...]) -> None:
        super().__init__(function)
        self._key = key

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple(), self._key

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # what a truncated file holds may fail in any way
            with suppress(OSError):
                self.flush()  # the index too may be damaged, and saving reads it
        if found is None:
            _log.info("compiling %s", self._name)
        return found

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
