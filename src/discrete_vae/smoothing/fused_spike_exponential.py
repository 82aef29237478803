"""The draw of spike-and-exponential units as one operation of autograd on compiled passes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.numerics import differentiable_once
from discrete_vae.smoothing.kernels import spike_exponential as kernel
from discrete_vae.smoothing.spike import PlainDraw


class FusedDraw(torch.autograd.Function):
    """zeta and the bits of z, as `discrete_vae.smoothing.spike` draws them; no gradient reaches rho."""

    @staticmethod
    def forward(
        ctx: Any, rho: Tensor, logits: Tensor, beta: Tensor, bounds: kernel.Bounds | None
    ) -> tuple[Tensor, Tensor]:
        """The values, and the derivatives that the backward pass multiplies."""
        differentiable = any(ctx.needs_input_grad)
        zeta, bits, slopes = kernel.draw(rho, logits, beta, bounds, differentiable=differentiable)
        ctx.set_materialize_grads(False)
        if differentiable:
            ctx.has_bounds = bounds is not None
            ctx.save_for_backward(*slopes, beta, *(bounds or ()))
        return zeta, bits

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Each gradient times its derivative."""
        saved = ctx.saved_tensors
        slopes, beta = saved[:3], saved[3]
        bounds = (saved[4], saved[5]) if ctx.has_bounds else None
        of_zeta, of_bits = (
            torch.zeros_like(slopes[0]) if gradient is None else gradient for gradient in gradients
        )
        by_logits, by_beta = kernel.draw_backward(of_zeta, of_bits, slopes, beta, bounds)
        return None, by_logits, by_beta if ctx.needs_input_grad[2] else None, None


@tried("The compiled draw of spike-and-exponential units", "plain torch is used")
def works() -> None:
    """Whether it gives what plain torch gives, on a small batch."""
    from discrete_vae.smoothing.spike_exponential import SpikeExponential

    smoothing = SpikeExponential(beta=2.0, max_beta=3.0)
    rho = torch.linspace(0.01, 0.99, 111).view(3, 37)
    logits = torch.linspace(-3, 4, 111).view(37, 3).t().requires_grad_()
    weights = torch.cos(torch.arange(111.0)).view(3, 37)
    found: list[list[Tensor]] = []
    with torch.enable_grad():
        fused = FusedDraw.apply(rho, logits, smoothing.beta, smoothing._bounds())
        for zeta, bits in (fused, PlainDraw.apply(rho, logits, smoothing.beta, smoothing)):
            total = (zeta * weights + 2 * bits * weights).sum()
            found.append([zeta, bits, *torch.autograd.grad(total, (logits, smoothing.beta))])
    check_close(*zip(*found, strict=True), tolerance=1e-4)
