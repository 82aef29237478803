"""The Bernoulli likelihood of binary features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Bernoulli

from discrete_vae.domains import BINARY, UNIT_INTERVAL, Domain
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.moments import feature_moments
from discrete_vae.numerics import bernoulli_log_prob, joint_bernoulli_log_prob


class BernoulliLikelihood(Likelihood):
    """p(x | l) = prod_i Bernoulli(x_i; sigmoid(l_i)), one logit per feature.

    For x strictly inside (0, 1), `log_prob` is the expectation over a binarization with these means, not a
    log-density; training may use it, an evaluation asks `check` for `exact` values.

    Source: Rolfe 2017, eq. final-decoder.

    Args:
        event_shape: Shape of one example.

    Attributes:
        training_mean: Mean of each feature in the training data, (*event), which the encoder reads for unobserved
            entries; 0.5 before `initialize_` and where nothing was observed.

    Raises:
        InvalidInputError: If a size is not a positive integer, or there is none.

    Examples:
        >>> BernoulliLikelihood((3,)).log_prob(torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 1.0]]))
        tensor([-2.0794])
    """

    training_mean: Tensor

    def __init__(self, event_shape: Sequence[int]) -> None:
        super().__init__(event_shape)
        self.register_buffer("training_mean", torch.full(self.event_shape, 0.5))

    def domain(self, *, exact: bool = False) -> Domain:
        """[0, 1]; {0, 1} if exact."""
        return BINARY if exact else UNIT_INTERVAL

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Keep the mean of each feature; return its log-odds, the mean kept between 0.001 and 0.999."""
        self.check(x, observed)
        moments = feature_moments(x, observed)
        self.training_mean.copy_(torch.where(moments.count > 0, moments.mean, 0.5))
        return torch.logit(self.training_mean, eps=1e-3)

    @torch.no_grad()
    def fit_marginals_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Log-odds of the means, with half a count for each value, which keeps them finite for constant features.

        Source: Krichevsky & Trofimov 1981 (the half counts).
        """
        self.check(x, observed)
        moments = feature_moments(x, observed)
        ones = moments.mean * moments.count
        return (ones + 0.5).log() - (moments.count - ones + 0.5).log()

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """X itself, (batch, *event); unobserved entries read as the training mean."""
        return x if observed is None else torch.where(observed, x, self.training_mean.to(x.dtype))

    def distribution(self, parameters: Tensor) -> Bernoulli:
        """Bernoulli(logits), batch shape (..., *event)."""
        return Bernoulli(logits=self._only(parameters), validate_args=False)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """X l - softplus(l), which does not cancel where the logit is saturated, (..., *event)."""
        return bernoulli_log_prob(x, self._only(parameters))

    def joint_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """The sum of `feature_log_prob` in one pass, (..., *leading)."""
        if type(self).feature_log_prob is not BernoulliLikelihood.feature_log_prob:  # a subclass has its own
            return super().joint_log_prob(parameters, x)
        return joint_bernoulli_log_prob(x, parameters, len(self.event_shape))

    def mean(self, parameters: Tensor) -> Tensor:
        """sigmoid(l), probabilities, (..., *event)."""
        return torch.sigmoid(self._only(parameters))

    def mode(self, parameters: Tensor) -> Tensor:
        """1 where the logit is positive, (..., *event)."""
        logits = self._drawable(self._only(parameters))
        return (logits > 0).to(logits.dtype)

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw bits, (..., *event)."""
        return torch.bernoulli(self._drawable(self.mean(parameters)), generator=generator)
