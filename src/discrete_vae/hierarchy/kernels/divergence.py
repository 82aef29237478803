"""The KL of Gaussian layers with its sum over units, and what its gradient multiplies, in one compiled pass.

Everything here is a plain function of float32 tensors on the CPU, whose shapes the caller answers for. The formulas are
those of `discrete_vae.hierarchy.gaussian`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.compiled.elementary import exp, expm1
from discrete_vae.compiled.rows import RowPass, as_numbers, as_rows, unread
from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.compiled.vector_ir import Vector


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
def works() -> None:
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
