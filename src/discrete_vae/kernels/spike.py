"""The draw of spike-and-exponential units and its gradients, each in one compiled pass.

Everything here is a plain function of float32 tensors on the CPU, whose shapes the caller answers for. The formulas are
those of `discrete_vae.smoothing.spike` and `discrete_vae.smoothing.spike`, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from discrete_vae.kernels.codegen import Vector, exp, expm1, log1p
from discrete_vae.kernels.rows import RowPass, as_rows, unread

Bounds = tuple[Tensor, Tensor]

_TINY = 2.0**-126


def _draw_body(elements: list[Vector], per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    rho, logits = elements
    beta = _inside(*per_row)
    odds, survival = exp(-logits), -(rho - 1)
    inverse_q = odds + 1
    v = survival * inverse_q
    spike = v.reaches(1)  # false for NaN, which must come out
    zero = v.filled(0)
    v = zero.where(spike, v)
    minus_c = expm1(-beta)
    inner = v * minus_c
    zeta = log1p(inner) / beta + 1
    zeta = zeta.filled(_TINY).where(zeta.below(_TINY), zeta)  # a rounding can bring it to 0 or below
    zeta = zero.where(spike, zeta)
    bits = zero.where(spike, zeta * 0 + 1)  # a NaN comes out here too
    slope = minus_c / -beta / (inner + 1)
    by_logits = zero.where(spike, survival * odds) * slope
    bits_by_logits = (v.filled(1) / inverse_q).where(spike, inverse_q * 0)
    by_beta = (expm1(-(zeta * beta)) / minus_c - zeta) / beta
    return [zeta, bits, by_logits, bits_by_logits, by_beta], []


def _backward_body(elements: list[Vector], _per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    of_zeta, of_bits, by_logits, bits_by_logits, by_beta = elements
    return [of_zeta * by_logits + of_bits * bits_by_logits], [of_zeta * by_beta]


def _not_outward(totals: list[Vector], per_row: list[Vector]) -> list[Vector]:
    (total,), (beta, low, high) = totals, per_row
    excess = beta - beta.between(low, high)
    return [total.filled(0).where((excess * total).below(0), total)]


def _inside(value: Vector, low: Vector, high: Vector) -> Vector:
    """As `discrete_vae.numerics.bounded` has it: NaN where the value is not finite."""
    inside = value.between(low, high)
    return inside + (value - inside) * 0


_DRAW = RowPass("draw", _draw_body, elements=2, per_row=3, outputs=5)
_BACKWARD = RowPass(
    "backward",
    _backward_body,
    elements=5,
    per_row=3,
    outputs=1,
    sums=1,
    across_rows=True,
    finish=_not_outward,
)


def draw(
    rho: Tensor, logits: Tensor, beta: Tensor, bounds: Bounds | None, *, differentiable: bool
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Draw by v = (1 - rho) / q.

    Args:
        rho: (..., unit).
        logits: Of rho's shape.
        beta: A scalar.
        bounds: Of beta, two scalars; None for none.
        differentiable: Whether the derivatives are wanted.

    Returns:
        zeta and the bits of z, of rho's shape; then, if they are wanted, in that shape the derivatives of zeta by the
        logits, of the bits by the logits, and of zeta by beta.
    """
    rho, logits = as_rows(rho), as_rows(logits)
    zeta, bits = (torch.empty(rho.shape, dtype=torch.float32, device="cpu") for _ in range(2))
    slopes = [torch.empty_like(zeta) for _ in range(3)] if differentiable else unread(rho.shape, 3)
    _DRAW((rho, logits), (beta, *_used(bounds, beta)), (zeta, bits, *slopes))
    return zeta, bits, (slopes[0], slopes[1], slopes[2])


def draw_backward(
    of_zeta: Tensor, of_bits: Tensor, slopes: Sequence[Tensor], beta: Tensor, bounds: Bounds | None
) -> tuple[Tensor, Tensor]:
    """The gradients of `draw`.

    Args:
        of_zeta: By zeta.
        of_bits: By the bits.
        slopes: The derivatives that `draw` returned.
        beta: As in `draw`.
        bounds: As in `draw`.

    Returns:
        The gradients by the logits and by beta; the sum over all elements is taken row by row, whatever the threads.
    """
    by_logits, by_beta = torch.empty_like(slopes[0]), torch.empty_like(beta)
    gradients = as_rows(of_zeta), as_rows(of_bits)
    _BACKWARD((*gradients, *slopes), (beta, *_used(bounds, beta)), (by_logits,), (by_beta,))
    return by_logits, by_beta


def _used(bounds: Bounds | None, beta: Tensor) -> Bounds:
    """Bounds that may be infinite."""
    if bounds is not None:
        return bounds
    return torch.full_like(beta, -math.inf), torch.full_like(beta, math.inf)
