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
from discrete_vae.likelihoods.tails import LongTailedNormal, Tails

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_NARROW = 1e-15  # stands for 0, which is no standard deviation


class GaussianLikelihood(Likelihood):
    """p(x | m) = prod_i Normal(x_i; a_i + s_i m_i, s_i sigma_i), the mean from the decoder, sigma learned.

    a and s are the training mean and standard deviation of each feature, so the decoder works in standard units.
    sigma_i = min_scale + exp(log_scale_i) in these units: it never falls below the floor, so the log-density of a
    feature is at most -log(sqrt(2 pi) s_i min_scale).

    A feature with one value in the training data has no density. It counts as unobserved: it adds nothing to log p(x),
    whatever x holds there, and its mean, mode and draws are that value.

    With `shorten_tails` features with long tails, logarithms of which would be taken by hand, have this law on a scale
    of asinh that is fitted to the training data, see `discrete_vae.likelihoods.tails.Tails`. Densities, means, modes
    and draws are those of x all the same.

    Args:
        event_shape: Shape of one example.
        min_scale: Floor of sigma, in standard deviations of the feature, above 0 and below 1.
        shorten_tails: Whether features with long tails are read on a scale of asinh.

    Attributes:
        log_scale: Learned, (*event).
        standardizer: Holds a and s.
        tails: The scales; None without `shorten_tails`.

    Raises:
        InvalidInputError: If a size is not a positive integer, or the floor not between 0 and 1.

    Examples:
        >>> likelihood = GaussianLikelihood((2,))
        >>> likelihood.log_prob(torch.zeros(1, 2), torch.zeros(1, 2)).item()  # -log(2 pi)
        -1.8378...
    """

    def __init__(
        self, event_shape: Sequence[int], *, min_scale: float = 1e-3, shorten_tails: bool = False
    ) -> None:
        super().__init__(event_shape)
        repair = "The default is 1e-3."
        self.min_scale = check_number("min_scale", min_scale, above=0, at_most=0.999, repair=repair)
        self.tails = Tails(self.event_shape) if shorten_tails else None
        self.standardizer = Standardizer(self.event_shape)
        self.log_scale = nn.Parameter(torch.full(self.event_shape, math.log1p(-self.min_scale)))

    def domain(self, *, exact: bool = False) -> Domain:
        """Finite numbers."""
        return FINITE

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Take a and s from the data, start sigma at 1; return zeros, the training mean in standard units."""
        self.check(x, observed)
        if self.tails is not None:
            self.tails.fit_(x, observed)
        self.standardizer.fit_(self._shortened(x), observed)
        self.log_scale.fill_(math.log1p(-self.min_scale))
        return torch.zeros_like(self.log_scale)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """X in standard units, (batch, *event); unobserved entries read as 0, the training mean."""
        return self.standardizer(self._shortened(x), observed)

    def distribution(self, parameters: Tensor) -> Normal | LongTailedNormal:
        """The law in the data's units, batch shape (..., *event); of a constant feature one far narrower than any."""
        mean, std = self._moments(parameters)
        std = std.masked_fill(self.standardizer.constant, _NARROW)
        if self.tails is not None:
            return LongTailedNormal(mean, std, self.tails)
        return Normal(mean, std, validate_args=False)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Log-density in the data's units, (..., *event)."""
        scale = self._scale()
        scaled = (self.standardizer(self._shortened(x)) - self._only(parameters)) / scale
        found = -0.5 * scaled.square() - (scale * self.standardizer.divisor).log() - _HALF_LOG_TWO_PI
        found = found.masked_fill(self.standardizer.constant, 0.0)
        return found if self.tails is None else found + self.tails.log_slope(x)

    def mean(self, parameters: Tensor) -> Tensor:
        """E[x] in the data's units, (..., *event): a + s m, or what it comes to from a scale of asinh."""
        mean, std = self._moments(parameters)
        return mean if self.tails is None else self.tails.mean_of(mean, std)

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw from the Gaussian, (..., *event)."""
        mean, std = self._moments(parameters)
        x = mean + std * torch.randn(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator)
        return x if self.tails is None else self.tails.invert(x)

    def _shortened(self, x: Tensor) -> Tensor:
        """X with its long tails shortened."""
        return x if self.tails is None else self.tails(x)

    def _moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean a + s m and standard deviation s sigma of what has the Gaussian law, (..., *event); s may be 0."""
        mean = self._only(parameters)
        mean = (self.standardizer.location + self.standardizer.scale * mean).to(mean.dtype)
        std = self.standardizer.scale * self._scale()
        return mean, std.to(mean.dtype).expand_as(mean)

    def _scale(self) -> Tensor:
        """Sigma in standard units, (*event), float32 or wider."""
        log_scale = self.log_scale if self.log_scale.dtype == torch.float64 else self.log_scale.float()
        return self.min_scale + log_scale.exp()
