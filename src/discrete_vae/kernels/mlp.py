"""Choice and form of fused layers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from discrete_vae.kernels.codegen import Vector
from discrete_vae.kernels.registry import check_close, tried
from discrete_vae.kernels.rows import RowPass, moved

# Whether the compiled passes over activations work here, and whether somebody wants the plain modules.


def has_hooks(modules: Iterable[nn.Module]) -> bool:
    """Whether something wants to be called with these modules."""
    for module in modules:
        if (
            module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
        ):
            return True
    return bool(_has_any_global_hook())


@tried("The compiled batch norm", "plain torch is used, a training step takes up to twice as long")
def works() -> None:
    """Whether the compiled passes give what plain torch gives, on a small batch."""
    from discrete_vae.kernels import norm

    eps = 1e-3
    form = Form(eps, 0.1, None, True)
    exact = torch.sin(torch.arange(5 * 43, dtype=torch.float32)).view(5, 43)
    scale, offset = torch.linspace(0.5, 2, 43), torch.linspace(-1, 1, 43)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        x = exact.to(dtype)
        out, again = torch.empty_like(x), torch.empty_like(x)
        found = norm.normalize(x, out, (scale, offset), (torch.zeros(43), torch.ones(43)), form)
        norm.apply_fixed(x, again, found[0], scale / (found[1] + eps), offset, form)
        mixed, cleared = (
            torch.cat([torch.ones(5, 1), torch.zeros(5, 1), exact], 1).to(dtype),
            x.new_ones(2, 45),
        )
        norm.clear_constant(mixed, cleared)
        gradient = x.clone()
        norm.normalize_backward(x, out, gradient, (scale, offset), found, form)
        with torch.enable_grad():
            inside = x.float().requires_grad_()
            centred = inside - inside.mean(0)
            right = torch.relu(centred * (scale / (centred.abs().mean(0) + eps)) + offset)
            (by_x,) = torch.autograd.grad(right, inside, x.float())
        kept = torch.ones(2, 45).index_fill_(1, torch.tensor(0), 0)
        for mine, plain in ((out, right), (again, right), (gradient, by_x), (cleared, kept)):
            if not torch.allclose(mine.float(), plain, rtol=tolerance, atol=tolerance):
                raise RuntimeError("its numbers are wrong")


# What is not a tensor of an L1 batch norm, as the compiled passes take it.


SCALE_BOUNDS = (2.0, 3.0)
"""Of the scale of bounded norms (Rolfe 2017, appendix laplacian-batch-normalization)."""

INFINITY, ZERO, ONE = np.float32(math.inf), np.float32(0), np.float32(1)


class Form:
    """The numbers of a norm in float32, in the order of the loops' arguments.

    Args:
        eps: Added to the deviation.
        momentum: Weight of a batch in the running averages.
        bounds: Of the scale, which then also bounds the offset; None for none.
        rectify: Whether the output is at least 0.

    Attributes:
        floor: The least output.
        forward: For the forward pass.
        backward: For the backward pass.
    """

    def __init__(
        self, eps: float, momentum: float, bounds: tuple[float, float] | None, rectify: bool
    ) -> None:
        low, high = (-math.inf, math.inf) if bounds is None else bounds
        slack = INFINITY if bounds is None else ZERO
        self.floor = ZERO if rectify else -INFINITY
        limits = np.float32(low), np.float32(high), slack, self.floor
        self.forward = (np.float32(eps), np.float32(momentum), *limits)
        self.backward = (np.float32(eps), *limits)


@cache
def norm_form(eps: float, momentum: float, bounds: tuple[float, float] | None, rectify: bool) -> Form:
    """A `Form`, made once."""
    return Form(eps, momentum, bounds, rectify)


# Scale and offset of a bounded norm brought back inside their bounds, in one compiled pass.


def project_norm_(scale: Tensor, offset: Tensor) -> None:
    """Move a scale between its bounds, then an offset between minus and plus the scale; what is infinite stays.

    Args:
        scale: (feature,), contiguous, float32; changed.
        offset: Likewise.
    """
    _PROJECT([scale, offset], outputs=[scale, offset])


def _project(elements: list[Vector], _per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    scale, offset = elements
    scale = moved(scale, *SCALE_BOUNDS)
    return [scale, moved(offset, -scale, scale)], []


_PROJECT = RowPass("projection of a norm", _project, elements=2, outputs=2)


@tried("The compiled projection of norms", "plain torch is used")
def projection_works() -> None:
    """Whether it gives what plain torch gives, on a small norm."""
    scale, offset = torch.linspace(1, 4, 43), torch.linspace(5, -5, 43)
    right = scale.clamp(*SCALE_BOUNDS)
    expected = offset.clamp(-right, right)
    project_norm_(scale, offset)
    check_close((scale, right), (offset, expected), tolerance=0)
