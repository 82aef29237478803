"""Scaled weights and packed spins of the CPU kernel; `bipartite_compiled` explains the layout."""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from discrete_vae.compiled.vector_ir import (
    FLOAT32,
    INT16,
    INT32,
    load,
    numbers,
    pointers_and_scalars,
    splat,
    store,
)
from discrete_vae.samplers.kernels.bipartite_intrinsics import INNER, TILE, UNIT_ORDER

_MINUS_LOG2_E = np.float32(-1.4426950408889634)


@njit(**INNER)
def scale_side(weights, biases, weight, bias, units, others):
    """Set the weights and biases of a side in the order of its bits, both scaled by -log2(e).

    Args:
        weights: (tile * tile of the other side, 16, 16) float32: other tile's bit, tile's bit.
        biases: (tile, 16) float32.
        weight: (left, right) float32.
        bias: (unit,) float32.
        units: (tile, 16) int64, the unit of each bit, -1 for padding.
        others: (tile of the other side, 16) int64, likewise.
    """
    num_left = weight.shape[0]
    for tile in range(units.shape[0]):
        for j in range(TILE):
            unit = units[tile, j]
            biases[tile, j] = bias[unit] * _MINUS_LOG2_E if unit >= 0 else np.float32(0)
        for other in range(others.shape[0]):
            pair = weights[tile * others.shape[0] + other]
            for k in range(TILE):
                source = others[other, k]
                for j in range(TILE):
                    unit = units[tile, j]
                    pair[k, j] = np.float32(0)
                    if unit >= 0 and source >= 0:
                        left, right = (unit, source) if unit < source else (source, unit)
                        pair[k, j] = weight[left, right - num_left] * _MINUS_LOG2_E


@njit(**INNER)
def is_binary(values, first, last):
    """Whether rows first to last hold only 0 and 1."""
    others = 0
    for c in range(first, last):
        for i in range(values.shape[1]):
            others += (values[c, i] != 0) & (values[c, i] != 1)
    return others == 0


@intrinsic
def pack_tile(_typing, values, first):
    """The spins of a whole tile, from 16 float32 in the order of units: uint16; any value but 0 counts as 1.

    Args:
        values: float32 array.
        first: int64, index of the tile's first unit in the flat array.
    """

    def generate(context, builder, signature, arguments):
        values, first = pointers_and_scalars(context, builder, signature, arguments)
        tile = load(builder, builder.gep(values, [first]), FLOAT32, TILE, align=4)
        return tile.permuted(UNIT_ORDER.tolist()).differs_from(0).view(INT16).element(0)

    return types.uint16(values, first), generate


@intrinsic
def unpack_tile(_typing, values, first, spins):
    """Undo `pack_tile`, writing 0 and 1.

    Args:
        values: float32 array, changed.
        first: int64, index of the tile's first unit in the flat array.
        spins: uint16.
    """

    def generate(context, builder, signature, arguments):
        values, first, spins = pointers_and_scalars(context, builder, signature, arguments)
        bits = splat(builder, builder.zext(spins, INT32), TILE) & numbers(
            builder, INT32, [1 << b for b in range(TILE)]
        )
        tile = bits.differs_from(0).to_float(signed=False)
        store(tile.permuted(np.argsort(UNIT_ORDER).tolist()), builder.gep(values, [first]), align=4)
        return context.get_dummy_value()

    return types.void(values, first, spins), generate


@njit(**INNER)
def first_of_whole(units):
    """The first unit of a tile, (16,), or -1 if the tile has padding."""
    first = units[0]
    for unit in units:
        first = min(first, unit)
    return first


@njit(**INNER)
def pack(spins, values, units, first, last):
    """Pack rows first to last of values (row, unit), 0 or 1, into spins (tile, row)."""
    for tile in range(units.shape[0]):
        whole = first_of_whole(units[tile])
        for c in range(first, last):
            if whole >= 0:
                spins[tile, c - first] = pack_tile(values, c * values.shape[1] + whole)  # pyright: ignore[reportCallIssue]
            else:
                bits = 0
                for j in range(TILE):
                    if units[tile, j] >= 0:
                        bits |= int(values[c, units[tile, j]] != 0) << j
                spins[tile, c - first] = bits


@njit(**INNER)
def unpack(values, spins, units, first, last):
    """Undo `pack`."""
    for tile in range(units.shape[0]):
        whole = first_of_whole(units[tile])
        for c in range(first, last):
            bits = spins[tile, c - first]
            if whole >= 0:
                unpack_tile(values, c * values.shape[1] + whole, bits)  # pyright: ignore[reportCallIssue]
            else:
                for j in range(TILE):
                    if units[tile, j] >= 0:
                        values[c, units[tile, j]] = np.float32((bits >> j) & 1)
