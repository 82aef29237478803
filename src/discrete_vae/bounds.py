"""Parameters that are kept between bounds, whatever steps an optimizer takes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def bounded(value: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """A parameter kept between bounds: the nearest value inside, whatever the parameter itself is.

    The gradient reaches the parameter unless it would push one that lies outside still further out. So bounds hold
    although nobody projects the parameter after a step, and it comes back as soon as the gradient turns.

    A parameter that is not finite has no nearest value inside: NaN comes out, so that a diverged step is found.

    Args:
        value: Any shape.
        low: Lower bound, which broadcasts to value; no gradient reaches it.
        high: Upper bound, likewise; at least low.

    Returns:
        A tensor of the shape of value.

    Examples:
        >>> x = torch.tensor([1.0, 2.5, 4.0], requires_grad=True)
        >>> y = bounded(x, 2.0, 3.0)
        >>> y.tolist(), torch.autograd.grad(y.sum(), x)[0].tolist()  # descent moves x down: away from 2
        ([2.0, 2.5, 3.0], [0.0, 1.0, 1.0])
    """
    return _Bounded.apply(value, low, high)


@torch.no_grad()
def project_(value: Tensor, low: Tensor | float, high: Tensor | float) -> None:
    """Bring a parameter between bounds in place; what is not finite stays, so that a diverged step is found.

    Args:
        value: Any shape.
        low: As in `bounded`.
        high: As in `bounded`.

    Examples:
        >>> x = torch.tensor([1.0, 2.5, torch.inf])
        >>> project_(x, 2.0, 3.0)
        >>> x
        tensor([2.0000, 2.5000,    inf])
    """
    inside = torch.clamp(value, low, high)  # pyright: ignore[reportCallIssue, reportArgumentType]
    value.copy_(torch.where(value.abs() == math.inf, value, inside))


class _Bounded(torch.autograd.Function):
    """See `bounded`."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
        """Clamp."""
        inside, excess = clamped(value, low, high)
        ctx.save_for_backward(excess)
        return inside

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Descent moves against the gradient: outward where it has the sign that the excess has not."""
        (excess,) = ctx.saved_tensors
        (gradient,) = gradients
        return not_outward(gradient, excess), None, None


def clamped(value: Tensor, low: Tensor | float, high: Tensor | float) -> tuple[Tensor, Tensor]:
    """What `bounded` gives, without gradient, and by how much the value exceeds it."""
    inside = torch.clamp(value, low, high)  # pyright: ignore[reportCallIssue, reportArgumentType]
    excess = value - inside
    return (
        inside + 0 * excess,
        excess,
    )  # NaN where the excess is infinite, or the value and its bound both are


def not_outward(gradient: Tensor, excess: Tensor) -> Tensor:
    """The gradient of `bounded`: 0 where descent along it would push a parameter further out.

    Args:
        gradient: By the bounded value.
        excess: The parameter less the bounded value.
    """
    return gradient.masked_fill(excess * gradient < 0, 0)
