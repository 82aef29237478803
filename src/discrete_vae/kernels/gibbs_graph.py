"""The CPU kernel for Boltzmann machines on any graph: all sweeps of a call in one compiled loop over chunks of chains.

A thread advances a chunk of chains together. Their spins are bytes 0 or 1 in an array (unit, chain), so whatever
happens to one unit happens to a run of adjacent bytes, and the loops over chains become vector instructions: no index
is read more than once a chunk, however irregular the graph. Random words and decisions are those of the kernel for
RBMs, on vectors of 16 chains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit
from torch import Tensor

from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.checks import check_binary
from discrete_vae.kernels.codegen import (
    FLOAT32,
    INT32,
    INT64,
    LOW,
    Vector,
    builder_intrinsic,
    comes_on,
    constant,
    load,
    numbers,
    philox_rounds,
    splat,
    store,
)
from discrete_vae.kernels.gibbs import SweepCall
from discrete_vae.kernels.loops import ChunkLoop

# numba takes the intrinsics' builder for an argument that is missing.
# pyright: reportCallIssue=false

LANES = 16  # chunks are filled up to a multiple of this many chains

_CACHED_SPINS = 1 << 19  # bytes of a chunk that stay in the second-level cache
_FEWEST, _MOST = 64, 512  # chains of a chunk: a cache line at least; more than 512 gain nothing
_MINUS_LOG2_E = -1.4426950408889634

OF_EIGHT = 8, "complete"  # of the machine on which the kernel is tested before its first use


def run(energy: GraphBoltzmann, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps; see `discrete_vae.kernels.gibbs.run_reference`. Parameters are finite in float32, on the CPU."""
    num_chains, num_units = z.shape
    if num_chains == 0:
        return z.clone()
    after = np.empty((num_chains, num_units), np.float32)
    size = chunk_size(num_chains, num_units, call.num_threads)
    binary = np.empty(-(-num_chains // size), np.bool_)
    temperatures, clamped = call.inverse_temperature, call.clamped
    _LOOP(
        call.num_threads,
        (after, z.contiguous().numpy(), binary),
        _graph(energy),
        (
            np.empty((0, num_units), np.bool_) if clamped is None else clamped.contiguous().numpy(),
            np.empty(0, np.float32) if temperatures is None else temperatures.float().contiguous().numpy(),
        ),
        (call.num_sweeps, np.uint64(call.key), np.uint64(call.first_sweep), np.uint64(call.first_chain)),
        size,
    )
    return torch.from_numpy(after) if binary.all() else check_binary("z", z)


def chunk_size(num_chains: int, num_units: int, threads: int) -> int:
    """Chains that a thread advances together: as the cache allows, and so that all threads have work."""
    most = min(_MOST, max(_FEWEST, _CACHED_SPINS // num_units))
    rounds = -(-num_chains // (threads * most))  # chunks of each thread
    return -(-num_chains // (threads * rounds * LANES)) * LANES


def _graph(energy: GraphBoltzmann) -> tuple[np.ndarray, ...]:
    """The graph and its present parameters as the loop takes them."""
    weight, bias = (p.detach().float() * _MINUS_LOG2_E for p in (energy.weight, energy.bias))
    indices = (energy.order, energy.start, energy.neighbor)
    return *(index.numpy() for index in indices), weight[energy.neighbor_edge].numpy(), bias.numpy()


# The loop over chunks. Its arguments:
#
# - states: states after, (chain, unit) float32; states before; and whether all states of a chunk were 0 or 1, (chunk,)
#   bool, without which the states after are not complete;
# - graph: order (unit,), start (unit + 1,) and neighbor (entry,) int64, as `GraphBoltzmann` has them; the weight
#   (entry,) and bias (unit,) float32, both times -log2(e);
# - options: clamped units, (chain, unit), (1, unit) or (0, unit) bool, True where a unit keeps its value; inverse
#   temperatures, (chain,) or (0,) float32;
# - call: the number of sweeps; the Philox key, the numbers of the first sweep and of the first chain, all uint64;
# - chunk: chains of a chunk.


def _make(chunks: Any) -> Callable[..., Any]:
    def run_chunks(states, graph, options, call, chunk):
        _, before, binary = states
        num_chains = before.shape[0]
        for n in chunks((num_chains + chunk - 1) // chunk):
            first = n * chunk
            binary[n] = _run_chunk(states, graph, options, call, first, min(first + chunk, num_chains))
        return 0

    return run_chunks


_LOOP = ChunkLoop(_make)


_STRICT = {"contract", "nnan", "ninf", "nsz"}  # no reassociation: results must not depend on the loop's shape
_TILE = 64  # units that a transposition moves together


@njit(nogil=True)
def _run_chunk(states, graph, options, call, first, last):
    """Run all sweeps of the chains from first to last; does nothing and answers False if one is not binary."""
    after, before = states[0][first:last], states[1][first:last]
    order, start, neighbor, weight, bias = graph
    clamped = options[0][first:last] if options[0].shape[0] > 1 else options[0]
    inverse_temperature = options[1][first:last]
    num_sweeps, key, first_sweep, first_chain = call
    chain = first_chain + np.uint64(first)
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
            # units of a block ascend, so those that share a counter follow each other
            if unit // 4 != counter:
                counter = unit // 4
                for c in range(0, lanes, LANES):
                    draw_words(words, lanes, c, np.uint64(counter), chain + np.uint64(c), sweep, key)
            begin, end = start[row], start[row + 1]
            _sum_field(field, spins, bias[unit], neighbor[begin:end], weight[begin:end])
            if inverse_temperature.shape[0]:
                for c in range(num_chains):
                    field[c] *= inverse_temperature[c]
            if clamped.shape[0] > 1:
                for c in range(0, lanes, LANES):
                    decide(drawn, 0, field, words, unit % 4 * lanes, c)
                for c in range(num_chains):
                    spins[unit, c] = spins[unit, c] if keep[unit, c] else drawn[c]
            else:
                for c in range(0, lanes, LANES):
                    decide(spins, unit * lanes, field, words, unit % 4 * lanes, c)
    _transpose_back(after, spins)
    return True


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
    """Set spins[:, :chain] to the transpose of values (chain, unit); True if all of them are 0 or 1."""
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
    for first in range(0, spins.shape[0], _TILE):
        last = min(first + _TILE, spins.shape[0])
        for c in range(values.shape[0]):
            for i in range(first, last):
                values[c, i] = np.float32(spins[i, c])


@builder_intrinsic()
def draw_words(builder, words, stride, first, counter, chain, sweep, key):
    """Philox4x32-10 for the chains ``chain`` to ``chain + 15``, uint64 as counter, sweep and key are.

    Word k of each chain goes to row k of words, (4, chain) uint32 with rows of length stride, from column first on.
    """
    low, high = builder.and_(sweep, constant(LOW)), builder.lshr(sweep, constant(32))
    x0, x2, x3 = (splat(builder, word, LANES) for word in (counter, low, high))
    x1 = splat(builder, chain, LANES) + numbers(builder, INT64, list(range(LANES)))
    for row, x in enumerate(philox_rounds(builder, (x0, x1, x2, x3), key, 0)):
        narrow = Vector(builder, builder.trunc(x.value, ir.VectorType(INT32, LANES)))
        place = builder.add(builder.mul(stride, constant(row)), first)
        store(narrow, builder.gep(words, [place]), align=4)


@builder_intrinsic()
def decide(builder, spins, spin, field, words, word, first):
    """Draw the spins, uint8, of one unit in the 16 chains from first on, see `comes_on`.

    The field, (chain,) float32, is -log2(e) times the logits; the unit's rows of spins and of words, uint32, begin at
    spin and word.
    """
    t = load(builder, builder.gep(field, [first]), FLOAT32, LANES, align=4)
    drawn = load(builder, builder.gep(words, [builder.add(word, first)]), INT32, LANES, align=4)
    on = Vector(builder, builder.zext(comes_on(t, drawn).value, ir.VectorType(ir.IntType(8), LANES)))
    store(on, builder.gep(spins, [builder.add(spin, first)]), align=1)
