"""Gaussian layers in compiled passes: the KL, the head, draws for importance samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from discrete_vae.kernels.codegen import Vector, exp, expm1, tanh
from discrete_vae.kernels.registry import check_close, tried
from discrete_vae.kernels.rows import (
    Keys,
    Made,
    RowPass,
    SamplePass,
    as_numbers,
    as_rows,
    draw_normals,
    normals,
    unread,
)

# The KL of Gaussian layers with its sum over units, and what its gradient multiplies, in one compiled pass.
#
# Everything here is a plain function of float32 tensors on the CPU, whose shapes the caller answers for. The
# formulas are those of `discrete_vae.hierarchy.gaussian`.


def divergence(
    mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor, *, differentiable: bool
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """The divergence, summed over the last axis.

    Args:
        mean: (..., unit).
        log_std: (..., unit).
        other_mean: (..., unit).
        other_log_std: (..., unit).
        differentiable: Whether the derivatives are wanted.

    Returns:
        (...), nats; then, if they are wanted, (..., unit) each, the derivatives by mean, log_std and, with the other
        sign, other_log_std; that by other_mean is minus the first.
    """
    elements = [as_rows(value) for value in (mean, log_std, other_mean, other_log_std)]
    found = torch.empty(mean.shape[:-1], dtype=torch.float32, device="cpu")
    slopes = (
        [torch.empty(mean.shape, dtype=torch.float32, device="cpu") for _ in range(3)]
        if differentiable
        else unread(mean.shape, 3)
    )
    _FORWARD(elements, outputs=slopes, sums=[found])
    return found, (slopes[0], slopes[1], slopes[2])


def divergence_backward(
    gradient: Tensor, by_mean: Tensor, by_log_std: Tensor, minus_by_other: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients by the four arguments of `divergence`.

    Args:
        gradient: By its result, (...).
        by_mean: What it returned.
        by_log_std: Likewise.
        minus_by_other: Likewise.
    """
    a, b, c, d = (torch.empty_like(by_mean) for _ in range(4))
    _BACKWARD([by_mean, by_log_std, minus_by_other], [as_numbers(gradient)], [a, b, c, d])
    return a, b, c, d


