"""Kernel of images: a group norm with a rectifier behind it, forward and backward, of images with channels last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.kernels import norm, rows
from discrete_vae.kernels.codegen import (
    FLOAT32,
    Numbers,
    Vector,
    builder_intrinsic,
    constant,
    loop,
    splat,
    unpacked,
)
from discrete_vae.kernels.loops import ChunkLoop, available_threads
from discrete_vae.kernels.norm import SMALLEST_SHARED, Columns, row_sums
from discrete_vae.kernels.registry import Kernel, agrees_on, are_contiguous, are_plain, custom_op
from discrete_vae.kernels.rows import total_of
from discrete_vae.numerics import differentiable_once

# An image is a matrix (pixel, channel) in memory, float32 or bfloat16, which fits the first-level cache. Parameters are
# (channel,), statistics (example, channel), all float32, and so is all arithmetic. The channels of a group lie next to
# each other in one vector. An example's numbers depend neither on other examples nor on how these are divided among
# threads. The caller answers for types, shapes and strides.

_LANES = 32  # channels that are worked on together, or all of them if there are fewer


@custom_op(only_read=("x", "parameters"))
def normalize(
    x: Tensor, out: Tensor, parameters: Sequence[Tensor], statistics: Tensor, num_groups: int, eps: float
) -> Callable[[], object]:
    """out = max(0, (x - m) r s + o), with the mean m over a group and r = 1 / sqrt(its variance + eps).

    The parameters are s and o; the statistics, (2, example, channel), receive m and r.
    """
    return _lowered(_forward, (x, out, *parameters, *statistics), num_groups, eps)


@custom_op(only_read=("x", "parameters", "statistics"))
def normalize_backward(
    x: Tensor,
    gradient: Tensor,
    parameters: Sequence[Tensor],
    statistics: Tensor,
    found: Tensor,
    num_groups: int,
) -> Callable[[], object]:
    """Find the gradients of `normalize` by s and o of each example, (2, example, channel).

    With c = x - m, sums over pixels, means over a group, and g the gradient where the output is above 0: by s it is
    sum r g c, and by o it is sum g. The gradient by the output is replaced by that by x,
    r (s g - mean s g - r^2 c mean s g c).
    """
    return _lowered(_backward, (x, gradient, *parameters, *statistics, *found), num_groups)


def _lowered(
    loop_of: Callable[[int, int, bool], ChunkLoop],
    tensors: tuple[Tensor, ...],
    num_groups: int,
    eps: float = 0.0,
) -> Callable[[], object]:
    x = tensors[0]
    num_examples, num_channels, *size = x.shape
    run = loop_of(min(_LANES, num_channels), num_channels // num_groups, x.dtype == torch.bfloat16)
    threads = 1 if x.numel() < SMALLEST_SHARED else available_threads()
    pointers = tuple(tensor.data_ptr() for tensor in tensors)
    return partial(
        run.serial if threads == 1 else partial(run, threads),
        pointers,
        num_examples,
        math.prod(size),
        num_channels,
        np.float32(eps),
    )


# Inner steps, as numba intrinsics that work on some channels of an example: sums over its pixels stay in registers.


class _Image:
    """Some channels of an example, with what is common to both directions."""

    def __init__(
        self, builder: Any, sizes: Sequence[Any], first: Any, lanes: int, group: int, bfloat16: bool
    ) -> None:
        self._builder, self._first = builder, first
        self._lanes, self._group, self._bfloat16 = lanes, group, bfloat16
        example, self.num_pixels, self._num_channels = sizes
        self._place = builder.add(builder.mul(example, self._num_channels), first)
        pixels = builder.mul(example, self.num_pixels)
        self._first_place = builder.add(builder.mul(pixels, self._num_channels), first)
        count = builder.mul(self.num_pixels, constant(group))
        self._count = splat(builder, builder.sitofp(count, FLOAT32), lanes)

    def pixels(self, address: Any) -> Columns:
        """The channels of a tensor of images."""
        channels, lanes = self._num_channels, self._lanes
        return Columns(self._builder, address, self._first_place, channels, lanes, self._bfloat16)

    def parameter(self, address: Any) -> Vector:
        return Numbers(self._builder, address).load(self._first, self._lanes)

    def load(self, address: Any) -> Vector:
        return Numbers(self._builder, address).load(self._place, self._lanes)

    def store(self, vector: Vector, address: Any) -> None:
        Numbers(self._builder, address).store(vector, self._place)

    def sums(self, terms: Callable[[Any], list[Vector]], count: int) -> list[Vector]:
        """Sums over the pixels, of each channel."""
        return row_sums(self._builder, self.num_pixels, self._lanes, terms, count)

    def mean(self, of_channels: Vector) -> Vector:
        """The mean over a group, from sums over the pixels."""
        return total_of(of_channels, self._group) / self._count


def _forward_block(lanes: int, group: int, bfloat16: bool) -> Any:
    """An intrinsic: `normalize` of some channels of an example."""

    @builder_intrinsic()
    def block(builder, pointers, example, num_pixels, num_channels, eps, first):
        x, out, scale, offset, mean, rate = unpacked(builder, pointers, 6)
        image = _Image(builder, (example, num_pixels, num_channels), first, lanes, group, bfloat16)
        inside, outside = image.pixels(x), image.pixels(out)
        centre = image.mean(*image.sums(lambda pixel: [inside.load(pixel)], 1))

        def square(pixel: Any) -> list[Vector]:
            away = inside.load(pixel) - centre
            return [away * away]

        deviation = (image.mean(*image.sums(square, 1)) + splat(builder, eps, lanes)).square_root()
        inverse = deviation.filled(1) / deviation
        image.store(centre, mean)
        image.store(inverse, rate)
        factor, shift = inverse * image.parameter(scale), image.parameter(offset)
        with loop(builder, constant(0), num_pixels) as (pixel, _):
            value = (inside.load(pixel) - centre).times_plus(factor, shift)
            outside.store(value.at_least(0.0), pixel)

    return block


def _backward_block(lanes: int, group: int, bfloat16: bool) -> Any:
    """An intrinsic: `normalize_backward` of some channels of an example."""

    @builder_intrinsic()
    def block(builder, pointers, example, num_pixels, num_channels, _eps, first):
        x, gradient, scale, offset, mean, rate, by_scale, by_offset = unpacked(builder, pointers, 8)
        image = _Image(builder, (example, num_pixels, num_channels), first, lanes, group, bfloat16)
        inside, both = image.pixels(x), image.pixels(gradient)
        centre, inverse = image.load(mean), image.load(rate)
        times, shift = image.parameter(scale), image.parameter(offset)
        factor = inverse * times

        def passed(pixel: Any) -> tuple[Vector, Vector]:
            """The centred input, and the gradient where the output is above 0."""
            away, g = inside.load(pixel) - centre, both.load(pixel)
            return away, g.filled(0).where(g.filled(0).reaches(away.times_plus(factor, shift)), g)

        def terms(pixel: Any) -> list[Vector]:
            away, g = passed(pixel)
            return [g, g * away]

        sum_g, sum_gc = image.sums(terms, 2)
        image.store(sum_gc * inverse, by_scale)
        image.store(sum_g, by_offset)
        level = image.mean(sum_g * times) * inverse
        slope = image.mean(sum_gc * times) * inverse * inverse * inverse
        with loop(builder, constant(0), num_pixels) as (pixel, _):
            away, g = passed(pixel)
            both.store(g * factor - away * slope - level, pixel)

    return block


def _over_examples(
    name: str, block_of: Callable[[int, int, bool], Any]
) -> Callable[[int, int, bool], ChunkLoop]:
    """The loop over all examples of what an intrinsic does to some channels of one, by lanes, group and precision."""

    @cache
    def loop_of(lanes: int, group: int, bfloat16: bool) -> ChunkLoop:
        block = block_of(lanes, group, bfloat16)

        def make(chunks: Any) -> Callable[..., Any]:
            def run(pointers, num_examples, num_pixels, num_channels, eps):
                for example in chunks(num_examples):
                    for first in range(0, num_channels, lanes):
                        block(pointers, example, num_pixels, num_channels, eps, first)
                return 0

            run.__qualname__ = f"{__name__}.{name} {lanes} {group} {bfloat16}"  # the cache's name of it
            return run

        return ChunkLoop(make, sources=(norm, rows))

    return loop_of


_forward, _backward = _over_examples("forward", _forward_block), _over_examples("backward", _backward_block)


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, offset: Tensor, num_groups: int, eps: float) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        out, statistics = torch.empty_like(x), scale.new_empty(2, *x.shape[:2])
        normalize(x, out, (scale, offset), statistics, num_groups, eps)
        ctx.num_groups = num_groups
        ctx.save_for_backward(x, scale, offset, statistics)
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, scale, offset, statistics = ctx.saved_tensors
        gradient = torch.empty_like(x).copy_(gradients[0])  # as the kernel writes where it reads
        found = torch.empty_like(statistics)
        normalize_backward(x, gradient, (scale, offset), statistics, found, ctx.num_groups)
        return gradient, *found.sum(1), None, None


def _supports(x: Tensor, scale: Tensor, offset: Tensor, num_groups: int, _eps: float) -> bool:
    group = scale.numel() // num_groups
    return (
        (x.dim() == 4 and group <= _LANES and group & (group - 1) == 0)
        and (x.shape[1] == len(scale) == len(offset) and len(scale) % min(_LANES, len(scale)) == 0)
        and (are_plain((scale, offset), torch.float32) and are_contiguous((scale, offset)))
    )


def _cases() -> list[tuple[Any, ...]]:
    found = []
    for channels in (16, 64):
        x = torch.linspace(-3, 4, 2 * channels * 15).sin().view(2, channels, 3, 5)
        scale, offset = torch.linspace(0.5, 2, channels), torch.linspace(-1, 1, channels)
        leaves = [each.clone().requires_grad_() for each in (x, scale, offset)]
        found += [(*leaves, 8, 1e-5), (x.bfloat16(), scale, offset, 8, 1e-5)]
    return found


rectified_norm = Kernel(
    "The compiled group norm",
    lambda *arguments: _GroupNorm.apply(*arguments),
    agrees_on(_cases, tolerance=0.02),
    supports=_supports,
    fallback="plain torch is used, convolutional networks take up to twice as long",
)
