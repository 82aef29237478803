"""Elementary functions that stay accurate in float32 over the whole range of logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.compiled.choice import are_plain, fuses


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x) without the linear shortcut of torch's own, which costs 2e-9 in float64.

    Examples:
        >>> softplus(torch.tensor([-1.0, 0.0, 100.0]))
        tensor([  0.3133,   0.6931, 100.0000])
    """
    return -F.logsigmoid(-x)


def softplus_sum(x: Tensor) -> Tensor:
    """sum log(1 + e^x) over the last axis, six times as fast as a sum of softplus; not for gradients.

    Up to 64 factors 1 + e^-|x|, each at most 2, share one logarithm; their product stays finite in float32.

    Examples:
        >>> softplus_sum(torch.tensor([0.0, 100.0]))
        tensor(100.6931)
    """
    factors = x.abs().neg_().exp_().add_(1)
    logs = torch.stack([part.prod(-1).log() for part in factors.split(64, -1)], -1)
    return x.clamp_min(0).sum(-1) + logs.sum(-1)


def row_sum(matrix: Tensor) -> Tensor:
    """The sum of a matrix's rows as a product, which takes a third of the time of torch's sum over an axis.

    Examples:
        >>> row_sum(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
        tensor([4., 7.])
    """
    return matrix.new_ones(len(matrix)) @ matrix


def bernoulli_entropy(logits: Tensor) -> Tensor:
    """Entropy of Bernoulli(sigmoid(l)), H = softplus(-|l|) + |l| sigmoid(-|l|).

    The textbook form softplus(l) - q l has no correct digit for large |l|.

    Args:
        logits: Any shape.

    Returns:
        Entropies in nats, same shape, between 0 and log 2.
    """
    magnitude = logits.abs()
    return softplus(-magnitude) + magnitude * torch.sigmoid(-magnitude)


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Let the written-out backward pass of an autograd function refuse to be differentiated in its turn.

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
    """q = sigmoid(l), and the `bernoulli_entropy` of all units together, with one backward pass.

    dq/dl = q p and dH/dl = -l q p, with p = sigmoid(-l), so both keep their digits in float32 where q rounds to 1. They
    can be differentiated once.

    Args:
        logits: (..., unit).

    Returns:
        q, (..., unit), and the sum of H over the units, (...), nats.
    """
    return _MeanAndEntropy.apply(logits)


class _MeanAndEntropy(torch.autograd.Function):
    """See `mean_and_entropy`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
        """H = softplus(-|l|) + |l| sigmoid(-|l|), whose last factor is the smaller one of q and p."""
        ctx.set_materialize_grads(False)
        if logits.dim() and _fuses(logits):
            from discrete_vae.compiled import binary

            mean, entropy, slope = binary.mean_and_entropy(logits)
            ctx.save_for_backward(logits, slope)
            return mean, entropy
        mean, other, magnitude = torch.sigmoid(logits), torch.sigmoid(-logits), logits.abs()
        entropy = torch.minimum(mean, other).mul_(magnitude).sub_(F.logsigmoid(magnitude))
        ctx.save_for_backward(logits, other.mul_(mean))
        return mean, entropy.sum(-1)

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor | None
    ) -> Tensor:
        """q p (g_q - l g_H)."""
        logits, slope = ctx.saved_tensors
        of_mean, of_entropy = gradients
        if of_mean is not None and of_entropy is not None and _fuses(logits, slope, of_mean, of_entropy):
            from discrete_vae.compiled import binary

            return binary.mean_and_entropy_backward(of_mean, of_entropy, logits, slope)
        total = torch.zeros_like(logits) if of_mean is None else of_mean
        if of_entropy is not None:
            total = torch.addcmul(total, logits, of_entropy.unsqueeze(-1), value=-1)
        return total * slope


def bernoulli_log_prob(value: Tensor, logits: Tensor) -> Tensor:
    """Log-probability of value under Bernoulli(sigmoid(l)), elementwise: z l - softplus(l).

    For a value strictly between 0 and 1 this is the expected log-probability of a binarization with that mean.

    Args:
        value: In [0, 1], broadcastable with the logits.
        logits: Any shape.

    Returns:
        Nats, at most 0, in the broadcast shape.
    """
    value, logits = torch.broadcast_tensors(value, logits)
    # torch's fused form, (1 - z) l - logsigmoid(l), does not cancel on the saturated side
    return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")


def joint_bernoulli_log_prob(value: Tensor, logits: Tensor, num_axes: int) -> Tensor:
    """`bernoulli_log_prob`, summed over the last axes.

    Args:
        value: In [0, 1], broadcastable with the logits.
        logits: Any shape with these axes; sums of bfloat16 logits are float32.
        num_axes: How many, at least one.

    Returns:
        Nats, in the broadcast shape without these axes.

    Examples:
        >>> joint_bernoulli_log_prob(torch.ones(2, 3), torch.zeros(2, 3), 1)
        tensor([-2.0794, -2.0794])
    """
    if _sums_samples(value, logits, num_axes):
        from discrete_vae.compiled import binary

        rows = value.flatten(-num_axes).flatten(0, -2)
        return binary.joint_log_prob(rows, logits.reshape(-1, *rows.shape)).view(logits.shape[:-num_axes])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if not value.requires_grad and _fuses(value, logits):
        value, logits = torch.broadcast_tensors(value, logits)
        return _JointLogProb.apply(value.flatten(-num_axes), logits.flatten(-num_axes))
    return bernoulli_log_prob(value, logits).sum(tuple(range(-num_axes, 0)))


def _sums_samples(value: Tensor, logits: Tensor, num_axes: int) -> bool:
    """Whether a compiled pass without derivatives takes these: logits of many samples for each value."""
    if torch.is_grad_enabled() and (value.requires_grad or logits.requires_grad):
        return False
    axes = value.dim()
    if not num_axes < axes <= logits.dim() or value.shape != logits.shape[-axes:] or not logits.numel():
        return False
    return logits.is_contiguous() and are_plain((logits,)) and _fuses(value)


class _JointLogProb(torch.autograd.Function):
    """See `joint_bernoulli_log_prob`; by a compiled pass, and no gradient reaches the value."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, logits: Tensor) -> Tensor:
        """The sums over the last axis, and the derivative z - q."""
        from discrete_vae.compiled import binary

        differentiable = any(ctx.needs_input_grad)
        found, slope = binary.log_prob(value, logits, differentiable=differentiable)
        if differentiable:
            ctx.save_for_backward(slope, value, logits)
        return found

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[None, Tensor]:
        """Times the derivative, which is written out where it is to be differentiated in its turn."""
        slope, value, logits = ctx.saved_tensors
        if torch.is_grad_enabled():
            slope = value - torch.sigmoid(logits)
        return None, gradients[0].unsqueeze(-1) * slope


def _fuses(*tensors: Tensor) -> bool:
    """Whether the compiled passes of binary variables take these tensors."""
    if not fuses(*tensors):
        return False
    from discrete_vae.compiled import binary  # takes a while

    return binary.works()


def replace_gradient(value: Tensor, surrogate: Tensor) -> Tensor:
    """A tensor with the value of one tensor and the gradient of another.

    Args:
        value: Gives the value; its own gradient is dropped.
        surrogate: Gives the gradient; its value is dropped and must be finite.

    Returns:
        A tensor of the broadcast shape.

    Examples:
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> y = replace_gradient(torch.tensor(1.0), 2 * x)
        >>> y.item(), torch.autograd.grad(y, x)[0].item()
        (1.0, 2.0)
    """
    return value.detach() + (surrogate - surrogate.detach())
