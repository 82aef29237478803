"""The same law in plain numba, without instructions of LLVM: what the library's kernel would be if it were simpler.

Spins are packed 8 to a byte; each byte of the other side chooses a row of partial fields of all units; exp is a
polynomial; chains go through loops over 8 of them, which LLVM turns into vector instructions as it sees fit.
"""

import numba
import numpy as np
from numba import njit, prange

NAME, PACKAGE = "plain numba", "numba"

GROUP = 8
_INNER = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _32, _56 = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(56)
_GATHER = np.uint64(0x0102040810204080)  # times this, eight bytes 0 or 1 are bits of the highest byte
_EXP2 = (1.00000007165, 0.693146967064, 0.240221197239, 0.0555071327496, 0.00967554133066, 0.00132764715186)
_E0, _E1, _E2, _E3, _E4, _E5 = (np.float32(coefficient) for coefficient in _EXP2)
_ROUND, _HALF, _TOP, _ONE = (np.float32(value) for value in (1.5 * 2.0**23, 0.5, 2**24 - 1, 2**24))
_MOST = np.float32(126)
_MINUS_LOG2_E = np.float32(-1.4426950408889634)


@njit(**_INNER)
def _build(table, biases, weight, bias, first, end, other_first, other_end):
    """table (byte, 256, column), where column j is unit first - first % 4 + j."""
    num_left, columns = weight.shape[0], table.shape[2]
    origin, other_origin = first - first % 4, other_first - other_first % 4
    row = np.empty(columns, np.float32)
    for j in range(columns):
        unit = origin + j
        biases[j] = bias[unit] * _MINUS_LOG2_E if first <= unit < end else np.float32(0)
    for byte in range(table.shape[0]):
        for j in range(columns):
            table[byte, 0, j] = np.float32(0)
        for k in range(8):
            source = other_origin + 8 * byte + k
            for j in range(columns):
                unit = origin + j
                row[j] = np.float32(0)
                if other_first <= source < other_end and first <= unit < end:
                    left, right = min(unit, source), max(unit, source) - num_left
                    row[j] = weight[left, right] * _MINUS_LOG2_E
            for known in range(1 << k):
                for j in range(columns):
                    table[byte, known + (1 << k), j] = table[byte, known, j] + row[j]


@njit(**_INNER)
def _draw_words(words, first_quad, quads, chain, low, high, key_0, key_1):
    for c in range(GROUP):
        for q in range(quads):
            x0, x1, x2, x3 = np.uint64(first_quad + q), chain + np.uint64(c), low, high
            a, b = key_0, key_1
            for _ in range(10):
                p0, p1 = (x0 & _LOW) * _M0, (x2 & _LOW) * _M1
                x0, x1, x2, x3 = (p1 >> _32) ^ x1 ^ a, p1, (p0 >> _32) ^ x3 ^ b, p0
                a, b = a + _W0, b + _W1
            place = 4 * (c * quads + q)
            words[place] = np.uint32(x0)
            words[place + 1] = np.uint32(x1)
            words[place + 2] = np.uint32(x2)
            words[place + 3] = np.uint32(x3)


@njit(**_INNER)
def _sum_rows(fields, table, biases, others, chain):
    columns = biases.shape[0]
    whole = others.shape[1] - others.shape[1] % 4
    for c in range(GROUP):
        place = c * columns
        for j in range(columns):
            fields[place + j] = biases[j]
        for byte in range(0, whole, 4):
            r0 = (byte * 256 + int(others[chain + c, byte])) * columns
            r1 = ((byte + 1) * 256 + int(others[chain + c, byte + 1])) * columns
            r2 = ((byte + 2) * 256 + int(others[chain + c, byte + 2])) * columns
            r3 = ((byte + 3) * 256 + int(others[chain + c, byte + 3])) * columns
            for j in range(columns):
                fields[place + j] += (table[r0 + j] + table[r1 + j]) + (table[r2 + j] + table[r3 + j])
        for byte in range(whole, others.shape[1]):
            r0 = (byte * 256 + int(others[chain + c, byte])) * columns
            for j in range(columns):
                fields[place + j] += table[r0 + j]


@njit(**_INNER)
def _decide(on, fields, words, whole, whole_bits, power, power_bits):
    """Set on to u (1 + 2^t) < 1; words are read as signed integers, from which floats are made faster."""
    for j in range(fields.shape[0]):
        t = fields[j]
        t = _MOST if t > _MOST else t
        t = -_MOST if t < -_MOST else t
        rounded = t + _ROUND
        rest = t - (rounded - _ROUND)
        whole[j] = rounded
        power[j] = ((((_E5 * rest + _E4) * rest + _E3) * rest + _E2) * rest + _E1) * rest + _E0
    for j in range(fields.shape[0]):
        power_bits[j] = power_bits[j] + (whole_bits[j] << 23)
    for j in range(fields.shape[0]):
        u = np.float32(np.int32((words[j] >> 8) & 0xFFFFFF)) + _HALF
        u = _TOP if u > _TOP else u
        on[j] = u * power[j] + u < _ONE


