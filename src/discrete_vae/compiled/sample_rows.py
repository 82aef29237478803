"""Passes over rows that stand for samples of examples, with noise that the sample and the example's key decide.

What `RowPass` is for training steps, this is for importance sampling: rows lie in two axes, sample and example, so that
what all samples share is read where it is; operands may be bfloat16; results go into the inputs of several networks at
once; and noise is made where it is used, so that it does not depend on how samples and examples are divided.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from discrete_vae.compiled import elementary, memory, rows, vector_ir, vector_philox
from discrete_vae.compiled.elementary import log
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.compiled.memory import Numbers, Product, Total, loop, minimum
from discrete_vae.compiled.rows import LANES, SMALLEST_SHARED, block_of, blocks_of, total_of
from discrete_vae.compiled.threads import threads_for
from discrete_vae.compiled.vector_ir import FLOAT32, INT32, INT64, Vector, constant, numbers, splat
from discrete_vae.compiled.vector_philox import LOW, philox_rounds

KEY = 0x6469736372657465
"""Key of the words; examples, samples and draws are told apart by the counters."""

_COUNTERS = LANES // 4  # of a block; each gives four words
_AHEAD = 2  # rows that are asked for before they are read; waiting for them would take as long as the work
_FACTORS = 64  # blocks whose factors, each at most 2, are multiplied before a logarithm is taken


@dataclass(frozen=True)
class Made:
    """What a body makes of a block of columns.

    Attributes:
        outputs: Vectors that are written, in the order of the operands.
        spread: A vector that is written to all places of a table; None where the pass has no such table.
        terms: What is added to the row's total.
        factors: Numbers from 1 to 2 whose logarithms are subtracted from it.
    """

    outputs: Sequence[Vector] = ()
    spread: Vector | None = None
    terms: Sequence[Vector] = ()
    factors: Sequence[Vector] = field(default=())


Body = Callable[[list[Vector], list[Vector], list[Vector]], Made]


class Keys(NamedTuple):
    """Whose noise it is.

    Attributes:
        of_example: A number of 64 bits per example, (example,) int64.
        first_sample: Number of the first sample, from 0; the last must be below 2^32.
        draw: Number of the draw, below 2^16: what is drawn with the same number is the same noise.
    """

    of_example: Tensor
    first_sample: int
    draw: int


class SamplePass:
    """A pass over rows (sample, example), compiled at its first call.

    Args:
        name: Tells it apart from all others that share the body's module.
        body: Takes vectors of elements, the numbers of the call, repeated, and the random words, two vectors of 16
            32-bit integers, or none.
        elements: Of each operand that is read, whether it is bfloat16, not float32.
        outputs: Likewise of those that are written.
        spreads: Likewise of those in the table; None for no table.
        noise: Whether the body takes words.
    """

    def __init__(
        self,
        name: str,
        body: Body,
        *,
        elements: Sequence[bool],
        outputs: Sequence[bool] = (),
        spreads: bool | None = None,
        noise: bool = False,
    ) -> None:
        module = sys.modules[body.__module__]
        form = f"{name} {[*map(int, elements)]} {[*map(int, outputs)]} {spreads} {noise}"
        step = _step(body, tuple(elements), tuple(outputs), spreads, noise)

        def make(chunks: Any) -> Callable[..., Any]:
            def run(operands, table, of_call, draw, samples, examples, num_columns, per_chunk):
                for chunk in chunks((samples + per_chunk - 1) // per_chunk):
                    for sample in range(chunk * per_chunk, min((chunk + 1) * per_chunk, samples)):
                        for example in range(examples):
                            step(operands, table, of_call, draw, sample, example, num_columns)
                return 0

            run.__qualname__ = f"{module.__name__}.{form}"  # the cache's name of it
            return run

        self._loop = ChunkLoop(make, sources=(elementary, memory, rows, vector_ir, vector_philox, module))

    def __call__(
        self,
        elements: Sequence[Tensor],
        outputs: Sequence[Tensor] = (),
        *,
        total: Tensor,
        spread: Sequence[Tensor] = (),
        numbers: Sequence[float] = (0.0,),
        keys: Keys | None = None,
    ) -> None:
        """Run it; the caller answers for types and shapes.

        Args:
            elements: (sample, example, column) each, with consecutive columns; other axes may be expanded.
            outputs: Likewise, receive the outputs.
            total: (sample, example), float32; the terms are added to it.
            spread: Places of the table, as outputs.
            numbers: Of the call, at least one.
            keys: Of the noise.
        """
        samples, examples, columns = elements[0].shape
        operands = tuple(map(_place, (*elements, *outputs, total[..., None])))
        table = torch.tensor([_place(value) for value in spread] or [(0, 0, 0)], device="cpu")
        draw = (0, 0, 0) if keys is None else (keys.of_example.data_ptr(), keys.first_sample, keys.draw)
        threads = threads_for(samples * examples * columns, SMALLEST_SHARED)
        per_chunk = samples if threads == 1 else max(1, 8 // examples)
        places = table.data_ptr(), len(spread)
        self._loop(threads, operands, places, tuple(numbers), draw, samples, examples, columns, per_chunk)


def _place(value: Tensor) -> tuple[int, int, int]:
    """Address of a tensor (sample, example, column), and the distances of samples and of examples in bytes."""
    sample, example, _ = value.stride()
    return value.data_ptr(), sample * value.element_size(), example * value.element_size()


def _step(
    body: Body, elements: tuple[bool, ...], outputs: tuple[bool, ...], spreads: bool | None, noise: bool
) -> Any:
    """The intrinsic that works on one row."""
    count = len(elements) + len(outputs) + 1

    @intrinsic
    def step(_typing, operands, table, of_call, draw, sample, example, num_columns):
        def generate(_context, builder, signature, arguments):
            operands, table, of_call, draw, sample, example, num_columns = arguments

            def start(place):
                return builder.add(
                    place[0], builder.add(builder.mul(place[1], sample), builder.mul(place[2], example))
                )

            def unpacked(pack, length):
                return [builder.extract_value(pack, index) for index in range(length)]

            places = [unpacked(place, 3) for place in unpacked(operands, count)]
            starts = [start(place) for place in places]
            ahead = [builder.mul(place[2], constant(_AHEAD)) for place in places[: len(elements)]]
            inputs = [
                Numbers(builder, address, bfloat16=half)
                for address, half in zip(starts, elements, strict=False)
            ]
            results = [
                Numbers(builder, address, bfloat16=half)
                for address, half in zip(starts[len(elements) :], outputs, strict=False)
            ]
            numbers_of_call = [
                splat(builder, builder.fptrunc(value, FLOAT32), LANES)
                for value in unpacked(of_call, len(signature.args[2]))
            ]
            words_of = _words(builder, unpacked(draw, 3), sample, example) if noise else None
            first_place, num_places = unpacked(table, 2)
            total, product = Total(builder, LANES), Product(builder, LANES)
            blocks = blocks_of(builder, num_columns)
            groups = builder.sdiv(builder.add(blocks, constant(_FACTORS - 1)), constant(_FACTORS))
            with loop(builder, constant(0), groups) as (group, _):
                from_block = builder.mul(group, constant(_FACTORS))
                to_block = minimum(builder, builder.add(from_block, constant(_FACTORS)), blocks)
                product.clear()
                with loop(builder, from_block, to_block) as (block, _):
                    first, mask = block_of(builder, block, num_columns)
                    for read, distance in zip(inputs, ahead, strict=True):
                        read.prefetch(first, distance)
                    vectors = [read.load_masked(first, mask) for read in inputs]
                    words = [] if words_of is None else words_of(block)
                    made = body(vectors, numbers_of_call, words)
                    for vector, write in zip(made.outputs, results, strict=True):
                        write.store_masked(vector, first, mask)
                    if spreads is not None and made.spread is not None:
                        with loop(builder, constant(0), num_places) as (index, _):
                            place = _row_of_table(builder, first_place, index)
                            there = Numbers(builder, start(place), bfloat16=spreads)
                            there.store_masked(made.spread, first, mask)
                    for term in made.terms:
                        total.add(term.where(Vector(builder, mask), 0.0))
                    for factor in made.factors:
                        product.multiply(factor.where(Vector(builder, mask), 1.0))
                if made.factors:
                    total.add(-log(product.value()))
            place = builder.inttoptr(starts[-1], FLOAT32.as_pointer())
            before = builder.load(place)
            builder.store(builder.fadd(before, total_of(total.value()).element(0)), place)
            return ir.Constant(INT64, 0)

        return types.int64(operands, table, of_call, draw, sample, example, num_columns), generate

    return step


def _row_of_table(builder: Any, address: Any, index: Any) -> list[Any]:
    """Three int64 of a table."""
    table = builder.inttoptr(address, INT64.as_pointer())
    row = builder.mul(index, constant(3))
    return [builder.load(builder.gep(table, [builder.add(row, constant(k))])) for k in range(3)]


def _words(builder: Any, draw: list[Any], sample: Any, example: Any) -> Callable[[Any], list[Vector]]:
    """What makes the random words of a block: Philox of the counters (draw and place, sample, key of the example)."""
    keys, first_sample, number = draw
    of_example = builder.load(builder.gep(builder.inttoptr(keys, INT64.as_pointer()), [example]))
    fixed = [
        splat(builder, value, _COUNTERS)
        for value in (
            builder.add(first_sample, sample),
            builder.and_(of_example, constant(LOW)),
            builder.lshr(of_example, constant(32)),
        )
    ]
    of_sample, low_key, high_key = fixed
    start = builder.shl(number, constant(16))

    def of_block(block: Any) -> list[Vector]:
        origin = builder.add(start, builder.mul(block, constant(_COUNTERS)))
        places = splat(builder, origin, _COUNTERS) + numbers(builder, INT64, list(range(_COUNTERS)))
        x0, x1, x2, x3 = philox_rounds(builder, (places, of_sample, low_key, high_key), constant(KEY), 0)
        return [((high << 32) | (low & LOW)).view(INT32) for low, high in ((x0, x1), (x2, x3))]

    return of_block
