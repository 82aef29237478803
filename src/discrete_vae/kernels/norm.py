"""Kernels of networks: the L1 batch norm with a rectifier behind it, bounded parameters, and terms that rows share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import types
from torch import Tensor

from discrete_vae.kernels.codegen import (
    FLOAT32,
    Numbers,
    Total,
    Vector,
    bounded,
    builder_intrinsic,
    constant,
    inward,
    loop,
    magnitude,
    minimum,
    numbers,
    splat,
    unpacked,
)
from discrete_vae.kernels.loops import ChunkLoop, available_threads
from discrete_vae.kernels.registry import Kernel, agrees_on, are_contiguous, are_plain, check_close, custom_op
from discrete_vae.kernels.rows import SMALLEST_SHARED, Block, RowReduction
from discrete_vae.numerics import differentiable_once

if TYPE_CHECKING:
    from discrete_vae.nets.mlp import L1BatchNorm

# The L1 batch norm of a batch, (row, feature), contiguous, float32 or bfloat16. Statistics and parameters are
# (feature,), contiguous, float32, and so is all arithmetic. No column needs another one's sums, so the result does not
# depend on how columns are divided among threads. The caller answers for types, shapes and strides.


SCALE_BOUNDS = (2.0, 3.0)
"""Of the scale of bounded norms (Rolfe 2017, appendix laplacian-batch-normalization)."""


Form = tuple[Any, ...]
"""The settings of a norm, float32 numbers, infinite where there is no bound.

They are eps, which is added to the deviation; the weight of a batch in the running averages; lower and upper bound of
the scale; by how much the size of the offset may be above the scale; the least output; and 1 where the statistics are
the batch's, 0 where they are constants, of which the gradient asks.
"""


@cache
def norm_form(
    eps: float, momentum: float, bounds: tuple[float, float] | None, rectify: bool, of_batch: bool = True
) -> Form:
    """The form of a norm whose scale and offset are bounded or not, with or without a rectifier behind it."""
    low, high = (-math.inf, math.inf) if bounds is None else bounds
    slack, floor = (math.inf if bounds is None else 0.0), (0.0 if rectify else -math.inf)
    return tuple(map(np.float32, (eps, momentum, low, high, slack, floor, of_batch)))


_Pair = Sequence[Tensor]


@custom_op(only_read=("x", "parameters"))
def normalize(
    x: Tensor, out: Tensor, parameters: _Pair, statistics: Tensor, running: _Pair, form: Form
) -> Callable[[], object]:
    """Normalize by the batch, move the running m and d, and write those of the batch to the statistics, (2, feature).

    out = max(floor, (x - m) / (d + eps) * s + o) with m = mean x and d = mean |x - m| over the rows, where the
    parameters are s and o before their bounds, and out may be x.
    """
    return _lowered(_FORWARD, (x, out, *parameters, *running), statistics, form)


@custom_op(only_read=("x", "out", "parameters", "statistics"))
def normalize_backward(
    x: Tensor, out: Tensor, gradient: Tensor, parameters: _Pair, statistics: Tensor, found: _Pair, form: Form
) -> Callable[[], object]:
    """Find the gradients of `normalize` by s and o, 0 where they would push these further out of their bounds.

    With c = x - m, n rows, g the gradient where the output is above the floor, and a = s / (d + eps): by o it is sum g,
    by s it is h = sum g c / (d + eps), by c it is a g - a h sign(c) / n, and by x that less its mean over the rows.
    The gradient by the output is replaced by that by x. The statistics, (2, feature), are m and d that were used: of
    x, or constants.
    """
    return _lowered(_BACKWARD, (x, out, gradient, *parameters, *found), statistics, form)


def _lowered(
    loops: dict[torch.dtype, ChunkLoop], tensors: tuple[Tensor, ...], statistics: Tensor, form: Form
) -> Callable[[], object]:
    num_rows, num_features = tensors[0].shape
    compiled, place = loops[tensors[0].dtype], statistics.data_ptr()
    threads = 1 if num_rows * num_features < SMALLEST_SHARED else available_threads()
    pointers = (*(tensor.data_ptr() for tensor in tensors), place, place + 4 * num_features)
    run = compiled.serial if threads == 1 else partial(compiled, threads)
    return partial(run, pointers, num_rows, num_features, form)


# Inner steps, as numba intrinsics that work on some columns at a time: the sums over the rows of a column stay in
# registers, and the columns' numbers in the first-level cache from one pass over the rows to the next.


_COLUMNS = 32  # that are worked on together: those left over go by 8, then one by one
_ROWS_TOGETHER = 64  # whose sums are made apart, which keeps the rounding of long sums small
_ROWS_AHEAD = 16  # how many rows before its turn a row is asked for


class Columns:
    """Some columns of a matrix, given by the address of the matrix, the first column and how many."""

    def __init__(
        self, builder: Any, address: Any, first: Any, num_columns: Any, lanes: int, bfloat16: bool
    ) -> None:
        self._builder, self._first, self._num_columns, self._lanes = builder, first, num_columns, lanes
        self._numbers, self._bytes = Numbers(builder, address, bfloat16=bfloat16), 2 if bfloat16 else 4

    def _place(self, row: Any) -> Any:
        return self._builder.add(self._builder.mul(row, self._num_columns), self._first)

    def load(self, row: Any) -> Vector:
        """Read the columns of a row."""
        return self._numbers.load(self._place(row), self._lanes)

    def load_early(self, row: Any) -> Vector:
        """Load, and ask for those of a later row, which lies too far for the processor to ask by itself."""
        ahead = self._builder.mul(self._num_columns, constant(_ROWS_AHEAD * self._bytes))
        self._numbers.prefetch(self._place(row), ahead)
        return self.load(row)

    def store(self, vector: Vector, row: Any) -> None:
        """Write the columns of a row."""
        self._numbers.store(vector, self._place(row))


def row_sums(
    builder: Any, num_rows: Any, lanes: int, terms: Callable[[Any], list[Vector]], count: int
) -> list[Vector]:
    """Sums over the rows of some columns of as many terms, which are given the row's number."""
    totals = [Total(builder, lanes) for _ in range(count)]
    parts = [Total(builder, lanes) for _ in range(count)]
    together = constant(_ROWS_TOGETHER)
    num_parts = builder.sdiv(builder.add(num_rows, constant(_ROWS_TOGETHER - 1)), together)
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


