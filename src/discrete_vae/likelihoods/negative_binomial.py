"""The negative binomial likelihood of counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributions import NegativeBinomial

from discrete_vae.bounds import project_
from discrete_vae.domains import COUNTS, Domain
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.moments import feature_moments
from discrete_vae.likelihoods.standardizer import Standardizer

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_MIN_SIZE, _MAX_SIZE = 1e-4, 1e6
_LARGEST_LOG = 60.0  # e^60, and counts times e^60, are finite in float32


def stirling_error(z: Tensor) -> Tensor:
    """log Gamma(z + 1) - ((z + 1/2) log z - z + log sqrt(2 pi)), what Stirling's formula lacks.

    Args:
        z: Above 0.

    Returns:
        Same shape; accurate to a few units of rounding of 10.
    """
    small = z < 8
    near = torch.where(small, z, 1.0)
    direct = torch.lgamma(near + 1) - (near + 0.5) * near.log() + near - _HALF_LOG_TWO_PI
    inverse = 1 / torch.where(small, 8.0, z)
    square = inverse * inverse
    series = 1 / 1680 - square / 1188
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * series)))
    return torch.where(small, direct, series)


def negative_binomial_log_prob(x: Tensor, log_mean: Tensor, log_size: Tensor) -> Tensor:
    """log NB(x; mu, r), with variance mu + mu^2 / r.

    log NB(x; mu, r) = log NB(x; x, r) - D, with D = r log((mu + r) / (x + r)) + x log(x (mu + r) / ((x + r) mu)) >= 0.
    The textbook form is a difference of terms of size x log x and r log r and loses all digits in float32 for large
    counts or sizes; here no term is much larger than the result or |x - mu|.

    Source: Loader 2000, "Fast and accurate computation of binomial probabilities", carried over to real r.

    Args:
        x: Counts, of at least 0.
        log_mean: log mu, broadcastable with x, any finite number.
        log_size: log r, broadcastable with x.

    Returns:
        Nats, at most 0, in the broadcast shape.

    Examples:
        >>> negative_binomial_log_prob(torch.tensor(2.0), torch.tensor(0.0), torch.tensor(0.0)).exp()  # geometric
        tensor(0.1250)
    """
    zero = x == 0
    positive = torch.where(zero, 1.0, x)  # a stand-in that is finite in value and gradient
    size = log_size.exp()
    total = x + size
    peak = 0.5 * (log_size - total.log() - positive.log()) - _HALF_LOG_TWO_PI
    peak = peak + stirling_error(total) - stirling_error(size) - stirling_error(positive)
    inside = log_mean.clamp(-_LARGEST_LOG, _LARGEST_LOG)
    beyond = log_mean - inside  # D is linear in it
    mean = inside.exp()
    excess = mean - x
    # where an argument of log1p rounds to -1, the other term of D is larger by the inverse of the rounding
    least = torch.finfo(mean.dtype).eps - 1
    first = torch.log1p((excess / total).clamp_min(least)) + beyond.clamp_min(0)
    second = torch.log1p((-excess / mean * (size / total)).clamp_min(least)) - beyond.clamp_max(0)
    return torch.where(zero, 0.0, peak) - size * first - x * second


class _NegativeBinomial(NegativeBinomial):
    """torch's distribution with `negative_binomial_log_prob` in place of the textbook form.

    Args:
        log_mean: log mu.
        log_size: log r, of its shape.
    """

    def __init__(self, log_mean: Tensor, log_size: Tensor) -> None:
        self._log_mean, self._log_size = log_mean, log_size
        size = log_size.exp()
        super().__init__(size, logits=log_mean - size.log(), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> _NegativeBinomial:
        """The same law in a larger batch shape."""
        return _NegativeBinomial(self._log_mean.expand(batch_shape), self._log_size.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """log NB(x; mu, r), nats."""
        return negative_binomial_log_prob(value, self._log_mean, self._log_size)


class NegativeBinomialLikelihood(Likelihood):
    """p(x | eta) = prod_i NB(x_i; mu_i, r_i), mu_i = exp(eta_i) times the feature's training mean, r_i learned.

    The variance is mu + mu^2 / r: r is what torch calls total_count, many texts the size or inverse dispersion, and
    r = infinity is Poisson. `project_` keeps it between 1e-4 and 1e6.

    Args:
        event_shape: Shape of one example.

    Attributes:
        log_size: log r, learned, (*event); starts at 0.
        log_start: Log of the training mean, (*event); 0 before `initialize_` and where nothing was observed.
        standardizer: Location and scale of log(1 + x), for the encoder.

    Raises:
        InvalidInputError: If a size is not a positive integer, or there is none.

    Examples:
        >>> likelihood = NegativeBinomialLikelihood((2,))
        >>> likelihood.distribution(torch.tensor([[0.0, 1.0]])).variance  # mu + mu^2
        tensor([[ 2.0000, 10.1073]], grad_fn=...)
    """

    log_start: Tensor

    def __init__(self, event_shape: Sequence[int]) -> None:
        super().__init__(event_shape)
        self.standardizer = Standardizer(self.event_shape)
        self.log_size = nn.Parameter(torch.zeros(self.event_shape))
        self.register_buffer("log_start", torch.zeros(self.event_shape))

    def domain(self, *, exact: bool = False) -> Domain:
        """Whole numbers of at least 0."""
        return COUNTS

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Take log(1 + x)'s statistics, the means and the moment estimate of r; return zeros.

        A feature that is 0 throughout starts as if its n entries had summed to 1/2. r starts at
        mean^2 / (variance - mean), kept between 0.01 and 10^4, the upper end also where the data spread no more than
        Poisson's.
        """
        self.check(x, observed)
        self.standardizer.fit_(x.log1p(), observed)
        moments = feature_moments(x, observed)
        mean = moments.mean.maximum(0.5 / moments.count)
        self.log_start.copy_(torch.where(moments.count > 0, mean, 1.0).log())
        spread = (moments.variance - moments.mean).clamp_min(0)
        size = torch.where(spread > 0, moments.mean.square() / spread, torch.inf).clamp(1e-2, 1e4)
        self.log_size.copy_(torch.where(moments.count > 0, size, 1.0).log())
        return torch.zeros_like(self.log_start)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log(1 + x), standardized, (batch, *event); unobserved entries read as 0, the training mean."""
        return self.standardizer(x.log1p(), observed)

    def distribution(self, parameters: Tensor) -> NegativeBinomial:
        """NegativeBinomial(total_count=r, logits=log(mu / r)), batch shape (..., *event)."""
        log_mean = self._log_mean(parameters)
        return _NegativeBinomial(log_mean, self._log_size().to(log_mean.dtype).expand_as(log_mean))

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log NB(x; mu, r), (..., *event)."""
        return negative_binomial_log_prob(x, self._log_mean(parameters), self._log_size())

    def mean(self, parameters: Tensor) -> Tensor:
        """Mu, (..., *event)."""
        return self._log_mean(parameters).exp()

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw counts from a Poisson distribution whose rate is drawn from a gamma distribution, (..., *event)."""
        mean = self._drawable(self.mean(parameters))
        size = self._log_size().exp().to(mean.dtype).expand_as(mean)
        gamma = torch._standard_gamma(size, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
        return torch.poisson(gamma * (mean / size), generator=generator)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring r back between 1e-4 and 1e6."""
        project_(self.log_size, math.log(_MIN_SIZE), math.log(_MAX_SIZE))

    def _log_mean(self, parameters: Tensor) -> Tensor:
        eta = self._only(parameters)
        return (eta + self.log_start).to(eta.dtype)

    def _log_size(self) -> Tensor:
        return self.log_size if self.log_size.dtype == torch.float64 else self.log_size.float()
