"""Stable functions with gradients, parameters kept between bounds, and products in full precision."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.kernels.registry import compiled_by

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)

# Elementary functions that stay accurate in float32 over the whole range of logits.


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x) without the linear shortcut of torch's own, which costs 2e-9 in float64."""
    return -F.logsigmoid(-x)


def softplus_sum(x: Tensor) -> Tensor:
    """sum log(1 + e^x) over the last axis, faster than a sum of softplus; not for gradients.

    Up to 64 factors 1 + e^-|x|, each at most 2, share one logarithm; their product stays finite in float32.
    """
    factors = x.abs().neg_().exp_().add_(1)
    logs = torch.stack([part.prod(-1).log() for part in factors.split(64, -1)], -1)
    return x.clamp_min(0).sum(-1) + logs.sum(-1)


def row_sum(matrix: Tensor) -> Tensor:
    """Sum of a matrix's rows, as a product, which is faster than torch's sum over an axis."""
    return matrix.new_ones(len(matrix)) @ matrix


def bernoulli_entropy(logits: Tensor) -> Tensor:
    """Entropy of Bernoulli(sigmoid(l)), H = softplus(-|l|) + |l| sigmoid(-|l|), nats.

    The textbook form softplus(l) - q l has no correct digit for large |l|.
    """
    magnitude = logits.abs()
    return softplus(-magnitude) + magnitude * torch.sigmoid(-magnitude)


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse second derivatives of an autograd function whose backward pass is written out.

    Torch's own decorator for it is silent where the incoming gradient is a constant: second derivatives would then
    lack a term without a word.
    """

    @wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            message = "second derivatives of this function are not there; leave out create_graph=True"
            raise NotImplementedError(message)
        return backward(ctx, *gradients)

    return checked


def mean_and_entropy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """q = sigmoid(l), and the `bernoulli_entropy` of all units together, (...), with one backward pass.

    dq/dl = q p and dH/dl = -l q p, with p = sigmoid(-l), so both keep their digits in float32 where q rounds to 1. They
    can be differentiated once.
    """
    return _MeanAndEntropy.apply(logits)


class _MeanAndEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        mean, entropy, slope = _mean_entropy_and_slope(logits)
        ctx.save_for_backward(logits, slope)
        return mean, entropy

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor | None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        of_mean, of_entropy = gradients
        return _mean_and_entropy_gradient(of_mean, of_entropy, *ctx.saved_tensors)


@compiled_by("distributions.mean_and_entropy")
def _mean_entropy_and_slope(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """H = softplus(-|l|) + |l| sigmoid(-|l|), whose last factor is the smaller one of q and p, and q p."""
    mean, other, magnitude = torch.sigmoid(logits), torch.sigmoid(-logits), logits.abs()
    entropy = torch.minimum(mean, other).mul_(magnitude).sub_(F.logsigmoid(magnitude))
    return mean, entropy.sum(-1), other.mul_(mean)


@compiled_by("distributions.mean_and_entropy_backward")
def _mean_and_entropy_gradient(
    of_mean: Tensor | None, of_entropy: Tensor | None, logits: Tensor, slope: Tensor
) -> Tensor:
    total = torch.zeros_like(logits) if of_mean is None else of_mean
    if of_entropy is not None:
        total = torch.addcmul(total, logits, of_entropy.unsqueeze(-1), value=-1)
    return total * slope


def bernoulli_log_prob(value: Tensor, logits: Tensor) -> Tensor:
    """Log-probability of value under Bernoulli(sigmoid(l)), elementwise: z l - softplus(l), nats.

    For a value strictly between 0 and 1 this is the expected log-probability of a binarization with that mean.
    """
    value, logits = torch.broadcast_tensors(value, logits)
    # torch's fused form, (1 - z) l - logsigmoid(l), does not cancel on the saturated side
    return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")


@compiled_by("distributions.joint_log_prob", (torch.float32, torch.bfloat16))
def joint_bernoulli_log_prob(value: Tensor, logits: Tensor, num_axes: int) -> Tensor:
    """`bernoulli_log_prob`, summed over the last axes."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return bernoulli_log_prob(value, logits).sum(tuple(range(-num_axes, 0)))


def replace_gradient(value: Tensor, surrogate: Tensor) -> Tensor:
    """A tensor with the value of one tensor and the gradient of another."""
    return value.detach() + (surrogate - surrogate.detach())


# Parameters that are kept between bounds, whatever steps an optimizer takes.


