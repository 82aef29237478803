"""Kernels of binary, Gaussian and spike-and-exponential units: draws, entropies, log-probabilities and KL terms.

Each is one fused row reduction forward and one backward, of float32 tensors on the CPU. The formulas are those of the
plain functions that `discrete_vae.kernels.registry.compiled_by` decorates, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from discrete_vae.kernels.codegen import (
    Vector,
    bounded,
    exp,
    exp_of_negative,
    expm1,
    inward,
    log1p,
    magnitude,
    tanh,
)
from discrete_vae.kernels.registry import Kernel, agrees_on, are_plain
from discrete_vae.kernels.rows import Block, RowReduction, as_numbers, as_rows
from discrete_vae.numerics import differentiable_once
from discrete_vae.smoothing.spike import SpikeExponential

Vectors = list[Vector]


def _new(shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _slopes(shape: Sequence[int], count: int, *, differentiable: bool) -> list[Tensor]:
    """Memory for derivatives; nobody reads those of what is not differentiated."""
    if differentiable:
        return [_new(shape) for _ in range(count)]
    # all rows write to the same place
    return [place.expand(shape) for place in _new((count, shape[-1])).unbind()]


def _wave(low: float, high: float, *shape: int) -> Tensor:
    shape = shape or (3, 37)
    return torch.linspace(low, high, math.prod(shape)).view(shape)


# Mean and entropy of binary units, see `discrete_vae.numerics.mean_and_entropy`.


@partial(RowReduction, "entropy")
def _entropy(elements: Vectors, _per_row: Vectors) -> tuple[Vectors, Vectors]:
    (logits,) = elements
    size = magnitude(logits)
    fall = exp(-size)
    smaller = fall / (fall + 1)  # of q and 1 - q
    larger = smaller.filled(1) / (fall + 1)
    return [smaller.where(logits.below(0), larger), smaller * larger], [size * smaller + log1p(fall)]


@partial(RowReduction, "entropy backward")
def _entropy_backward(elements: Vectors, per_row: Vectors) -> tuple[Vectors, Vectors]:
    (of_mean, logits, slope), (of_entropy,) = elements, per_row
    return [(of_mean - logits * of_entropy) * slope], []


def _mean_and_entropy(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, slope, entropy = _new(logits.shape), _new(logits.shape), _new(logits.shape[:-1])
    _entropy([as_rows(logits)], outputs=[mean, slope], sums=[entropy])
    return mean, entropy, slope


def _mean_and_entropy_backward(of_mean: Tensor, of_entropy: Tensor, logits: Tensor, slope: Tensor) -> Tensor:
    found = _new(slope.shape)
    _entropy_backward([as_rows(of_mean), as_rows(logits), as_rows(slope)], [as_numbers(of_entropy)], [found])
    return found


mean_and_entropy = Kernel(
    "The compiled entropy of binary units",
    _mean_and_entropy,
    agrees_on(lambda: [(_wave(-9, 9),)]),
    supports=lambda logits: logits.dim() > 0,
)
mean_and_entropy_backward = Kernel(
    "The compiled gradient of binary units' entropy",
    _mean_and_entropy_backward,
    agrees_on(lambda: [(_wave(-1, 1), _wave(-2, 1, 3), _wave(-9, 1), _wave(0, 1))]),
    supports=lambda of_mean, of_entropy, *_: of_mean is not None and of_entropy is not None,
)


# The joint log-probability of binary values, see `discrete_vae.numerics.joint_bernoulli_log_prob`.


@partial(RowReduction, "log probability")
def _log_prob(elements: Vectors, _per_row: Vectors) -> tuple[Vectors, Vectors]:
    value, logits = elements
    fall = exp(-magnitude(logits))
    on = logits.above(0)
    # softplus(l) - z l, which cancels on neither side
    surprise = ((-(value - 1)) * logits).where(on, -(value * logits)) + log1p(fall)
    mean = fall.filled(1).where(on, fall) / (fall + 1)
    return [value - mean], [-surprise]


@partial(RowReduction, "joint log probability", factors=True, prefetches=True)
def _log_prob_of_samples(elements: Vectors, _per_row: Vectors) -> Block:
    value, logits = elements
    minus = -magnitude(logits)
    on = logits.above(0)
    # the likelier value costs nothing but the logarithm of 1 + e^-|l|
    return Block(terms=[(-(value - 1)).where(on, value) * minus], factors=[exp_of_negative(minus) + 1])


class _JointLogProb(torch.autograd.Function):
    """The sum over the last axis; no gradient reaches the value."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, logits: Tensor) -> Tensor:
        differentiable = any(ctx.needs_input_grad)
        found = _new(logits.shape[:-1])
        (slope,) = _slopes(logits.shape, 1, differentiable=differentiable)
        _log_prob([as_rows(value), as_rows(logits)], outputs=[slope], sums=[found])
        if differentiable:
            ctx.save_for_backward(slope, value, logits)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        slope, value, logits = ctx.saved_tensors
        if torch.is_grad_enabled():  # it is to be differentiated in its turn
            slope = value - torch.sigmoid(logits)
        return None, gradients[0].unsqueeze(-1) * slope