@njit(**_INNER)
def _pack(spins, z, first, end):
    for c in range(z.shape[0]):
        for unit in range(first, end):
            bit = first % 4 + unit - first
            spins[c, bit >> 3] |= np.uint8(z[c, unit] != 0) << (bit & 7)


@njit(**_INNER)
def _unpack(z, spins, first, end):
    for c in range(z.shape[0]):
        for unit in range(first, end):
            bit = first % 4 + unit - first
            z[c, unit] = np.float32((spins[c, bit >> 3] >> (bit & 7)) & 1)


@njit(**_INNER)
def _run_chunk(z, tables, biases, num_left, num_sweeps, key, first_sweep, first_chain):
    num_chains, num_units = z.shape
    padded = (num_chains + GROUP - 1) // GROUP * GROUP
    sides = (
        np.zeros((padded, tables[1].shape[0]), np.uint8),
        np.zeros((padded, tables[0].shape[0]), np.uint8),
    )
    _pack(sides[0], z, 0, num_left)
    _pack(sides[1], z, num_left, num_units)
    longest = GROUP * max(biases[0].shape[0], biases[1].shape[0])
    words, on = np.empty(longest, np.uint32), np.empty(longest, np.uint8)
    floats = np.empty((3, longest), np.float32)
    for half in range(2 * num_sweeps):
        side, sweep = half & 1, first_sweep + np.uint64(half >> 1)
        spins, others, table = sides[side], sides[1 - side], tables[side].reshape(-1)
        columns, first_quad = biases[side].shape[0], side * (num_left // 4)
        n, num_bytes = GROUP * columns, columns // 8
        fields, whole, power = floats[0, :n], floats[1, :n], floats[2, :n]
        whole_bits, power_bits = whole.view(np.int32), power.view(np.int32)
        packed = on[:n].view(np.uint64)
        for c in range(0, num_chains, GROUP):
            _draw_words(
                words, first_quad, columns // 4, first_chain + np.uint64(c), sweep & _LOW, sweep >> _32,
                key & _LOW, key >> _32,
            )  # fmt: skip
            _sum_rows(fields, table, biases[side], others, c)
            _decide(on[:n], fields, words[:n].view(np.int32), whole, whole_bits, power, power_bits)
            for i in range(GROUP):
                for byte in range(spins.shape[1]):
                    spins[c + i, byte] = np.uint8((packed[i * num_bytes + byte] * _GATHER) >> _56)
    _unpack(z, sides[0], 0, num_left)
    _unpack(z, sides[1], num_left, num_units)


def _make(chunks):
    def run(z, weight, bias, tables, biases, num_sweeps, key, first_sweep, num_chunks):
        num_left, num_units = weight.shape[0], z.shape[1]
        _build(tables[0], biases[0], weight, bias, 0, num_left, num_left, num_units)
        _build(tables[1], biases[1], weight, bias, num_left, num_units, 0, num_left)
        for k in chunks(num_chunks):
            first, last = k * z.shape[0] // num_chunks, (k + 1) * z.shape[0] // num_chunks
            _run_chunk(
                z[first:last], tables, biases, num_left, num_sweeps, key, first_sweep, np.uint64(first)
            )

    return run


def prepare(weight, bias, num_chains, num_threads):
    numba.set_num_threads(num_threads)
    num_left, num_right = weight.shape
    sides = num_left, num_right + num_left % 4
    columns = [-(-side // 16) * 16 for side in sides]
    # of the bits of a side only those with units have rows
    tables = tuple(np.empty((-(-sides[1 - i] // 8), 256, columns[i]), np.float32) for i in range(2))
    biases = tuple(np.empty(count, np.float32) for count in columns)
    z = np.random.default_rng(0).integers(0, 2, (num_chains, num_left + num_right)).astype(np.float32)
    run = njit(nogil=True, parallel=num_threads > 1)(_make(prange if num_threads > 1 else range))
    done = 0

    def step(num_sweeps):
        nonlocal done
        chunks = max(num_threads, num_chains // 250)
        run(z, weight, bias, tables, biases, num_sweeps, np.uint64(5), np.uint64(done + 1), chunks)
        done += num_sweeps
        return z.copy()

    return step
