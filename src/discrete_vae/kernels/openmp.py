"""Compiled loops on torch's own team of OpenMP threads.

numba's OpenMP layer loads another copy of the library than torch's wheel brings along, so beside torch there are two
teams, and the idle threads of either spin for milliseconds on the cores that the other one needs. Here the loop is run
by `GOMP_parallel` of the copy that torch uses: a thread that still spins after torch's last operation takes up its
share within a microsecond.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from discrete_vae.kernels.codegen import INT64

_NAMES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads")
_LIBRARIES = ("libgomp*.so*", "libiomp5.so", "libomp.so")
_INT32, _POINTER = ir.IntType(32), ir.IntType(8).as_pointer()


@cache
def has_team() -> bool:
    """Whether torch's OpenMP was found, with GNU's way of starting a team; makes its functions known to LLVM."""
    library = _library()
    if library is None:
        return False
    for name in _NAMES[:3]:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        binding.add_symbol(_symbol(name), address)
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


def _symbol(name: str) -> str:
    return f"discrete_vae_{name}"


def _number(builder: Any, name: str) -> Any:
    """What one of OpenMP's functions without arguments says, LLVM int64."""
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_INT32, []), _symbol(name))
    return builder.zext(builder.call(function, []), INT64)


@intrinsic
def _thread(_typing):
    """This thread's number in its team."""

    def generate(_context, builder, _signature, _arguments):
        return _number(builder, "omp_get_thread_num")

    return types.int64(), generate


@intrinsic
def _threads(_typing):
    """Threads of this team."""

    def generate(_context, builder, _signature, _arguments):
        return _number(builder, "omp_get_num_threads")

    return types.int64(), generate


@njit(nogil=True)
def share(count):
    """This thread's part of ``range(count)``; the team's parts are consecutive."""
    thread, threads = _thread(), _threads()  # pyright: ignore[reportCallIssue]
    return range(thread * count // threads, (thread + 1) * count // threads)


def on_team(loop: Callable[..., Any]) -> Callable[..., Any]:
    """A function ``(num_threads, *arguments)`` for numba to compile, which lets each thread of a team run a loop.

    Args:
        loop: Takes the arguments, divides its work by `share`, raises nothing and returns an integer.
    """
    options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    body: Any = njit(**options)(loop)

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
            entry = ir.Function(module, kind, name=module.get_unique_name(f"on_team_{loop.__qualname__}"))
            entry.linkage = "internal"
            inside = ir.IRBuilder(entry.append_basic_block("entry"))
            packed = inside.load(inside.bitcast(entry.args[0], place.type))
            unpacked = [inside.extract_value(packed, index) for index in range(len(kinds.types))]
            context.call_internal_no_propagate(inside, compiled.fndesc, inner, unpacked)
            inside.ret_void()
            run = cgutils.get_or_insert_function(
                module,
                ir.FunctionType(ir.VoidType(), [entry.type, _POINTER, _INT32, _INT32]),
                _symbol("GOMP_parallel"),
            )
            number = builder.trunc(values[0], _INT32)
            builder.call(run, [entry, builder.bitcast(place, _POINTER), number, ir.Constant(_INT32, 0)])
            return ir.Constant(INT64, 0)

        return types.int64(types.int64, arguments), generate

    def call(num_threads, *arguments):
        return start(num_threads, arguments)  # pyright: ignore[reportCallIssue]

    return call
