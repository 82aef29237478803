"""The compiled part of the CPU kernel for graphs.

Layout. A thread advances a chunk of chains together. Their spins are bytes 0 or 1 in an array (unit, chain), so
whatever happens to one unit happens to a run of adjacent bytes, and the loops over chains become vector
instructions: no index is read more than once a chunk, however irregular the graph.

Random words and decisions are those of the kernel for RBMs, on vectors of 16 chains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from discrete_vae.compiled import vector_functions, vector_ir, vector_philox
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.samplers.kernels import graph_intrinsics, vector_spins
from discrete_vae.samplers.kernels.graph_intrinsics import LANES, decide, draw_words

_STRICT = {"contract", "nnan", "ninf", "nsz"}  # no reassociation: results must not depend on the loop's shape
_TILE = 64  # units that a transposition moves together


@njit(fastmath=_STRICT, nogil=True)
def _sum_field(field, spins, bias, neighbors, weights):
    """Set field[c] to the bias plus the weights of the neighbors that are 1, four per pass."""
    for c in range(field.shape[0]):
        field[c] = bias
    count = neighbors.shape[0]
    whole = count - count % 4
    for k in range(0, whole, 4):
        w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        z0, z1 = spins[neighbors[k]], spins[neighbors[k + 1]]
        z2, z3 = spins[neighbors[k + 2]], spins[neighbors[k + 3]]
        for c in range(field.shape[0]):
            field[c] += (w0 * z0[c] + w1 * z1[c]) + (w2 * z2[c] + w3 * z3[c])
    for k in range(whole, count):
        w, z = weights[k], spins[neighbors[k]]
        for c in range(field.shape[0]):
            field[c] += w * z[c]


@njit(nogil=True)
def _transpose(spins, values):
    """Set spins[:, :chain] to the transpose of values (chain, unit); answers whether all of them are 0 or 1."""
    others = 0
    for first in range(0, spins.shape[0], _TILE):
        last = min(first + _TILE, spins.shape[0])
        for c in range(values.shape[0]):
            for i in range(first, last):
                value = values[c, i]
                others += (value != 0) & (value != 1)
                spins[i, c] = np.uint8(value != 0)
    return others == 0


@njit(nogil=True)
def _transpose_back(values, spins):
    """Undo _transpose."""
    for first in range(0, spins.shape[0], _TILE):
        last = min(first + _TILE, spins.shape[0])
        for c in range(values.shape[0]):
            for i in range(first, last):
                values[c, i] = np.float32(spins[i, c])


@njit(nogil=True)
def _run_chunk(after, before, graph, num_sweeps, key, first_sweep, first_chain, inverse_temperature, clamped):
    """Run all sweeps of some chains; does nothing and answers False where a state is not binary."""
    order, start, neighbor, weight, bias = graph
    num_chains, num_units = before.shape
    lanes = (num_chains + LANES - 1) // LANES * LANES
    spins = np.zeros((num_units, lanes), np.uint8)
    if not _transpose(spins, before):
        return False
    keep = np.empty((num_units if clamped.shape[0] else 0, clamped.shape[0]), np.uint8)
    _transpose(keep, clamped)
    words = np.empty((4, lanes), np.uint32)
    field = np.empty(lanes, np.float32)
    drawn = np.empty(lanes, np.uint8)
    for s in range(num_sweeps):
        sweep = first_sweep + np.uint64(s)
        counter = -1
        for row in range(num_units):
            unit = order[row]
            if clamped.shape[0] == 1 and keep[unit, 0]:
                continue
            if (
                unit // 4 != counter
            ):  # units of a block ascend, so those that share a counter follow each other
                counter = unit // 4
                for c in range(0, lanes, LANES):
                    draw_words(words, lanes, c, np.uint64(counter), first_chain + np.uint64(c), sweep, key)  # pyright: ignore[reportCallIssue]
            first, last = start[row], start[row + 1]
            _sum_field(field, spins, bias[unit], neighbor[first:last], weight[first:last])
            if inverse_temperature.shape[0]:
                for c in range(num_chains):
                    field[c] *= inverse_temperature[c]
            if clamped.shape[0] > 1:
                for c in range(0, lanes, LANES):
                    decide(drawn, 0, field, words, unit % 4 * lanes, c)  # pyright: ignore[reportCallIssue]
                for c in range(num_chains):
                    spins[unit, c] = spins[unit, c] if keep[unit, c] else drawn[c]
            else:
                for c in range(0, lanes, LANES):
                    decide(spins, unit * lanes, field, words, unit % 4 * lanes, c)  # pyright: ignore[reportCallIssue]
    _transpose_back(after, spins)
    return True


def _make(chunks: Any) -> Callable[..., Any]:
    """The loop over chunks that `chunks`, range or prange, divides."""

    def run_chunks(
        after, before, binary, graph, num_sweeps, key, first_sweep, first_chain, inverse_temperature, clamped,
        chunk,
    ):  # fmt: skip
        """Run the sweeps with the chains split in chunks.

        Args:
            after: (chain, unit) float32, receives the states.
            before: (chain, unit) float32.
            binary: (chunk,) bool, receives whether all states of a chunk were 0 or 1; if not, ``after`` is not
                complete.
            graph: order (unit,), start (unit + 1,) and neighbor (entry,) int64, as `GraphBoltzmann` has them; the
                weight (entry,) and bias (unit,) float32, both times -log2(e).
            num_sweeps: Number of sweeps.
            key: uint64, the Philox key.
            first_sweep: uint64, number of the first sweep.
            first_chain: uint64, number of the first chain.
            inverse_temperature: (chain,) or (0,) float32, inverse temperatures; none means 1.
            clamped: (chain, unit), (1, unit) or (0, unit) bool, True where a unit keeps its value.
            chunk: Chains per chunk.
        """
        num_chunks = (before.shape[0] + chunk - 1) // chunk
        for n in chunks(num_chunks):
            first = n * chunk
            last = min(first + chunk, before.shape[0])
            binary[n] = _run_chunk(
                after[first:last],
                before[first:last],
                graph,
                num_sweeps,
                key,
                first_sweep,
                first_chain + np.uint64(first),
                inverse_temperature[first:last],
                clamped[first:last] if clamped.shape[0] > 1 else clamped,
            )
        return 0

    return run_chunks


run_chunks = ChunkLoop(
    _make, sources=(graph_intrinsics, vector_functions, vector_ir, vector_philox, vector_spins)
)
