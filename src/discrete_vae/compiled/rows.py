"""One pass over the rows of matrices that a function of vectors describes: element by element, with sums along rows.

What torch does in a dozen short operations, each of which costs several microseconds before it begins, is one here, and
what lies between stays in registers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from discrete_vae.compiled import elementary, memory, vector_ir
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.compiled.memory import Numbers, Total, loop
from discrete_vae.compiled.recording import recordable
from discrete_vae.compiled.threads import threads_for
from discrete_vae.compiled.vector_ir import FLOAT32, INT32, INT64, Vector, constant, numbers, splat

LANES = 32
"""Elements that are worked on together."""

SMALLEST_SHARED = 30_000
"""Elements from which a pass is divided among threads: waking a second one takes 5 to 10 us."""

Body = Callable[[list[Vector], list[Vector]], tuple[Sequence[Vector], Sequence[Vector]]]


class RowPass:
    """A pass over rows, compiled at its first call.

    Every operand is float32, of one number per element or of one per row. Tensors are read and written where they are;
    the caller answers for their types and shapes.

    Args:
        name: Tells it apart from all others that share the body's module.
        body: Takes vectors of elements, and of each row's number, repeated; returns the outputs' vectors and the terms
            whose sums over a row are wanted.
        elements: Operands of one number per element that are read.
        per_row: Operands of one number per row that are read.
        outputs: Of one number per element.
        sums: Of one number per row that are written.
        across_rows: Whether the sums are over all elements instead, one number each. They are taken row by row, on one
            thread.
        finish: Takes sums and each row's numbers, returns what is written in place of the sums.
    """

    def __init__(
        self,
        name: str,
        body: Body,
        *,
        elements: int,
        per_row: int = 0,
        outputs: int = 0,
        sums: int = 0,
        across_rows: bool = False,
        finish: Callable[[list[Vector], list[Vector]], Sequence[Vector]] | None = None,
    ) -> None:
        module = sys.modules[body.__module__]
        step = _step(body, elements, per_row, outputs, sums, across_rows, finish)
        self._most_threads = 1 if across_rows else None

        def make(chunks: Any) -> Callable[..., Any]:
            def run(addresses, strides, num_rows, num_columns, per_chunk):
                for chunk in chunks((num_rows + per_chunk - 1) // per_chunk):
                    for row in range(chunk * per_chunk, min((chunk + 1) * per_chunk, num_rows)):
                        step(addresses, strides, row, num_rows, num_columns)
                return 0

            run.__qualname__ = f"{module.__name__}.{name}"  # the cache's name of it
            return run

        self._loop = ChunkLoop(make, sources=(elementary, memory, vector_ir, module))

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

    def prepare(
        self,
        wide: Sequence[Tensor],
        per_row: Sequence[Tensor],
        outputs: Sequence[Tensor],
        sums: Sequence[Tensor],
    ) -> Callable[[], object]:
        """A function without arguments that runs it, on these tensors."""
        operands = [*wide, *per_row, *outputs, *sums]
        num_columns = wide[0].shape[-1]
        num_rows = wide[0].numel() // num_columns
        distances = (
            *map(_distance, wide),
            *map(_distance_of_numbers, per_row),
            *map(_distance, outputs),
            *map(_distance_of_numbers, sums),
        )
        threads = self._most_threads or threads_for(num_rows * num_columns, SMALLEST_SHARED)
        return self._loop.bind(
            threads,
            tuple(value.data_ptr() for value in operands),
            distances,
            num_rows,
            num_columns,
            num_rows if threads == 1 else 8,
        )


@recordable(only_read=("elements", "per_row"))
def _run(
    row_pass: RowPass,
    elements: Sequence[Tensor],
    per_row: Sequence[Tensor],
    outputs: Sequence[Tensor],
    sums: Sequence[Tensor],
) -> Callable[[], object]:
    return row_pass.prepare(elements, per_row, outputs, sums)


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


def unread(shape: Sequence[int], count: int) -> list[Tensor]:
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


def _step(
    body: Body, elements: int, per_row: int, outputs: int, sums: int, across_rows: bool, finish: Any
) -> Any:
    """The intrinsic that works on one row."""
    count = elements + per_row + outputs + sums
    last_element, last_row, last_output = elements, elements + per_row, elements + per_row + outputs

    @intrinsic
    def step(_typing, addresses, strides, row, num_rows, num_columns):
        def generate(_context, builder, _signature, arguments):
            addresses, strides, row, num_rows, num_columns = arguments
            starts = []
            for index in range(count):
                offset = builder.mul(builder.extract_value(strides, index), row)
                start = builder.extract_value(addresses, index)
                starts.append(builder.add(start, builder.mul(offset, constant(4))))
            rows = [Numbers(builder, start) for start in starts]
            places = [builder.inttoptr(start, FLOAT32.as_pointer()) for start in starts]
            of_row = [splat(builder, builder.load(place), LANES) for place in places[last_element:last_row]]
            totals = [Total(builder, LANES) for _ in range(sums)]
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
                    _added(vector, place, row)
                    for vector, place in zip(found, places[last_output:], strict=True)
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
            return ir.Constant(INT64, 0)

        kind = types.UniTuple(types.int64, count)
        return types.int64(kind, kind, *[types.int64] * 3), generate

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
