"""The rounds of Philox4x32 on vectors of LLVM instructions."""

from __future__ import annotations

from typing import Any

from discrete_vae.compiled.vector_ir import Vector, constant, splat

LOW = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox_rounds(
    builder: Any, state: tuple[Vector, Vector, Vector, Vector], key: Any, first: int
) -> tuple[Vector, Vector, Vector, Vector]:
    """Philox4x32 from some round to the last.

    Args:
        builder: The LLVM builder.
        state: x0 to x3, 64-bit integers whose low halves count; the high ones may hold anything.
        key: LLVM int64.
        first: The first round, from 0.
    """
    x0, x1, x2, x3 = state
    count = x0.value.type.count
    halves = builder.and_(key, constant(LOW)), builder.lshr(key, constant(32))
    for i in range(first, ROUNDS):
        keys = [
            splat(builder, builder.add(half, constant(i * step)), count)
            for half, step in zip(halves, WEYL, strict=True)
        ]
        product_0, product_1 = times(x0, 0), times(x2, 1)
        x0, x1 = (product_1 >> 32) ^ x1 ^ keys[0], product_1
        x2, x3 = (product_0 >> 32) ^ x3 ^ keys[1], product_0
    return x0, x1, x2, x3


def times(x: Vector, multiplier: int) -> Vector:
    """The product of the low halves with a multiplier of Philox, 64 bits."""
    return (x & LOW) * MULTIPLIERS[multiplier]
