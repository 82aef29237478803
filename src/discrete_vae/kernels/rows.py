"""Fused row reductions: one compiled pass over rows that a function of vectors describes, with sums along rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from discrete_vae.kernels.capture import custom_op
from discrete_vae.kernels.codegen import (
    FLOAT32,
    INT32,
    INT64,
    LOW,
    Numbers,
    Product,
    Total,
    Vector,
    builder_intrinsic,
    concatenate,
    constant,
    cos_and_sin,
    log,
    loop,
    minimum,
    numbers,
    philox_rounds,
    splat,
    unpacked,
)
from discrete_vae.kernels.loops import ChunkLoop, threads_for

# Rows of matrices, for training steps: a dozen short operations of torch, each of which costs microseconds before it
# begins, are one pass here, and what lies between stays in registers.


LANES = 32
"""Elements that are worked on together."""

SMALLEST_SHARED = 30_000
"""Elements from which a reduction is divided among threads: waking a second one takes as long as fewer."""

Body = Callable[[list[Vector], list[Vector]], tuple[Sequence[Vector], Sequence[Vector]]]


class RowReduction:
    """A fused reduction over rows of float32 tensors, compiled at its first call.

    Operands have one number per element or one per row. They are read and written where they are; the caller answers
    for their types and shapes.

    Args:
        name: Tells it apart from all others that share the body's module.
        body: Takes vectors of elements, and of each row's number, repeated; returns the outputs' vectors and the terms
            whose sums over a row are wanted.
        across_rows: Whether the sums are over all elements instead, one number each. They are taken row by row, on one
            thread.
        finish: Takes sums and each row's numbers, returns what is written in place of the sums.
    """

    def __init__(
        self,
        name: str,
        body: Body,
        *,
        across_rows: bool = False,
        finish: Callable[[list[Vector], list[Vector]], Sequence[Vector]] | None = None,
    ) -> None:
        self._name, self._body, self._across_rows, self._finish = name, body, across_rows, finish
        self._loops: dict[tuple[int, ...], ChunkLoop] = {}

    def _loop(self, form: tuple[int, ...]) -> ChunkLoop:
        """The loop for so many operands of each kind."""
        if form not in self._loops:
            step = _step(self._body, form, self._across_rows, self._finish)
            module = sys.modules[self._body.__module__]

            def make(chunks: Any) -> Callable[..., Any]:
                def run(pointers, strides, num_rows, num_columns, per_chunk):
                    for chunk in chunks((num_rows + per_chunk - 1) // per_chunk):
                        for row in range(chunk * per_chunk, min((chunk + 1) * per_chunk, num_rows)):
                            step(pointers, strides, row, num_rows, num_columns)
                    return 0

                run.__qualname__ = f"{module.__name__}.{self._name} {form}"  # the cache's name of it
                return run

            self._loops[form] = ChunkLoop(make, sources=(module,))
        return self._loops[form]

    def __call__(
        self,
        elements: Sequence[Tensor],
        per_row: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] = (),
        sums: Sequence[Tensor] = (),
    ) -> None:
        """Run it.

        Args:
            elements: (..., element), with rows as `as_rows` gives them.
            per_row: (...), or scalars that all rows share.
            outputs: (..., element), receive the outputs.
            sums: (...), or scalars for sums over all elements; receive the sums.
        """
        _run(self, tuple(elements), tuple(per_row), tuple(outputs), tuple(sums))

    def lower(
        self,
        elements: Sequence[Tensor],
        per_row: Sequence[Tensor],
        outputs: Sequence[Tensor],
        sums: Sequence[Tensor],
    ) -> Callable[[], object]:
        """The reduction of these tensors as a function without arguments."""
        operands = [*elements, *per_row, *outputs, *sums]
        num_columns = elements[0].shape[-1]
        num_rows = elements[0].numel() // num_columns
        distances = (
            *map(_distance, elements),
            *map(_distance_of_numbers, per_row),
            *map(_distance, outputs),
            *map(_distance_of_numbers, sums),
        )
        threads = 1 if self._across_rows else threads_for(num_rows * num_columns, SMALLEST_SHARED)
        return self._loop((len(elements), len(per_row), len(outputs), len(sums))).bind(
            threads,
            tuple(value.data_ptr() for value in operands),
            distances,
            num_rows,
            num_columns,
            num_rows if threads == 1 else 8,
        )


@custom_op(only_read=("elements", "per_row"))
def _run(
    reduction: RowReduction,
    elements: Sequence[Tensor],
    per_row: Sequence[Tensor],
    outputs: Sequence[Tensor],
    sums: Sequence[Tensor],
) -> Callable[[], object]:
    return reduction.lower(elements, per_row, outputs, sums)


def as_rows(value: Tensor) -> Tensor:
    """The tensor (..., element) itself if its rows lie at equal distances and hold one element after the other.

    Else a copy of it that does.
    """
    if value.is_contiguous():
        return value
    consecutive = value.stride(-1) == 1 or value.shape[-1] == 1
    return value if consecutive and _distance(value) is not None else value.contiguous()


def as_numbers(value: Tensor) -> Tensor:
    """The tensor (...) itself if its numbers lie at equal distances, else a copy of which that holds."""
    return value if _distance(value.unsqueeze(-1)) is not None else value.contiguous()


def discarded(shape: Sequence[int], count: int) -> list[Tensor]:
    """Tensors (..., element) for outputs that nobody reads: all rows write to the same place."""
    return [
        place.expand(shape)
        for place in torch.empty(count, shape[-1], dtype=torch.float32, device="cpu").unbind()
    ]


def _distance(value: Tensor) -> int | None:
    """The distance in memory of a tensor's rows (..., element), if it is the same for all."""
    if value.is_contiguous():
        return value.shape[-1]
    distance = count = None
    for size, stride in zip(reversed(value.shape[:-1]), reversed(value.stride()[:-1]), strict=True):
        if size == 1:
            continue
        if distance is None or count is None:
            distance, count = stride, size
        elif stride == distance * count:
            count *= size
        else:
            return None
    return 0 if distance is None else distance


