"""The CPU kernel for restricted Boltzmann machines: all sweeps of a call in one compiled loop over chunks of chains.

`discrete_vae.kernels.gibbs_tiles` explains the layout. Where the processor has a matrix unit, fields of machines whose
tables would be large are products of bytes instead of sums of table rows.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numba import njit
from numba.core import cgutils
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_binary
from discrete_vae.kernels import gibbs_tiles
from discrete_vae.kernels.codegen import FLOAT32, INT32, Vector, builder_intrinsic, constant, load, store
from discrete_vae.kernels.gibbs_tiles import (
    GROUP,
    INNER,
    ROWS,
    TILE,
    UNIT_ORDER,
    aligned,
    draw_tile,
    fill_rows,
    is_binary,
    of_words,
    pack,
    scale_side,
    start_lanes,
    unpack,
)
from discrete_vae.kernels.gibbs_torch import SweepCall, fair_coins
from discrete_vae.kernels.loops import ChunkLoop
from discrete_vae.kernels.registry import Kernel

# numba takes the intrinsics' builder for an argument that is missing.
# pyright: reportCallIssue=false

LARGEST_TABLE = 1 << 20
"""Bytes up to which whole tables are made once per call, up to 128 + 128 units: they fit the second-level cache."""

LARGEST_WEIGHT = 16.0
"""Largest size of a logit's weight for products; above, what a byte's rounding leaves could be seen in a law."""

_LARGEST_CHUNK = 1000  # chains; the spins of many more would leave the second-level cache

_Pair = tuple[np.ndarray, np.ndarray]


def run(energy: RBM, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps; see `discrete_vae.kernels.gibbs_torch.run`. Parameters are finite in float32, on the CPU."""
    return by_products(energy, z, call)


