"""The L1 batch norm and its gradient in compiled passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from discrete_vae.kernels import codegen
from discrete_vae.kernels.capture import recordable
from discrete_vae.kernels.codegen import (
    FLOAT32,
    INT64,
    Numbers,
    Total,
    Vector,
    constant,
    loop,
    minimum,
    splat,
    zeros,
)
from discrete_vae.kernels.mlp import ONE, ZERO, Form
from discrete_vae.kernels.registry import ChunkLoop, check_close, threads_for, tried
from discrete_vae.kernels.rows import Made, SamplePass

# What all samples of an example share, added to the rows of each of them, with a rectifier, in one compiled
# pass.


def add_shared_(rows: Tensor, shared: Tensor, *, rectify: bool) -> None:
    """Add, in place.

    Args:
        rows: (sample, example, feature), float32 or bfloat16.
        shared: (example, feature), float32.
        rectify: Whether numbers below 0 become 0; NaN stays NaN.
    """
    total = torch.empty((), dtype=torch.float32, device="cpu").expand(
        rows.shape[:2]
    )  # nothing is added to it
    _PASSES[rows.dtype, rectify]([rows, shared.expand(rows.shape)], [rows], total=total)


def _add(elements: list[Vector], _numbers: list[Vector], _words: list[Vector]) -> Made:
    return Made([elements[0] + elements[1]])


def _add_and_rectify(elements: list[Vector], _numbers: list[Vector], _words: list[Vector]) -> Made:
    found = elements[0] + elements[1]
    return Made([found.filled(0).where(found.below(0), found)])


_PASSES = {
    (dtype, rectify): SamplePass(
        f"add shared {rectify}",
        _add_and_rectify if rectify else _add,
        elements=[dtype == torch.bfloat16, False],
        outputs=[dtype == torch.bfloat16],
    )
    for dtype in (torch.float32, torch.bfloat16)
    for rectify in (True, False)
}


@tried("The compiled sum of rows and what they share", "plain torch is used")
def works() -> None:
    """Whether it gives what plain torch gives, on a small batch."""
    start, shared = torch.linspace(-2, 2, 3 * 2 * 37).view(3, 2, 37), torch.linspace(-1, 1, 74).view(2, 37)
    for (dtype, rectify), _ in _PASSES.items():
        rows = start.to(dtype)
        right = rows.float() + shared
        add_shared_(rows, shared, rectify=rectify)
        check_close((rows, (right.relu() if rectify else right).to(dtype)), tolerance=1e-2)


# The inner steps of the L1 batch norm, as numba intrinsics that work on some columns of a matrix at a time.
#
# The sums over the rows of a column stay in registers, and the columns' numbers in the first-level cache from
# one pass over the rows to the next. The loops around them are in `discrete_vae.kernels.norm`.


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
    """The nearest number between two bounds; NaN where it is not finite, as `discrete_vae.numerics.bounded` has it."""
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
    """An intrinsic: see `forward`, whose arguments it takes, for the columns from ``first`` on."""

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
    """An intrinsic: see `backward`, whose arguments it takes, for the columns from ``first`` on."""

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


# The compiled loops of the L1 batch norm, for float32 and for bfloat16 activations.
#
# Activations are (row, feature) in memory, given by their address, as every matrix and vector is. No column
# needs another one's sums, so the result does not depend on how the columns are divided among threads. All
# arithmetic is float32.


COLUMNS = 32
"""Columns that are worked on together: those left over go by 8, then one by one."""

ROWS = 64
"""Rows of a chunk where statistics are given."""


def _make_forward(*, bfloat16: bool) -> Callable[[Any], Callable[..., Any]]:
    by_32, by_8, by_1 = (forward_columns(lanes, bfloat16=bfloat16) for lanes in (COLUMNS, 8, 1))

    def make(chunks: Any) -> Callable[..., Any]:
        def forward(
            x, out, scale, offset, mean, deviation, running_mean, running_deviation, num_rows, num_features, eps,
            momentum, low, high, slack, floor,
        ):  # fmt: skip
            """out = max(floor, (x - m) / (d + eps) * s + o) with m = mean x and d = mean |x - m| over the rows.

            Numbers beside num_rows and num_features are float32.

            Args:
                x: (row, feature).
                out: (row, feature), receives the output; may be x.
                scale: s before its bounds, (feature,) float32.
                offset: o before its bounds, (feature,) float32.
                mean: (feature,) float32, receives m.
                deviation: (feature,) float32, receives d.
                running_mean: (feature,) float32, moves towards m.
                running_deviation: (feature,) float32, moves towards d.
                num_rows: Rows.
                num_features: Features.
                eps: Above 0.
                momentum: By how much of the way the running averages move.
                low: Lower bound of s; minus infinity for none.
                high: Upper bound of s; infinity for none.
                slack: By how much the size of o may be above s; infinity for no bound.
                floor: Minus infinity for none.
            """
            for chunk in chunks((num_features + COLUMNS - 1) // COLUMNS):
                first = chunk * COLUMNS
                last = min(first + COLUMNS, num_features)
                if first + COLUMNS == last:
                    by_32(
                        x, out, scale, offset, mean, deviation, running_mean, running_deviation, num_rows,
                        num_features, eps, momentum, low, high, slack, floor, first,
                    )  # fmt: skip
                    continue
                while first + 8 <= last:
                    by_8(
                        x, out, scale, offset, mean, deviation, running_mean, running_deviation, num_rows,
                        num_features, eps, momentum, low, high, slack, floor, first,
                    )  # fmt: skip
                    first += 8
                while first < last:
                    by_1(
                        x, out, scale, offset, mean, deviation, running_mean, running_deviation, num_rows,
                        num_features, eps, momentum, low, high, slack, floor, first,
                    )  # fmt: skip
                    first += 1
            return 0 * bfloat16

        return forward

    return make


def _make_backward(*, bfloat16: bool) -> Callable[[Any], Callable[..., Any]]:
    by_32, by_8, by_1 = (backward_columns(lanes, bfloat16=bfloat16) for lanes in (COLUMNS, 8, 1))

    def make(chunks: Any) -> Callable[..., Any]:
        def backward(
            x, out, gradient, result, scale, offset, mean, deviation, by_scale, by_offset, num_rows, num_features,
            eps, low, high, slack, floor, of_batch,
        ):  # fmt: skip
            """The gradients of `forward`.

            With c = x - m, n rows, g the gradient where the output is above the floor, and a = s / (d + eps): by o it
            is sum g, by s it is h = sum g c / (d + eps), by c it is a g - a h sign(c) / n, and by x that less its mean
            over the rows.

            Args:
                x: (row, feature), the input.
                out: (row, feature), the output.
                gradient: (row, feature), the gradient by the output.
                result: (row, feature), receives the gradient by x; may be the one by the output.
                scale: s before its bounds, (feature,) float32.
                offset: o before its bounds, (feature,) float32.
                mean: m, (feature,) float32.
                deviation: d, (feature,) float32.
                by_scale: (feature,) float32, receives the gradient by s, 0 where it would push s out of its bounds.
                by_offset: (feature,) float32, receives the gradient by o, likewise.
                num_rows: Rows.
                num_features: Features.
                eps: Above 0.
                low: As in `forward`.
                high: As in `forward`.
                slack: As in `forward`.
                floor: As in `forward`.
                of_batch: 1 where m and d are those of x, 0 where they are constants.
            """
            for chunk in chunks((num_features + COLUMNS - 1) // COLUMNS):
                first = chunk * COLUMNS
                last = min(first + COLUMNS, num_features)
                if first + COLUMNS == last:
                    by_32(
                        x, out, gradient, result, scale, offset, mean, deviation, by_scale, by_offset, num_rows,
                        num_features, eps, low, high, slack, floor, of_batch, first,
                    )  # fmt: skip
                    continue
                while first + 8 <= last:
                    by_8(
                        x, out, gradient, result, scale, offset, mean, deviation, by_scale, by_offset, num_rows,
                        num_features, eps, low, high, slack, floor, of_batch, first,
                    )  # fmt: skip
                    first += 8
                while first < last:
                    by_1(
                        x, out, gradient, result, scale, offset, mean, deviation, by_scale, by_offset, num_rows,
                        num_features, eps, low, high, slack, floor, of_batch, first,
                    )  # fmt: skip
                    first += 1
            return 0 * bfloat16

        return backward

    return make


def _make_fixed(*, bfloat16: bool) -> Callable[[Any], Callable[..., Any]]:
    by_32, by_1 = (fixed_row(lanes, bfloat16=bfloat16) for lanes in (COLUMNS, 1))

    def make(chunks: Any) -> Callable[..., Any]:
        def fixed(x, out, mean, factor, offset, num_rows, num_features, floor):
            """out = max(floor, (x - mean) * factor + offset), element by element.

            Args:
                x: (row, feature).
                out: (row, feature), receives the output; may be x.
                mean: (feature,) float32.
                factor: (feature,) float32.
                offset: (feature,) float32.
                num_rows: Rows.
                num_features: Features.
                floor: Float32; minus infinity for none.
            """
            whole = num_features // COLUMNS * COLUMNS
            for chunk in chunks((num_rows + ROWS - 1) // ROWS):
                for row in range(chunk * ROWS, min((chunk + 1) * ROWS, num_rows)):
                    start = row * num_features
                    for first in range(0, whole, COLUMNS):
                        by_32(x, out, mean, factor, offset, start + first, first, floor)
                    for first in range(whole, num_features):
                        by_1(x, out, mean, factor, offset, start + first, first, floor)
            return 0 * bfloat16

        return fixed

    return make


def _make_clear(*, bfloat16: bool) -> Callable[[Any], Callable[..., Any]]:
    number, clear_number = read_number(bfloat16=bfloat16), clear_number_of(bfloat16=bfloat16)

    def make(chunks: Any) -> Callable[..., Any]:
        def clear(x, gradient, num_rows, num_inputs, num_outputs, stride):
            """Zeros in the columns of the gradient whose column of x holds one number, other than 0, in all rows.

            Where that number is 0 the gradient is 0 as it is.

            Args:
                x: (row, input).
                gradient: (output, input).
                num_rows: Rows.
                num_inputs: Inputs.
                num_outputs: Outputs.
                stride: Numbers from one row of the gradient to the next.
            """
            for column in chunks(num_inputs):
                first = number(x, column)
                if first == 0:
                    continue
                place = column + num_inputs
                while place < num_rows * num_inputs and number(x, place) == first:
                    place += num_inputs
                if place >= num_rows * num_inputs:
                    for output in range(num_outputs):
                        clear_number(gradient, output * stride + column)
            return 0 * bfloat16

        return clear

    return make


_SOURCES = (codegen, codegen)
FORWARD = {wide: ChunkLoop(_make_forward(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}
BACKWARD = {wide: ChunkLoop(_make_backward(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}
FIXED = {wide: ChunkLoop(_make_fixed(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}
CLEAR = {wide: ChunkLoop(_make_clear(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}


# The L1 batch norm and a rectifier behind it in one compiled pass, forward and backward.
#
# Everything here is a plain function of tensors on the CPU whose types, shapes and strides the caller answers
# for: activations (row, feature), contiguous, float32 or bfloat16; statistics and parameters (feature,),
# contiguous, float32.


SMALLEST_SHARED = 30_000
"""Activations from which a pass is divided among threads, where it takes longer than to wake a second one."""


def normalize(
    x: Tensor,
    out: Tensor,
    parameters: tuple[Tensor, Tensor],
    running: tuple[Tensor, Tensor],
    form: Form,
) -> Tensor:
    """Normalize by the batch and move the running averages.

    Args:
        x: Activations.
        out: Receives the output; may be x.
        parameters: Scale and offset, before their bounds.
        running: Running mean and mean absolute deviation; changed.
        form: The rest.

    Returns:
        Mean and mean absolute deviation of the batch, (2, feature).
    """
    statistics = torch.empty(2, x.shape[1], dtype=torch.float32, device="cpu")
    _normalize(x, out, *parameters, statistics, *running, form)
    return statistics


@recordable(only_read=("x", "scale", "offset"))
def _normalize(
    x: Tensor,
    out: Tensor,
    scale: Tensor,
    offset: Tensor,
    statistics: Tensor,
    running_mean: Tensor,
    running_deviation: Tensor,
    form: Form,
) -> Callable[[], object]:
    num_rows, num_features = x.shape
    place = statistics.data_ptr()
    return FORWARD[x.dtype == torch.float32].bind(
        threads_for(num_rows * num_features, SMALLEST_SHARED),
        x.data_ptr(),
        out.data_ptr(),
        scale.data_ptr(),
        offset.data_ptr(),
        place,
        place + 4 * num_features,
        running_mean.data_ptr(),
        running_deviation.data_ptr(),
        num_rows,
        num_features,
        *form.forward,
    )


def normalize_backward(
    x: Tensor,
    out: Tensor,
    gradient: Tensor,
    parameters: tuple[Tensor, Tensor],
    statistics: Tensor,
    form: Form,
    *,
    of_batch: bool = True,
) -> tuple[Tensor, Tensor]:
    """The gradients of `normalize`, or with given statistics.

    Args:
        x: Activations.
        out: The output.
        gradient: By the output; replaced by that by x.
        parameters: Scale and offset, before their bounds.
        statistics: Mean and mean absolute deviation that were used, (2, feature).
        form: The rest.
        of_batch: Whether they are those of x, and no constants.

    Returns:
        The gradients by scale and offset.
    """
    by_scale, by_offset = torch.empty_like(parameters[0]), torch.empty_like(parameters[1])
    _normalize_backward(x, out, gradient, *parameters, statistics, by_scale, by_offset, form, of_batch)
    return by_scale, by_offset


@recordable(only_read=("x", "out", "scale", "offset", "statistics"))
def _normalize_backward(
    x: Tensor,
    out: Tensor,
    gradient: Tensor,
    scale: Tensor,
    offset: Tensor,
    statistics: Tensor,
    by_scale: Tensor,
    by_offset: Tensor,
    form: Form,
    of_batch: bool,
) -> Callable[[], object]:
    num_rows, num_features = x.shape
    place = statistics.data_ptr()
    return BACKWARD[x.dtype == torch.float32].bind(
        threads_for(num_rows * num_features, SMALLEST_SHARED),
        x.data_ptr(),
        out.data_ptr(),
        gradient.data_ptr(),
        gradient.data_ptr(),
        scale.data_ptr(),
        offset.data_ptr(),
        place,
        place + 4 * num_features,
        by_scale.data_ptr(),
        by_offset.data_ptr(),
        num_rows,
        num_features,
        *form.backward,
        ONE if of_batch else ZERO,
    )


@recordable(only_read=("x",))
def clear_constant(x: Tensor, gradient: Tensor) -> Callable[[], object]:
    """Make zero of the gradient by the weights of inputs that are the same in all rows, as it is in front of a norm.

    Args:
        x: Inputs of a linear map, (row, input).
        gradient: By its weight, (output, input), of the same dtype; rows may lie apart; changed.
    """
    return CLEAR[x.dtype == torch.float32].bind(
        1,
        x.data_ptr(),
        gradient.data_ptr(),
        *x.shape,
        len(gradient),
        gradient.stride(0),
    )


@recordable(only_read=("x", "mean", "factor", "offset"))
def apply_fixed(
    x: Tensor, out: Tensor, mean: Tensor, factor: Tensor, offset: Tensor, form: Form
) -> Callable[[], object]:
    """out = (x - mean) * factor + offset, rectified as the form says.

    Args:
        x: Activations.
        out: Receives the output; may be x.
        mean: (feature,).
        factor: (feature,).
        offset: (feature,).
        form: Says whether to rectify.
    """
    num_rows, num_features = x.shape
    return FIXED[x.dtype == torch.float32].bind(
        threads_for(num_rows * num_features, SMALLEST_SHARED),
        x.data_ptr(),
        out.data_ptr(),
        mean.data_ptr(),
        factor.data_ptr(),
        offset.data_ptr(),
        num_rows,
        num_features,
        form.floor,
    )