def _sign(vector: Vector) -> Vector:
    """1, 0 or -1; that of NaN is 0."""
    zero = vector.filled(0)
    return (zero + 1.0).where(vector.above(0.0), (zero - 1.0).where(vector.below(0.0), zero))


class _Norm:
    """Some columns of a norm in either direction: tensors of features, and the numbers of the form as vectors."""

    def __init__(self, builder: Any, first: Any, num_rows: Any, lanes: int, numbers: list[Any]) -> None:
        self._builder, self._first, self._lanes = builder, first, lanes
        self.eps, self.momentum, self._low, self._high, self._slack, self.floor, self.share = (
            splat(builder, number, lanes) for number in numbers
        )
        self.count = splat(builder, builder.sitofp(num_rows, FLOAT32), lanes)

    def load(self, address: Any) -> Vector:
        return Numbers(self._builder, address).load(self._first, self._lanes)

    def store(self, vector: Vector, address: Any) -> None:
        Numbers(self._builder, address).store(vector, self._first)

    def bounded(self, scale: Any, offset: Any) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector]]:
        """Scale and offset as they are and as they are used, at most scale + slack large."""
        own_scale, own_offset = self.load(scale), self.load(offset)
        used = bounded(own_scale, self._low, self._high)
        limit = used + self._slack
        return (own_scale, used), (own_offset, bounded(own_offset, limit.filled(0) - limit, limit))


