"""The Bernoulli likelihood of binary features."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.distributions import Bernoulli

from discrete_vae.compiled.trial import warn_of_failure
from discrete_vae.domains import BINARY, UNIT_INTERVAL, Domain
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.moments import feature_moments
from discrete_vae.nets.kernels.choice import are_plain, is_ordinary
from discrete_vae.numerics import bernoulli_log_prob


@cache
def works() -> bool:
    """Whether the compiled pass gives what plain torch gives, on a small batch; tried once in a process.

    Warns:
        KernelWarning: If it does not.
    """
    try:
        from discrete_vae.likelihoods.bernoulli_compiled import bernoulli_log_prob_sum

        with torch.device("cpu"), torch.no_grad():
            logits = 20 * torch.sin(torch.arange(4 * 43, dtype=torch.float32)).view(2, 2, 43)
            x = (torch.cos(torch.arange(2 * 43, dtype=torch.float32)) > 0).float().view(2, 43)
            for dtype in (torch.float32, torch.bfloat16):
                found, given = bernoulli_log_prob_sum(logits.to(dtype), x), logits.to(dtype).float()
                if not torch.allclose(found, bernoulli_log_prob(x, given).sum(-1), rtol=1e-5):
                    raise RuntimeError("its numbers are wrong")
    except Warning:  # the user made warnings errors
        raise
    except Exception as error:
        warn_of_failure("The compiled Bernoulli likelihood", error, "plain torch is used, which is slower")
        return False
    return True


SMALLEST_COMPILED = 50_000
"""Logits from which the compiled pass is used."""


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

    def total_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """See `Likelihood.total_log_prob`; one compiled pass where no gradient is wanted."""
        large = parameters.numel() >= SMALLEST_COMPILED and not torch.is_grad_enabled()
        if not (large and is_ordinary() and are_plain((parameters, x)) and works()):
            return super().total_log_prob(parameters, x)
        from discrete_vae.likelihoods.bernoulli_compiled import bernoulli_log_prob_sum

        rows = parameters.reshape(-1, self.num_features).contiguous()
        total = bernoulli_log_prob_sum(rows, x.reshape(-1, self.num_features).contiguous())
        return total.view(parameters.shape[: -len(self.event_shape)])

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
