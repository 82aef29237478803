"""Means, entropies and log-probabilities of binary variables, with their sums, in one compiled pass each.

Everything here is a plain function of float32 tensors on the CPU, whose shapes the caller answers for. The formulas are
those of `discrete_vae.numerics`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.kernels.codegen import Vector, exp, exp_of_negative, log1p, magnitude
from discrete_vae.kernels.registry import check_close, tried
from discrete_vae.kernels.rows import Made, RowPass, SamplePass, as_numbers, as_rows, unread


def mean_and_entropy(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q = sigmoid(l), and the sum of the entropies over the last axis.

    Args:
        logits: (..., unit).

    Returns:
        q, (..., unit); the sum, (...), nats; and q (1 - q), the derivative of q by l, (..., unit).
    """
    mean, slope = (torch.empty(logits.shape, dtype=torch.float32, device="cpu") for _ in range(2))
    entropy = torch.empty(logits.shape[:-1], dtype=torch.float32, device="cpu")
    _ENTROPY([as_rows(logits)], outputs=[mean, slope], sums=[entropy])
    return mean, entropy, slope


def mean_and_entropy_backward(of_mean: Tensor, of_entropy: Tensor, logits: Tensor, slope: Tensor) -> Tensor:
    """The gradient of `mean_and_entropy` by the logits.

    Args:
        of_mean: By q.
        of_entropy: By the sum, (...).
        logits: As it was called.
        slope: What it returned.
    """
    found = torch.empty_like(slope)
    _ENTROPY_BACKWARD([as_rows(of_mean), as_rows(logits), slope], [as_numbers(of_entropy)], [found])
    return found


def log_prob(value: Tensor, logits: Tensor, *, differentiable: bool) -> tuple[Tensor, Tensor]:
    """log p(z) under Bernoulli(sigmoid(l)), summed over the last axis.

    Args:
        value: z, (..., feature), in [0, 1].
        logits: l, of the same shape.
        differentiable: Whether the derivative is wanted.

    Returns:
        (...), nats; and, if it is wanted, the derivative by the logits, z - q, (..., feature).
    """
    found = torch.empty(logits.shape[:-1], dtype=torch.float32, device="cpu")
    slope = (
        torch.empty(logits.shape, dtype=torch.float32, device="cpu")
        if differentiable
        else unread(logits.shape, 1)[0]
    )
    _LOG_PROB([as_rows(value), as_rows(logits)], outputs=[slope], sums=[found])
    return found, slope


def joint_log_prob(value: Tensor, logits: Tensor) -> Tensor:
    """`log_prob` without a derivative, of float32 or bfloat16 logits of many samples.

    Args:
        value: z, (example, feature), float32, in [0, 1].
        logits: l, (sample, example, feature), with consecutive features.

    Returns:
        (sample, example), nats, float32.
    """
    found = torch.zeros(logits.shape[:-1], dtype=torch.float32, device="cpu")
    _JOINT[logits.dtype]([value.expand(logits.shape), logits], total=found)
    return found


def _entropy(elements: list[Vector], _per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    (logits,) = elements
    size = magnitude(logits)
    fall = exp(-size)
    smaller = fall / (fall + 1)  # of q and 1 - q
    larger = smaller.filled(1) / (fall + 1)
    return [smaller.where(logits.below(0), larger), smaller * larger], [size * smaller + log1p(fall)]


def _entropy_backward(elements: list[Vector], per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    (of_mean, logits, slope), (of_entropy,) = elements, per_row
    return [(of_mean - logits * of_entropy) * slope], []


def _log_prob(elements: list[Vector], _per_row: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    value, logits = elements
    fall = exp(-magnitude(logits))
    on = logits.above(0)
    # softplus(l) - z l, which cancels on neither side
    surprise = ((-(value - 1)) * logits).where(on, -(value * logits)) + log1p(fall)
    mean = fall.filled(1).where(on, fall) / (fall + 1)
    return [value - mean], [-surprise]


def _joint(elements: list[Vector], _numbers: list[Vector], _words: list[Vector]) -> Made:
    value, logits = elements
    minus = -magnitude(logits)
    on = logits.above(0)
    # the likelier value costs nothing but the logarithm of 1 + e^-|l|
    return Made(terms=[(-(value - 1)).where(on, value) * minus], factors=[exp_of_negative(minus) + 1])


_ENTROPY = RowPass("entropy", _entropy, elements=1, outputs=2, sums=1)
_ENTROPY_BACKWARD = RowPass("entropy backward", _entropy_backward, elements=3, per_row=1, outputs=1)
_LOG_PROB = RowPass("log probability", _log_prob, elements=2, outputs=1, sums=1)
_JOINT = {
    dtype: SamplePass("joint log probability", _joint, elements=[False, dtype == torch.bfloat16])
    for dtype in (torch.float32, torch.bfloat16)
}


@tried("The compiled entropy and log-probability of binary variables", "plain torch is used")
def works() -> None:
    """Whether they give what plain torch gives, on a small batch."""
    logits, weights = torch.linspace(-9, 9, 3 * 37).view(3, 37), torch.tensor([1.0, -2.0, 0.5])
    value = torch.cos(logits).square()
    mean, entropy, slope = mean_and_entropy(logits)
    gradient = mean_and_entropy_backward(value, weights, logits, slope)
    joint, by_logits = log_prob(value, logits, differentiable=True)
    with torch.enable_grad():
        leaf = logits.clone().requires_grad_()
        q, p = leaf.sigmoid(), (-leaf).sigmoid()
        right = -(q * q.log() + p * p.log()).sum(-1)
        (expected,) = torch.autograd.grad((q * value).sum() + (right * weights).sum(), leaf)
    sums = (value * q.log() + (1 - value) * p.log()).sum(-1)
    pairs = (mean, q), (entropy, right), (gradient, expected), (joint, sums), (by_logits, value - q)
    rounded = logits.bfloat16()
    of_rounded = log_prob(value, rounded.float(), differentiable=False)[0]
    more = (
        (joint_log_prob(value, logits[None])[0], sums),
        (joint_log_prob(value, rounded[None])[0], of_rounded),
    )
    check_close(*pairs, *more, tolerance=1e-4)