def _forward_columns(lanes: int, bfloat16: bool) -> Any:
    """An intrinsic: `normalize` of some columns."""

    @builder_intrinsic()
    def columns(builder, pointers, num_rows, num_features, numbers, first):
        x, out, scale, offset, running_mean, running_deviation, mean, deviation = unpacked(
            builder, pointers, 8
        )
        norm = _Norm(builder, first, num_rows, lanes, unpacked(builder, numbers, 7))
        inside, outside = (
            Columns(builder, matrix, first, num_features, lanes, bfloat16) for matrix in (x, out)
        )
        (total,) = row_sums(builder, num_rows, lanes, lambda row: [inside.load_early(row)], 1)
        centre = total / norm.count
        (total,) = row_sums(builder, num_rows, lanes, lambda row: [magnitude(inside.load(row) - centre)], 1)
        spread = total / norm.count
        for found, place, average in ((centre, mean, running_mean), (spread, deviation, running_deviation)):
            norm.store(found, place)
            before = norm.load(average)
            norm.store(before + (found - before) * norm.momentum, average)
        times, shift = norm.bounded(scale, offset)
        factor = times[1] / (spread + norm.eps)
        with loop(builder, constant(0), num_rows) as (row, _):
            value = (inside.load(row) - centre) * factor + shift[1]
            outside.store(value.at_least(norm.floor), row)

    return columns


def _backward_columns(lanes: int, bfloat16: bool) -> Any:
    """An intrinsic: `normalize_backward` of some columns."""

    @builder_intrinsic()
    def columns(builder, pointers, num_rows, num_features, numbers, first):
        x, out, gradient, scale, offset, by_scale, by_offset, mean, deviation = unpacked(builder, pointers, 9)
        norm = _Norm(builder, first, num_rows, lanes, unpacked(builder, numbers, 7))
        inside, outside, both = (
            Columns(builder, matrix, first, num_features, lanes, bfloat16) for matrix in (x, out, gradient)
        )
        centre = norm.load(mean)

        def passed(x: Vector, out: Vector, g: Vector) -> tuple[Vector, Vector]:
            """The centred input, and the gradient where the output is above the floor."""
            closed = norm.floor.reaches(out)
            return x - centre, g.filled(0).where(closed, g)

        def terms(row: Any) -> list[Vector]:
            c, g = passed(*(each.load_early(row) for each in (inside, outside, both)))
            return [g, g * c, _sign(c)]

        sum_g, sum_gc, sum_sign = row_sums(builder, num_rows, lanes, terms, 3)
        divisor = norm.load(deviation) + norm.eps
        through_scale = sum_gc / divisor
        times, shift = norm.bounded(scale, offset)
        norm.store(inward(through_scale, *times), by_scale)
        norm.store(inward(sum_g, *shift), by_offset)
        factor = times[1] / divisor
        share = norm.share / norm.count  # 0 where the statistics are constants
        pull = factor * through_scale * share
        shift = (factor * sum_g - pull * sum_sign) * share
        with loop(builder, constant(0), num_rows) as (row, _):
            c, g = passed(*(each.load(row) for each in (inside, outside, both)))
            both.store(factor * g - pull * _sign(c) - shift, row)

    return columns