def _distance_of_numbers(value: Tensor) -> int | None:
    """The distance in memory of numbers (...); 0 for a single one."""
    return 0 if value.numel() == 1 else _distance(value.unsqueeze(-1))


def _step(body: Body, form: tuple[int, ...], across_rows: bool, finish: Any) -> Any:
    """The intrinsic that works on one row."""
    last_element, last_row, last_output, count = accumulate(form)

    @builder_intrinsic()
    def step(builder, pointers, strides, row, num_rows, num_columns):
        starts = [
            builder.add(start, builder.mul(builder.mul(stride, row), constant(4)))
            for start, stride in zip(
                unpacked(builder, pointers, count), unpacked(builder, strides, count), strict=True
            )
        ]
        rows = [Numbers(builder, start) for start in starts]
        places = [builder.inttoptr(start, FLOAT32.as_pointer()) for start in starts]
        of_row = [splat(builder, builder.load(place), LANES) for place in places[last_element:last_row]]
        totals = [Total(builder, LANES) for _ in range(count - last_output)]
        with loop(builder, constant(0), blocks_of(builder, num_columns)) as (block, _):
            first, mask = block_of(builder, block, num_columns)
            vectors = [read.load_masked(first, mask) for read in rows[:last_element]]
            made, terms = body(vectors, of_row)
            for vector, write in zip(made, rows[last_row:last_output], strict=True):
                write.store_masked(vector, first, mask)
            for total, term in zip(totals, terms, strict=True):
                total.add(term.where(Vector(builder, mask), 0.0))
        found = [total_of(total.value()) for total in totals]
        if across_rows:
            found = [
                _added(vector, place, row) for vector, place in zip(found, places[last_output:], strict=True)
            ]
        if finish is not None:
            at_end = builder.icmp_signed("==", row, builder.sub(num_rows, constant(1)))
            finished = finish(found, of_row)
            found = [
                Vector(builder, builder.select(at_end, end.value, vector.value)) if across_rows else end
                for end, vector in zip(finished, found, strict=True)
            ]
        for vector, place in zip(found, places[last_output:], strict=True):
            builder.store(vector.element(0), place)

    return step


def _added(vector: Vector, place: Any, row: Any) -> Vector:
    """A row's sum, added to what the rows before it came to."""
    builder = vector.builder
    before = splat(builder, builder.load(place), LANES)
    first = builder.icmp_signed("==", row, constant(0))
    return Vector(builder, builder.select(first, vector.value, (before + vector).value))


def blocks_of(builder: Any, num_columns: Any) -> Any:
    """Into how many blocks of `LANES` columns a row is divided."""
    return builder.sdiv(builder.add(num_columns, constant(LANES - 1)), constant(LANES))


def block_of(builder: Any, block: Any, num_columns: Any) -> tuple[Any, Any]:
    """The first column of a block, and one bit for each of its columns: whether the row has it."""
    first = builder.mul(block, constant(LANES))
    left = splat(builder, builder.trunc(builder.sub(num_columns, first), INT32), LANES)
    return first, builder.icmp_signed("<", numbers(builder, INT32, list(range(LANES))).value, left.value)


def total_of(vector: Vector) -> Vector:
    """The sum of all elements, in each element."""
    width = LANES
    while width > 1:
        width //= 2
        vector = vector + vector.permuted([index ^ width for index in range(LANES)])
    return vector


