"""Whether the compiled passes take the place of plain torch: what they compute is plain, and they work here."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.module import _has_any_global_hook

from discrete_vae.compiled.recording import is_recording
from discrete_vae.compiled.trial import warn_of_failure
from discrete_vae.nets.kernels.form import Form

_PLAIN = (Tensor, nn.Parameter)
_DTYPES = (torch.float32, torch.bfloat16)


def is_ordinary() -> bool:
    """Whether torch computes as it stands: nothing compiles, traces, transforms, intercepts or casts operations."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or (torch._C._len_torch_dispatch_stack() and not is_recording())
        or forward_ad._current_level >= 0
    )


def are_plain(tensors: Iterable[Tensor]) -> bool:
    """Whether all are ordinary tensors on the CPU, float32 or bfloat16."""
    # a plain loop is three times as fast as all() of a generator, and this runs at every step
    for value in tensors:  # noqa: SIM110
        if type(value) not in _PLAIN or value.dtype not in _DTYPES or not value.is_cpu:
            return False
    return True


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


@cache
def works() -> bool:
    """Whether the compiled passes give what plain torch gives, on a small batch; tried once in a process.

    Warns:
        KernelWarning: If they do not.
    """
    try:
        with torch.device("cpu"), torch.no_grad():
            _try()
    except Warning:  # the user made warnings errors
        raise
    except Exception as error:
        warn_of_failure(
            "The compiled batch norm", error, "plain torch is used, a training step takes up to twice as long"
        )
        return False
    return True


def _try() -> None:
    """Compile, and compare values and gradients.

    Raises:
        RuntimeError: If they are wrong.
    """
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
        gradient = x.clone()
        norm.normalize_backward(x, out, gradient, (scale, offset), found, form)
        with torch.enable_grad():
            inside = x.float().requires_grad_()
            centred = inside - inside.mean(0)
            right = torch.relu(centred * (scale / (centred.abs().mean(0) + eps)) + offset)
            (by_x,) = torch.autograd.grad(right, inside, x.float())
        for mine, plain in ((out, right), (again, right), (gradient, by_x)):
            if not torch.allclose(mine.float(), plain, rtol=tolerance, atol=tolerance):
                raise RuntimeError("its numbers are wrong")
