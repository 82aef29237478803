"""The inner steps of the CPU kernel, as numba intrinsics: random words, table rows, fields, and decisions.

The loops around them are in `bipartite_compiled`; see there for the layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from discrete_vae.compiled.vector_ir import (
    FLOAT32,
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
from discrete_vae.compiled.vector_philox import LOW, philox_rounds, times
from discrete_vae.samplers.kernels.vector_spins import comes_on

TILE = 16  # units that share four counters
GROUP = 8  # chains whose words are drawn together
PART = 4  # chains whose spins are decided together
LANES = GROUP * TILE // 4  # counters of a group
SPLIT = (5, 5, 6)  # bits of a tile that choose a row of the table
ROWS = sum(1 << bits for bits in SPLIT)  # of the table for one tile and one tile of the other side
BLOCK = 4  # tiles of the other side whose rows, 32 KiB, are read by all chains before the next

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
def fill_rows(_typing, table, place, weights, pair):
    """Fill the rows of the table for one tile and one tile of the other side: sums of weights, by doubling.

    Args:
        table: (place, row, 16) float32, changed; aligned to 64 bytes for the sake of speed.
        place: int64, index of the rows within it.
        weights: (pair, 16, 16) float32, the scaled weights between each bit of the other tile and the tile's bits.
        pair: int64, index of the two tiles within it.
    """

    def generate(context, builder, signature, arguments):
        table, place, weights, pair = pointers_and_scalars(context, builder, signature, arguments)
        rows = builder.gep(table, [builder.mul(place, constant(ROWS * TILE))])
        weights = builder.gep(weights, [builder.mul(pair, constant(TILE * TILE))])

        def row(number):
            return builder.gep(rows, [constant(number * TILE)])

        bit, origin = 0, 0
        for width in SPLIT:
            zeros = ir.Constant(ir.VectorType(FLOAT32, TILE), [0.0] * TILE)
            store(Vector(builder, zeros), row(origin), align=4)
            for k in range(width):
                weight = load(builder, builder.gep(weights, [constant(bit * TILE)]), FLOAT32, TILE, align=4)
                for known in range(origin, origin + (1 << k)):
                    total = load(builder, row(known), FLOAT32, TILE, align=4) + weight
                    store(total, row(known + (1 << k)), align=4)
                bit += 1
            origin += 1 << width
        return context.get_dummy_value()

    return types.void(table, place, weights, pair), generate


@intrinsic
def add_rows(_typing, fields, start, step, table, place, others, first, count, num_chains, chain):
    """Set the scaled fields of one tile of four chains to earlier ones plus the rows that some tiles choose.

    Args:
        fields: (chain, 16) float32 as one array, receives them.
        start: float32, the earlier ones.
        step: int64, distance of the earlier ones of two chains: 16, or 0 for the same of all.
        table: (place, row, 16) float32, from `fill_rows`.
        place: int64, index of the first tile's rows within it.
        others: (tile, chain) uint16, the spins of the other side.
        first: int64, index of the first tile within them.
        count: int64, number of tiles.
        num_chains: int64, length of a row of others, a multiple of 4.
        chain: int64, index of the first of the four chains, a multiple of 4.
    """

    def generate(context, builder, signature, arguments):
        fields, start, step, table, place, others, first, count, num_chains, chain = pointers_and_scalars(
            context, builder, signature, arguments
        )
        sums = _sum_rows(builder, start, step, table, place, others, first, count, num_chains, chain)
        for i, total in enumerate(sums):
            of_chain = builder.mul(builder.add(chain, constant(i)), constant(TILE))
            store(total, builder.gep(fields, [of_chain]), align=4)
        return context.get_dummy_value()

    signature = types.void(fields, start, step, table, place, others, first, count, num_chains, chain)
    return signature, generate


@intrinsic
def decide(
    _typing, spins, tile, words, part, inverse_temperature, start, step, table, place, others, first, count, num_chains,
    chain,
):  # fmt: skip
    """Draw the spins of one tile of four chains, see `comes_on`.

    Args:
        spins: (tile, chain) uint16, receives the spins.
        tile: int64, index of the tile within it.
        words: (2, lane) uint64, from `draw_words`.
        part: int64, number of the first of the four chains within its group.
        inverse_temperature: (chain,) float32, inverse temperatures.
        start: This and all further ones as for `add_rows`; the sums are the fields.
        step: int64.
        table: float32.
        place: int64.
        others: uint16.
        first: int64.
        count: int64.
        num_chains: int64, length of a row of both arrays of spins.
        chain: int64.
    """

    def generate(context, builder, signature, arguments):
        spins, tile, words, part, inverse_temperature, *fields = pointers_and_scalars(
            context, builder, signature, arguments
        )
        num_chains, chain = fields[-2:]
        t = concatenate(_sum_rows(builder, *fields))
        inverses = (
            builder.load(builder.gep(inverse_temperature, [builder.add(chain, constant(i))]))
            for i in range(PART)
        )
        t = t * concatenate([splat(builder, value, TILE) for value in inverses])
        on = comes_on(t, _words_of(builder, words, part)).view(INT64)
        store(on, builder.gep(spins, [builder.add(builder.mul(tile, num_chains), chain)]), align=2)
        return context.get_dummy_value()

    signature = types.void(
        spins,
        tile,
        words,
        part,
        inverse_temperature,
        start,
        step,
        table,
        place,
        others,
        first,
        count,
        num_chains,
        chain,
    )
    return signature, generate


def _sum_rows(builder, start, step, table, place, others, first, count, num_chains, chain):
    """The scaled fields of four chains, one vector per chain: the start and the rows that their spins choose."""
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


def _words_of(builder, words, part):
    """The 32-bit words of four chains in the order of their bits."""
    halves = []
    for i in range(PART):
        lane = builder.mul(builder.add(part, constant(i)), constant(TILE // 4))
        for start in (lane, builder.add(lane, constant(LANES))):
            halves.append(load(builder, builder.gep(words, [start]), INT32, TILE // 2, align=8))
    return concatenate(halves)
