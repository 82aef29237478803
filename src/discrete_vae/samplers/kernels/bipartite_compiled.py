"""The compiled loops of the CPU kernel.

Layout. A side's units are cut into tiles of 16 that share four Philox counters, and the spins of a tile and chain
are the bits of a uint16, in the order in which the random words come (`UNIT_ORDER`). The scaled fields of a tile
are its biases plus three table rows for each tile of the other side: one chosen by that tile's bits 0-4, one by
bits 5-9, one by bits 10-15. A chain reads 96 bytes of rows for a byte of spins, so rows have to lie in the first-level
cache: those for one tile and a block of four tiles of the other side, 32 KiB, serve all chains of a chunk before the
next. Small machines' tables are made once per call; those of larger ones would not fit the second-level cache, so
rows are made from the weights, a sixteenth of their size, each time that a block is due. Where the processor has a
matrix unit, fields of larger machines are products instead, see `bipartite_products`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from discrete_vae.compiled import matrix_unit, vector_functions, vector_ir, vector_philox
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.samplers.kernels import (
    bipartite_intrinsics,
    bipartite_layout,
    bipartite_products,
    bipartite_side,
    vector_spins,
)
from discrete_vae.samplers.kernels.bipartite_intrinsics import GROUP, INNER, fill_rows
from discrete_vae.samplers.kernels.bipartite_layout import is_binary, pack, scale_side, unpack
from discrete_vae.samplers.kernels.bipartite_products import split_side


def _run_chunk_with(scratch_for: Callable[..., Any], draw_side: Callable[..., Any]) -> Any:
    """A function that runs all sweeps of a chunk of chains by one way to draw a side."""

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

        The arguments before first are those of the loop, with the tables built; first and last are numbers of
        chains.
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

    return run_chunk


def _prepare_tables(
    after, before, binary, weight, bias, units, tables, weights, biases, counters, clamped, inverse_temperature,
    num_sweeps, key, first_sweep, first_chain,
):  # fmt: skip
    """Scale both sides' weights and make whole tables; the arguments are those of the loop."""
    for side in range(2):
        scale_side(weights[side], biases[side], weight, bias, units[side], units[1 - side])
        for pair in range(tables[side].shape[0]):
            fill_rows(tables[side], pair, weights[side], pair)  # pyright: ignore[reportCallIssue]


def _prepare_products(
    after, before, binary, weight, bias, units, tables, weights, biases, counters, clamped, inverse_temperature,
    num_sweeps, key, first_sweep, first_chain,
):  # fmt: skip
    """Scale both sides' weights and cut them into bytes; the arguments are those of the loop."""
    for side in range(2):
        scale_side(weights[side], biases[side], weight, bias, units[side], units[1 - side])
        split_side(tables[side][0], tables[side][1], weights[side])


def _loop_with(
    name: str, scratch_for: Callable[..., Any], draw_side: Callable[..., Any]
) -> Callable[[Any], Callable[..., Any]]:
    """What makes the loop over chunks by one way to draw a side."""
    run_chunk = _run_chunk_with(scratch_for, draw_side)

    def make(chunks: Any) -> Callable[..., Any]:
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
                tables: Pair of memory for whole tables (empty: rows are made when they are due), or for the digits and
                    the scales of `split_side`.
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

        run_chunks.__qualname__ = name  # the cache's name of it
        return run_chunks

    return make


_SOURCES = (
    bipartite_side,
    bipartite_intrinsics,
    bipartite_layout,
    vector_functions,
    vector_ir,
    vector_philox,
    vector_spins,
)

run_by_tables = ChunkLoop(
    _loop_with("by_tables", bipartite_side.scratch_for, bipartite_side.draw_side),
    prepare=_prepare_tables,
    sources=_SOURCES,
)
run_by_products = ChunkLoop(
    _loop_with("by_products", bipartite_products.scratch_for, bipartite_products.draw_side),
    prepare=_prepare_products,
    sources=(*_SOURCES, bipartite_products, matrix_unit),
)
