"""Whether the compiled passes over activations work here, and whether somebody wants the plain modules."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from discrete_vae.compiled.trial import tried
from discrete_vae.nets.kernels.form import Form


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
    from discrete_vae.nets.kernels import norm

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
