"""The L1 batch norm of a batch as one operation of autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from discrete_vae.nets.kernels import norm as kernel
from discrete_vae.nets.kernels.form import Form
from discrete_vae.numerics import differentiable_once

if TYPE_CHECKING:
    from discrete_vae.nets.l1_batch_norm import L1BatchNorm


def fused_norm(norm: L1BatchNorm, x: Tensor) -> Tensor:
    """What `L1BatchNorm` gives in training, of float32 x (..., feature) on the CPU."""
    running = norm.running_mean, norm.running_deviation
    return _FusedNorm.apply(x, norm.scale, norm.offset, running, norm.form(rectify=False))


class _FusedNorm(torch.autograd.Function):
    """See `fused_norm`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, offset: Tensor, running: tuple[Tensor, Tensor], form: Form
    ) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        out = torch.empty_like(rows)
        statistics = kernel.normalize(rows, out, (scale, offset), running, form)
        ctx.form = form
        ctx.save_for_backward(rows, out, scale, offset, statistics)
        return out.view(x.shape)

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        rows, out, scale, offset, statistics = ctx.saved_tensors
        # a copy, as the kernel writes where it reads
        gradient = torch.empty_like(rows).copy_(gradients[0].reshape(rows.shape))
        by_parameters = kernel.normalize_backward(rows, out, gradient, (scale, offset), statistics, ctx.form)
        return gradient.view(gradients[0].shape), *by_parameters, None, None