def _over_columns(name: str, columns: Callable[[int, bool], Any]) -> dict[torch.dtype, ChunkLoop]:
    """The loop over all columns of what an intrinsic does to some, for both precisions of activations."""

    def loop_of(bfloat16: bool) -> ChunkLoop:
        by_32, by_8, by_1 = (columns(lanes, bfloat16) for lanes in (_COLUMNS, 8, 1))

        def make(chunks: Any) -> Callable[..., Any]:
            def run(pointers, num_rows, num_features, numbers):
                for chunk in chunks((num_features + _COLUMNS - 1) // _COLUMNS):
                    first = chunk * _COLUMNS
                    last = min(first + _COLUMNS, num_features)
                    if first + _COLUMNS == last:
                        by_32(pointers, num_rows, num_features, numbers, first)
                        continue
                    while first + 8 <= last:
                        by_8(pointers, num_rows, num_features, numbers, first)
                        first += 8
                    while first < last:
                        by_1(pointers, num_rows, num_features, numbers, first)
                        first += 1
                return 0

            run.__qualname__ = f"{__name__}.{name} {bfloat16}"  # the cache's name of it
            return run

        return ChunkLoop(make)

    return {torch.float32: loop_of(False), torch.bfloat16: loop_of(True)}


_FORWARD = _over_columns("forward", _forward_columns)
_BACKWARD = _over_columns("backward", _backward_columns)


# The gradient by weights of inputs that are the same in all rows, which is 0 in front of a norm.


@custom_op(only_read=("x",))
def clear_constant(x: Tensor, gradient: Tensor) -> Callable[[], object]:
    """Make zero of the gradient by the weights of inputs that are the same number, other than 0, in all rows.

    Where that number is 0 the gradient is 0 as it is. Inputs of the linear map are (row, input), the gradient by its
    weight, whose rows may lie apart, (output, input).
    """
    return partial(
        _CLEAR[x.dtype].serial, x.data_ptr(), gradient.data_ptr(), *x.shape, len(gradient), gradient.stride(0)
    )


def _clear_loop(bfloat16: bool) -> ChunkLoop:
    number, clear_number = _number_access(bfloat16)

    def make(chunks: Any) -> Callable[..., Any]:
        def clear(x, gradient, num_rows, num_inputs, num_outputs, stride):
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
            return 0

        clear.__qualname__ = f"{__name__}.clear {bfloat16}"
        return clear

    return ChunkLoop(make)


def _number_access(bfloat16: bool) -> tuple[Any, Any]:
    @builder_intrinsic(types.float32)
    def number(builder, address, place):
        return Numbers(builder, address, bfloat16=bfloat16).load(place, 1).element(0)

    @builder_intrinsic()
    def clear(builder, address, place):
        Numbers(builder, address, bfloat16=bfloat16).store(numbers(builder, FLOAT32, [0.0]), place)

    return number, clear


_CLEAR = {torch.float32: _clear_loop(False), torch.bfloat16: _clear_loop(True)}


# Affine maps of features, and sums of rows with what they share.


_AFFINE = RowReduction(
    "affine",
    lambda each, _: Block([((each[0] - each[1]) * each[2] + each[3]).at_least(0)]),
    prefetches=True,
)
_ADD = RowReduction("add shared", lambda each, _: Block([each[0] + each[1]]), prefetches=True)
_ADD_AND_RECTIFY = RowReduction(
    "add shared and rectify", lambda each, _: Block([(each[0] + each[1]).at_least(0)]), prefetches=True
)


@custom_op(only_read=("x", "mean", "factor", "offset"))
def apply_fixed(x: Tensor, out: Tensor, mean: Tensor, factor: Tensor, offset: Tensor) -> Callable[[], object]:
    """out = (x - mean) * factor + offset, at least 0, NaN staying NaN; out may be x."""
    wide = x[:, None]
    operands = [wide, *(value.expand(wide.shape) for value in (mean, factor, offset))]
    return _AFFINE.lower(operands, outputs=[out[:, None]])


def _add_shared(rows: Tensor, shared: Tensor, rectify: bool) -> Tensor:
    run = _ADD_AND_RECTIFY if rectify else _ADD
    run([rows, shared.expand(rows.shape)], outputs=[rows])
    return rows


add_shared = Kernel(
    "The compiled sum of rows and what they share",
    _add_shared,
    agrees_on(
        lambda: [
            (
                torch.linspace(-2, 2, 3 * 2 * 37).view(3, 2, 37).to(dtype),
                torch.linspace(-1, 1, 74).view(2, 37),
                rectify,
            )
            for dtype in (torch.float32, torch.bfloat16)
            for rectify in (True, False)
        ],
        tolerance=1e-2,
    ),
    supports=lambda rows, shared, _: (
        (rows.dim() == 3 and rows.is_contiguous() and shared.is_contiguous())
        and (shared.shape == rows.shape[1:] and shared.dtype == torch.float32)
    ),
)


# The norm of a batch as one operation of autograd.


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, offset: Tensor, running: _Pair, form: Form) -> Tensor:
        out, statistics = torch.empty_like(x), x.new_empty(2, x.shape[-1])
        normalize(x, out, (scale, offset), statistics, running, form)
        ctx.form = form
        ctx.save_for_backward(x, scale, offset, statistics)
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, scale, offset, statistics = ctx.saved_tensors
        gradient = torch.empty_like(x).copy_(gradients[0])  # as the kernel writes where it reads
        by_parameters = torch.empty_like(scale), torch.empty_like(offset)
        # without a rectifier the output is not looked at, and may have been written in place
        normalize_backward(x, x, gradient, (scale, offset), statistics, by_parameters, ctx.form)
        return gradient, *by_parameters, None, None


