"""The compiled part of the CPU kernel for graphs.

Layout. A thread advances a chunk of chains together. Their spins are bytes 0 or 1 in an array (unit, chain), so
whatever happens to one unit happens to a run of adjacent bytes, and the loops over chains become vector
instructions: no index is read more than once a chunk, however irregular the graph.

Arithmetic of counters is in uint64 with explicit masks throughout. numba widens uint32 operations to 64 bits
without a word, and a forgotten cast then draws from another law; here nothing is left to widen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from discrete_vae.samplers.kernels.compilation import ChunkLoop

_STRICT = {"contract", "nnan", "ninf", "nsz"}  # no reassociation: results must not depend on the loop's shape
_TILE = 64  # units that a transposition moves together
LANES = 16  # chunks are filled up to a multiple of this many chains: odd ends would be done one by one

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_8 = np.uint64(8)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)

# 2^f for |f| <= 1/2, relative error below 3e-7 in float32
_C0, _C1, _C2 = 1.00000007165, 0.693146967064, 0.240221197239
_C3, _C4, _C5 = 0.0555071327496, 0.00967554133066, 0.00132764715186


@intrinsic
def _bits_of(typing_context, value):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], cgutils.int32_t)

    return types.int32(types.float32), generate


@intrinsic
def _float_of(typing_context, value):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@njit(nogil=True)
def _draw_words(words, counter, first_chain, sweep, key):
    """Set words[k, c] to word k of Philox4x32-10 for (counter, first_chain + c, sweep)."""
    low, high = sweep & _LOW, sweep >> _32
    for c in range(words.shape[1]):
        x0, x1, x2, x3 = counter, first_chain + np.uint64(c), low, high
        key_0, key_1 = key & _LOW, key >> _32
        for _ in range(10):  # high halves may hold anything: products read the low ones only
            product_0 = (x0 & _LOW) * _MULTIPLIER_0
            product_1 = (x2 & _LOW) * _MULTIPLIER_1
            x0, x1 = (product_1 >> _32) ^ x1 ^ key_0, product_1
            x2, x3 = (product_0 >> _32) ^ x3 ^ key_1, product_0
            key_0, key_1 = key_0 + _WEYL_0, key_1 + _WEYL_1
        words[0, c] = np.uint32(x0 & _LOW)
        words[1, c] = np.uint32(x1 & _LOW)
        words[2, c] = np.uint32(x2 & _LOW)
        words[3, c] = np.uint32(x3 & _LOW)


@njit(fastmath=_STRICT, nogil=True)
def _sum_field(field, spins, bias, neighbours, weights):
    """Set field[c] to the bias plus the weights of the neighbours that are 1, four of them a pass."""
    for c in range(field.shape[0]):
        field[c] = bias
    count = neighbours.shape[0]
    whole = count - count % 4
    for k in range(0, whole, 4):
        w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        z0, z1 = spins[neighbours[k]], spins[neighbours[k + 1]]
        z2, z3 = spins[neighbours[k + 2]], spins[neighbours[k + 3]]
        for c in range(field.shape[0]):
            field[c] += (w0 * z0[c] + w1 * z1[c]) + (w2 * z2[c] + w3 * z3[c])
    for k in range(whole, count):
        w, z = weights[k], spins[neighbours[k]]
        for c in range(field.shape[0]):
            field[c] += w * z[c]


@njit(fastmath=_STRICT, nogil=True)
def _decide(spins, field, words):
    """Set spins[c] to 1 where u (1 + 2^t) < 1, with t = -logit log2(e) clamped to +-126, else to 0.

    The uniform is u = (word >> 8) 2^-24 + 2^-25, kept below 1 where float32 would round up.
    """
    for c in range(field.shape[0]):
        t = min(max(field[c], np.float32(-126)), np.float32(126))
        whole = np.floor(t + np.float32(0.5))
        f = t - whole
        power = np.float32(_C5)
        power = power * f + np.float32(_C4)
        power = power * f + np.float32(_C3)
        power = power * f + np.float32(_C2)
        power = power * f + np.float32(_C1)
        power = power * f + np.float32(_C0)
        exponent = np.int32(np.int32(whole) << np.int32(23))
        power = _float_of(np.int32(_bits_of(power) + exponent))  # pyright: ignore[reportCallIssue]
        u = np.float32(np.int32(np.uint64(words[c]) >> _8)) * np.float32(2.0**-24) + np.float32(2.0**-25)
        u = min(u, np.float32(1 - 2.0**-24))
        spins[c] = np.uint8(u * power + u < np.float32(1))


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
def _run_chunk(after, before, graph, num_sweeps, key, first_sweep, first_chain, cold, held):
    """Run all sweeps of some chains; does nothing and answers False where a state is not binary."""
    order, start, neighbour, weight, bias = graph
    num_chains, num_units = before.shape
    lanes = (num_chains + LANES - 1) // LANES * LANES
    spins = np.zeros((num_units, lanes), np.uint8)
    if not _transpose(spins, before):
        return False
    keep = np.empty((num_units if held.shape[0] else 0, held.shape[0]), np.uint8)
    _transpose(keep, held)
    words = np.empty((4, lanes), np.uint32)
    field = np.empty(lanes, np.float32)
    drawn = np.empty(lanes, np.uint8)
    for s in range(num_sweeps):
        sweep = first_sweep + np.uint64(s)
        counter = -1
        for row in range(num_units):
            unit = order[row]
            if held.shape[0] == 1 and keep[unit, 0]:
                continue
            if (
                unit // 4 != counter
            ):  # units of a block ascend, so those that share a counter follow each other
                counter = unit // 4
                _draw_words(words, np.uint64(counter), first_chain, sweep, key)
            first, last = start[row], start[row + 1]
            _sum_field(field, spins, bias[unit], neighbour[first:last], weight[first:last])
            if cold.shape[0]:
                for c in range(num_chains):
                    field[c] *= cold[c]
            if held.shape[0] > 1:
                _decide(drawn, field, words[unit % 4])
                for c in range(num_chains):
                    spins[unit, c] = spins[unit, c] if keep[unit, c] else drawn[c]
            else:
                _decide(spins[unit], field, words[unit % 4])
    _transpose_back(after, spins)
    return True


def _make(chunks: Any) -> Callable[..., Any]:
    """The loop over chunks that `chunks`, range or prange, divides."""

    def run_chunks(after, before, graph, num_sweeps, key, first_sweep, first_chain, cold, held, chunk):
        """Run the sweeps with the chains split in chunks.

        Args:
            after: (chain, unit) float32, receives the states.
            before: (chain, unit) float32.
            graph: order (unit,), start (unit + 1,) and neighbour (entry,) int64, as `GraphBoltzmann` has them; the
                weight (entry,) and bias (unit,) float32, both times -log2(e).
            num_sweeps: Number of sweeps.
            key: uint64, the Philox key.
            first_sweep: uint64, number of the first sweep.
            first_chain: uint64, number of the first chain.
            cold: (chain,) or (0,) float32, inverse temperatures; none means 1.
            held: (chain, unit), (1, unit) or (0, unit) bool, True where a unit keeps its value.
            chunk: Chains per chunk.

        Returns:
            Whether all states were binary; if not, ``after`` is not complete.
        """
        num_chunks = (before.shape[0] + chunk - 1) // chunk
        others = 0
        for n in chunks(num_chunks):
            first = n * chunk
            last = min(first + chunk, before.shape[0])
            binary = _run_chunk(
                after[first:last],
                before[first:last],
                graph,
                num_sweeps,
                key,
                first_sweep,
                first_chain + np.uint64(first),
                cold[first:last],
                held[first:last] if held.shape[0] > 1 else held,
            )
            others += 0 if binary else 1
        return others == 0

    return run_chunks


run_chunks = ChunkLoop(_make)
