"""Diagonal Gaussians and their divergence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discrete_vae.compiled.choice import fuses
from discrete_vae.noise import standard_normal
from discrete_vae.numerics import differentiable_once
from discrete_vae.records import ShowsShapes

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False, repr=False)
class Gaussian(ShowsShapes):
    """Independent normal variables.

    Attributes:
        mean: Any shape.
        log_std: Log standard deviations, same shape.

    Examples:
        >>> standard = Gaussian(torch.zeros(1), torch.zeros(1))
        >>> Gaussian(torch.ones(1), torch.zeros(1)).kl_to(standard)
        tensor([0.5000])
    """

    mean: Tensor
    log_std: Tensor

    def rsample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw by h = mean + std * epsilon, which carries the gradient of both parameters.

        Args:
            generator: Source of epsilon; None means torch's global generator.

        Returns:
            A tensor of the mean's shape.

        Raises:
            InvalidInputError: If the generator draws on another device.
        """
        noise = standard_normal(self.mean, shape=self.mean.shape, generator=generator)
        return self.mean + self.log_std.exp() * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density of each element of value, nats."""
        scaled = (value - self.mean) * torch.exp(-self.log_std)
        return -0.5 * scaled.square() - self.log_std - _HALF_LOG_TWO_PI

    def kl_to(self, other: Gaussian) -> Tensor:
        """KL[self || other] of each element, nats, at least 0.

        Written with expm1 of the difference of log standard deviations, which keeps its digits where the two are
        nearly alike.

        Args:
            other: Gaussian of the same shape.
        """
        return _KL.apply(self.mean, self.log_std, other.mean, other.log_std)

    def joint_kl_to(self, other: Gaussian, num_axes: int) -> Tensor:
        """`kl_to`, summed over the last axes.

        Args:
            other: Gaussian of the same shape.
            num_axes: How many, at least one.

        Returns:
            (...), nats.
        """
        tensors = (self.mean, self.log_std, other.mean, other.log_std)
        if len({tensor.shape for tensor in tensors}) == 1 and fuses(*tensors):
            from discrete_vae.hierarchy.kernels.divergence import works

            if works():
                return _JointKL.apply(*(tensor.flatten(-num_axes) for tensor in tensors))
        return self.kl_to(other).sum(tuple(range(-num_axes, 0)))


class _JointKL(torch.autograd.Function):
    """The divergence summed over the last axis, by compiled passes; see `_KL`."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
        """The sums."""
        from discrete_vae.hierarchy.kernels.divergence import divergence

        differentiable = any(ctx.needs_input_grad)
        found, slopes = divergence(mean, log_std, other_mean, other_log_std, differentiable=differentiable)
        if differentiable:
            ctx.save_for_backward(*slopes)
        return found

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `_KL`."""
        from discrete_vae.hierarchy.kernels.divergence import divergence_backward

        return divergence_backward(gradients[0], *ctx.saved_tensors)


class _KL(torch.autograd.Function):
    """The divergence of each element, with a closed gradient.

    With r the difference of log standard deviations and d that of means over the other's standard deviation s:
    KL = (e^(2r) - 1 - 2r + d^2) / 2, so by the first mean d/s, by its log standard deviation e^(2r) - 1, by the other
    mean -d/s, by its log standard deviation 1 - e^(2r) - d^2. It can be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
        """Each element's divergence."""
        twice = (log_std - other_log_std).mul_(2)
        precision = torch.exp(-other_log_std)
        distance, rise = (mean - other_mean).mul_(precision), torch.expm1(twice)
        squared = distance.square()
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(distance.mul_(precision), rise, rise + squared)
        return (rise - twice).add_(squared).mul_(0.5)

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See the class."""
        by_mean, by_log_std, minus_by_other = ctx.saved_tensors
        (gradient,) = gradients
        of_mean = gradient * by_mean
        return of_mean, gradient * by_log_std, -of_mean, gradient * -minus_by_other