def _run(energy: RBM, z: Tensor, call: SweepCall, *, by_products: bool) -> Tensor:
    """Run the sweeps with fields that are products of bytes, or sums of table rows."""
    num_chains, num_units = z.shape
    # a chunk is the chains that a thread advances together
    chunks = min(num_chains, max(call.num_threads, -(-num_chains // _LARGEST_CHUNK)))
    binary = np.empty(chunks, np.bool_)
    after = np.empty((num_chains, num_units), np.float32)
    units = _units(0, energy.num_left), _units(energy.num_left, num_units)
    loop = _LOOP_BY_PRODUCTS if by_products else _LOOP_BY_TABLES
    loop(
        call.num_threads,
        (after, _array(z), binary),
        (_array(energy.weight), _array(energy.bias), units),
        _workspace(len(units[0]), len(units[1]), by_products=by_products),
        (
            np.empty((0, num_units), np.float32) if call.clamped is None else _array(call.clamped),
            np.empty(0, np.float32) if call.inverse_temperature is None else _array(call.inverse_temperature),
            (np.uint64(0), np.uint64(energy.num_left // 4)),
        ),
        (call.num_sweeps, np.uint64(call.key), np.uint64(call.first_sweep), np.uint64(call.first_chain)),
    )
    return torch.from_numpy(after) if binary.all() else check_binary("z", z)


@cache
def _units(first: int, end: int) -> np.ndarray:
    """The unit of each bit of each tile of a side, (tile, bit) int64, -1 for padding."""
    origin = first - first % 4
    tiles = -(-(end - origin) // TILE)
    units = origin + TILE * np.arange(tiles)[:, None] + UNIT_ORDER
    units[(units < first) | (units >= end)] = -1
    return units


def _have_tables(left: int, right: int) -> bool:
    """True if whole tables of two sides of so many tiles are made."""
    return 2 * left * right * ROWS * TILE * 4 <= LARGEST_TABLE


class _Kept(threading.local):
    """A thread's memory between calls."""

    form: tuple[int, int, bool] | None = None
    tables: tuple[Any, Any]
    weights: _Pair
    biases: _Pair


_kept = _Kept()


def _workspace(left: int, right: int, *, by_products: bool) -> tuple[tuple[Any, Any], _Pair, _Pair]:
    """Memory for tables, scaled weights and biases of two sides of so many tiles; each thread keeps its last one.

    Megabytes of fresh memory at every call would cost more than a few sweeps. Tables would be 16 times the weights;
    above `LARGEST_TABLE` they are empty, and what is kept is twice the weights, with products three quarters more.
    """
    if _kept.form != (left, right, by_products):
        pairs = left * right
        if by_products:
            _kept.tables = _bytes(left, right), _bytes(right, left)
        else:
            places = pairs if _have_tables(left, right) else 0
            _kept.tables = _aligned(places, ROWS, TILE), _aligned(places, ROWS, TILE)
        _kept.weights = _aligned(pairs, TILE, TILE), _aligned(pairs, TILE, TILE)
        _kept.biases = _aligned(left, TILE), _aligned(right, TILE)
        _kept.form = left, right, by_products
    return _kept.tables, _kept.weights, _kept.biases


def _bytes(tiles: int, others: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory for `split_side`."""
    digits = _aligned(tiles, -(-others // _PER_BLOCK), 3, TILE, TILE).view(np.int8)
    return digits.reshape(*digits.shape[:-1], TILE, 4), _aligned(tiles, TILE)


def _aligned(*shape: int) -> np.ndarray:
    """Uninitialized float32 memory that starts at a multiple of 64 bytes."""
    return aligned.py_func(math.prod(shape)).reshape(shape)


def _array(tensor: Tensor) -> np.ndarray:
    """A contiguous float32 array, so that the compiled function meets one type only."""
    return tensor.detach().to(torch.float32).contiguous().numpy()


# The loop over chunks. Its arguments, in which pairs have one entry for the left and one for the right side:
#
# - states: states after, (chain, unit) float32; states before; and whether all states of a chunk were 0 or 1, (chunk,)
#   bool, without which the states after are not complete;
# - machine: weight (left, right) and bias (unit,), float32; and the pair of `_units`;
# - memory: pairs for whole tables (empty: rows are made when they are due) or for the digits and scales of
#   `split_side`, then for the weights and for the biases of `scale_side`;
# - options: clamped units, (chain, unit), (1, unit) or (0, unit) float32, 1 where a unit keeps its value; inverse
#   temperatures, (chain,) or (0,) float32; and the pair of each side's first counter;
# - call: the number of sweeps; the Philox key, the numbers of the first sweep and of the first chain, all uint64.


def _loop_by(
    name: str, scratch_for: Callable[..., Any], draw_side: Callable[..., Any]
) -> Callable[[Any], Callable[..., Any]]:
    """The maker of the loop over chunks by one way to draw a side."""

    @njit(**INNER)
    def run_chunk(
        after,
        before,
        units,
        tables,
        weights,
        biases,
        clamped,
        inverse_temperature,
        counters,
        call,
        first,
        last,
    ):
        """Run all sweeps of the chains from first to last; does nothing and answers False if one is not binary."""
        num_sweeps, key, first_sweep, first_chain = call
        if not is_binary(before, first, last):
            return False
        num_chains = last - first
        padded = (num_chains + GROUP - 1) // GROUP * GROUP
        spins = (
            np.zeros((units[0].shape[0], padded), np.uint16),
            np.zeros((units[1].shape[0], padded), np.uint16),
        )
        # one mask for all chains, or one per chain
        from_row, to_row = (0, clamped.shape[0]) if clamped.shape[0] < 2 else (first, last)
        masks = (
            np.zeros((units[0].shape[0], to_row - from_row), np.uint16),
            np.zeros((units[1].shape[0], to_row - from_row), np.uint16),
        )
        for side in range(2):
            pack(spins[side], before, units[side], first, last)
            pack(masks[side], clamped, units[side], from_row, to_row)
        of_chunk = np.ones(padded, np.float32)
        for c in range(num_chains if inverse_temperature.size else 0):
            of_chunk[c] = inverse_temperature[first + c]
        scratch = scratch_for(max(units[0].shape[0], units[1].shape[0]), padded)
        chain = first_chain + np.uint64(first)
        for half in range(2 * num_sweeps):
            side = half & 1
            sweep = first_sweep + np.uint64(half >> 1)
            draw_side(
                spins[side], spins[1 - side], tables[side], weights[side], biases[side], masks[side], of_chunk,
                scratch, counters[side], chain, sweep, key,
            )  # fmt: skip
        for side in range(2):
            unpack(after, spins[side], units[side], first, last)
        return True

    def make(chunks: Any) -> Callable[..., Any]:
        def run_chunks(states, machine, memory, options, call):
            # numba's own threads take no tuples of tuples
            after, before, binary = states
            units = machine[2]
            tables, weights, biases = memory
            clamped, inverse_temperature, counters = options
            num_chains, num_chunks = before.shape[0], binary.shape[0]
            for c in chunks(num_chunks):
                first, last = c * num_chains // num_chunks, (c + 1) * num_chains // num_chunks
                binary[c] = run_chunk(
                    after, before, units, tables, weights, biases, clamped, inverse_temperature, counters, call,
                    first, last,
                )  # fmt: skip
            return 0

        run_chunks.__qualname__ = name  # the cache's name of it
        return run_chunks

    return make


def _prepare_tables(_states, machine, memory, _options, _call):
    """Scale both sides' weights and make whole tables."""
    weight, bias, units = machine
    tables, weights, biases = memory
    for side in range(2):
        scale_side(weights[side], biases[side], weight, bias, units[side], units[1 - side])
        for pair in range(tables[side].shape[0]):
            fill_rows(tables[side], pair, weights[side], pair)


def _prepare_products(_states, machine, memory, _options, _call):
    """Scale both sides' weights and cut them into bytes."""
    weight, bias, units = machine
    tables, weights, biases = memory
    for side in range(2):
        scale_side(weights[side], biases[side], weight, bias, units[side], units[1 - side])
        split_side(tables[side][0], tables[side][1], weights[side])


# Products of bytes on the matrix unit of some x86 processors (AMX), which sums 1,024 terms per cycle exactly.
#
# Sums of table rows cost as much for each spin as there are units on the other side; the matrix unit takes a third of
# their time. Weights are integers of 24 bits times a scale of their unit, cut into three signed bytes; spins are bytes;
# sums of products are exact, so that results depend on no order. A weight is off by at most 2^-24 of the largest one of
# its unit, as far as that one's last bit is from its neighbor.


_SIDE = 16  # rows of a matrix tile, and columns of a result
_DEPTH = 64  # bytes of a matrix tile's row: terms of a sum that one instruction adds
_BYTES = _SIDE * _DEPTH  # of a matrix tile
_CHAINS = 2 * _SIDE  # that are multiplied together
_PER_BLOCK = _DEPTH // TILE  # tiles of the other side
_LARGEST_NUMBER = np.float32(127 * 65536)

_ASK_FOR_STATE, _TILE_DATA = 0x1023, 18  # arch_prctl's ARCH_REQ_XCOMP_PERM, and the state's number
_ARCH_PRCTL = 158
_INT8 = ir.IntType(8)


@cache
def has_matrix_unit() -> bool:
    """True if the processor has a matrix unit that the system lets this process use; asks for that once."""
    features = binding.get_host_cpu_features()
    if not sys.platform.startswith("linux") or not (features.get("amx-tile") and features.get("amx-int8")):
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA) == 0


def _call(builder: Any, name: str, *arguments: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), arguments)


def _tile(tile: int) -> Any:
    return ir.Constant(_INT8, tile)


@builder_intrinsic()
def _configure(builder):
    """Make this thread's eight tiles full ones; `_release` goes with it."""
    content = bytearray(64)
    content[0] = 1
    for tile in range(8):
        content[16 + 2 * tile], content[48 + tile] = _DEPTH, _SIDE
    kind = ir.ArrayType(_INT8, 64)
    place = cgutils.global_constant(builder, "tile_config", ir.Constant(kind, content))
    _call(builder, "ldtilecfg", builder.bitcast(place, _INT8.as_pointer()))


@builder_intrinsic()
def _release(builder):
    """Give the tiles up, which costs less than to carry them from one program to another."""
    _call(builder, "tilerelease")


@builder_intrinsic()
def _multiply_bytes(builder, rows, first_row, columns, first_column, depth, sums):
    """Two tiles of rows times three tiles of columns, summed over blocks of 64 terms; between configure and release.

    The rows are (two tiles, block, 16, 64) uint8 from the byte ``first_row`` on; the columns (block, 3, 16, 16, 4) int8
    from ``first_column`` on, where four terms of a column lie side by side; depth is the number of blocks. The sums,
    (2, 3, 16, 16) int32, are indexed by row of rows and column of columns.
    """
    rows = builder.bitcast(builder.gep(rows, [first_row]), _INT8.as_pointer())
    columns = builder.bitcast(builder.gep(columns, [first_column]), _INT8.as_pointer())
    sums = builder.bitcast(sums, _INT8.as_pointer())
    for tile in range(6):
        _call(builder, "tilezero", _tile(tile))
    with cgutils.for_range(builder, depth) as loop:
        for half in range(2):
            block = builder.add(builder.mul(depth, constant(half)), loop.index)
            place = builder.gep(rows, [builder.mul(block, constant(_BYTES))])
            _call(builder, "tileloadd64", _tile(6), place, constant(_DEPTH))
            for part in range(3):
                offset = builder.add(builder.mul(loop.index, constant(3 * _BYTES)), constant(part * _BYTES))
                _call(builder, "tileloadd64", _tile(7), builder.gep(columns, [offset]), constant(_DEPTH))
                _call(builder, "tdpbusd", _tile(3 * half + part), _tile(6), _tile(7))
    for tile in range(6):
        place = builder.gep(sums, [constant(tile * _BYTES)])
        _call(builder, "tilestored64", _tile(tile), place, constant(_DEPTH))


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


@builder_intrinsic()
def _spread_block(builder, rows, place, spins, first, num_chains, chain, count):
    """The spins, (tile, chain) uint16, of one chain in 1 to 4 tiles as 64 bytes, 0 where there is no tile."""
    bits = cgutils.alloca_once_value(builder, constant(0))
    with cgutils.for_range(builder, count) as loop:
        tile = builder.add(first, loop.index)
        spin = builder.load(builder.gep(spins, [builder.add(builder.mul(tile, num_chains), chain)]))
        shift = builder.mul(loop.index, constant(TILE))
        wide = builder.shl(builder.zext(spin, constant(0).type), shift)
        builder.store(builder.or_(builder.load(bits), wide), bits)
    mask = builder.bitcast(builder.load(bits), ir.VectorType(ir.IntType(1), _DEPTH))
    spread = builder.zext(mask, ir.VectorType(_INT8, _DEPTH))
    store(Vector(builder, spread), builder.gep(rows, [place]), align=1)


@builder_intrinsic()
def _join_parts(builder, fields, first, sums, row, bias, scale):
    """The scaled fields of one tile of one chain: the bias plus the scale times the sum of its three parts.

    The sums are those of `_multiply_bytes`, of which the row is 0 to 31; bias and scale are (16,) float32.
    """
    half, inside = builder.sdiv(row, constant(_SIDE)), builder.srem(row, constant(_SIDE))
    start = builder.add(builder.mul(half, constant(3 * _SIDE)), inside)
    low, middle, high = (
        load(
            builder,
            builder.gep(sums, [builder.mul(builder.add(start, constant(part * _SIDE)), constant(_SIDE))]),
            INT32,
            TILE,
            align=4,
        ).to_float()
        for part in range(3)
    )
    number = high.times_plus(256.0, middle).times_plus(256.0, low)
    scale, bias = (load(builder, place, FLOAT32, TILE, align=4) for place in (scale, bias))
    store(number.times_plus(scale, bias), builder.gep(fields, [first]), align=4)


@njit(**INNER)
def _scratch_for(num_tiles, num_chains):
    """Memory of a chunk for intermediate values."""
    padded = (num_chains + _CHAINS - 1) // _CHAINS * _CHAINS
    blocks = (num_tiles + _PER_BLOCK - 1) // _PER_BLOCK
    lanes, words, before = of_words()
    rows = aligned(padded * blocks * _DEPTH // 4).view(np.uint8)  # rows of a tile are lines of the cache
    rows[:] = 0
    sums = aligned(6 * _SIDE * _SIDE).view(np.int32)
    return lanes, words, before, rows, sums, aligned(padded * TILE)


@njit(**INNER)
def _draw_side(
    spins, others, table, _weights, biases, clamped, inverse_temperature, scratch, first_counter, first_chain,
    sweep, key,
):  # fmt: skip
    """`discrete_vae.kernels.gibbs_tiles.draw_side` with the digits and scales of `split_side` for a table."""
    lanes, words, before, rows, sums, fields = scratch
    digits, scales = table
    num_others, num_chains = others.shape
    blocks = digits.shape[1]
    for chain in range(num_chains):
        first = chain // _SIDE * blocks * _BYTES + chain % _SIDE * _DEPTH
        for block in range(blocks):
            count = min(_PER_BLOCK, num_others - block * _PER_BLOCK)
            _spread_block(rows, first + block * _BYTES, others, block * _PER_BLOCK, num_chains, chain, count)
    _configure()
    for tile in range(spins.shape[0]):
        chain_part = start_lanes(lanes, first_counter + np.uint64(4 * tile), sweep, key)
        for first in range(0, num_chains, _CHAINS):
            _multiply_bytes(
                rows, first // _SIDE * blocks * _BYTES, digits, tile * blocks * 3 * _BYTES, blocks, sums
            )
            for row in range(_CHAINS):
                _join_parts(fields, (first + row) * TILE, sums, row, biases[tile], scales[tile])
            draw_tile(
                spins, tile, lanes, words, before, chain_part, first_chain, clamped, inverse_temperature, key,
                first, min(first + _CHAINS, num_chains), fields, TILE, fields, 0, others, 0, 0,
            )  # fmt: skip
    _release()


# The two ways.


_LOOP_BY_TABLES = ChunkLoop(
    _loop_by("by_tables", gibbs_tiles.scratch_for, gibbs_tiles.draw_side),
    prepare=_prepare_tables,
    sources=(gibbs_tiles,),
)
_LOOP_BY_PRODUCTS = ChunkLoop(
    _loop_by("by_products", _scratch_for, _draw_side), prepare=_prepare_products, sources=(gibbs_tiles,)
)


def _suits_products(energy: RBM, _z: Tensor, call: SweepCall) -> bool:
    """True for machines whose tables would be large, with weights that bytes can stand for, on a matrix unit."""
    num_units = energy.num_left + energy.num_right
    if _have_tables(len(_units(0, energy.num_left)), len(_units(energy.num_left, num_units))):
        return False
    if not has_matrix_unit():
        return False
    largest = energy.weight.detach().abs().max()
    if call.inverse_temperature is not None:
        largest = largest * call.inverse_temperature.abs().max()
    return bool(largest <= LARGEST_WEIGHT)


def _check_products(kernel: Kernel) -> None:
    """Compare with sums of table rows on a small machine: the same states but for draws within rounding."""
    energy, start = RBM(70, 40), fair_coins(40, 110, key=1)
    weights = torch.linspace(-1, 1, 2800).sin_().mul_(3).view(70, 40)
    energy.weight.copy_(weights.roll(7, 1))
    call = SweepCall(2, 1, 1, 0, None, None)
    mine, right = kernel.compiled(energy, start, call), by_tables(energy, start, call)
    if float((mine != right).float().mean()) > 0.01:
        raise RuntimeError("its states are wrong")


by_tables = partial(_run, by_products=False)
by_products = Kernel(
    "The RBM sampler's products of bytes",
    partial(_run, by_products=True),
    _check_products,
    by_tables,
    _suits_products,
    fallback="sums of table rows are used",
)