# Rows of samples, for importance sampling: rows lie in two axes, sample and example, so that what all samples share is
# read where it is; operands may be bfloat16; results go into the inputs of several networks at once; and noise is made
# where it is used, from the sample's number and the example's key, so that it does not depend on how samples and
# examples are divided.


KEY = 0x6469736372657465
"""Key of the words; examples, samples and draws are told apart by the counters."""

_COUNTERS = LANES // 4  # of a block; each gives four words
_AHEAD = 2  # rows that are asked for before they are read; waiting for them would take as long as the work
_FACTORS = 64  # blocks whose factors, each at most 2, are multiplied before a logarithm is taken


@dataclass(frozen=True)
class BlockResults:
    """Results of a body for a block of columns.

    Attributes:
        outputs: Vectors that are written, in the order of the operands.
        spread: A vector that is written to all places of a table; None without a table.
        terms: What is added to the row's total.
        factors: Numbers from 1 to 2 whose logarithms are subtracted from it.
    """

    outputs: Sequence[Vector] = ()
    spread: Vector | None = None
    terms: Sequence[Vector] = ()
    factors: Sequence[Vector] = field(default=())


SampleBody = Callable[[list[Vector], list[Vector], list[Vector]], BlockResults]


class _Form(NamedTuple):
    """Of each operand that is read or written, and of the table, whether it is bfloat16; and whether there is noise."""

    elements: tuple[bool, ...]
    outputs: tuple[bool, ...]
    spread: bool
    noise: bool


def _are_bfloat16(tensors: Sequence[Tensor]) -> tuple[bool, ...]:
    return tuple(tensor.dtype == torch.bfloat16 for tensor in tensors)


class Keys(NamedTuple):
    """Keys of the noise of some rows.

    Attributes:
        of_example: A number of 64 bits per example, (example,) int64.
        first_sample: Number of the first sample, from 0; the last must be below 2^32.
        draw: Number of the draw, below 2^16: what is drawn with the same number is the same noise.
    """

    of_example: Tensor
    first_sample: int
    draw: int


