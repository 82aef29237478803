"""Draws of units with a spike for importance sampling: from logits to zeta, z and log q(z | x) in one compiled pass.

The formulas are those of `discrete_vae.smoothing.spike`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from discrete_vae.compiled.elementary import exp_of_negative, log1p, magnitude
from discrete_vae.compiled.sample_noise import draw_uniforms, uniforms
from discrete_vae.compiled.sample_rows import Keys, Made, SamplePass
from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.compiled.vector_ir import Vector
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.smoothing.sharp_limit import SharpLimit
from discrete_vae.smoothing.spike_exponential import SpikeExponential
from discrete_vae.smoothing.spike_slab import SpikeSlab

_TINY = 2.0**-126


@dataclass(frozen=True)
class Spike:
    """A smoothing with its parameters as they are.

    Attributes:
        kind: Its class.
        numbers: What the pass must know of them.
    """

    kind: type[Smoothing]
    numbers: tuple[float, ...]


def spike_of(smoothing: Smoothing) -> Spike | None:
    """The smoothing as the pass takes it; None if it is of another kind."""
    kind = type(smoothing)  # a subclass may have another density
    if isinstance(smoothing, SpikeExponential) and kind in _INVERSE_SURVIVALS:
        parameter = smoothing._bounded_parameter()
        assert parameter is not None
        beta = float(parameter.detach())
        return Spike(kind, (math.expm1(-beta), 1 / beta))
    return Spike(kind, (0.0,)) if kind in _INVERSE_SURVIVALS else None


def draw_units(
    spike: Spike,
    raw: Tensor,
    affine: tuple[Tensor, Tensor],
    keys: Keys,
    *,
    z: Tensor,
    zeta: Tensor,
    spread: Sequence[Tensor],
    log_prob: Tensor,
) -> None:
    """Draw units with the log-odds a y + b.

    Args:
        spike: The smoothing.
        raw: y, (sample, example, unit), float32 or bfloat16.
        affine: a and b, (unit,), float32.
        keys: Of the noise.
        z: Receives the bits, (sample, example, unit), float32.
        zeta: Receives the smoothed units, likewise.
        spread: Also receive them, in the precision of y.
        log_prob: log q(z | x) is added to it, (sample, example), nats.
    """
    factor, offset = (value.expand(raw.shape) for value in affine)
    run = _pass(spike.kind, raw.dtype == torch.bfloat16)
    run([raw, factor, offset], [z, zeta], spread=spread, total=log_prob, numbers=spike.numbers, keys=keys)


def _of_exponential(v: Vector, numbers: list[Vector]) -> Vector:
    minus_c, inverse_beta = numbers
    zeta = log1p(v * minus_c).times_plus(inverse_beta, 1)
    return zeta.filled(_TINY).where(zeta.below(_TINY), zeta)  # a rounding can bring it to 0 or below


_INVERSE_SURVIVALS: dict[type[Smoothing], Callable[[Vector, list[Vector]], Vector]] = {
    SpikeExponential: _of_exponential,
    SpikeSlab: lambda v, _: -(v - 1),
    SharpLimit: lambda v, _: v * 0 + 1,
}


@cache
def _pass(kind: type[Smoothing], bfloat16: bool) -> SamplePass:
    inverse_survival = _INVERSE_SURVIVALS[kind]

    def body(elements: list[Vector], numbers: list[Vector], words: list[Vector]) -> Made:
        raw, factor, offset = elements
        logits = raw.times_plus(factor, offset)
        minus = -magnitude(logits)
        fall, on_side = exp_of_negative(minus), logits.above(0)
        one, zero = fall.filled(1), fall.filled(0)
        sum_of_odds = fall + 1
        v = uniforms(words) * sum_of_odds / one.where(on_side, fall)  # u / q
        spike = v.reaches(1)  # false for NaN, which must come out
        inside = zero.where(spike, v)
        zeta = zero.where(spike, inverse_survival(inside, numbers))
        z = zero.where(spike, v * 0 + 1)
        # z l - softplus(l): the likelier value costs nothing but the logarithm
        return Made([z, zeta], zeta, [zero.where(on_side ^ spike, minus)], [sum_of_odds])

    return SamplePass(
        f"units {kind.__name__}",
        body,
        elements=[bfloat16, False, False],
        outputs=[False, False],
        spreads=bfloat16,
        noise=True,
    )


@tried("The compiled draw of units with a spike", "plain torch is used")
def works() -> None:
    """Whether it gives what plain torch gives of the same noise, on a small batch."""
    shape, keys = (3, 2, 37), Keys(torch.tensor([5, -7]), 11, 1)
    raw, factor, offset = torch.linspace(-9, 9, 222).view(shape), torch.linspace(0.5, 2, 37), torch.ones(37)
    survival = draw_uniforms(shape, keys)
    for smoothing in (SpikeExponential(2.0, trainable=False), SpikeSlab(), SharpLimit()):
        for dtype in (torch.float32, torch.bfloat16):
            given = raw.to(dtype)
            z, zeta, log_prob = torch.empty(shape), torch.empty(shape), torch.zeros(shape[:2])
            other = torch.empty(shape, dtype=dtype)
            spike = spike_of(smoothing)
            assert spike is not None
            draw_units(
                spike, given, (factor, offset), keys, z=z, zeta=zeta, spread=[other], log_prob=log_prob
            )
            logits = given.float() * factor + offset
            right = smoothing.draw(1 - survival, logits)
            expected = torch.where(right.z == 1, logits.sigmoid(), (-logits).sigmoid()).log().sum(-1)
            pairs = (zeta, right.zeta), (z, right.z), (log_prob, expected), (other, right.zeta.to(dtype))
            check_close(*pairs, tolerance=1e-3)
