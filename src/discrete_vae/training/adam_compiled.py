"""The compiled pass of Adam: all parameters of a group, cut into chunks of equal length, in one call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from discrete_vae.compiled import memory, vector_ir
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.compiled.memory import Numbers
from discrete_vae.compiled.vector_ir import FLOAT32, INT64, splat

CHUNK = 16_384
"""Elements of a chunk."""

LANES = 32
"""Elements that are updated together; those left over go one by one."""

MASTER, GRADIENT, FIRST, SECOND, COPY, STEP = range(6)
"""Columns of the table of addresses: the parameter, its gradient, both moments, the bfloat16 copy, the count of steps.

Where there is a copy, the gradient is bfloat16 too; 0 is no copy.
"""


def _update(lanes: int, *, bfloat16: bool) -> Any:
    """An intrinsic that updates some elements from a place on."""

    @intrinsic
    def update(_typing, master, gradient, first, second, copy, place, step_size, spread, scalars):
        def generate(_context, builder, _signature, arguments):
            master, gradient, first, second, copy, place, step_size, spread, scalars = arguments
            learn_first, keep_second, learn_second, eps, decay = (
                splat(builder, builder.extract_value(scalars, i), lanes) for i in range(5)
            )
            weights, moments, squares = (Numbers(builder, part) for part in (master, first, second))
            weight, moment, square = (part.load(place, lanes) for part in (weights, moments, squares))
            g = Numbers(builder, gradient, bfloat16=bfloat16).load(place, lanes) + decay * weight
            moment = moment + (g - moment) * learn_first
            square = square * keep_second + g * g * learn_second
            divisor = square.square_root() / splat(builder, spread, lanes) + eps
            weight = weight - splat(builder, step_size, lanes) * moment / divisor
            weights.store(weight, place)
            moments.store(moment, place)
            squares.store(square, place)
            if bfloat16:
                Numbers(builder, copy, bfloat16=True).store(weight, place)
            return ir.Constant(INT64, 0)

        numbers = types.UniTuple(types.float32, 5)
        signature = types.int64(*[types.int64] * 6, types.float32, types.float32, numbers)
        return signature, generate

    return update


@intrinsic
def _count_step(_typing, address):
    """Add 1 to a float32 and return it."""

    def generate(_context, builder, _signature, arguments):
        pointer = builder.inttoptr(arguments[0], FLOAT32.as_pointer())
        after = builder.fadd(builder.load(pointer), ir.Constant(FLOAT32, 1.0))
        builder.store(after, pointer)
        return after

    return types.float32(types.int64), generate


def _prepare(addresses, starts, first_of_chunk, scratch, rate, beta1, beta2, eps, decay):
    """Count the step of each parameter, and its two factors; the arguments are those of the loop."""
    for k in range(len(addresses)):
        count = np.float64(_count_step(addresses[k, STEP]))  # pyright: ignore[reportCallIssue]
        scratch[k, 0] = np.float32(rate / (1 - beta1**count))
        scratch[k, 1] = np.float32(math.sqrt(1 - beta2**count))


def _make(chunks: Any) -> Callable[..., Any]:
    """The loop over chunks that `chunks`, range or prange, divides."""
    many, one = _update(LANES, bfloat16=False), _update(1, bfloat16=False)
    many_narrow, one_narrow = _update(LANES, bfloat16=True), _update(1, bfloat16=True)

    def update(addresses, starts, first_of_chunk, scratch, rate, beta1, beta2, eps, decay):
        """One step of Adam: m and v are the moments, g the gradient plus ``decay`` times the weight w.

        m += (1 - beta1) (g - m), v = beta2 v + (1 - beta2) g^2, and with t steps
        w -= rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps), as torch computes it.

        Args:
            addresses: (parameter, 6) int64, see `MASTER` and the others.
            starts: (parameter + 1,) int64, elements before each parameter.
            first_of_chunk: (chunk,) int64, the parameter that each chunk begins in.
            scratch: (parameter, 2) float32.
            rate: Step size.
            beta1: Decay of m.
            beta2: Decay of v.
            eps: Added to the root.
            decay: Of weights.
        """
        scalars = (
            np.float32(1 - beta1), np.float32(beta2), np.float32(1 - beta2), np.float32(eps), np.float32(decay),
        )  # fmt: skip
        for chunk in chunks(len(first_of_chunk)):
            position = chunk * CHUNK
            end = min(position + CHUNK, starts[-1])
            k = first_of_chunk[chunk]
            while position < end:
                stop = min(end, starts[k + 1])
                place, last = position - starts[k], stop - starts[k]
                a, b, c, d, e = (
                    addresses[k, MASTER], addresses[k, GRADIENT], addresses[k, FIRST], addresses[k, SECOND],
                    addresses[k, COPY],
                )  # fmt: skip
                size, spread = scratch[k, 0], scratch[k, 1]
                if e:
                    while place + LANES <= last:
                        many_narrow(a, b, c, d, e, place, size, spread, scalars)
                        place += LANES
                    while place < last:
                        one_narrow(a, b, c, d, e, place, size, spread, scalars)
                        place += 1
                else:
                    while place + LANES <= last:
                        many(a, b, c, d, e, place, size, spread, scalars)
                        place += LANES
                    while place < last:
                        one(a, b, c, d, e, place, size, spread, scalars)
                        place += 1
                position = stop
                k += 1
        return 0

    return update


update = ChunkLoop(_make, prepare=_prepare, sources=(memory, vector_ir))
