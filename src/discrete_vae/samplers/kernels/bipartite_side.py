"""One side of a chunk of chains drawn given the other; `bipartite_compiled` explains the layout.

Arithmetic of counters is in uint64 with explicit masks. numba widens uint32 operations to 64 bits without a word,
and a forgotten cast then draws from another law; here nothing is left to widen.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from discrete_vae.compiled.vector_philox import LOW, MULTIPLIERS, WEYL
from discrete_vae.samplers.kernels.bipartite_intrinsics import (
    BLOCK,
    GROUP,
    INNER,
    LANES,
    PART,
    ROWS,
    TILE,
    add_rows,
    decide,
    draw_words,
    fill_rows,
)

_LOW, _32 = np.uint64(LOW), np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_WEYL_0, _WEYL_1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])


@njit(**INNER)
def aligned(size):
    """Uninitialized float32 memory of this thread that starts at a multiple of 64 bytes.

    Memory of two threads in one page would be fetched from one to the other by the processor's guesses.
    """
    memory = np.empty(size + 15, np.float32)
    skip = -(memory.ctypes.data // 4) % 16
    return memory[skip : skip + size]


@njit(**INNER)
def of_words():
    """Memory for the random words of a group of chains, and for its spins."""
    return np.empty((3, LANES), np.uint64), np.empty((2, LANES), np.uint64), np.empty(GROUP, np.uint16)


@njit(**INNER)
def scratch_for(_num_tiles, num_chains):
    """Memory of a chunk for intermediate values.

    Args:
        _num_tiles: Of the larger side.
        num_chains: A multiple of 8.
    """
    lanes, words, before = of_words()
    rows = aligned(BLOCK * ROWS * TILE).reshape(BLOCK, ROWS, TILE)
    return lanes, words, before, rows, aligned(num_chains * TILE)


@njit(**INNER)
def start_lanes(lanes, counter, sweep, key):
    """The part of the first two rounds of Philox4x32 that depends on the counter and the sweep only.

    Args:
        lanes: (3, lane) uint64, receives what `draw_words` asks for.
        counter: uint64, first counter of the tile.
        sweep: uint64.
        key: uint64.

    Returns:
        The other argument of `draw_words`, uint64.
    """
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


@njit(**INNER)
def draw_tile(
    spins, tile, lanes, words, before, chain_part, first_chain, clamped, inverse_temperature, key,
    first, last, start, step, table, place, others, first_other, count,
):  # fmt: skip
    """Draw one tile of some chains.

    Args:
        spins: (tile, chain) uint16, changed.
        tile: Index of the tile within it.
        lanes: From `start_lanes`.
        words: (2, lane) uint64, for intermediate values.
        before: (8,) uint16, likewise.
        chain_part: What `start_lanes` returned.
        first_chain: uint64, number of the chunk's first chain.
        clamped: As for `draw_side`.
        inverse_temperature: As for `draw_side`.
        key: uint64.
        first: The first of the chains, a multiple of 8.
        last: The one after the last, a multiple of 8.
        start: This and all further ones as for `decide`.
        step: int64.
        table: float32.
        place: int64.
        others: uint16.
        first_other: int64.
        count: int64.
    """
    num_chains = others.shape[1]
    for group in range(first, last, GROUP):
        draw_words(words, lanes, chain_part, first_chain + np.uint64(group), key)  # pyright: ignore[reportCallIssue]
        if clamped.shape[1]:
            for c in range(GROUP):
                before[c] = spins[tile, group + c]
        for part in range(0, GROUP, PART):
            decide(
                spins, tile, words, part, inverse_temperature, start, step, table, place, others, first_other,
                count, num_chains, group + part,
            )  # fmt: skip
        if clamped.shape[1]:
            for c in range(GROUP):
                keep = clamped[tile, min(group + c, clamped.shape[1] - 1)]
                spins[tile, group + c] = (spins[tile, group + c] & ~keep) | (before[c] & keep)


@njit(**INNER)
def draw_side(
    spins,
    others,
    table,
    weights,
    biases,
    clamped,
    inverse_temperature,
    scratch,
    first_counter,
    first_chain,
    sweep,
    key,
):
    """Draw one side of all chains of a chunk given the other side.

    Args:
        spins: (tile, chain) uint16, changed; the number of chains is a multiple of 8.
        others: (tile, chain) uint16, the other side.
        table: (tile * tile of the other side, row, 16) float32, from `fill_rows`; empty: rows are made when due.
        weights: From `scale_side`.
        biases: From `scale_side`.
        clamped: (tile, chain), (tile, 1) or (tile, 0) uint16, bits of units that keep their values.
        inverse_temperature: (chain,) float32, inverse temperatures.
        scratch: From `scratch_for`.
        first_counter: uint64, first counter of the side.
        first_chain: uint64.
        sweep: uint64.
        key: uint64.
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
                    fill_rows(rows, other, weights, place + other)  # pyright: ignore[reportCallIssue]
                block_rows, place = rows, 0
            if last < num_others:
                for chain in range(0, num_chains, PART):
                    add_rows(
                        fields, start, step, block_rows, place, others, first, last - first, num_chains, chain
                    )  # pyright: ignore[reportCallIssue]
                start, step = fields, TILE
        draw_tile(
            spins, tile, lanes, words, before, chain_part, first_chain, clamped, inverse_temperature, key,
            0, num_chains, start, step, block_rows, place, others, first, last - first,
        )  # fmt: skip
