"""The CPU kernel for restricted Boltzmann machines: all sweeps of a call in one compiled loop over chunks of chains.

A side's units are cut into tiles of 16 that share four Philox counters, and the spins of a tile and chain are the bits
of a uint16, in the order in which the random words come (`UNIT_ORDER`). The scaled fields of a tile are its biases plus
three table rows for each tile of the other side: one chosen by that tile's bits 0-4, one by bits 5-9, one by 10-15. A
chain reads 96 bytes of rows for a byte of spins, so rows have to lie in the first-level cache: those for one tile and a
block of four tiles of the other side, 32 KiB, serve all chains of a chunk before the next. Small machines' tables are
made once per call; those of larger ones would not fit the second-level cache, so rows are made from the weights, a
sixteenth of their size, each time that a block is due.

Arithmetic of counters is in uint64 with explicit masks: numba widens uint32 operations to 64 bits without a word.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.core import cgutils
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_binary
from discrete_vae.kernels.codegen import (
    FLOAT32,
    INT16,
    INT32,
    INT64,
    LOW,
    MULTIPLIERS,
    WEYL,
    Vector,
    builder_intrinsic,
    comes_on,
    concatenate,
    constant,
    load,
    numbers,
    philox_rounds,
    splat,
    store,
    times,
)
from discrete_vae.kernels.gibbs import SweepCall
from discrete_vae.kernels.loops import INNER, ChunkLoop

# numba takes the intrinsics' builder for an argument that is missing.
# pyright: reportCallIssue=false

TILE = 16  # units that share four counters
GROUP = 8  # chains whose words are drawn together
PART = 4  # chains whose spins are decided together
LANES = GROUP * TILE // 4  # counters of a group
SPLIT = (5, 5, 6)  # bits of a tile that choose a row of the table
ROWS = sum(1 << bits for bits in SPLIT)  # of the table for one tile and one tile of the other side
BLOCK = 4  # tiles of the other side whose rows, 32 KiB, are read by all chains before the next

_bits = np.arange(TILE)
UNIT_ORDER = 4 * (_bits % 8 // 2) + 2 * (_bits // 8) + 1 - _bits % 2
"""The unit of a tile, counted from its first, that each bit of a tile stands for."""

_LOW, _32 = np.uint64(LOW), np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_WEYL_0, _WEYL_1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])
_MINUS_LOG2_E = np.float32(-1.4426950408889634)

LARGEST_TABLE = 1 << 20  # bytes of whole tables, up to 128 + 128 units; they fit the second-level cache
_LARGEST_CHUNK = 1000  # chains; the spins of many more would leave the second-level cache

OF_EIGHT = 5, 3  # sides of the machine on which the kernel is tested before its first use

_Pair = tuple[np.ndarray, np.ndarray]


def run(energy: RBM, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps; see `discrete_vae.kernels.gibbs.run_reference`. Parameters are finite in float32, on the CPU."""
    num_chains, num_units = z.shape
    # a chunk is the chains that a thread advances together
    chunks = min(num_chains, max(call.num_threads, -(-num_chains // _LARGEST_CHUNK)))
    binary = np.empty(chunks, np.bool_)
    after = np.empty((num_chains, num_units), np.float32)
    units = _units(0, energy.num_left), _units(energy.num_left, num_units)
    _LOOP(
        call.num_threads,
        (after, _array(z), binary),
        (_array(energy.weight), _array(energy.bias), units),
        _workspace(len(units[0]), len(units[1])),
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


class _Kept(threading.local):
    """A thread's memory between calls."""

    sides: tuple[int, int] | None = None
    tables: _Pair
    weights: _Pair
    biases: _Pair


_kept = _Kept()


def _workspace(left: int, right: int) -> tuple[_Pair, _Pair, _Pair]:
    """Memory for tables, scaled weights and biases of two sides of so many tiles; each thread keeps its last one.

    Megabytes of fresh memory at every call would cost more than a few sweeps. Tables would be 16 times the weights;
    above `LARGEST_TABLE` they are empty, and what is kept is twice the weights.
    """
    if _kept.sides != (left, right):
        pairs = left * right
        places = pairs if 2 * pairs * ROWS * TILE * 4 <= LARGEST_TABLE else 0
        _kept.tables = _aligned(places, ROWS, TILE), _aligned(places, ROWS, TILE)
        _kept.weights = _aligned(pairs, TILE, TILE), _aligned(pairs, TILE, TILE)
        _kept.biases = _aligned(left, TILE), _aligned(right, TILE)
        _kept.sides = left, right
    return _kept.tables, _kept.weights, _kept.biases


def _aligned(*shape: int) -> np.ndarray:
    return aligned.py_func(math.prod(shape)).reshape(shape)


def _array(tensor: Tensor) -> np.ndarray:
    """A contiguous float32 array, so that the compiled function meets one type only."""
    return tensor.detach().to(torch.float32).contiguous().numpy()


# The loop over chunks. Its arguments, in which pairs have one entry for the left and one for the right side:
#
# - states: states after, (chain, unit) float32; states before; and whether all states of a chunk were 0 or 1, (chunk,)
#   bool, without which the states after are not complete;
# - machine: weight (left, right) and bias (unit,), float32; and the pair of `_units`;
# - memory: pairs for whole tables (empty: rows are made when they are due), and for the weights and the biases of
#   `scale_side`;
# - options: clamped units, (chain, unit), (1, unit) or (0, unit) float32, 1 where a unit keeps its value; inverse
#   temperatures, (chain,) or (0,) float32; and the pair of each side's first counter;
# - call: the number of sweeps; the Philox key, the numbers of the first sweep and of the first chain, all uint64.


@njit(**INNER)
def _run_chunk(
    after, before, units, tables, weights, biases, clamped, inverse_temperature, counters, call, first, last,
):  # fmt: skip
    """Run all sweeps of the chains from first to last; does nothing and answers False if one is not binary."""
    num_sweeps, key, first_sweep, first_chain = call
    if not is_binary(before, first, last):
        return False
    num_chains = last - first
    padded = (num_chains + GROUP - 1) // GROUP * GROUP
    left, right = units[0].shape[0], units[1].shape[0]
    spins = np.zeros((left, padded), np.uint16), np.zeros((right, padded), np.uint16)
    # one mask for all chains, or one per chain
    from_row, to_row = (0, clamped.shape[0]) if clamped.shape[0] < 2 else (first, last)
    rows = to_row - from_row
    masks = np.zeros((left, rows), np.uint16), np.zeros((right, rows), np.uint16)
    for side in range(2):
        pack(spins[side], before, units[side], first, last)
        pack(masks[side], clamped, units[side], from_row, to_row)
    of_chunk = np.ones(padded, np.float32)
    for c in range(num_chains if inverse_temperature.size else 0):
        of_chunk[c] = inverse_temperature[first + c]
    scratch = _scratch_for(padded)
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


def _make(chunks: Any) -> Callable[..., Any]:
    def run_chunks(states, machine, memory, options, call):
        # numba's own threads take no tuples of tuples
        after, before, binary = states
        units = machine[2]
        tables, weights, biases = memory
        clamped, inverse_temperature, counters = options
        num_chains, num_chunks = before.shape[0], binary.shape[0]
        for c in chunks(num_chunks):
            first, last = c * num_chains // num_chunks, (c + 1) * num_chains // num_chunks
            binary[c] = _run_chunk(
                after, before, units, tables, weights, biases, clamped, inverse_temperature, counters, call,
                first, last,
            )  # fmt: skip
        return 0

    return run_chunks


def _prepare(_states, machine, memory, _options, _call):
    """Scale both sides' weights and make whole tables."""
    weight, bias, units = machine
    tables, weights, biases = memory
    for side in range(2):
        scale_side(weights[side], biases[side], weight, bias, units[side], units[1 - side])
        for pair in range(tables[side].shape[0]):
            fill_rows(tables[side], pair, weights[side], pair)


_LOOP = ChunkLoop(_make, prepare=_prepare)


@njit(**INNER)
def draw_side(
    spins, others, table, weights, biases, clamped, inverse_temperature, scratch, first_counter, first_chain,
    sweep, key,
):  # fmt: skip
    """Draw one side of all chains of a chunk given the other side.

    Spins, which change, and others, the other side, are (tile, chain) uint16, their chains a multiple of 8. The table,
    (tile * tile of the other side, row, 16) float32, is from `fill_rows`; where it is empty rows are made when due.
    Weights and biases are from `scale_side`, the scratch from `_scratch_for`. Clamped, (tile, chain), (tile, 1) or
    (tile, 0) uint16, has the bits of units that keep their values; inverse temperatures are (chain,) float32, and the
    side's first counter, the first chain, the sweep and the key uint64.
    """
    lanes, words, before, rows, fields = scratch
    num_others, num_chains = others.shape
    num_blocks = (num_others + BLOCK - 1) // BLOCK
    for tile in range(spins.shape[0]):
        chain_part = start_lanes(lanes, first_counter + np.uint64(4 * tile), sweep, key)
        start, step = biases[tile], 0
        block_rows, place, first, last = table, 0, 0, 0
        for block in range(num_blocks):
            first, last = block * num_others // num_blocks, (block + 1) * num_others // num_blocks
            place = tile * num_others + first
            if not table.shape[0]:
                for other in range(last - first):
                    fill_rows(rows, other, weights, place + other)
                block_rows, place = rows, 0
            if last < num_others:
                for chain in range(0, num_chains, PART):
                    add_rows(
                        fields, start, step, block_rows, place, others, first, last - first, num_chains, chain
                    )
                start, step = fields, TILE
        for group in range(0, num_chains, GROUP):
            draw_words(words, lanes, chain_part, first_chain + np.uint64(group), key)
            if clamped.shape[1]:
                for c in range(GROUP):
                    before[c] = spins[tile, group + c]
            for part in range(0, GROUP, PART):
                decide(
                    spins, tile, words, part, inverse_temperature, start, step, block_rows, place, others, first,
                    last - first, num_chains, group + part,
                )  # fmt: skip
            if clamped.shape[1]:
                for c in range(GROUP):
                    keep = clamped[tile, min(group + c, clamped.shape[1] - 1)]
                    spins[tile, group + c] = (spins[tile, group + c] & ~keep) | (before[c] & keep)


@njit(**INNER)
def _scratch_for(num_chains):
    """Memory of a chunk of so many chains, a multiple of 8: of the words of a group, and of rows and fields."""
    lanes, words = np.empty((3, LANES), np.uint64), np.empty((2, LANES), np.uint64)
    before = np.empty(GROUP, np.uint16)
    rows = aligned(BLOCK * ROWS * TILE).reshape(BLOCK, ROWS, TILE)
    return lanes, words, before, rows, aligned(num_chains * TILE)


@njit(**INNER)
def aligned(size):
    """Uninitialized float32 memory of this thread that starts at a multiple of 64 bytes.

    Memory of two threads in one page would be fetched from one to the other by the processor's guesses.
    """
    memory = np.empty(size + 15, np.float32)
    skip = -(memory.ctypes.data // 4) % 16
    return memory[skip : skip + size]


# Random words: Philox4x32-10 of 8 chains at a time.


@njit(**INNER)
def start_lanes(lanes, counter, sweep, key):
    """The part of the first two rounds that depends on a tile's first counter and the sweep only, for `draw_words`."""
    key_0, key_1 = key & _LOW, key >> _32
    low, high = sweep & _LOW, sweep >> _32
    product = low * _MULTIPLIER_1
    for f in range(LANES):
        first = (counter + np.uint64(f & 3)) * _MULTIPLIER_0
        second = (((first >> _32) ^ high ^ key_1) & _LOW) * _MULTIPLIER_1
        lanes[0, f] = (second >> _32) ^ product ^ (key_0 + _WEYL_0)
        lanes[1, f] = second
        lanes[2, f] = first ^ (key_1 + _WEYL_1)
    return (product >> _32) ^ key_0


@builder_intrinsic()
def draw_words(builder, words, lanes, chain_part, chain, key):
    """Finish the words of the chains ``chain`` to ``chain + 7``, from the third round; all numbers are uint64.

    The lanes, (3, lane), are the state before round three: x0, x1, and the part of x2 that does not depend on the
    chain. Lane f stands for counter f % 4 of chain f // 4. The chain part is what meets the chain in round two. The
    words, (2, lane), receive words 1 and 0 of each counter, then words 3 and 2; the first named one is the low half.
    """

    def place(pointer, row):
        return builder.gep(pointer, [constant(row * LANES)])

    x0, x1, partial = (load(builder, place(lanes, row), INT64, LANES, align=8) for row in range(3))
    chains = splat(builder, chain, LANES) + numbers(builder, INT64, [f // 4 for f in range(LANES)])
    x3 = times(chains ^ splat(builder, chain_part, LANES), 0)
    x2 = (x3 >> 32) ^ partial
    x0, x1, x2, x3 = philox_rounds(builder, (x0, x1, x2, x3), key, 2)
    store((x0 << 32) | (x1 & LOW), place(words, 0), align=8)
    store((x2 << 32) | (x3 & LOW), place(words, 1), align=8)


# Table rows, fields and decisions.


@builder_intrinsic()
def fill_rows(builder, table, place, weights, pair):
    """Fill the rows of the table for one tile and one tile of the other side: sums of weights, by doubling.

    The rows are those at a place of the table, (place, row, 16) float32, aligned to 64 bytes for the sake of speed; the
    scaled weights between each bit of the other tile and the tile's bits are those of a pair of (pair, 16, 16) float32.
    """
    rows = builder.gep(table, [builder.mul(place, constant(ROWS * TILE))])
    weights = builder.gep(weights, [builder.mul(pair, constant(TILE * TILE))])

    def row(number):
        return builder.gep(rows, [constant(number * TILE)])

    bit, origin = 0, 0
    for width in SPLIT:
        store(numbers(builder, FLOAT32, [0.0] * TILE), row(origin), align=4)
        for k in range(width):
            weight = load(builder, builder.gep(weights, [constant(bit * TILE)]), FLOAT32, TILE, align=4)
            for known in range(origin, origin + (1 << k)):
                total = load(builder, row(known), FLOAT32, TILE, align=4) + weight
                store(total, row(known + (1 << k)), align=4)
            bit += 1
        origin += 1 << width


@builder_intrinsic()
def add_rows(builder, fields, start, step, table, place, others, first, count, num_chains, chain):
    """Set the fields of one tile of four chains, (chain, 16) float32, to `_sum_rows`."""
    sums = _sum_rows(builder, start, step, table, place, others, first, count, num_chains, chain)
    for i, total in enumerate(sums):
        of_chain = builder.mul(builder.add(chain, constant(i)), constant(TILE))
        store(total, builder.gep(fields, [of_chain]), align=4)


@builder_intrinsic()
def decide(
    builder, spins, tile, words, part, inverse_temperature, start, step, table, place, others, first, count,
    num_chains, chain,
):  # fmt: skip
    """Draw the spins of one tile of four chains, see `comes_on`, with `_sum_rows` as their fields.

    The spins are (tile, chain) uint16, the words (2, lane) uint64 from `draw_words`; part is the number of the first of
    the four chains within its group.
    """
    sums = _sum_rows(builder, start, step, table, place, others, first, count, num_chains, chain)
    t = concatenate(sums)
    inverses = (
        builder.load(builder.gep(inverse_temperature, [builder.add(chain, constant(i))])) for i in range(PART)
    )
    t = t * concatenate([splat(builder, value, TILE) for value in inverses])
    halves = []
    for i in range(PART):
        lane = builder.mul(builder.add(part, constant(i)), constant(TILE // 4))
        for begin in (lane, builder.add(lane, constant(LANES))):
            halves.append(load(builder, builder.gep(words, [begin]), INT32, TILE // 2, align=8))
    on = comes_on(t, concatenate(halves)).view(INT64)
    store(on, builder.gep(spins, [builder.add(builder.mul(tile, num_chains), chain)]), align=2)


def _sum_rows(builder, start, step, table, place, others, first, count, num_chains, chain):
    """The scaled fields of one tile of four chains: earlier ones plus the rows that the spins of some tiles choose.

    The earlier ones of two chains, from start on, lie step apart: 16, or 0 for the same of all. The tiles are count of
    the spins of the other side, others (tile, chain) uint16, from first on; the first tile's rows lie at a place of the
    table. The number of chains and the first of the four are multiples of 4.
    """
    totals = []
    for i in range(PART):
        of_chain = builder.mul(builder.add(chain, constant(i)), step)
        value = load(builder, builder.gep(start, [of_chain]), FLOAT32, TILE, align=4).value
        totals.append(cgutils.alloca_once_value(builder, value))
    table = builder.gep(table, [builder.mul(place, constant(ROWS * TILE))])
    others = builder.gep(others, [builder.add(builder.mul(first, num_chains), chain)])
    with cgutils.for_range(builder, count) as loop:
        of_tile = builder.gep(table, [builder.mul(loop.index, constant(ROWS * TILE))])
        four = load(builder, builder.gep(others, [builder.mul(loop.index, num_chains)]), INT64, 1, align=2)
        bits = four.element(0)  # of all four chains
        for i, total in enumerate(totals):
            chosen, shift, origin = [], TILE * i, 0
            for width in SPLIT:
                code = builder.and_(builder.lshr(bits, constant(shift)), constant((1 << width) - 1))
                offset = builder.add(builder.mul(code, constant(TILE)), constant(origin * TILE))
                chosen.append(load(builder, builder.gep(of_tile, [offset]), FLOAT32, TILE, align=4))
                shift, origin = shift + width, origin + (1 << width)
            total_before = Vector(builder, builder.load(total))
            builder.store((total_before + (chosen[0] + (chosen[1] + chosen[2]))).value, total)
    return [Vector(builder, builder.load(total)) for total in totals]


# Scaled weights and packed spins. Units of a tile are (16,) int64, -1 for padding.


@njit(**INNER)
def scale_side(weights, biases, weight, bias, units, others):
    """Set the weights and biases of a side in the order of its bits, both scaled by -log2(e).

    The weights are (tile * tile of the other side, 16, 16) float32, by the other tile's bit and the tile's; the biases
    (tile, 16). Weight (left, right) and bias (unit,) are the machine's, units and others those of the sides.
    """
    num_left = weight.shape[0]
    for tile in range(units.shape[0]):
        for j in range(TILE):
            unit = units[tile, j]
            biases[tile, j] = bias[unit] * _MINUS_LOG2_E if unit >= 0 else np.float32(0)
        for other in range(others.shape[0]):
            pair = weights[tile * others.shape[0] + other]
            for k in range(TILE):
                source = others[other, k]
                for j in range(TILE):
                    unit = units[tile, j]
                    pair[k, j] = np.float32(0)
                    if unit >= 0 and source >= 0:
                        left, right = (unit, source) if unit < source else (source, unit)
                        pair[k, j] = weight[left, right - num_left] * _MINUS_LOG2_E


@njit(**INNER)
def is_binary(values, first, last):
    """True if rows first to last hold only 0 and 1."""
    others = 0
    for c in range(first, last):
        for i in range(values.shape[1]):
            others += (values[c, i] != 0) & (values[c, i] != 1)
    return others == 0


@njit(**INNER)
def pack(spins, values, units, first, last):
    """Pack rows first to last of values (row, unit), 0 or 1, into spins (tile, row)."""
    for tile in range(units.shape[0]):
        whole = units[tile].min()  # below 0 where there is padding
        for c in range(first, last):
            if whole >= 0:
                spins[tile, c - first] = _pack_tile(values, c * values.shape[1] + whole)
            else:
                bits = 0
                for j in range(TILE):
                    if units[tile, j] >= 0:
                        bits |= int(values[c, units[tile, j]] != 0) << j
                spins[tile, c - first] = bits


@njit(**INNER)
def unpack(values, spins, units, first, last):
    """Undo `pack`."""
    for tile in range(units.shape[0]):
        whole = units[tile].min()  # below 0 where there is padding
        for c in range(first, last):
            bits = spins[tile, c - first]
            if whole >= 0:
                _unpack_tile(values, c * values.shape[1] + whole, bits)
            else:
                for j in range(TILE):
                    if units[tile, j] >= 0:
                        values[c, units[tile, j]] = np.float32((bits >> j) & 1)


@builder_intrinsic(types.uint16)
def _pack_tile(builder, values, first):
    """The spins of a whole tile, from 16 float32 in the order of units: any value but 0 counts as 1."""
    tile = load(builder, builder.gep(values, [first]), FLOAT32, TILE, align=4)
    return tile.permuted(UNIT_ORDER.tolist()).differs_from(0).view(INT16).element(0)


@builder_intrinsic()
def _unpack_tile(builder, values, first, spins):
    bits = splat(builder, builder.zext(spins, INT32), TILE) & numbers(
        builder, INT32, [1 << b for b in range(TILE)]
    )
    tile = bits.differs_from(0).to_float(signed=False)
    store(tile.permuted(np.argsort(UNIT_ORDER).tolist()), builder.gep(values, [first]), align=4)