def _forward(elements: list[Vector], _per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    mean, log_std, other_mean, other_log_std = elements
    twice = (log_std - other_log_std) * 2
    precision = exp(-other_log_std)
    distance, rise = (mean - other_mean) * precision, expm1(twice)
    squared = distance * distance
    return [distance * precision, rise, rise + squared], [(rise - twice + squared) * 0.5]


def _backward(elements: list[Vector], per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    (by_mean, by_log_std, minus_by_other), (gradient,) = elements, per_row
    of_mean = gradient * by_mean
    return [of_mean, gradient * by_log_std, -of_mean, -(gradient * minus_by_other)], []


_FORWARD = RowPass("divergence", _forward, elements=4, outputs=3, sums=1)
_BACKWARD = RowPass("divergence backward", _backward, elements=3, per_row=1, outputs=4)


@tried("The compiled KL of Gaussian layers", "plain torch is used")
def divergence_works() -> None:
    """Whether it gives what plain torch gives, on a small batch."""
    start = [
        torch.linspace(low, high, 3 * 37).view(3, 37) for low, high in ((-2, 2), (1, -1), (0, 1), (-1, 1))
    ]
    weights = torch.tensor([1.0, -2.0, 0.5])
    found, slopes = divergence(*start, differentiable=True)
    gradients = divergence_backward(weights, *slopes)
    with torch.enable_grad():
        m, s, n, t = (value.clone().requires_grad_() for value in start)
        right = (t - s + ((2 * s).exp() + (m - n).square()) / (2 * (2 * t).exp()) - 0.5).sum(-1)
        expected = torch.autograd.grad((right * weights).sum(), (m, s, n, t))
    check_close((found, right), *zip(gradients, expected, strict=True), tolerance=1e-4)


# The head of a Gaussian layer and its gradient, each in one compiled pass.
#
# Everything here is a plain function of float32 tensors on the CPU, whose shapes the caller answers for. The
# formulas are those of `discrete_vae.hierarchy.gaussian`.


def head(
    output: Tensor, noise: Tensor | None, bound: float | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Mean m and log standard deviation s = b tanh(u / b) of an output [m, u], and a draw h = m + e^s noise.

    Args:
        output: (..., 2 unit).
        noise: (..., unit); None for no draw.
        bound: b; None for s = u.

    Returns:
        m, s, h, each (..., unit), then ds/du, None without a bound, and dh/ds, None without noise.
    """
    mean, raw = output.chunk(2, -1)
    found = [torch.empty(mean.shape, dtype=torch.float32, device="cpu") for _ in range(2)]
    slope = None if bound is None else torch.empty_like(found[0])
    h, spread = (None, None) if noise is None else (torch.empty_like(found[0]), torch.empty_like(found[0]))
    outputs = [value for value in (*found, slope, h, spread) if value is not None]
    _head_forward(bound, noise is not None)(
        [as_rows(v) for v in (mean, raw, noise) if v is not None], outputs=outputs
    )
    return found[0], found[1], h, slope, spread


@cache
def _head_forward(bound: float | None, draws: bool) -> RowPass:
    def body(elements: list[Vector], _per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
        mean, raw, *noise = elements
        found = [mean, raw]
        if bound is not None:
            bent = tanh(raw / bound)
            found = [mean, bent * bound, -(bent * bent - 1)]
        if draws:
            spread = exp(found[1]) * noise[0]
            found += [mean + spread, spread]
        return found, []

    return RowPass(
        f"head {bound} {draws}", body, elements=2 + draws, outputs=2 + 2 * draws + (bound is not None)
    )


def head_backward(
    of_mean: Tensor | None,
    of_log_std: Tensor | None,
    of_h: Tensor | None,
    slope: Tensor | None,
    spread: Tensor | None,
) -> Tensor:
    """The gradient of `head` by its output.

    Args:
        of_mean: By m; None for zero.
        of_log_std: By s; None for zero.
        of_h: By h; None for zero. One of the three is there.
        slope: ds/du; None for 1.
        spread: dh/ds; None where there was no draw.
    """
    gradients = (of_mean, of_log_std, of_h)
    like = next(gradient for gradient in gradients if gradient is not None)
    given = [*gradients, slope, None if of_h is None else spread]
    out = torch.empty(*like.shape[:-1], 2 * like.shape[-1], dtype=torch.float32, device="cpu")
    elements = [as_rows(value) for value in given if value is not None]
    _head_backward(tuple(value is not None for value in given))(elements, outputs=out.chunk(2, -1))
    return out


@cache
def _head_backward(given: tuple[bool, ...]) -> RowPass:
    def body(elements: list[Vector], _per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
        places = iter(elements)
        mean, log_std, h, slope, spread = (next(places) if there else None for there in given)
        if h is not None and spread is not None:
            mean = h if mean is None else mean + h
            log_std = h * spread if log_std is None else log_std + h * spread
        mean = elements[0].filled(0) if mean is None else mean
        log_std = elements[0].filled(0) if log_std is None else log_std
        return [mean, log_std if slope is None else log_std * slope], []

    name = "".join(str(int(there)) for there in given)
    return RowPass(f"head backward {name}", body, elements=sum(given), outputs=2)


@tried("The compiled head of Gaussian layers", "plain torch is used")
def works() -> None:
    """Whether it gives what plain torch gives, on a small batch."""
    output, noise = torch.linspace(-9, 9, 3 * 74).view(3, 74), torch.linspace(2, -2, 3 * 37).view(3, 37)
    weights = torch.cos(torch.arange(3 * 37.0)).view(3, 37)
    mean, log_std, h, slope, spread = head(output, noise, 5.0)
    assert h is not None
    with torch.enable_grad():
        leaf = output.clone().requires_grad_()
        m, u = leaf.chunk(2, -1)
        s = 5 * torch.tanh(u / 5)
        right = m + s.exp() * noise
        (gradient,) = torch.autograd.grad(((m + s + right) * weights).sum(), leaf)
    found = head_backward(weights, weights, weights, slope, spread)
    check_close((mean, m), (log_std, s), (h, right), (found, gradient), tolerance=1e-4)


# Draws of a Gaussian layer for importance sampling: from what the networks give to h and its densities in one
# pass.
#
# The formulas are those of `discrete_vae.hierarchy.gaussian` and `discrete_vae.hierarchy.gaussian`.


def draw_layer(
    posterior: Tensor,
    prior: Tensor,
    bounds: tuple[float | None, float | None],
    keys: Keys,
    *,
    h: Tensor,
    spread: Sequence[Tensor],
    log_ratio: Tensor,
) -> None:
    """Draw h from the posterior, with mean m and log standard deviation b tanh(u / b).

    Args:
        posterior: Its [m, u], (sample, example, 2 unit), float32 or bfloat16.
        prior: That of the prior, likewise.
        bounds: b of both; None for u itself.
        keys: Of the noise.
        h: Receives the draw, (sample, example, unit), float32.
        spread: Also receive it, in the precision of the networks.
        log_ratio: log q(h | x) - log p(h) is added to it, (sample, example), nats.
    """
    numbers = [number for bound in bounds for number in ((bound, 1 / bound) if bound else (1.0, 1.0))]
    run = _pass(posterior.dtype == torch.bfloat16, bounds[0] is not None, bounds[1] is not None)
    elements = [*posterior.chunk(2, -1), *prior.chunk(2, -1)]
    run(elements, [h], spread=spread, total=log_ratio, numbers=numbers, keys=keys)


@cache
def _pass(bfloat16: bool, posterior_bound: bool, prior_bound: bool) -> SamplePass:
    def body(elements: list[Vector], numbers: list[Vector], words: list[Vector]) -> Made:
        mean, raw, prior_mean, prior_raw = elements
        log_std = tanh(raw * numbers[1]) * numbers[0] if posterior_bound else raw
        prior_log_std = tanh(prior_raw * numbers[3]) * numbers[2] if prior_bound else prior_raw
        noise = normals(words)
        h = exp(log_std).times_plus(noise, mean)
        scaled = (h - prior_mean) * exp(-prior_log_std)
        term = (scaled * scaled - noise * noise).times_plus(0.5, prior_log_std - log_std)
        return Made([h], h, [term])

    return SamplePass(
        f"layer {posterior_bound} {prior_bound}",
        body,
        elements=[bfloat16] * 4,
        outputs=[False],
        spreads=bfloat16,
        noise=True,
    )


@tried("The compiled draw of Gaussian layers", "plain torch is used")
def sampled_layer_works() -> None:
    """Whether it gives what plain torch gives of the same noise, on a small batch."""
    shape, keys = (3, 2, 37), Keys(torch.tensor([5, -7]), 11, 1)
    posterior, prior = (torch.linspace(low, high, 444).view(3, 2, 74) for low, high in ((-3, 3), (2, -2)))
    noise = draw_normals(shape, keys)
    for dtype in (torch.float32, torch.bfloat16):
        h, log_ratio, other = torch.empty(shape), torch.zeros(shape[:2]), torch.empty(shape, dtype=dtype)
        given = posterior.to(dtype), prior.to(dtype)
        draw_layer(*given, (5.0, None), keys, h=h, spread=[other], log_ratio=log_ratio)
        (m, u), (n, t) = (value.float().chunk(2, -1) for value in given)
        s = 5 * torch.tanh(u / 5)
        right = m + s.exp() * noise
        ratio = 0.5 * ((right - n) / t.exp()).square() + t - 0.5 * noise.square() - s
        pairs = (h, right), (other, right.to(dtype)), (log_ratio, ratio.sum(-1))
        check_close(*pairs, tolerance=1e-3)