class SampleReduction:
    """A fused reduction over rows (sample, example) of float32 or bfloat16 tensors, compiled at its first call.

    Args:
        name: Tells it apart from all others that share the body's module.
        body: Takes vectors of elements, the numbers of the call, repeated, and the random words, two vectors of 16
            32-bit integers, or none.
    """

    def __init__(self, name: str, body: SampleBody) -> None:
        self._name, self._body = name, body
        self._loops: dict[_Form, ChunkLoop] = {}

    def _loop(self, form: _Form) -> ChunkLoop:
        if form not in self._loops:
            step = _sample_step(self._body, form)
            module = sys.modules[self._body.__module__]

            def make(chunks: Any) -> Callable[..., Any]:
                def run(operands, table, of_call, draw, samples, examples, num_columns, per_chunk):
                    for chunk in chunks((samples + per_chunk - 1) // per_chunk):
                        for sample in range(chunk * per_chunk, min((chunk + 1) * per_chunk, samples)):
                            for example in range(examples):
                                step(operands, table, of_call, draw, sample, example, num_columns)
                    return 0

                name = f"{module.__name__}.{self._name}"
                run.__qualname__ = f"{name} {form.elements}{form.outputs}{form.spread}{form.noise}"
                return run

            self._loops[form] = ChunkLoop(make, sources=(module,))
        return self._loops[form]

    def __call__(self, elements: Sequence[Tensor], outputs: Sequence[Tensor] = (), **more: Any) -> None:
        """Run it; see `lower`."""
        self.lower(elements, outputs, **more)()

    def lower(
        self,
        elements: Sequence[Tensor],
        outputs: Sequence[Tensor] = (),
        *,
        total: Tensor | None = None,
        spread: Sequence[Tensor] = (),
        numbers: Sequence[float] = (0.0,),
        keys: Keys | None = None,
    ) -> Callable[[], object]:
        """The reduction of these tensors as a function without arguments.

        Args:
            elements: (sample, example, column) each, with consecutive columns; other axes may be expanded.
            outputs: Likewise, receive the outputs.
            total: (sample, example), float32; the terms are added to it. None where there are none.
            spread: Places of the table, as outputs.
            numbers: Of the call, at least one.
            keys: Of the noise.
        """
        samples, examples, columns = elements[0].shape
        if total is None:
            total = torch.zeros((), dtype=torch.float32, device="cpu").expand(samples, examples)
        operands = tuple(map(_place, (*elements, *outputs, total[..., None])))
        table = torch.tensor([_place(value) for value in spread] or [(0, 0, 0)], device="cpu")
        draw = (0, 0, 0) if keys is None else (keys.of_example.data_ptr(), keys.first_sample, keys.draw)
        threads = threads_for(samples * examples * columns, SMALLEST_SHARED)
        per_chunk = samples if threads == 1 else max(1, 8 // examples)
        places, shape = (table.data_ptr(), len(spread)), (samples, examples, columns, per_chunk)
        spread_form = _are_bfloat16(spread or elements)[0]
        form = _Form(_are_bfloat16(elements), _are_bfloat16(outputs), spread_form, keys is not None)
        run = self._loop(form).bind(threads, operands, places, tuple(numbers), draw, *shape)
        return partial(_run_keeping, run, (table, total))


def _run_keeping(run: Callable[[], object], _kept: object) -> None:
    """Run, and keep memory alive until then."""
    run()


def _place(value: Tensor) -> tuple[int, int, int]:
    """Address of a tensor (sample, example, column), and the distances of samples and of examples in bytes."""
    sample, example, _ = value.stride()
    return value.data_ptr(), sample * value.element_size(), example * value.element_size()


def _sample_step(body: SampleBody, form: _Form) -> Any:
    """The intrinsic that works on one row."""
    elements, outputs, spread, noise = form
    count = len(elements) + len(outputs) + 1

    @builder_intrinsic()
    def step(builder, operands, table, of_call, draw, sample, example, num_columns):

        def start(place):
            return builder.add(
                place[0], builder.add(builder.mul(place[1], sample), builder.mul(place[2], example))
            )

        places = [unpacked(builder, place, 3) for place in unpacked(builder, operands, count)]
        starts = [start(place) for place in places]
        ahead = [builder.mul(place[2], constant(_AHEAD)) for place in places[: len(elements)]]
        inputs = [
            Numbers(builder, address, bfloat16=half) for address, half in zip(starts, elements, strict=False)
        ]
        results = [
            Numbers(builder, address, bfloat16=half)
            for address, half in zip(starts[len(elements) :], outputs, strict=False)
        ]
        numbers_of_call = [
            splat(builder, builder.fptrunc(value, FLOAT32), LANES)
            for value in unpacked(builder, of_call, of_call.type.count)
        ]
        words_of = _words(builder, unpacked(builder, draw, 3), sample, example) if noise else None
        first_place, num_places = unpacked(builder, table, 2)
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
                if made.spread is not None:
                    with loop(builder, constant(0), num_places) as (index, _):
                        place = _row_of_table(builder, first_place, index)
                        there = Numbers(builder, start(place), bfloat16=spread)
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

    return step


def _row_of_table(builder: Any, address: Any, index: Any) -> list[Any]:
    """Three int64 of a table."""
    table = builder.inttoptr(address, INT64.as_pointer())
    row = builder.mul(index, constant(3))
    return [builder.load(builder.gep(table, [builder.add(row, constant(k))])) for k in range(3)]


def _words(builder: Any, draw: list[Any], sample: Any, example: Any) -> Callable[[Any], list[Vector]]:
    """The maker of a block's random words: Philox of the counters (draw and place, sample, key of the example)."""
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


def uniforms(words: list[Vector]) -> Vector:
    """32 numbers (word // 2^8 + 1/2) 2^-24 of the open unit interval."""
    joint = concatenate(words)
    return (((joint >> 8).to_float() + 0.5) * 2.0**-24).at_most(1 - 2.0**-24)


def normals(words: list[Vector]) -> Vector:
    """32 standard normal numbers: a radius and an angle give two.

    Source: Box & Muller 1958, A note on the generation of random normal deviates.
    """
    of_radius, of_angle = words
    uniform = (of_radius.to_float(signed=False) + 0.5) * 2.0**-32
    radius = (log(uniform) * -2).square_root()
    cosine, sine = cos_and_sin(of_angle.to_float() * 2.0**-30)
    return concatenate([radius * cosine, radius * sine])


def draw_uniforms(shape: tuple[int, int, int], keys: Keys) -> Tensor:
    """The uniform numbers that a reduction of this shape, (sample, example, column), and these keys draws."""
    return _drawn(_UNIFORMS, shape, keys)


def draw_normals(shape: tuple[int, int, int], keys: Keys) -> Tensor:
    """The normal numbers, likewise."""
    return _drawn(_NORMALS, shape, keys)


def _drawn(run: SampleReduction, shape: tuple[int, int, int], keys: Keys) -> Tensor:
    found = torch.empty(shape, dtype=torch.float32, device="cpu")
    run([found], [found], keys=keys)
    return found


def _uniform_body(_elements: list[Vector], _numbers: list[Vector], words: list[Vector]) -> BlockResults:
    return BlockResults([uniforms(words)])


def _normal_body(_elements: list[Vector], _numbers: list[Vector], words: list[Vector]) -> BlockResults:
    return BlockResults([normals(words)])


_UNIFORMS = SampleReduction("uniforms", _uniform_body)
_NORMALS = SampleReduction("normals", _normal_body)
