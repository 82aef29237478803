"""Draws of a Gaussian layer for importance sampling: from what the networks give to h and its densities in one pass.

The formulas are those of `discrete_vae.hierarchy.gaussian` and `discrete_vae.hierarchy.gaussian_network`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from discrete_vae.compiled.elementary import exp, tanh
from discrete_vae.compiled.sample_noise import draw_normals, normals
from discrete_vae.compiled.sample_rows import Keys, Made, SamplePass
from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.compiled.vector_ir import Vector


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
def works() -> None:
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