def _joint_log_prob(value: Tensor, logits: Tensor, num_axes: int) -> Tensor:
    if _are_samples(value, logits, num_axes):
        rows = value.flatten(-num_axes).flatten(0, -2).contiguous()
        wide = logits.reshape(-1, *rows.shape)
        found = _new(wide.shape[:-1])
        _log_prob_of_samples([rows.expand(wide.shape), wide], sums=[found])
        return found.view(logits.shape[:-num_axes])
    value, logits = torch.broadcast_tensors(value, logits.float())
    return _JointLogProb.apply(value.flatten(-num_axes), logits.flatten(-num_axes))


def _are_samples(value: Tensor, logits: Tensor, num_axes: int) -> bool:
    """True for contiguous logits of many samples for each value, of which no gradient is wanted."""
    if torch.is_grad_enabled() and (value.requires_grad or logits.requires_grad):
        return False
    axes = value.dim()
    return num_axes < axes <= logits.dim() and value.shape == logits.shape[-axes:] and logits.is_contiguous()


joint_log_prob = Kernel(
    "The compiled log-probability of binary units",
    _joint_log_prob,
    agrees_on(
        lambda: [
            (_wave(0, 1), _wave(-9, 9).requires_grad_(), 1),
            (_wave(0, 1), _wave(-9, 9, 2, 3, 37), 1),
            (_wave(0, 1, 37, 3).T, _wave(-9, 9, 2, 3, 37), 1),
            (_wave(0, 1), _wave(-9, 9, 2, 3, 37).bfloat16(), 1),
        ]
    ),
    supports=lambda value, logits, num_axes: (
        value.dtype == torch.float32 and (not value.requires_grad or _are_samples(value, logits, num_axes))
    ),
)


# The KL of Gaussian layers, see `discrete_vae.hierarchy.base.Gaussian.joint_kl_to`.


@partial(RowReduction, "divergence")
def _kl(elements: Vectors, _per_row: Vectors) -> tuple[Vectors, Vectors]:
    mean, log_std, other_mean, other_log_std = elements
    twice = (log_std - other_log_std) * 2
    precision = exp(-other_log_std)
    distance, rise = (mean - other_mean) * precision, expm1(twice)
    squared = distance * distance
    return [distance * precision, rise, rise + squared], [(rise - twice + squared) * 0.5]


@partial(RowReduction, "divergence backward")
def _kl_backward(elements: Vectors, per_row: Vectors) -> tuple[Vectors, Vectors]:
    (by_mean, by_log_std, minus_by_other), (gradient,) = elements, per_row
    of_mean = gradient * by_mean
    return [of_mean, gradient * by_log_std, -of_mean, -(gradient * minus_by_other)], []