def bounded(value: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """A parameter kept between bounds: the nearest value inside, whatever the parameter itself is.

    The gradient reaches the parameter unless it would push one that lies outside still further out. So bounds hold
    although nobody projects the parameter after a step, and it comes back as soon as the gradient turns.

    A parameter that is not finite has no nearest value inside: NaN comes out, so that a diverged step is found.
    """
    return _Bounded.apply(value, low, high)


@torch.no_grad()
def project_(value: Tensor, low: Tensor | float, high: Tensor | float) -> None:
    """Bring a parameter between bounds in place; what is not finite stays, so that a diverged step is found."""
    inside = torch.clamp(value, low, high)  # pyright: ignore[reportCallIssue, reportArgumentType]
    value.copy_(torch.where(value.abs() == math.inf, value, inside))


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
        inside = torch.clamp(value, low, high)  # pyright: ignore[reportCallIssue, reportArgumentType]
        excess = value - inside
        ctx.save_for_backward(excess)
        return inside + 0 * excess  # NaN where the excess is infinite, or the value and its bound both are

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Descent moves against the gradient: outward where it has the sign that the excess has not."""
        (excess,) = ctx.saved_tensors
        (gradient,) = gradients
        return gradient.masked_fill(excess * gradient < 0, 0), None, None


# Products of matrices that neither autocast nor a setting of torch rounds.


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """A block in which neither autocast nor TF32 rounds products: energies of tens of nats need their digits.

    It costs next to nothing where neither is on. Autocast is switched off inside compiled graphs too. TF32 and
    bfloat16 products (`torch.set_float32_matmul_precision`) are a setting of the process, read when a product runs,
    which no graph can switch: if they are on while the block is compiled, a warning says so; if they are put on later,
    nothing does.
    """
    device = like.device.type
    autocast = _has_autocast(device) and torch.is_autocast_enabled(device)
    if torch.compiler.is_compiling():
        _warn_of_rounding(device)
        rounds = False
    else:
        rounds = rounds_products(device)
    return _full_precision(device, autocast, rounds) if autocast or rounds else nullcontext()


def guard_products(cls: type, names: Iterable[str]) -> None:
    """Wrap methods that a class of machines defines itself in `full_precision` of the machine's biases."""

    def guarded(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @wraps(method)
        def call(self: Any, *arguments: Any, **more: Any) -> Tensor:
            with full_precision(self.bias):
                return method(self, *arguments, **more)

        return call

    for name in names:
        if name in vars(cls):
            setattr(cls, name, guarded(vars(cls)[name]))


@contextmanager
def _full_precision(device: str, autocast: bool, rounds: bool) -> Iterator[None]:
    """`full_precision` where something is to be switched off; what was on is on again afterwards."""
    with (
        torch.autocast(device, enabled=False) if autocast else nullcontext(),
        _unrounded(device) if rounds else nullcontext(),
    ):
        yield


@contextmanager
def _unrounded(device: str) -> Iterator[None]:
    """Switch rounding off for the whole process, until the last of the threads that are inside leaves."""
    products = _products(device)
    with _lock:
        inside, before = _inside.get(device, (0, ""))
        _inside[device] = inside + 1, before if inside else products.fp32_precision
        products.fp32_precision = "ieee"
    try:
        yield
    finally:
        with _lock:
            inside, before = _inside[device]
            if inside > 1:
                _inside[device] = inside - 1, before
            else:  # in this order, since `rounds_products` reads both without the lock
                products.fp32_precision = before
                del _inside[device]


_lock = threading.Lock()
_inside: dict[str, tuple[int, str]] = {}  # threads in `_unrounded`, and what is on again afterwards


def rounds_products(device: str) -> bool:
    """True if torch's settings round float32 products, though some thread may just have switched that off."""
    return device in _inside or _products(device).fp32_precision in ("tf32", "bf16")


def _warn_of_rounding(device: str) -> None:
    """Warn while a graph is compiled, which is when this runs; the graph keeps nothing of it."""
    if rounds_products(device):
        warnings.warn(
            f"torch rounds float32 products on {device}, and a compiled graph cannot switch that off for the energies: "
            "they lose digits, a relative 1e-3 (TF32) to 1e-2 (bfloat16) of each product. Call "
            "torch.set_float32_matmul_precision('highest') before the compiled function is called, or call it "
            "uncompiled, where energies are exact.",
            stacklevel=2,
        )


def _has_autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device)


# what torch.compiler.assume_constant_result does, without the seconds that its import takes
_warn_of_rounding._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
_has_autocast._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def _products(device: str) -> Any:
    """Torch's settings of matrix products on a device."""
    backend: Any = torch.backends.cuda if device == "cuda" else torch.backends.mkldnn
    return backend.matmul
