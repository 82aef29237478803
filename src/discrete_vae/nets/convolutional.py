"""Encoders and decoders of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int, check_positive_ints, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.registry import compiled_by
from discrete_vae.nets.mlp import MixedPrecisionLayer

DEFAULT_WIDTHS = (16, 32, 64)  # cheap enough for two cores
_ROWS = 250  # decoded at a time without gradients: their images stay in the cache


class Convolution(MixedPrecisionLayer, nn.Conv2d):
    """A convolution that can read a low-precision copy of its weight; its output is then in the copy's precision."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Convolve, (batch, channel, row, column)."""
        weight = self.product_weight()
        bias = self.bias if self.bias is None else self.bias.to(weight.dtype)
        return F.conv2d(x.to(weight.dtype), weight, bias, self.stride, self.padding)


class Linear(MixedPrecisionLayer, nn.Linear):
    """A linear map that can read a low-precision copy of its weight; its output is then in the copy's precision."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map (batch, feature)."""
        weight = self.product_weight()
        return F.linear(x.to(weight.dtype), weight, self.bias.to(weight.dtype))


class Doubling(MixedPrecisionLayer, nn.ConvTranspose2d):
    """A transposed convolution to twice the size, kernel 4 x 4, that can read a low-precision copy of its weight."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 4, stride=2, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Spread, (batch, channel, row, column)."""
        weight = self.product_weight()
        x = x.to(weight.dtype)
        if x.is_cpu and self.out_channels < _FEW_CHANNELS:
            return F.pixel_shuffle(F.conv2d(x, _of_quarters(weight), padding=1), 2)
        return F.conv_transpose2d(x, weight, stride=2, padding=1)


_FEW_CHANNELS = 4  # oneDNN's transposed convolution to fewer is several times slower than a convolution


def _of_quarters(weight: Tensor) -> Tensor:
    """The weight (4 output, input, 3, 3) of a convolution that gives the four pixels made of each.

    Pixel 2 r + a of a row is sum_d x[r + d] w[a + 1 - 2 d]: w[3] and w[1] of x[r - 1] and x[r] for a = 0, w[2] and w[0]
    of x[r] and x[r + 1] for a = 1.
    """
    reverse = weight.flip(2, 3)
    quarters = [
        F.pad(reverse[:, :, row::2, column::2], (column, 1 - column, row, 1 - row))
        for row in (0, 1)
        for column in (0, 1)
    ]
    return torch.stack(quarters, 2).flatten(1, 2).transpose(0, 1)


_GROUPS = 8  # of channels, at most


class _Norm(nn.GroupNorm):
    """A norm over the channels of one example, with a rectifier behind it.

    An example's value does not depend on its batch. It is in the precision of what it reads, with sums in float32.
    """

    def __init__(self, width: int) -> None:
        super().__init__(math.gcd(_GROUPS, width), width)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _rectified_norm(x, self.weight, self.bias, self.num_groups, self.eps)


@compiled_by("group_norm.rectified_norm", (torch.float32, torch.bfloat16))
def _rectified_norm(x: Tensor, scale: Tensor, offset: Tensor, num_groups: int, eps: float) -> Tensor:
    if x.is_cpu:
        x = x.contiguous()  # torch's norm of channels last is many times slower
    return torch.relu(F.group_norm(x, num_groups, scale.to(x.dtype), offset.to(x.dtype), eps))


class ResidualBlock(nn.Module):
    """y = x + conv(norm(conv(norm(x)))), 3 x 3 convolutions that keep the size, behind rectified norms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([_Norm(width), _Norm(width)])
        self.convolutions = nn.ModuleList(
            [Convolution(width, width, 3, padding=1, bias=False), Convolution(width, width, 3, padding=1)]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block, (batch, channel, row, column) -> the same."""
        if x.is_cpu:  # its convolutions compute so, and copy there and back what comes otherwise
            x = x.contiguous(memory_format=torch.channels_last)
        hidden = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            hidden = convolution(norm(hidden))
        return x + hidden


