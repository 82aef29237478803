"""The Gaussian likelihood of real features."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from discrete_vae.checks import check_number
from discrete_vae.domains import FINITE, Domain
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.standardizer import Standardizer

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class GaussianLikelihood(Likelihood):
    """p(x | m) = prod_i Normal(x_i; a_i + s_i m_i, s_i sigma_i), the mean from the decoder, sigma learned.

    a and s are the training mean and standard deviation of each feature, so the decoder works in standard units.
    sigma_i = min_scale + exp(log_scale_i) in these units: it never falls below the floor, so the log-density of a
    feature is at most -log(sqrt(2 pi) s_i min_scale), for a constant feature (s = 1) 5.99 nats.

    Args:
        event_shape: Shape of one example.
        min_scale: Floor of sigma, in standard deviations of the feature, above 0 and below 1.

    Attributes:
        log_scale: Learned, (*event).
        standardizer: Holds a and s.

    Raises:
        InvalidInputError: If a size is not a positive integer, or the floor not between 0 and 1.

    Examples:
        >>> likelihood = GaussianLikelihood((2,))
        >>> likelihood.log_prob(torch.zeros(1, 2), torch.zeros(1, 2)).item()  # -log(2 pi)
        -1.8378...
    """

    def __init__(self, event_shape: Sequence[int], *, min_scale: float = 1e-3) -> None:
        super().__init__(event_shape)
        repair = "The default is 1e-3."
        self.min_scale = check_number("min_scale", min_scale, above=0, at_most=0.999, repair=repair)
        self.standardizer = Standardizer(self.event_shape)
        self.log_scale = nn.Parameter(torch.full(self.event_shape, math.log1p(-self.min_scale)))

    def domain(self, *, exact: bool = False) -> Domain:
        """Finite numbers."""
        return FINITE

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Take a and s from the data, start sigma at 1; return zeros, the training mean in standard units."""
        self.check(x, observed)
        self.standardizer.fit_(x, observed)
        self.log_scale.fill_(math.log1p(-self.min_scale))
        return torch.zeros_like(self.log_scale)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """X in standard units, (batch, *event); unobserved entries read as 0, the training mean."""
        return self.standardizer(x, observed)

    def distribution(self, parameters: Tensor) -> Normal:
        """Normal in the data's units, batch shape (..., *event)."""
        mean = self.mean(parameters)
        std = self.standardizer.scale * self._scale()
        return Normal(mean, std.to(mean.dtype).expand_as(mean), validate_args=False)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Log-density in the data's units, (..., *event)."""
        scale = self._scale()
        scaled = (self.standardizer(x) - self._only(parameters)) / scale
        return -0.5 * scaled.square() - (scale * self.standardizer.scale).log() - _HALF_LOG_TWO_PI

    def mean(self, parameters: Tensor) -> Tensor:
        """a + s m, in the data's units, (..., *event)."""
        mean = self._only(parameters)
        return (self.standardizer.location + self.standardizer.scale * mean).to(mean.dtype)

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw from the Gaussian, (..., *event)."""
        law = self.distribution(parameters)
        noise = torch.randn(law.loc.shape, dtype=law.loc.dtype, device=law.loc.device, generator=generator)
        return law.loc + law.scale * noise

    def _scale(self) -> Tensor:
        """Sigma in standard units, (*event), float32 or wider."""
        log_scale = self.log_scale if self.log_scale.dtype == torch.float64 else self.log_scale.float()
        return self.min_scale + log_scale.exp()
