"""The CPU kernel for Boltzmann machines on any graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor

from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.checks import check_binary
from discrete_vae.kernels import gibbs_tiles
from discrete_vae.kernels.codegen import (
    FLOAT32,
    INT32,
    INT64,
    LOW,
    Vector,
    constant,
    load,
    numbers,
    philox_rounds,
    pointers_and_scalars,
    splat,
    store,
)
from discrete_vae.kernels.gibbs_tiles import comes_on
from discrete_vae.kernels.gibbs_torch import SweepCall
from discrete_vae.kernels.loops import ChunkLoop

# The two inner steps of the CPU kernel for graphs, as numba intrinsics for 16 chains: random words, and
# decisions.
#
# The loops around them are in `discrete_vae.kernels.gibbs_graph`; see there for the layout.


LANES = 16  # chunks are filled up to a multiple of this many chains
_BYTES = ir.VectorType(ir.IntType(8), LANES)


@intrinsic
def draw_words(_typing, words, stride, first, counter, chain, sweep, key):
    """Philox4x32-10 for the chains ``chain`` to ``chain + 15``.

    Args:
        words: (4, chain) uint32, receives word k of each chain in row k.
        stride: int64, length of a row.
        first: int64, column of the first chain.
        counter: uint64.
        chain: uint64.
        sweep: uint64.
        key: uint64.
    """

    def generate(context, builder, signature, arguments):
        words, stride, first, counter, chain, sweep, key = pointers_and_scalars(
            context, builder, signature, arguments
        )
        low, high = builder.and_(sweep, constant(LOW)), builder.lshr(sweep, constant(32))
        x0, x2, x3 = (splat(builder, word, LANES) for word in (counter, low, high))
        x1 = splat(builder, chain, LANES) + numbers(builder, INT64, list(range(LANES)))
        for row, x in enumerate(philox_rounds(builder, (x0, x1, x2, x3), key, 0)):
            narrow = Vector(builder, builder.trunc(x.value, ir.VectorType(INT32, LANES)))
            place = builder.add(builder.mul(stride, constant(row)), first)
            store(narrow, builder.gep(words, [place]), align=4)
        return context.get_dummy_value()

    return types.void(words, stride, first, counter, chain, sweep, key), generate


@intrinsic
def decide(_typing, spins, spin, field, words, word, first):
    """Draw the spins of one unit in 16 chains, see `comes_on`.

    Args:
        spins: uint8, receives 0 or 1.
        spin: int64, where the unit's row begins.
        field: (chain,) float32, -log2(e) times the logits.
        words: uint32.
        word: int64, where the unit's row begins.
        first: int64, column of the first chain.
    """

    def generate(context, builder, signature, arguments):
        spins, spin, field, words, word, first = pointers_and_scalars(context, builder, signature, arguments)
        t = load(builder, builder.gep(field, [first]), FLOAT32, LANES, align=4)
        drawn = load(builder, builder.gep(words, [builder.add(word, first)]), INT32, LANES, align=4)
        on = Vector(builder, builder.zext(comes_on(t, drawn).value, _BYTES))
        store(on, builder.gep(spins, [builder.add(spin, first)]), align=1)
        return context.get_dummy_value()

    return types.void(spins, spin, field, words, word, first), generate


# The compiled part of the CPU kernel for graphs.
#
# Layout. A thread advances a chunk of chains together. Their spins are bytes 0 or 1 in an array (unit,
# chain), so whatever happens to one unit happens to a run of adjacent bytes, and the loops over chains become
# vector instructions: no index is read more than once a chunk, however irregular the graph.
#
# Random words and decisions are those of the kernel for RBMs, on vectors of 16 chains.


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


run_chunks = ChunkLoop(_make, sources=(gibbs_tiles,))


# The CPU kernel for Boltzmann machines on any graph: all sweeps of a call in one compiled loop, on numba's
# threads.


_CACHED_SPINS = 1 << 19  # bytes of a chunk that stay in the second-level cache
_FEWEST, _MOST = 64, 512  # chains of a chunk: a cache line at least; more than 512 gain nothing
_MINUS_LOG2_E = -1.4426950408889634


def run(energy: GraphBoltzmann, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps on numba's threads.

    Args:
        energy: A machine with parameters on the CPU, finite in float32.
        z: (chain, unit) float32 in {0,1}, on the CPU.
        call: What to run.

    Returns:
        A new tensor (chain, unit) float32 in {0,1}.

    Raises:
        InvalidInputError: If z holds anything but 0 and 1.
    """
    num_chains, num_units = z.shape
    after = np.empty((num_chains, num_units), np.float32)
    size = chunk_size(num_chains, num_units, call.num_threads)
    binary = np.empty(-(-num_chains // size), np.bool_)
    run_chunks(
        call.num_threads,
        after,
        z.contiguous().numpy(),
        binary,
        _graph(energy),
        call.num_sweeps,
        np.uint64(call.key),
        np.uint64(call.first_sweep),
        np.uint64(call.first_chain),
        np.empty(0, np.float32)
        if call.inverse_temperature is None
        else call.inverse_temperature.float().contiguous().numpy(),
        np.empty((0, num_units), np.bool_) if call.clamped is None else call.clamped.contiguous().numpy(),
        size,
    )
    return torch.from_numpy(after) if binary.all() else check_binary("z", z)


def chunk_size(num_chains: int, num_units: int, threads: int) -> int:
    """Chains that a thread advances together: as the cache allows, and so that all threads have work.

    Examples:
        >>> chunk_size(1000, 2048, threads=2), chunk_size(1000, 100_000, threads=2), chunk_size(10, 5, threads=4)
        (256, 64, 16)
    """
    most = min(_MOST, max(_FEWEST, _CACHED_SPINS // num_units))
    rounds = -(-num_chains // (threads * most))  # chunks of each thread
    return -(-num_chains // (threads * rounds * LANES)) * LANES


def _graph(energy: GraphBoltzmann) -> tuple[np.ndarray, ...]:
    """The graph and its present parameters as `discrete_vae.kernels.gibbs_graph` takes them."""
    weight, bias = (p.detach().float() * _MINUS_LOG2_E for p in (energy.weight, energy.bias))
    indices = (energy.order, energy.start, energy.neighbor)
    return *(index.numpy() for index in indices), weight[energy.neighbor_edge].numpy(), bias.numpy()
