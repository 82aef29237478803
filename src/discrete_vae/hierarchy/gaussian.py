"""Diagonal Gaussians and their divergence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.noise import check_generator
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
        check_generator(generator, self.mean.device)
        noise = torch.randn(
            self.mean.shape, dtype=self.mean.dtype, device=self.mean.device, generator=generator
        )
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
        log_ratio = self.log_std - other.log_std
        distance = (self.mean - other.mean) * torch.exp(-other.log_std)
        return 0.5 * (torch.expm1(2 * log_ratio) - 2 * log_ratio + distance.square())
