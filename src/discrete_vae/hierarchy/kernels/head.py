"""The head of a Gaussian layer and its gradient, each in one compiled pass.

Everything here is a plain function of float32 tensors on the CPU, whose shapes the caller answers for. The formulas are
those of `discrete_vae.hierarchy.gaussian_network`.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from discrete_vae.compiled.elementary import exp, tanh
from discrete_vae.compiled.rows import RowPass, as_rows
from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.compiled.vector_ir import Vector


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
    _forward(bound, noise is not None)(
        [as_rows(v) for v in (mean, raw, noise) if v is not None], outputs=outputs
    )
    return found[0], found[1], h, slope, spread


@cache
def _forward(bound: float | None, draws: bool) -> RowPass:
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
    _backward(tuple(value is not None for value in given))(elements, outputs=out.chunk(2, -1))
    return out


@cache
def _backward(given: tuple[bool, ...]) -> RowPass:
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
