"""The matrix unit of some x86 processors (AMX): products of bytes with exact sums, 1,024 terms per cycle."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from discrete_vae.compiled.vector_ir import constant, pointers_and_scalars

SIDE = 16
"""Rows of a tile, and columns of a result."""

DEPTH = 64
"""Bytes of a tile's row: terms of a sum that one instruction adds."""

BYTES = SIDE * DEPTH
"""Of a tile."""

_ASK_FOR_STATE, _TILE_DATA = 0x1023, 18  # arch_prctl's ARCH_REQ_XCOMP_PERM, and the state's number
_ARCH_PRCTL = 158
_INT8 = ir.IntType(8)


@cache
def is_there() -> bool:
    """Whether the processor has it, and the system lets this process use it; asks for that once."""
    features = binding.get_host_cpu_features()
    if not sys.platform.startswith("linux") or not (features.get("amx-tile") and features.get("amx-int8")):
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA) == 0


def _call(builder: Any, name: str, *arguments: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), arguments)


def _number(tile: int) -> Any:
    return ir.Constant(_INT8, tile)


@intrinsic
def configure(_typing):
    """Make this thread's eight tiles full ones; `release` goes with it."""

    def generate(context, builder, _signature, _arguments):
        content = bytearray(64)
        content[0] = 1
        for tile in range(8):
            content[16 + 2 * tile], content[48 + tile] = DEPTH, SIDE
        kind = ir.ArrayType(_INT8, 64)
        place = cgutils.global_constant(builder, "tile_config", ir.Constant(kind, content))
        _call(builder, "ldtilecfg", builder.bitcast(place, _INT8.as_pointer()))
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def release(_typing):
    """Give the tiles up, which costs less than to carry them from one program to another."""

    def generate(context, builder, _signature, _arguments):
        _call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def multiply_bytes(_typing, rows, first_row, columns, first_column, depth, sums):
    """Two tiles of rows times three tiles of columns, summed over blocks of 64 terms; between configure and release.

    Args:
        rows: (two tiles, block, 16, 64) uint8 from ``first_row`` on.
        first_row: int64, place of the first byte.
        columns: (block, 3, 16, 16, 4) int8 from ``first_column`` on: four terms of a column lie side by side.
        first_column: int64, place of the first byte.
        depth: int64, number of blocks.
        sums: (2, 3, 16, 16) int32, receives the sums: row of rows, column of columns.
    """

    def generate(context, builder, signature, arguments):
        rows, first_row, columns, first_column, depth, sums = pointers_and_scalars(
            context, builder, signature, arguments
        )
        rows = builder.bitcast(builder.gep(rows, [first_row]), _INT8.as_pointer())
        columns = builder.bitcast(builder.gep(columns, [first_column]), _INT8.as_pointer())
        sums = builder.bitcast(sums, _INT8.as_pointer())
        for tile in range(6):
            _call(builder, "tilezero", _number(tile))
        with cgutils.for_range(builder, depth) as loop:
            for half in range(2):
                block = builder.add(builder.mul(depth, constant(half)), loop.index)
                place = builder.gep(rows, [builder.mul(block, constant(BYTES))])
                _call(builder, "tileloadd64", _number(6), place, constant(DEPTH))
                for part in range(3):
                    offset = builder.add(builder.mul(loop.index, constant(3 * BYTES)), constant(part * BYTES))
                    _call(builder, "tileloadd64", _number(7), builder.gep(columns, [offset]), constant(DEPTH))
                    _call(builder, "tdpbusd", _number(3 * half + part), _number(6), _number(7))
        for tile in range(6):
            place = builder.gep(sums, [constant(tile * BYTES)])
            _call(builder, "tilestored64", _number(tile), place, constant(DEPTH))
        return context.get_dummy_value()

    return types.void(rows, first_row, columns, first_column, depth, sums), generate