class _JointKL(torch.autograd.Function):
    """The divergence of means and log standard deviations, summed over the last axis."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        differentiable, shape = any(ctx.needs_input_grad), tensors[0].shape
        elements, found = [as_rows(value) for value in tensors], _new(shape[:-1])
        slopes = _slopes(shape, 3, differentiable=differentiable)
        _kl(elements, outputs=slopes, sums=[found])
        if differentiable:
            ctx.save_for_backward(*slopes)
        return found

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        slopes = ctx.saved_tensors
        found = tuple(torch.empty_like(slopes[0]) for _ in range(4))
        _kl_backward(slopes, [as_numbers(gradients[0])], found)
        return found


def _joint_kl(*tensors: Tensor) -> Tensor:
    return _JointKL.apply(*(tensor.flatten(-2) for tensor in tensors))


joint_kl = Kernel(
    "The compiled KL of Gaussian layers",
    _joint_kl,
    agrees_on(
        lambda: [
            tuple(_wave(*each, 2, 3, 37).requires_grad_() for each in ((-2, 2), (1, -1), (0, 1), (-1, 1)))
        ]
    ),
    supports=lambda *tensors: len({tensor.shape for tensor in tensors}) == 1,
)


# The head of a Gaussian layer, see `discrete_vae.hierarchy.gaussian.GaussianNetwork`.


def _head(
    output: Tensor, noise: Tensor | None, bound: float | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    mean, raw = output.chunk(2, -1)
    found = [_new(mean.shape) for _ in range(2)]
    slope = None if bound is None else torch.empty_like(found[0])
    h, spread = (None, None) if noise is None else (torch.empty_like(found[0]), torch.empty_like(found[0]))
    outputs = [value for value in (*found, slope, h, spread) if value is not None]
    elements = [as_rows(value) for value in (mean, raw, noise) if value is not None]
    _head_reduction(bound, noise is not None)(elements, outputs=outputs)
    return found[0], found[1], h, slope, spread


@cache
def _head_reduction(bound: float | None, draws: bool) -> RowReduction:
    def body(elements: Vectors, _per_row: Vectors) -> tuple[Vectors, Vectors]:
        mean, raw, *noise = elements
        found = [mean, raw]
        if bound is not None:
            bent = tanh(raw / bound)
            found = [mean, bent * bound, -(bent * bent - 1)]
        if draws:
            spread = exp(found[1]) * noise[0]
            found += [mean + spread, spread]
        return found, []

    return RowReduction(f"head {bound} {draws}", body)


def _head_backward(
    of_mean: Tensor | None,
    of_log_std: Tensor | None,
    of_h: Tensor | None,
    slope: Tensor | None,
    spread: Tensor | None,
) -> Tensor:
    gradients = (of_mean, of_log_std, of_h)
    like = next(gradient for gradient in gradients if gradient is not None)
    given = [*gradients, slope, None if of_h is None else spread]
    out = _new((*like.shape[:-1], 2 * like.shape[-1]))
    elements = [as_rows(value) for value in given if value is not None]
    _head_backward_reduction(tuple(value is not None for value in given))(elements, outputs=out.chunk(2, -1))
    return out


@cache
def _head_backward_reduction(given: tuple[bool, ...]) -> RowReduction:
    def body(elements: Vectors, _per_row: Vectors) -> tuple[Vectors, Vectors]:
        places = iter(elements)
        mean, log_std, h, slope, spread = (next(places) if there else None for there in given)
        if h is not None and spread is not None:
            mean = h if mean is None else mean + h
            log_std = h * spread if log_std is None else log_std + h * spread
        mean = elements[0].filled(0) if mean is None else mean
        log_std = elements[0].filled(0) if log_std is None else log_std
        return [mean, log_std if slope is None else log_std * slope], []

    name = "".join(str(int(there)) for there in given)
    return RowReduction(f"head backward {name}", body)


head = Kernel(
    "The compiled head of Gaussian layers",
    _head,
    agrees_on(lambda: [(_wave(-9, 9, 3, 74), _wave(2, -2), 5.0)]),
    supports=lambda output, noise, _: (
        noise is None or noise.shape == (*output.shape[:-1], output.shape[-1] // 2)
    ),
)
head_backward = Kernel(
    "The compiled gradient of Gaussian layers' head",
    _head_backward,
    agrees_on(lambda: [tuple(_wave(low, 1) for low in range(-5, 0))]),
)


# The draw of spike-and-exponential units, see `discrete_vae.smoothing.spike.SpikeExponential`.


Bounds = tuple[Tensor, Tensor]


@partial(RowReduction, "draw")
def _draw(elements: Vectors, per_row: Vectors) -> tuple[Vectors, Vectors]:
    rho, logits = elements
    beta = bounded(*per_row)
    odds, survival = exp(-logits), -(rho - 1)
    inverse_q = odds + 1
    v = survival * inverse_q
    spike = v.reaches(1)  # false for NaN, which must come out
    zero = v.filled(0)
    v = zero.where(spike, v)
    minus_c = expm1(-beta)
    inner = v * minus_c
    zeta = log1p(inner) / beta + 1
    zeta = zeta.at_least(2.0**-126)  # a rounding can bring it to 0 or below
    zeta = zero.where(spike, zeta)
    bits = zero.where(spike, zeta * 0 + 1)  # a NaN comes out here too
    slope = minus_c / -beta / (inner + 1)
    by_logits = zero.where(spike, survival * odds) * slope
    bits_by_logits = (v.filled(1) / inverse_q).where(spike, inverse_q * 0)
    by_beta = (expm1(-(zeta * beta)) / minus_c - zeta) / beta
    return [zeta, bits, by_logits, bits_by_logits, by_beta], []


def _not_outward(totals: Vectors, per_row: Vectors) -> Vectors:
    (total,), (beta, low, high) = totals, per_row
    return [inward(total, beta, beta.between(low, high))]


# the sum over all elements is taken row by row, whatever the threads
@partial(RowReduction, "backward", finish=_not_outward)
def _draw_backward(elements: Vectors, _per_row: Vectors) -> tuple[Vectors, Vectors]:
    of_zeta, of_bits, by_logits, bits_by_logits, by_beta = elements
    return [of_zeta * by_logits + of_bits * bits_by_logits], [of_zeta * by_beta]


class _FusedDraw(torch.autograd.Function):
    """zeta and the bits of z, of rho and logits (..., unit) and a scalar beta; no gradient reaches rho."""

    @staticmethod
    def forward(
        ctx: Any, rho: Tensor, logits: Tensor, beta: Tensor, bounds: Bounds | None
    ) -> tuple[Tensor, Tensor]:
        differentiable = any(ctx.needs_input_grad)
        rho, logits = as_rows(rho), as_rows(logits)
        zeta, bits = _new(rho.shape), _new(rho.shape)
        slopes = _slopes(rho.shape, 3, differentiable=differentiable)
        used = bounds or (torch.full_like(beta, -math.inf), torch.full_like(beta, math.inf))
        _draw((rho, logits), (beta, *used), (zeta, bits, *slopes))
        ctx.set_materialize_grads(False)
        if differentiable:
            ctx.save_for_backward(*slopes, beta, *used)
        return zeta, bits

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *slopes, beta, low, high = ctx.saved_tensors
        of_zeta, of_bits = (
            as_rows(torch.zeros_like(slopes[0]) if gradient is None else gradient) for gradient in gradients
        )
        by_logits, by_beta = torch.empty_like(slopes[0]), torch.empty_like(beta)
        _draw_backward((of_zeta, of_bits, *slopes), (beta, low, high), (by_logits,), (by_beta,))
        return None, by_logits, by_beta if ctx.needs_input_grad[2] else None, None


def _is_exponential(
    rho: Tensor, _logits: Tensor, _beta: Tensor, bounds: Bounds | None, smoothing: Any
) -> bool:
    # a subclass may have another density
    exact = type(smoothing) is SpikeExponential
    return exact and rho.dim() > 0 and not rho.requires_grad and are_plain(bounds or (), torch.float32)


def _cases_of_draws() -> list[tuple[Any, ...]]:
    smoothing = SpikeExponential(beta=2.0, max_beta=3.0)
    logits = _wave(-3, 4, 37, 3).t().requires_grad_()
    return [(_wave(0.01, 0.99), logits, smoothing.beta, smoothing._bounds(), smoothing)]


spike_exponential = Kernel(
    "The compiled draw of spike-and-exponential units",
    lambda rho, logits, beta, bounds, _smoothing: _FusedDraw.apply(rho, logits, beta, bounds),
    agrees_on(_cases_of_draws),
    supports=_is_exponential,
)