class ConvolutionalEncoder(nn.Module):
    """Each width halves the image by a convolution of stride 2 and adds a residual block; a linear map ends it.

    Odd sizes are rounded up when halved: 28 x 28 becomes 14, 7, 4 and 32 x 32 becomes 16, 8, 4 with the default
    widths. No norm uses the statistics of a batch.

    Args:
        input_shape: (channel, row, column) of what is read.
        num_features: Length of the vector that is returned.
        widths: Channels after each halving.
    """

    def __init__(
        self, input_shape: Sequence[int], num_features: int, widths: Sequence[int] = DEFAULT_WIDTHS
    ) -> None:
        super().__init__()
        sizes = _halved_sizes("input_shape", input_shape, widths)
        self.num_features = check_positive_int("num_features", num_features)
        self.input_shape = tuple(input_shape)
        channels = (input_shape[0], *widths)
        kernels = (5, *(3 for _ in widths[1:]))  # the first sees the image itself
        layers = []
        for (before, width), kernel in zip(pairwise(channels), kernels, strict=True):
            layers.append(Convolution(before, width, kernel, stride=2, padding=kernel // 2))
            layers.append(ResidualBlock(width))
        self.layers = nn.Sequential(*layers, _Norm(widths[-1]))
        self.output = Linear(widths[-1] * sizes[-1][0] * sizes[-1][1], num_features)

    def forward(self, x: Tensor) -> Tensor:
        """Encode (batch, channel, row, column) as (batch, feature)."""
        check_tensor("x", x, ("batch", *self.input_shape))
        return self.output(self.layers(x).flatten(1)).to(self.output.weight.dtype)


class ConvolutionalDecoder(nn.Module):
    """A linear map to a small image, then per width a residual block and a transposed convolution that doubles.

    The mirror image of `ConvolutionalEncoder`; the last doubling gives the parameters, plus a bias of each.

    Args:
        num_latents: Length of the vector that is read.
        parameter_shape: (channel, row, column) of what is returned, the `parameter_shape` of a likelihood.
        widths: Channels of the images from the largest, half the output's size, to the smallest.

    Attributes:
        output_bias: Added to the output, (*parameter_shape); see `initialize_output_`.
    """

    def __init__(
        self, num_latents: int, parameter_shape: Sequence[int], widths: Sequence[int] = DEFAULT_WIDTHS
    ) -> None:
        super().__init__()
        sizes = _halved_sizes("parameter_shape", parameter_shape, widths)
        self.num_latents = check_positive_int("num_latents", num_latents)
        self.sizes = sizes[-2::-1]
        self.smallest = (widths[-1], *sizes[-1])
        self.input = Linear(num_latents, math.prod(self.smallest))
        channels = (*reversed(widths), parameter_shape[0])
        self.blocks = nn.ModuleList(
            nn.Sequential(ResidualBlock(width), _Norm(width)) for width in reversed(widths)
        )
        self.doublings = nn.ModuleList(Doubling(before, after) for before, after in pairwise(channels))
        self.output_bias = nn.Parameter(torch.zeros(*parameter_shape))

    @torch.no_grad()
    def initialize_output_(self, start: Tensor) -> None:
        """Set the output's biases, (*parameter_shape), for example to what a likelihood's `initialize_` returns."""
        self.output_bias.copy_(check_tensor("start", start, tuple(self.output_bias.shape)))

    def forward(self, latents: Tensor) -> Tensor:
        """Decode (row, latent), with sample axes flattened before, as (row, *parameter_shape)."""
        check_tensor("latents", latents, ("row", self.num_latents))
        if latents.is_cpu and len(latents) > _ROWS and not torch.is_grad_enabled():
            return torch.cat([self._decode(rows) for rows in latents.split(_ROWS)])
        return self._decode(latents)

    def _decode(self, latents: Tensor) -> Tensor:
        hidden = self.input(latents).unflatten(1, self.smallest)
        for block, double, (rows, columns) in zip(self.blocks, self.doublings, self.sizes, strict=True):
            hidden = double(block(hidden))[..., :rows, :columns]
        return hidden + self.output_bias


def _halved_sizes(name: str, shape: Sequence[int], widths: Sequence[int]) -> list[tuple[int, int]]:
    """Rows and columns of an image and of each of its halvings, after checking both arguments."""
    if len(shape) != 3:
        repair = "Reshape flat images first."
        raise InvalidInputError(name, "must be (channel, row, column)", tuple(shape), repair)
    check_positive_ints(name, shape)
    if len(widths) == 0:
        raise InvalidInputError("widths", "must hold at least one width", tuple(widths), "Give the default.")
    check_positive_ints("widths", widths)
    needed = 1 << len(widths)
    if min(shape[1:]) < needed:
        rule = f"must have at least {needed} rows and columns for {len(widths)} widths"
        raise InvalidInputError(name, rule, tuple(shape), "Give fewer widths.")
    halvings = [1 << index for index in range(len(widths) + 1)]
    sizes = [(math.ceil(shape[1] / each), math.ceil(shape[2] / each)) for each in halvings]
    if sizes[-1] == (1, 1) and _GROUPS % widths[-1] == 0:
        rule = f"must not end with a divisor of {_GROUPS} where the image ends at one pixel, whose norm is then 0"
        repair = f"Give fewer widths, or a last one above {_GROUPS}."
        raise InvalidInputError("widths", rule, tuple(widths), repair)
    return sizes
