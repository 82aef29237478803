"""The log-probabilities of rows of bits, in one compiled pass over their logits; values alone, no gradients.

Each log(1 + e^-|l|) is a factor of a product, and only the products' logarithms are taken: 16 of each row and block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from discrete_vae.compiled import memory, vector_functions, vector_ir
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.compiled.memory import Numbers, loop, zeros
from discrete_vae.compiled.threads import threads_for
from discrete_vae.compiled.vector_functions import LOG2_E, power_of_two
from discrete_vae.compiled.vector_ir import INT64, constant

LANES = 16
BLOCK = 1600
"""Features of a block: a lane's product of 100 factors, each at most 2, is finite in float32."""

ROWS = 16
"""Rows of a chunk of work."""

SMALLEST_SHARED = 100_000
"""Logits from which a pass is divided among threads."""


def _terms(lanes: int, *, bfloat16: bool) -> Any:
    """An intrinsic: sums of x l - max(l, 0) and products of 1 + e^-|l| over some vectors of a row."""

    @intrinsic
    def terms(_typing, logits, x, out, first, x_first, count, place):
        def generate(_context, builder, _signature, arguments):
            logits, x, out, first, x_first, count, place = arguments
            numbers, values = Numbers(builder, logits, bfloat16=bfloat16), Numbers(builder, x)
            kind = zeros(builder, lanes)
            total, product = memory.Total(builder, lanes), memory.Product(builder, lanes)
            with loop(builder, constant(0), count) as (index, _):
                offset = builder.mul(index, constant(lanes))
                logit = numbers.load(builder.add(first, offset), lanes)
                value = values.load(builder.add(x_first, offset), lanes)
                negative = logit.below(0.0)
                # NaN is not below 0, so it stays in the sum
                total.add(value * logit - kind.where(negative, logit))
                magnitude = (kind - logit).where(negative, logit)
                power = power_of_two((magnitude * -LOG2_E).at_least(-126.0))
                product.multiply(power + 1.0)
            results = Numbers(builder, out)
            results.store(total.value(), place)
            results.store(product.value(), builder.add(place, constant(LANES)))
            return ir.Constant(INT64, 0)

        return types.int64(*[types.int64] * 7), generate

    return terms


def _make(*, bfloat16: bool) -> Callable[[Any], Callable[..., Any]]:
    wide, single = (_terms(lanes, bfloat16=bfloat16) for lanes in (LANES, 1))

    def make(chunks: Any) -> Callable[..., Any]:
        def log_prob(logits, x, out, num_rows, num_features, num_x):
            """Sums and products of blocks of features, and of those that are left over.

            Args:
                logits: (row, feature), float32 or bfloat16.
                x: (num_x, feature) float32; row r meets x's row r % num_x.
                out: (row, block, 2, 2, LANES) float32, prepared with zeros and ones: of whole vectors, of the rest.
                num_rows: Rows.
                num_features: Features.
                num_x: Rows of x.
            """
            blocks = (num_features + BLOCK - 1) // BLOCK
            for chunk in chunks((num_rows + ROWS - 1) // ROWS):
                for row in range(chunk * ROWS, min((chunk + 1) * ROWS, num_rows)):
                    start, x_start = row * num_features, row % num_x * num_features
                    for block in range(blocks):
                        first = block * BLOCK
                        count = min(BLOCK, num_features - first)
                        place = (row * blocks + block) * 4 * LANES
                        whole = count // LANES
                        wide(logits, x, out, start + first, x_start + first, whole, place)
                        first += whole * LANES
                        single(
                            logits, x, out, start + first, x_start + first, count - whole * LANES,
                            place + 2 * LANES,
                        )  # fmt: skip
            return 0 * bfloat16

        return log_prob

    return make


_SOURCES = (memory, vector_functions, vector_ir)
_LOOPS = {wide: ChunkLoop(_make(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}


def bernoulli_log_prob_sum(logits: Tensor, x: Tensor) -> Tensor:
    """sum_i x_i l_i - softplus(l_i) of contiguous tensors on the CPU.

    Args:
        logits: (..., batch, feature), float32 or bfloat16.
        x: (batch, feature), float32.

    Returns:
        (..., batch), float32.
    """
    num_features = logits.shape[-1]
    num_rows, blocks = logits.numel() // num_features, -(-num_features // BLOCK)
    out = torch.empty(num_rows, blocks, 2, 2, LANES, device="cpu")
    out[..., 1, 0, :], out[..., 1, 1, :] = 0, 1
    _LOOPS[logits.dtype == torch.float32](
        threads_for(logits.numel(), SMALLEST_SHARED),
        logits.data_ptr(),
        x.data_ptr(),
        out.data_ptr(),
        num_rows,
        num_features,
        len(x),
    )
    total = out[..., 0, :].sum((1, 2, 3)) - out[..., 1, :].log().sum((1, 2, 3))
    return total.view(logits.shape[:-1])
