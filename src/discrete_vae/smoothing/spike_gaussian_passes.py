"""The draw of spike-and-Gaussian units and their expected KL, each with its backward pass written out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from discrete_vae.numerics import differentiable_once
from discrete_vae.smoothing.spike_at_zero import read_z

_ROOT_TWO_PI = math.sqrt(2 * math.pi)


def never_zero(zeta: Tensor) -> Tensor:
    """Zeta of z = 1, from which z is read back."""
    return zeta.masked_fill(zeta == 0, torch.finfo(zeta.dtype).tiny)


class DrawGaussian(torch.autograd.Function):
    """zeta and the bits of z by u = rho / q and v = (1 - rho) / q, of tensors of one shape and dtype.

    On the lower tail, with y = Phi^-1(u): d zeta/d l = -scale u p / phi(y); on the upper, with y = Phi^-1(v):
    scale v p / phi(y), where u p = rho e^-l and v p = (1 - rho) e^-l. u is at least rho and v at least 1 - rho, so that
    y and 1 / phi(y) are finite in float32. The bits have the value z and the gradient (1 - z)/(1 - q) dq/dl = (1 - z) q
    (eq. J-gradient-z-0).
    """

    @staticmethod
    def forward(
        ctx: Any, rho: Tensor, logits: Tensor, loc: Tensor, scale: Tensor, shifted: bool
    ) -> tuple[Tensor, Tensor]:
        """The values; what the backward pass multiplies is worked out here too."""
        odds, survival = torch.exp(-logits), 1 - rho  # p / q
        inverse_q = odds + 1
        u, v = rho * inverse_q, survival * inverse_q
        # asked so that a NaN is no spike: it must come out, or a broken network would look like z = 0
        if shifted:
            lower, spike = None, v >= 1
            y = torch.special.ndtri(v)
            zeta = never_zero(loc - scale * y)
            tail, minus_y = survival, -y
        else:
            ratio = loc / scale
            below, above = torch.special.ndtr(-ratio), torch.special.ndtr(ratio)
            lower, spike = u < below, (u >= below) & (v > above)
            y = torch.special.ndtri(torch.where(lower, u, v))
            tail, minus_y = torch.where(lower, -rho, survival), torch.where(lower, y, -y)
            zeta = loc + scale * minus_y
            tiny = torch.finfo(zeta.dtype).tiny  # a rounding can bring zeta to 0, or across it
            zeta = torch.where(lower, zeta.clamp_max(-tiny), zeta.clamp_min(tiny))
        zeta = zeta.masked_fill_(spike, 0)
        bits = read_z(zeta)
        ctx.set_materialize_grads(False)
        if any(ctx.needs_input_grad):
            inverse_density = y.square().mul_(0.5).exp_().mul_(scale).mul_(_ROOT_TWO_PI)
            saved = [
                (tail * odds).mul_(inverse_density).masked_fill_(spike, 0),
                inverse_q.reciprocal().mul_(spike),
                spike,
                minus_y.masked_fill(spike, 0),
            ]
            if ctx.needs_input_grad[0]:
                saved.append(inverse_density.mul_(inverse_q).masked_fill_(spike, 0))
            ctx.save_for_backward(*saved)
        return zeta, bits

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """See the class."""
        of_zeta, of_bits = gradients
        by_logits, bits_by_logits, spike, by_scale, *by_rho = ctx.saved_tensors
        if of_zeta is None:
            return None, None if of_bits is None else of_bits * bits_by_logits, None, None, None
        of_logits = of_zeta * by_logits
        if of_bits is not None:
            of_logits.addcmul_(of_bits, bits_by_logits)
        _, _, wants_loc, wants_scale, _ = ctx.needs_input_grad
        return (
            of_zeta * by_rho[0] if by_rho else None,
            of_logits,
            of_zeta.masked_fill(spike, 0) if wants_loc else None,
            of_zeta * by_scale if wants_scale else None,
            None,
        )


class ExpectedKL(torch.autograd.Function):
    """q k with k = ((scale - 1)(scale + 1) + (loc - m)^2) / 2 - log scale, of tensors of one shape.

    d/dl = q p k, d/d loc = q (loc - m), d/d scale = q (scale - 1) (scale + 1) / scale.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, loc: Tensor, scale: Tensor, prior_loc: float) -> Tensor:
        """The value, and the derivatives that the backward pass multiplies."""
        mean, distance, excess = torch.sigmoid(logits), loc - prior_loc, (scale - 1) * (scale + 1)
        value = (distance.square() + excess).mul_(0.5).sub_(scale.log()).mul_(mean)
        if any(ctx.needs_input_grad):
            by_logits = torch.sigmoid(-logits).mul_(value)
            ctx.save_for_backward(by_logits, distance.mul_(mean), excess.mul_(mean).div_(scale))
        return value

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Each derivative times the gradient."""
        return *(gradients[0] * derivative for derivative in ctx.saved_tensors), None
