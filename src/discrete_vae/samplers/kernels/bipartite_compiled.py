"""The compiled loops of the CPU kernel.

Layout. A side's units are cut into tiles of 16 that share four Philox counters, and the spins of a tile and chain
are the bits of a uint16, in the order in which the random words come (`UNIT_ORDER`). The scaled fields of a tile
are its biases plus three table rows for each tile of the other side: one chosen by that tile's bits 0-4, one by
bits 5-9, one by bits 10-15. A chain reads 96 bytes of rows for a byte of spins, so rows have to lie in the first-level
cache: those for one tile and a block of four tiles of the other side, 32 KiB, serve all chains of a chunk before the
next. Small machines' tables are made once per call; those of larger ones would not fit the second-level cache, so
rows are made from the weights, a sixteenth of their size, each time that a block is due.

Arithmetic of counters is in uint64 with explicit masks. numba widens uint32 operations to 64 bits without a word,
and a forgotten cast then draws from another law; here nothing is left to widen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from discrete_vae.compiled import vector_functions, vector_ir
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.samplers.kernels import bipartite_intrinsics, bipartite_layout, vector_spins
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
from discrete_vae.samplers.kernels.bipartite_layout import is_binary, pack, scale_side, unpack
from discrete_vae.samplers.kernels.vector_spins import LOW, MULTIPLIERS, WEYL

_LOW, _32 = np.uint64(LOW), np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_WEYL_0, _WEYL_1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])


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
        scratch: (3, lane) and (2, lane) uint64, (8,) uint16, (4, row, 16) and (chain * 16,) float32, for intermediate
            values.
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
        for group in range(0, num_chains, GROUP):
            draw_words(words, lanes, chain_part, first_chain + np.uint64(group), key)  # pyright: ignore[reportCallIssue]
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
def aligned(size):
    """Uninitialized float32 memory of this thread that starts at a multiple of 64 bytes.

    Memory of two threads in one page would be fetched from one to the other by the processor's guesses.
    """
    memory = np.empty(size + 15, np.float32)
    skip = -(memory.ctypes.data // 4) % 16
    return memory[skip : skip + size]


@njit(**INNER)
def run_chunk(
    after,
    before,
    units,
    tables,
    weights,
    biases,
    counters,
    clamped,
    inverse_temperature,
    num_sweeps,
    key,
    first_sweep,
    first_chain,
    first,
    last,
):
    """Run all sweeps of the chains from first to last; does nothing and answers False if a state is not binary.

    The arguments before first are those of `run_chunks`, with the tables built; first and last are numbers of chains.
    """
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
    lanes, words, old = (
        np.empty((3, LANES), np.uint64),
        np.empty((2, LANES), np.uint64),
        np.empty(GROUP, np.uint16),
    )
    rows, fields = aligned(BLOCK * ROWS * TILE).reshape(BLOCK, ROWS, TILE), aligned(padded * TILE)
    chain = first_chain + np.uint64(first)
    for half in range(2 * num_sweeps):
        side = half & 1
        sweep = first_sweep + np.uint64(half >> 1)
        draw_side(
            spins[side], spins[1 - side], tables[side], weights[side], biases[side], masks[side], of_chunk,
            (lanes, words, old, rows, fields), counters[side], chain, sweep, key,
        )  # fmt: skip
    for side in range(2):
        unpack(after, spins[side], units[side], first, last)
    return True


def _prepare(
    after, before, binary, weight, bias, units, tables, weights, biases, counters, clamped, inverse_temperature,
    num_sweeps, key, first_sweep, first_chain,
):  # fmt: skip
    """Scale both sides' weights and make whole tables; the arguments are those of the loop."""
    for side in range(2):
        scale_side(weights[side], biases[side], weight, bias, units[side], units[1 - side])
        for pair in range(tables[side].shape[0]):
            fill_rows(tables[side], pair, weights[side], pair)  # pyright: ignore[reportCallIssue]


def _make(chunks: Any) -> Callable[..., Any]:
    """The loop over chunks that `chunks`, range or prange, divides."""

    def run_chunks(
        after, before, binary, weight, bias, units, tables, weights, biases, counters, clamped, inverse_temperature,
        num_sweeps, key, first_sweep, first_chain,
    ):  # fmt: skip
        """Run the sweeps with the chains split in chunks.

        Pairs have one entry for the left and one for the right side.

        Args:
            after: (chain, unit) float32, receives the states.
            before: (chain, unit) float32.
            binary: (chunk,) bool, receives whether all states of a chunk were 0 or 1; if not, ``after`` is not
                complete. Its length is the number of chunks.
            weight: (left, right) float32.
            bias: (unit,) float32.
            units: Pair of (tile, 16) int64, the unit of each bit, -1 for padding.
            tables: Pair of memory for whole tables, see `draw_side`; empty: rows are made when they are due.
            weights: Pair of memory for `scale_side`.
            biases: Pair of memory for `scale_side`.
            counters: Pair of uint64, the first counter of each side.
            clamped: (chain, unit), (1, unit) or (0, unit) float32, 1 where a unit keeps its value.
            inverse_temperature: (chain,) or (0,) float32, inverse temperatures; none means 1.
            num_sweeps: Number of sweeps.
            key: uint64, the Philox key.
            first_sweep: uint64, number of the first sweep.
            first_chain: uint64, number of the first chain.
        """
        num_chains, num_chunks = before.shape[0], binary.shape[0]
        for c in chunks(num_chunks):
            binary[c] = run_chunk(
                after, before, units, tables, weights, biases, counters, clamped, inverse_temperature,
                num_sweeps, key, first_sweep, first_chain, c * num_chains // num_chunks,
                (c + 1) * num_chains // num_chunks,
            )  # fmt: skip
        return 0

    return run_chunks


run_chunks = ChunkLoop(
    _make,
    prepare=_prepare,
    sources=(bipartite_intrinsics, bipartite_layout, vector_functions, vector_ir, vector_spins),
)
