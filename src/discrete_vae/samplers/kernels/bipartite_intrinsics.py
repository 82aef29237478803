"""The two inner steps of the CPU kernel, as numba intrinsics: random words, and decisions.

The loops around them are in `bipartite_compiled`; see there for the layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from discrete_vae.samplers.kernels.vector_ir import (
    FLOAT32,
    INT16,
    INT32,
    INT64,
    Vector,
    concatenate,
    constant,
    load,
    numbers,
    pointers_and_scalars,
    splat,
    store,
)
from discrete_vae.samplers.kernels.vector_spins import LOW, comes_on, philox_rounds, times

TILE = 16  # units that share four counters
GROUP = 8  # chains whose words are drawn together
PART = 4  # chains whose spins are decided together
LANES = GROUP * TILE // 4  # counters of a group
SPLIT = (5, 5, 6)  # bits of a tile that choose a row of the table
ROWS = sum(1 << bits for bits in SPLIT)  # of the table for one tile and one tile of the other side

INNER: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of compiled functions that only others call."""

_bits = np.arange(TILE)
UNIT_ORDER = 4 * (_bits % 8 // 2) + 2 * (_bits // 8) + 1 - _bits % 2
"""The unit of a tile, counted from its first, that each bit of a tile stands for."""


@intrinsic
def draw_words(_typing, words, lanes, chain_part, chain, key):
    """Finish Philox4x32-10 for the chains ``chain`` to ``chain + 7``, from its third round.

    Args:
        words: (2, lane) uint64, receives words 1 and 0 of each counter, then words 3 and 2; the first named word
            is the low half.
        lanes: (3, lane) uint64, the state before round three: x0, x1, and the part of x2 that does not depend on
            the chain. Lane f stands for counter f % 4 of chain f // 4.
        chain_part: uint64, what meets the chain in round two.
        chain: uint64.
        key: uint64.
    """

    def generate(context, builder, signature, arguments):
        words, lanes, chain_part, chain, key = pointers_and_scalars(context, builder, signature, arguments)

        def place(pointer, row):
            return builder.gep(pointer, [constant(row * LANES)])

        x0, x1, partial = (load(builder, place(lanes, row), INT64, LANES, align=8) for row in range(3))
        chains = splat(builder, chain, LANES) + numbers(builder, INT64, [f // 4 for f in range(LANES)])
        x3 = times(chains ^ splat(builder, chain_part, LANES), 0)
        x2 = (x3 >> 32) ^ partial
        x0, x1, x2, x3 = philox_rounds(builder, (x0, x1, x2, x3), key, 2)
        store((x0 << 32) | (x1 & LOW), place(words, 0), align=8)
        store((x2 << 32) | (x3 & LOW), place(words, 1), align=8)
        return context.get_dummy_value()

    return types.void(words, lanes, chain_part, chain, key), generate


@intrinsic
def decide(
    _typing, spins, num_tiles, tile, chain, words, part, inverse_temperature, bias, table, others, num_others
):
    """Draw the spins of one tile of four chains, see `comes_on`.

    Args:
        spins: (chain, tile) uint16, receives the spins.
        num_tiles: int64, length of a row of spins.
        tile: int64, index of the tile within it.
        chain: int64, index of the first of the four chains.
        words: (2, lane) uint64, from `draw_words`.
        part: int64, number of the first of the four chains within its group.
        inverse_temperature: (chain,) float32, inverse temperatures.
        bias: (16,) float32, the biases of the tile times -log2(e); aligned to 64 bytes, as the table is.
        table: (row, 16) float32, the rows of the tile for all tiles of the other side.
        others: (chain, tile) uint16, the other side.
        num_others: int64, length of a row of others.
    """

    def generate(context, builder, signature, arguments):
        spins, num_tiles, tile, chain, words, part, inverse_temperature, bias, table, others, num_others = (
            pointers_and_scalars(context, builder, signature, arguments)
        )
        chains = [builder.add(chain, constant(i)) for i in range(PART)]
        t = concatenate(_sum_rows(builder, bias, table, others, chains, num_others))
        scales = (builder.load(builder.gep(inverse_temperature, [c])) for c in chains)
        t = t * concatenate([splat(builder, value, TILE) for value in scales])
        on = comes_on(t, _words_of(builder, words, part)).view(INT16)
        for i, c in enumerate(chains):
            builder.store(on.element(i), builder.gep(spins, [builder.add(builder.mul(c, num_tiles), tile)]))
        return context.get_dummy_value()

    signature = types.void(
        spins, num_tiles, tile, chain, words, part, inverse_temperature, bias, table, others, num_others
    )
    return signature, generate


def _sum_rows(builder, bias, table, spins, chains, num_tiles):
    """The scaled fields of some chains, one vector per chain: the bias and the rows that their spins choose."""
    start = load(builder, bias, FLOAT32, TILE, align=64)
    totals = [cgutils.alloca_once_value(builder, start.value) for _ in chains]
    rows = [builder.gep(spins, [builder.mul(chain, num_tiles)]) for chain in chains]
    with cgutils.for_range(builder, num_tiles) as loop:
        of_tile = builder.gep(table, [builder.mul(loop.index, constant(ROWS * TILE))])
        for total, row in zip(totals, rows, strict=True):
            bits = builder.zext(builder.load(builder.gep(row, [loop.index])), INT64)
            chosen, shift, origin = [], 0, 0
            for width in SPLIT:
                code = builder.and_(builder.lshr(bits, constant(shift)), constant((1 << width) - 1))
                offset = builder.add(builder.mul(code, constant(TILE)), constant(origin * TILE))
                chosen.append(load(builder, builder.gep(of_tile, [offset]), FLOAT32, TILE, align=64))
                shift, origin = shift + width, origin + (1 << width)
            total_before = Vector(builder, builder.load(total))
            builder.store((total_before + (chosen[0] + (chosen[1] + chosen[2]))).value, total)
    return [Vector(builder, builder.load(total)) for total in totals]


def _words_of(builder, words, part):
    """The 32-bit words of four chains in the order of their bits."""
    halves = []
    for i in range(PART):
        lane = builder.mul(builder.add(part, constant(i)), constant(TILE // 4))
        for start in (lane, builder.add(lane, constant(LANES))):
            halves.append(load(builder, builder.gep(words, [start]), INT32, TILE // 2, align=8))
    return concatenate(halves)


@intrinsic
def pack_tile(_typing, values, first):
    """The spins of a whole tile, from 16 float32 in the order of units: uint16; any value but 0 counts as 1.

    Args:
        values: float32 array.
        first: int64, index of the tile's first unit in the flat array.
    """

    def generate(context, builder, signature, arguments):
        values, first = pointers_and_scalars(context, builder, signature, arguments)
        tile = load(builder, builder.gep(values, [first]), FLOAT32, TILE, align=4)
        return tile.permuted(UNIT_ORDER.tolist()).differs_from(0).view(INT16).element(0)

    return types.uint16(values, first), generate


@intrinsic
def unpack_tile(_typing, values, first, spins):
    """Undo `pack_tile`, writing 0 and 1.

    Args:
        values: float32 array, changed.
        first: int64, index of the tile's first unit in the flat array.
        spins: uint16.
    """

    def generate(context, builder, signature, arguments):
        values, first, spins = pointers_and_scalars(context, builder, signature, arguments)
        bits = splat(builder, builder.zext(spins, INT32), TILE) & numbers(
            builder, INT32, [1 << b for b in range(TILE)]
        )
        tile = bits.differs_from(0).to_float(signed=False)
        store(tile.permuted(np.argsort(UNIT_ORDER).tolist()), builder.gep(values, [first]), align=4)
        return context.get_dummy_value()

    return types.void(values, first, spins), generate