def _batch_norm(norm: L1BatchNorm, x: Tensor) -> Tensor:
    scale, offset, *running = norm.tensors()
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    out = _BatchNorm.apply(rows.contiguous(), scale, offset, tuple(running), norm.form(rectify=False))
    return out if x.dim() == 2 else out.view(x.shape)


def _check_norm(_kernel: Kernel) -> None:
    eps = 1e-3
    form = norm_form(eps, 0.1, None, True)
    exact = torch.sin(torch.arange(5 * 43, dtype=torch.float32)).view(5, 43)
    scale, offset = torch.linspace(0.5, 2, 43), torch.linspace(-1, 1, 43)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        x = exact.to(dtype)
        out, again = torch.empty_like(x), torch.empty_like(x)
        found, parameters = torch.empty(2, 43), (scale, offset)
        normalize(x, out, parameters, found, (torch.zeros(43), torch.ones(43)), form)
        apply_fixed(x, again, found[0], scale / (found[1] + eps), offset)
        mixed = torch.cat([torch.ones(5, 1), torch.zeros(5, 1), exact], 1).to(dtype)
        cleared = x.new_ones(2, 45)
        clear_constant(mixed, cleared)
        gradient = x.clone()
        normalize_backward(x, out, gradient, parameters, found, (torch.empty(43), torch.empty(43)), form)
        with torch.enable_grad():
            inside = x.float().requires_grad_()
            centred = inside - inside.mean(0)
            right = torch.relu(centred * (scale / (centred.abs().mean(0) + eps)) + offset)
            (by_x,) = torch.autograd.grad(right, inside, x.float())
        kept = torch.ones(2, 45).index_fill_(1, torch.tensor(0), 0)
        pairs = (out, right), (again, right), (gradient, by_x), (cleared, kept)
        check_close(*pairs, tolerance=tolerance)


batch_norm = Kernel(
    "The compiled batch norm",
    _batch_norm,
    _check_norm,
    supports=lambda norm, x: (
        x.shape[-1] == norm.num_features
        and are_plain(norm.tensors(), torch.float32)
        and are_contiguous(norm.tensors())
    ),
    fallback="plain torch is used, a training step takes up to twice as long",
)


# Parameters brought back between their bounds; what is infinite stays, so that a diverged step is found.


def _moved(value: Vector, low: Vector | float, high: Vector | float) -> Vector:
    return value.where(magnitude(value).reaches(math.inf), value.between(low, high))


@partial(RowReduction, "projection of a norm")
def _projection_of_norm(elements: list[Vector], _per_row: list[Vector]) -> Block:
    scale = _moved(elements[0], *SCALE_BOUNDS)
    return Block([scale, _moved(elements[1], -scale, scale)])


project_norm = Kernel(
    "The compiled projection of norms",
    lambda scale, offset: _projection_of_norm([scale, offset], outputs=[scale, offset]),
    agrees_on(lambda: [(torch.linspace(1, 4, 43), torch.linspace(5, -5, 43))], tolerance=0),
    supports=lambda scale, offset: scale.is_contiguous() and offset.is_contiguous(),
)
