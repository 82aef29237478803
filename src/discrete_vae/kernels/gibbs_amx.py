"""Sides of large machines by products of bytes, on the matrix unit of some x86 processors."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from discrete_vae.kernels.codegen import FLOAT32, INT32, Vector, constant, load, pointers_and_scalars, store
from discrete_vae.kernels.gibbs_tiles import INNER, TILE, aligned, draw_tile, of_words, start_lanes

# The matrix unit of some x86 processors (AMX): products of bytes with exact sums, 1,024 terms per cycle.


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


# One side of large machines by products of bytes, where the processor has a matrix unit.
#
# Sums of table rows cost as much for each spin as there are units on the other side; the matrix unit takes a
# third of their time. Weights are integers of 24 bits times a scale of their unit, cut into three signed
# bytes; spins are bytes; sums of products are exact, so that results depend on no order. A weight is off by
# at most 2^-24 of the largest one of its unit, as far as that one's last bit is from its neighbor.


LARGEST_WEIGHT = 16.0
"""Largest size of a logit's weight; above, what a byte's rounding leaves could be seen in a law."""

ROWS = 2 * SIDE
"""Chains that are multiplied together."""

_PER_BLOCK = DEPTH // TILE  # tiles of the other side
_LARGEST_NUMBER = np.float32(127 * 65536)


def num_blocks(num_tiles: int) -> int:
    """Blocks of 64 units that so many tiles of 16 fill."""
    return -(-num_tiles // _PER_BLOCK)


@njit(**INNER)
def split_side(digits, scales, weights):
    """Cut a side's weights into bytes.

    Args:
        digits: (tile, block, 3, 16, 16, 4) int8, receives the lowest, the middle and the highest byte of each number.
        scales: (tile, 16) float32, receives what a unit's numbers are to be multiplied with.
        weights: (tile * tile of the other side, 16, 16) float32, from `scale_side`.
    """
    digits[:] = 0
    num_tiles = digits.shape[0]
    num_others = weights.shape[0] // num_tiles
    largest, inverse = np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for tile in range(num_tiles):
        of_tile = weights[tile * num_others : (tile + 1) * num_others]
        largest[:] = 0
        for other in range(num_others):
            for k in range(TILE):
                for j in range(TILE):
                    largest[j] = max(largest[j], abs(of_tile[other, k, j]))
        for j in range(TILE):
            scales[tile, j] = largest[j] / _LARGEST_NUMBER
            inverse[j] = _LARGEST_NUMBER / largest[j] if largest[j] > 0 else np.float32(0)
        for other in range(num_others):
            for k in range(TILE):
                place = other % _PER_BLOCK * TILE + k
                columns = digits[tile, other // _PER_BLOCK, :, place >> 2, :, place & 3]
                for j in range(TILE):
                    number = np.int32(np.rint(of_tile[other, k, j] * inverse[j]))
                    low = np.int8(number)
                    number = (number - low) >> 8
                    middle = np.int8(number)
                    columns[0, j], columns[1, j], columns[2, j] = low, middle, (number - middle) >> 8


@intrinsic
def _spread_block(_typing, rows, place, spins, first, num_chains, chain, count):
    """The spins of one chain in up to four tiles as 64 bytes.

    Args:
        rows: uint8 array, receives them.
        place: int64, index of the first byte.
        spins: (tile, chain) uint16.
        first: int64, index of the first tile.
        num_chains: int64, length of a row of spins.
        chain: int64.
        count: int64, number of tiles, 1 to 4; bytes of the others are 0.
    """

    def generate(context, builder, signature, arguments):
        rows, place, spins, first, num_chains, chain, count = pointers_and_scalars(
            context, builder, signature, arguments
        )
        bits = cgutils.alloca_once_value(builder, constant(0))
        with cgutils.for_range(builder, count) as loop:
            tile = builder.add(first, loop.index)
            spin = builder.load(builder.gep(spins, [builder.add(builder.mul(tile, num_chains), chain)]))
            shift = builder.mul(loop.index, constant(TILE))
            wide = builder.shl(builder.zext(spin, constant(0).type), shift)
            builder.store(builder.or_(builder.load(bits), wide), bits)
        mask = builder.bitcast(builder.load(bits), ir.VectorType(ir.IntType(1), DEPTH))
        spread = builder.zext(mask, ir.VectorType(_INT8, DEPTH))
        store(Vector(builder, spread), builder.gep(rows, [place]), align=1)
        return context.get_dummy_value()

    return types.void(rows, place, spins, first, num_chains, chain, count), generate


@intrinsic
def _join_parts(_typing, fields, first, sums, row, bias, scale):
    """The scaled fields of one tile of one chain: the bias plus the scale times the sum of its three parts.

    Args:
        fields: float32 array, receives them.
        first: int64, index of the first of them.
        sums: (2, 3, 16, 16) int32, from `multiply_bytes`.
        row: int64, 0 to 31.
        bias: (16,) float32.
        scale: (16,) float32.
    """

    def generate(context, builder, signature, arguments):
        fields, first, sums, row, bias, scale = pointers_and_scalars(context, builder, signature, arguments)
        half, inside = builder.sdiv(row, constant(SIDE)), builder.srem(row, constant(SIDE))
        start = builder.add(builder.mul(half, constant(3 * SIDE)), inside)
        low, middle, high = (
            load(
                builder,
                builder.gep(sums, [builder.mul(builder.add(start, constant(part * SIDE)), constant(SIDE))]),
                INT32,
                TILE,
                align=4,
            ).to_float()
            for part in range(3)
        )
        number = high.times_plus(256.0, middle).times_plus(256.0, low)
        scale, bias = (load(builder, place, FLOAT32, TILE, align=4) for place in (scale, bias))
        store(number.times_plus(scale, bias), builder.gep(fields, [first]), align=4)
        return context.get_dummy_value()

    return types.void(fields, first, sums, row, bias, scale), generate


@njit(**INNER)
def scratch_for(num_tiles, num_chains):
    """Memory of a chunk for intermediate values.

    Args:
        num_tiles: Of the larger side.
        num_chains: A multiple of 8.
    """
    padded = (num_chains + ROWS - 1) // ROWS * ROWS
    blocks = (num_tiles + _PER_BLOCK - 1) // _PER_BLOCK
    lanes, words, before = of_words()
    rows = aligned(padded * blocks * DEPTH // 4).view(np.uint8)  # rows of a tile are lines of the cache
    rows[:] = 0
    sums = aligned(6 * SIDE * SIDE).view(np.int32)
    return lanes, words, before, rows, sums, aligned(padded * TILE)


@njit(**INNER)
def draw_side(
    spins, others, table, _weights, biases, clamped, inverse_temperature, scratch, first_counter, first_chain,
    sweep, key,
):  # fmt: skip
    """As `discrete_vae.kernels.gibbs_tiles.draw_side`.

    Args:
        spins: (tile, chain) uint16, changed; the number of chains is a multiple of 8.
        others: (tile, chain) uint16, the other side.
        table: Digits and scales, from `split_side`.
        _weights: Are not read.
        biases: From `scale_side`.
        clamped: Bits of units that keep their values.
        inverse_temperature: (chain,) float32.
        scratch: From `scratch_for`.
        first_counter: uint64, first counter of the side.
        first_chain: uint64.
        sweep: uint64.
        key: uint64.
    """
    lanes, words, before, rows, sums, fields = scratch
    digits, scales = table
    num_others, num_chains = others.shape
    blocks = digits.shape[1]
    for chain in range(num_chains):
        first = chain // SIDE * blocks * BYTES + chain % SIDE * DEPTH
        for block in range(blocks):
            count = min(_PER_BLOCK, num_others - block * _PER_BLOCK)
            _spread_block(rows, first + block * BYTES, others, block * _PER_BLOCK, num_chains, chain, count)  # pyright: ignore[reportCallIssue]
    configure()  # pyright: ignore[reportCallIssue]
    for tile in range(spins.shape[0]):
        chain_part = start_lanes(lanes, first_counter + np.uint64(4 * tile), sweep, key)
        for first in range(0, num_chains, ROWS):
            multiply_bytes(
                rows, first // SIDE * blocks * BYTES, digits, tile * blocks * 3 * BYTES, blocks, sums
            )  # pyright: ignore[reportCallIssue]
            for row in range(ROWS):
                _join_parts(fields, (first + row) * TILE, sums, row, biases[tile], scales[tile])  # pyright: ignore[reportCallIssue]
            draw_tile(
                spins, tile, lanes, words, before, chain_part, first_chain, clamped, inverse_temperature, key,
                first, min(first + ROWS, num_chains), fields, TILE, fields, 0, others, 0, 0,
            )  # fmt: skip
    release()  # pyright: ignore[reportCallIssue]
