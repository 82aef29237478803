"""The inner steps of the L1 batch norm, as numba intrinsics that work on some columns of a matrix at a time.

The sums over the rows of a column stay in registers, and the columns' numbers in the first-level cache from one pass
over the rows to the next. The loops around them are in `norm_compiled`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from discrete_vae.compiled.memory import Numbers, Total, loop, minimum, zeros
from discrete_vae.compiled.vector_ir import FLOAT32, INT64, Vector, constant, splat

ROWS_TOGETHER = 64
"""Rows whose sums are made apart, which keeps the rounding of long sums small."""

ROWS_AHEAD = 16
"""How many rows before its turn a row is asked for: a fifth of the backward pass of 400 rows and more."""


class _Columns:
    """Some columns of a matrix.

    Args:
        builder: The LLVM builder.
        address: LLVM int64, of the matrix.
        first: LLVM int64, the first of the columns.
        num_columns: LLVM int64, columns of the matrix.
        lanes: How many columns.
        bfloat16: Whether the matrix is of bfloat16.
    """

    def __init__(
        self, builder: Any, address: Any, first: Any, num_columns: Any, lanes: int, bfloat16: bool
    ) -> None:
        self._builder, self._first, self._num_columns, self._lanes = builder, first, num_columns, lanes
        self._numbers, self._bytes = Numbers(builder, address, bfloat16=bfloat16), 2 if bfloat16 else 4

    def _place(self, row: Any) -> Any:
        return self._builder.add(self._builder.mul(row, self._num_columns), self._first)

    def load(self, row: Any) -> Vector:
        return self._numbers.load(self._place(row), self._lanes)

    def load_early(self, row: Any) -> Vector:
        """Load, and ask for those of a later row, which lies too far for the processor to ask by itself."""
        ahead = self._builder.mul(self._num_columns, constant(ROWS_AHEAD * self._bytes))
        self._numbers.prefetch(self._place(row), ahead)
        return self.load(row)

    def store(self, vector: Vector, row: Any) -> None:
        self._numbers.store(vector, self._place(row))


def _row_sums(
    builder: Any, num_rows: Any, lanes: int, terms: Callable[[Any], list[Vector]], count: int
) -> list[Vector]:
    """The sums over rows of some terms of each."""
    totals = [Total(builder, lanes) for _ in range(count)]
    parts = [Total(builder, lanes) for _ in range(count)]
    together = constant(ROWS_TOGETHER)
    num_parts = builder.sdiv(builder.add(num_rows, constant(ROWS_TOGETHER - 1)), together)
    with loop(builder, constant(0), num_parts) as (part, _):
        start = builder.mul(part, together)
        for each in parts:
            each.clear()
        with loop(builder, start, minimum(builder, builder.add(start, together), num_rows)) as (row, _):
            for each, term in zip(parts, terms(row), strict=True):
                each.add(term)
        for total, each in zip(totals, parts, strict=True):
            total.add(each.value())
    return [total.value() for total in totals]


def _magnitude(vector: Vector) -> Vector:
    negative = vector.below(0.0)
    return (zeros(vector.builder, vector.value.type.count) - vector).where(negative, vector)


def _sign(vector: Vector) -> Vector:
    """1, 0 or -1; that of NaN is 0."""
    builder, zero = vector.builder, zeros(vector.builder, vector.value.type.count)
    above = Vector(builder, builder.fcmp_ordered(">", vector.value, zero.value))
    return (zero + 1.0).where(above, (zero - 1.0).where(vector.below(0.0), zero))


def _rectified(vector: Vector, floor: Any) -> Vector:
    """At least the floor, an LLVM float32; NaN stays NaN."""
    lowest = splat(vector.builder, floor, vector.value.type.count)
    return lowest.where(vector.below(lowest), vector)


def _between(vector: Vector, low: Vector, high: Vector) -> Vector:
    """The nearest number between two bounds; NaN where it is not finite, as `discrete_vae.bounds.bounded` has it."""
    inside = low.where(vector.below(low), vector)
    inside = high.where(high.below(inside), inside)
    return inside + (vector - inside) * 0.0


def _bounded(
    builder: Any, scale: Any, offset: Any, low: Any, high: Any, slack: Any, first: Any, lanes: int
) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector]]:
    """Scale and offset as they are and as they are used: between low and high, and at most scale + slack large."""
    own_scale, own_offset = (Numbers(builder, address).load(first, lanes) for address in (scale, offset))
    used = _between(own_scale, splat(builder, low, lanes), splat(builder, high, lanes))
    limit = used + splat(builder, slack, lanes)
    return (own_scale, used), (own_offset, _between(own_offset, zeros(builder, lanes) - limit, limit))


def _inward(gradient: Vector, own: Vector, used: Vector) -> Vector:
    """A gradient, 0 where descent would push a parameter that lies outside its bounds further out."""
    outward = ((own - used) * gradient).below(0.0)
    return zeros(gradient.builder, gradient.value.type.count).where(outward, gradient)


def _count(builder: Any, num_rows: Any, lanes: int) -> Vector:
    return splat(builder, builder.sitofp(num_rows, FLOAT32), lanes)


def forward_columns(lanes: int, *, bfloat16: bool) -> Any:
    """An intrinsic: see `norm_compiled.forward`, whose arguments it takes, for the columns from ``first`` on."""

    @intrinsic
    def columns(
        _typing, x, out, scale, offset, mean, deviation, running_mean, running_deviation, num_rows,
        num_features, eps, momentum, low, high, slack, floor, first,
    ):  # fmt: skip
        def generate(_context, builder, _signature, arguments):
            x, out, scale, offset, mean, deviation, running_mean, running_deviation, *rest = arguments
            num_rows, num_features, eps, momentum, low, high, slack, floor, first = rest
            inside = _Columns(builder, x, first, num_features, lanes, bfloat16)
            outside = _Columns(builder, out, first, num_features, lanes, bfloat16)
            count = _count(builder, num_rows, lanes)
            (total,) = _row_sums(builder, num_rows, lanes, lambda row: [inside.load_early(row)], 1)
            centre = total / count
            (total,) = _row_sums(
                builder, num_rows, lanes, lambda row: [_magnitude(inside.load(row) - centre)], 1
            )
            spread = total / count
            for found, place, average in (
                (centre, mean, running_mean),
                (spread, deviation, running_deviation),
            ):
                Numbers(builder, place).store(found, first)
                before = Numbers(builder, average).load(first, lanes)
                after = before + (found - before) * splat(builder, momentum, lanes)
                Numbers(builder, average).store(after, first)
            times, shift = _bounded(builder, scale, offset, low, high, slack, first, lanes)
            factor = times[1] / (spread + splat(builder, eps, lanes))
            with loop(builder, constant(0), num_rows) as (row, _):
                value = (inside.load(row) - centre) * factor + shift[1]
                outside.store(_rectified(value, floor), row)
            return ir.Constant(INT64, 0)

        return types.int64(*[types.int64] * 10, *[types.float32] * 6, types.int64), generate

    return columns


def backward_columns(lanes: int, *, bfloat16: bool) -> Any:
    """An intrinsic: see `norm_compiled.backward`, whose arguments it takes, for the columns from ``first`` on."""

    @intrinsic
    def columns(
        _typing, x, out, gradient, result, scale, offset, mean, deviation, by_scale, by_offset, num_rows,
        num_features, eps, low, high, slack, floor, of_batch, first,
    ):  # fmt: skip
        def generate(_context, builder, _signature, arguments):
            x, out, gradient, result, scale, offset, mean, deviation, by_scale, by_offset, *rest = arguments
            num_rows, num_features, eps, low, high, slack, floor, of_batch, first = rest

            def matrix(address: Any) -> _Columns:
                return _Columns(builder, address, first, num_features, lanes, bfloat16)

            inside, outside, before, after = matrix(x), matrix(out), matrix(gradient), matrix(result)
            zero, count = zeros(builder, lanes), _count(builder, num_rows, lanes)
            centre = Numbers(builder, mean).load(first, lanes)
            lowest = splat(builder, floor, lanes)

            def passed(x: Vector, out: Vector, g: Vector) -> tuple[Vector, Vector]:
                """The centred input, and the gradient where the output is above the floor."""
                closed = Vector(builder, builder.fcmp_ordered("<=", out.value, lowest.value))
                return x - centre, zero.where(closed, g)

            def terms(row: Any) -> list[Vector]:
                c, g = passed(*(each.load_early(row) for each in (inside, outside, before)))
                return [g, g * c, _sign(c)]

            sum_g, sum_gc, sum_sign = _row_sums(builder, num_rows, lanes, terms, 3)
            divisor = Numbers(builder, deviation).load(first, lanes) + splat(builder, eps, lanes)
            through_scale = sum_gc / divisor
            times, moved = _bounded(builder, scale, offset, low, high, slack, first, lanes)
            Numbers(builder, by_scale).store(_inward(through_scale, *times), first)
            Numbers(builder, by_offset).store(_inward(sum_g, *moved), first)
            factor = times[1] / divisor
            share = splat(builder, of_batch, lanes) / count  # 0 where the statistics are constants
            pull = factor * through_scale * share
            shift = (factor * sum_g - pull * sum_sign) * share
            with loop(builder, constant(0), num_rows) as (row, _):
                c, g = passed(*(each.load(row) for each in (inside, outside, before)))
                after.store(factor * g - pull * _sign(c) - shift, row)
            return ir.Constant(INT64, 0)

        return types.int64(*[types.int64] * 12, *[types.float32] * 6, types.int64), generate

    return columns


def fixed_row(lanes: int, *, bfloat16: bool) -> Any:
    """An intrinsic: the norm with given statistics of ``lanes`` numbers of a row."""

    @intrinsic
    def numbers(_typing, x, out, mean, factor, offset, place, first, floor):
        def generate(_context, builder, _signature, arguments):
            x, out, mean, factor, offset, place, first, floor = arguments
            centre, times, shift = (
                Numbers(builder, address).load(first, lanes) for address in (mean, factor, offset)
            )
            value = (Numbers(builder, x, bfloat16=bfloat16).load(place, lanes) - centre) * times + shift
            Numbers(builder, out, bfloat16=bfloat16).store(_rectified(value, floor), place)
            return ir.Constant(INT64, 0)

        return types.int64(*[types.int64] * 7, types.float32), generate

    return numbers


def read_number(*, bfloat16: bool) -> Any:
    """An intrinsic: the number at a place behind an address, as float32."""

    @intrinsic
    def number(_typing, address, place):
        def generate(_context, builder, _signature, arguments):
            address, place = arguments
            return Numbers(builder, address, bfloat16=bfloat16).load(place, 1).element(0)

        return types.float32(types.int64, types.int64), generate

    return number


def clear_number_of(*, bfloat16: bool) -> Any:
    """An intrinsic: 0 to a place behind an address."""

    @intrinsic
    def clear(_typing, address, place):
        def generate(_context, builder, _signature, arguments):
            address, place = arguments
            Numbers(builder, address, bfloat16=bfloat16).store(zeros(builder, 1), place)
            return ir.Constant(INT64, 0)

        return types.int64(types.int64, types.int64), generate

    return clear
