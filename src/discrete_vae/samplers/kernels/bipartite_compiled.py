"""The compiled loops of the CPU kernel.

Layout. A side's units are cut into tiles of 16 that share four Philox counters, and the spins of a tile and chain
are the bits of a uint16, in the order in which the random words come (`UNIT_ORDER`). The scaled fields of a tile
are its biases plus three table rows for each tile of the other side: one chosen by that tile's bits 0-4, one by
bits 5-9, one by bits 10-15. A chain reads 96 bytes of rows for a byte of spins, so rows have to lie in the first-level
cache: those for one tile and a block of four tiles of the other side, 32 KiB, serve all chains of a chunk before the
next. Small machines' tables are made once per call; those of larger ones would not fit the second-level cache, so
rows are made from the weights, a sixteenth of their size, each time that a block is due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from discrete_vae.compiled import vector_functions, vector_ir, vector_philox
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.samplers.kernels import bipartite_intrinsics, bipartite_layout, bipartite_side, vector_spins
from discrete_vae.samplers.kernels.bipartite_intrinsics import (
    BLOCK,
    GROUP,
    INNER,
    LANES,
    ROWS,
    TILE,
    fill_rows,
)
from discrete_vae.samplers.kernels.bipartite_layout import is_binary, pack, scale_side, unpack
from discrete_vae.samplers.kernels.bipartite_side import draw_side


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
    sources=(
        bipartite_side,
        bipartite_intrinsics,
        bipartite_layout,
        vector_functions,
        vector_ir,
        vector_philox,
        vector_spins,
    ),
)
