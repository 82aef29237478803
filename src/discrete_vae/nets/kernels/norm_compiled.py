"""The compiled loops of the L1 batch norm, for float32 and for bfloat16 activations.

Activations are (row, feature) in memory, given by their address, as every matrix and vector is. No column needs another
one's sums, so the result does not depend on how the columns are divided among threads. All arithmetic is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from discrete_vae.compiled import memory, vector_ir
from discrete_vae.compiled.loops import ChunkLoop
from discrete_vae.nets.kernels import norm_intrinsics
from discrete_vae.nets.kernels.norm_intrinsics import (
    backward_columns,
    clear_number_of,
    fixed_row,
    forward_columns,
    read_number,
)

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


_SOURCES = (memory, vector_ir, norm_intrinsics)
FORWARD = {wide: ChunkLoop(_make_forward(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}
BACKWARD = {wide: ChunkLoop(_make_backward(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}
FIXED = {wide: ChunkLoop(_make_fixed(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}
CLEAR = {wide: ChunkLoop(_make_clear(bfloat16=not wide), sources=_SOURCES) for wide in (True, False)}
