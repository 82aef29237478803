"""The compiled part of the CPU kernel: everything that numba sees, in one file.

numba's on-disk cache notices a change of the file of the function that is called, and of no other file, so
compiled functions must not be imported from elsewhere.

Arithmetic of counters is in uint64 with explicit masks throughout. numba widens uint32 operations to 64 bits
without a word, and a forgotten cast then draws from another law; here nothing is left to widen.

Layout. The units of a side are the columns 0, 1, ... of that side, the first column standing for the last
multiple of four at or below the side's first unit, so that four columns share one Philox counter; columns
outside the side are padding, whose weights are zero. A side's spins are packed, column j in bit j % 8 of byte
j // 8, and its fields are sums of rows of a table over the other side's bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

BATCH = 8  # chains whose random numbers and fields are computed together; all loops run over the batch
_STRICT = {"contract", "nnan", "ninf", "nsz"}  # no reassociation: results must not depend on the loop's shape

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_8 = np.uint64(8)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_GATHER = np.uint64(0x0102040810204080)  # moves the low bits of eight bytes into the top byte of the product
_56 = np.uint64(56)

_MINUS_LOG2_E = np.float32(-1.4426950408889634)
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


@njit(inline="always")
def _round(x0, x1, x2, x3, key_0, key_1):
    """One round of Philox4x32; only the low halves of the words count, so products need no mask."""
    product_0 = (x0 & _LOW) * _MULTIPLIER_0
    product_1 = (x2 & _LOW) * _MULTIPLIER_1
    return (product_1 >> _32) ^ x1 ^ key_0, product_1, (product_0 >> _32) ^ x3 ^ key_1, product_0


@njit(inline="always")
def _uniform(word):
    """The float32 uniform of a word: (word >> 8) 2^-24 + 2^-25, kept below 1 where float32 would round up."""
    high = np.float32(np.int32((word & _LOW) >> _8))
    return min(high * np.float32(2.0**-24) + np.float32(2.0**-25), np.float32(1 - 2.0**-24))


@njit(fastmath=_STRICT, nogil=True)
def _draw_uniforms(out, counters, chains, half, first_counter, first_chain, sweep, key):
    """Set out[4 f + k] to the uniform of word k of lane f, for 2 half lanes.

    The counter of lane f is (first_counter + counters[f], first_chain + chains[f], sweep). Two independent
    lanes in one pass hide the latency of the products.
    """
    low, high = sweep & _LOW, sweep >> _32
    for f in range(half):
        g = f + half
        x0, x1, x2, x3 = first_counter + counters[f], first_chain + chains[f], low, high
        y0, y1, y2, y3 = first_counter + counters[g], first_chain + chains[g], low, high
        key_0, key_1 = key & _LOW, key >> _32
        for _ in range(10):
            x0, x1, x2, x3 = _round(x0, x1, x2, x3, key_0, key_1)
            y0, y1, y2, y3 = _round(y0, y1, y2, y3, key_0, key_1)
            key_0, key_1 = key_0 + _WEYL_0, key_1 + _WEYL_1
        out[4 * f] = _uniform(x0)
        out[4 * f + 1] = _uniform(x1)
        out[4 * f + 2] = _uniform(x2)
        out[4 * f + 3] = _uniform(x3)
        out[4 * g] = _uniform(y0)
        out[4 * g + 1] = _uniform(y1)
        out[4 * g + 2] = _uniform(y2)
        out[4 * g + 3] = _uniform(y3)


@njit(fastmath=_STRICT, nogil=True)
def _sum_fields(field, packed, table, first, count, columns, groups):
    """Set field[b, :] to the sum over the input bytes of their rows of the table, four rows a pass."""
    for b in range(count):
        chain = packed[first + b]
        out = field[b * columns : (b + 1) * columns]
        for j in range(columns):
            out[j] = np.float32(0)
        for g in range(0, groups, 4):
            row_0, row_1 = table[g, chain[g]], table[g + 1, chain[g + 1]]
            row_2, row_3 = table[g + 2, chain[g + 2]], table[g + 3, chain[g + 3]]
            for j in range(columns):
                out[j] += (row_0[j] + row_1[j]) + (row_2[j] + row_3[j])


@njit(fastmath=_STRICT, nogil=True)
def _compare(spins, field, uniforms, count):
    """Set spins[j] to 1 where u (1 + 2^t) < 1, with t = -logit log2(e) clamped to +-126, else to 0.

    2^t = 2^round(t) 2^f with |f| <= 1/2 and a polynomial of degree 5, relative error below 3e-7.
    """
    for j in range(count):
        t = min(max(field[j], np.float32(-126)), np.float32(126))
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
        spins[j] = np.uint8(uniforms[j] * power + uniforms[j] < np.float32(1))


@njit(fastmath=_STRICT, nogil=True)
def _update_side(packed, other, side, scratch, first_chain, sweep, key, inverse_temperature, clamped):
    """Draw one side of all chains of a chunk given the other side."""
    table, first_counter, counters, lanes = side
    uniforms, field, spins = scratch
    groups, _, columns = table.shape
    words, width = columns // 4, columns // 8
    eight = spins.view(np.uint64)
    for first in range(0, packed.shape[0], BATCH):
        count = min(BATCH, packed.shape[0] - first)
        half = (count * words + 1) // 2
        _draw_uniforms(
            uniforms, counters, lanes, half, first_counter, first_chain + np.uint64(first), sweep, key
        )
        _sum_fields(field, other, table, first, count, columns, groups)
        if inverse_temperature.size:
            for b in range(count):
                for j in range(b * columns, (b + 1) * columns):
                    field[j] *= inverse_temperature[first + b]
        _compare(spins, field, uniforms, count * columns)
        for b in range(count):
            chain = packed[first + b]
            for g in range(width):
                drawn = np.uint8((eight[b * width + g] * _GATHER) >> _56)
                if clamped.size:
                    held = clamped[min(first + b, clamped.shape[0] - 1), g]
                    drawn = np.uint8((drawn & ~held) | (chain[g] & held))
                chain[g] = drawn


@njit(nogil=True)
def _pack(packed, values, first_unit, num_units):
    """Pack units first_unit ... of values (row, unit) into bytes; answers whether all of them are 0 or 1."""
    offset = first_unit % 4
    binary = True
    packed[:] = 0
    for c in range(values.shape[0]):
        for i in range(num_units):
            value = values[c, first_unit + i]
            binary &= (value == 0) | (value == 1)
            packed[c, (offset + i) // 8] |= np.uint8(np.uint8(value) << np.uint8((offset + i) % 8))
    return binary


@njit(nogil=True)
def _unpack(values, packed, first_unit, num_units):
    """Undo _pack."""
    offset = first_unit % 4
    for c in range(values.shape[0]):
        for i in range(num_units):
            byte = packed[c, (offset + i) // 8]
            values[c, first_unit + i] = np.float32((byte >> np.uint8((offset + i) % 8)) & np.uint8(1))


@njit(nogil=True)
def _build_side(weight, bias, first_unit, num_units, first_input, num_inputs):
    """A side's table of scaled fields, its first counter, and the counter and chain of each lane of a batch.

    Args:
        weight: (left, right).
        bias: (unit,).
        first_unit: First unit of the side that the table is for.
        num_units: Number of its units.
        first_input: First unit of the other side.
        num_inputs: Number of its units.
    """
    offset, offset_input = first_unit % 4, first_input % 4
    columns = (offset + num_units + 7) // 8 * 8
    width = (offset_input + num_inputs + 7) // 8
    table = np.empty(((width + 3) // 4 * 4, 256, columns), np.float32)
    table[:, 0] = 0
    for j in range(num_units):
        table[0, 0, offset + j] = bias[first_unit + j] * _MINUS_LOG2_E
    row = np.zeros(columns, np.float32)
    for column in range(8 * width):  # padding too: its bits are random, and its weights zero
        i = column - offset_input
        for j in range(num_units):
            pair = np.float32(0)
            if 0 <= i < num_inputs:
                pair = weight[i, j] if first_input < first_unit else weight[j, i]
            row[offset + j] = pair * _MINUS_LOG2_E
        entries, bit = table[column // 8], 1 << column % 8
        for code in range(bit):  # bit k doubles the rows that are there
            for j in range(columns):
                entries[bit + code, j] = entries[code, j] + row[j]
    words = columns // 4
    lanes = np.arange(BATCH * words + 1)
    first_counter = np.uint64(first_unit // 4)
    return table, first_counter, (lanes % words).astype(np.uint64), (lanes // words).astype(np.uint64)


@njit(nogil=True)
def _run_chunk(after, before, left, right, num_left, num_sweeps, key, first_sweep, first_chain, cold, held):
    """Run all sweeps of some chains; does nothing and answers False where a state is not binary."""
    num_chains, num_units = before.shape
    num_right = num_units - num_left
    columns = max(left[0].shape[2], right[0].shape[2])
    packed_left = np.empty((num_chains, right[0].shape[0]), np.uint8)
    packed_right = np.empty((num_chains, left[0].shape[0]), np.uint8)
    binary = _pack(packed_left, before, 0, num_left) and _pack(packed_right, before, num_left, num_right)
    if not binary:
        return False
    held_left = np.empty((held.shape[0] if held.size else 0, right[0].shape[0]), np.uint8)
    held_right = np.empty((held.shape[0] if held.size else 0, left[0].shape[0]), np.uint8)
    _pack(held_left, held, 0, num_left)
    _pack(held_right, held, num_left, num_right)
    scratch = (
        np.empty(BATCH * columns + 8, np.float32),
        np.empty(BATCH * columns, np.float32),
        np.empty(BATCH * columns, np.uint8),
    )
    for s in range(num_sweeps):
        sweep = first_sweep + np.uint64(s)
        _update_side(packed_left, packed_right, left, scratch, first_chain, sweep, key, cold, held_left)
        _update_side(packed_right, packed_left, right, scratch, first_chain, sweep, key, cold, held_right)
    _unpack(after, packed_left, 0, num_left)
    _unpack(after, packed_right, num_left, num_right)
    return True


@njit(nogil=True, cache=True)
def run_serial(after, before, weight, bias, num_sweeps, key, first_sweep, first_chain, cold, held, chunk):
    """Run the sweeps on the calling thread; see `run_parallel`."""
    num_left, num_right = weight.shape
    left = _build_side(weight, bias, 0, num_left, num_left, num_right)
    right = _build_side(weight, bias, num_left, num_right, 0, num_left)
    return _run_chunk(
        after, before, left, right, num_left, num_sweeps, key, first_sweep, first_chain, cold, held
    )


@njit(nogil=True, cache=True, parallel=True)
def run_parallel(after, before, weight, bias, num_sweeps, key, first_sweep, first_chain, cold, held, chunk):
    """Run the sweeps with the chains split in chunks among numba's threads.

    Args:
        after: (chain, unit) float32, receives the states.
        before: (chain, unit) float32.
        weight: (left, right) float32.
        bias: (unit,) float32.
        num_sweeps: Number of sweeps.
        key: uint64, the Philox key.
        first_sweep: uint64, number of the first sweep.
        first_chain: uint64, number of the first chain.
        cold: (chain,) or (0,) float32, inverse temperatures; none means 1.
        held: (chain, unit), (1, unit) or (0, unit) float32, 1 where a unit keeps its value.
        chunk: Chains per chunk.

    Returns:
        Whether all states were binary; if not, ``after`` is not complete.
    """
    num_left, num_right = weight.shape
    left = _build_side(weight, bias, 0, num_left, num_left, num_right)
    right = _build_side(weight, bias, num_left, num_right, 0, num_left)
    num_chunks = (before.shape[0] + chunk - 1) // chunk
    binary = np.ones(num_chunks, np.bool_)
    for c in prange(num_chunks):
        begin, end = c * chunk, min((c + 1) * chunk, before.shape[0])
        cold_here = cold[begin:end] if cold.size else cold
        held_here = held[begin:end] if held.shape[0] > 1 else held
        first = first_chain + np.uint64(begin)
        binary[c] = _run_chunk(
            after[begin:end],
            before[begin:end],
            left,
            right,
            num_left,
            num_sweeps,
            key,
            first_sweep,
            first,
            cold_here,
            held_here,
        )
    return binary.all()
