"""The smoothed Bernoulli as a `torch.distributions.Distribution`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints, kl_divergence, register_kl
from torch.nn.functional import logsigmoid

from discrete_vae.checks import check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import bernoulli_entropy
from discrete_vae.smoothing.base import Smoothing, truncated_exponential
from discrete_vae.smoothing.spike import SharpLimit, SpikeExponential, SpikeGaussian, SpikeSlab

_CONSTRAINTS = {"scale": constraints.positive}  # parameters of others are real numbers


class SmoothedBernoulli(Distribution):
    """zeta of z ~ Bernoulli(sigmoid(logits)) and zeta ~ r(zeta|z), with z summed out.

    `rsample` is the inverse CDF at uniform noise, so gradients flow through it to the logits and to the smoothing's own
    parameters. Where r has a spike, the law is mixed: `log_prob` is the log density with respect to the sum of a point
    mass at 0 and the Lebesgue measure. At 0 it is log P(z = 0), elsewhere log P(z = 1) + log r(value | z=1); `entropy`
    and the KL divergence are with respect to the same measure. Values are single units; for a vector of them take
    `torch.distributions.Independent`.

    `entropy` and the KL divergence of two such laws are closed where there is a spike (of one kind: exponential and
    slab, or Gaussian); elsewhere they raise NotImplementedError, as torch's do.

    Args:
        logits: Log-odds of z, any shape.
        smoothing: r(zeta|z); one with a limit in which zeta is z has that as `torch.distributions.Bernoulli`.
        parameters: Those of the smoothing beside the logits (`Smoothing.parameter_names`), broadcast with logits;
            none means the prior's.
        validate_args: As in torch.

    Attributes:
        logits: As given, broadcast; so are loc and scale of spike-and-Gaussian.
        smoothing: As given; a module, whose parameters are trained by whoever owns it.

    Examples:
        >>> from discrete_vae import SpikeExponential
        >>> law = SmoothedBernoulli(torch.tensor([-1.0, 2.0]), SpikeExponential(beta=3.0, trainable=False))
        >>> law.mean, law.cdf(torch.tensor(0.0))
        (tensor([0.1934, 0.6333]), tensor([0.7311, 0.1192]))
        >>> law.rsample((5,)).shape, law.expand((3, 2)).batch_shape
        (torch.Size([5, 2]), torch.Size([3, 2]))
    """

    has_rsample = True
    loc: Tensor  # of a smoothing that has them
    scale: Tensor

    def __init__(
        self, logits: Tensor, smoothing: Smoothing, *parameters: Tensor, validate_args: bool | None = None
    ) -> None:
        if not isinstance(smoothing, Smoothing) or isinstance(smoothing, SharpLimit):
            repair = "Take SpikeExponential(), or torch.distributions.Bernoulli where zeta is z."
            rule = "must be a transformation of discrete_vae with a density"
            raise InvalidInputError("smoothing", rule, f"a {type(smoothing).__name__}", repair)
        if isinstance(smoothing, SpikeGaussian) and smoothing.shifted:
            repair = "Take SpikeGaussian(shifted=False), whose law is the same."
            raise InvalidInputError("smoothing", "must have an inverse CDF", "a shifted one", repair)
        logits = check_tensor("logits", logits, (...,))
        if not parameters:
            parameters = tuple(torch.full_like(logits, value) for value in smoothing.prior_parameters)
        smoothing._check_parameters(logits.shape, parameters)
        self.smoothing = smoothing
        self.logits, *given = torch.broadcast_tensors(logits, *parameters)
        self.__dict__.update(zip(smoothing.parameter_names, given, strict=True))
        super().__init__(self.logits.shape, validate_args=validate_args)

    @property
    def _parameters(self) -> list[Tensor]:
        return [getattr(self, name) for name in self.smoothing.parameter_names]

    @property
    def arg_constraints(self) -> Mapping[str, constraints.Constraint]:  # pyright: ignore[reportIncompatibleMethodOverride]
        names = ("logits", *self.smoothing.parameter_names)
        return {name: _CONSTRAINTS.get(name, constraints.real) for name in names}

    @property
    def support(self) -> constraints.Constraint:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The range of zeta: [0, 1], or all numbers."""
        low, high = self.smoothing.support
        return constraints.real if math.isinf(low) and math.isinf(high) else constraints.interval(low, high)

    @property
    def probs(self) -> Tensor:
        """P(z = 1)."""
        return torch.sigmoid(self.logits)

    @property
    def mean(self) -> Tensor:
        given = self.smoothing.conditional_moments(*self._parameters)
        off, on = torch.sigmoid(-self.logits), self.probs
        return off * given.mean_of_zero.to(off) + on * given.mean_of_one.to(on)

    @property
    def variance(self) -> Tensor:
        """Var zeta: the mean of the variances given z, and the variance of the means."""
        given = self.smoothing.conditional_moments(*self._parameters)
        off, on = torch.sigmoid(-self.logits), self.probs
        within = off * given.variance_of_zero.to(off) + on * given.variance_of_one.to(on)
        return within + off * on * (given.mean_of_one - given.mean_of_zero).to(off).square()

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """The same law for more units; see `torch.distributions.Distribution.expand`."""
        new: Any = self._get_checked_instance(SmoothedBernoulli, _instance)
        shape = torch.Size(batch_shape)
        new.smoothing, new.logits = self.smoothing, self.logits.expand(shape)
        expanded = {name: getattr(self, name).expand(shape) for name in self.smoothing.parameter_names}
        new.__dict__.update(expanded)
        Distribution.__init__(new, shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draw zeta by the inverse CDF, with its gradient; the source is torch's global generator."""
        shape = self._extended_shape(torch.Size(sample_shape))
        return self.smoothing.rsample(*(value.expand(shape) for value in (self.logits, *self._parameters)))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density, where there is a spike with respect to a point mass at 0 and the Lebesgue measure."""
        return self._at(value, self.smoothing.log_prob)

    def cdf(self, value: Tensor) -> Tensor:
        return self._at(value, self.smoothing.cdf)

    def _at(self, value: Tensor, evaluate: Callable[..., Tensor]) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return evaluate(value, self.logits, *self._parameters)

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse CDF; at 0 and 1 the ends of the support."""
        value = check_tensor("value", value, (...,))
        (low, high), last = self.smoothing.support, value == 1
        zeta = self.smoothing.icdf(value.masked_fill(last, 0.5), self.logits, *self._parameters)
        return torch.where(last, high, torch.where(value == 0, low, zeta))

    def entropy(self) -> Tensor:
        """-E log_prob, nats: that of z, and P(z = 1) times that of r(zeta|z=1)."""
        if isinstance(self.smoothing, SpikeGaussian):
            one = 0.5 + math.log(2 * math.pi) / 2 + self.scale.log()
        else:
            log_scale, beta, mean = _exponential(self)
            one = -(log_scale + beta * (mean - 1)).to(self.logits)
        return bernoulli_entropy(self.logits) + self.probs * one

    def __repr__(self) -> str:
        return f"SmoothedBernoulli(logits: {tuple(self.logits.shape)}, {self.smoothing})"


def _exponential(law: SmoothedBernoulli) -> tuple[Tensor, Tensor, Tensor]:
    """log scale, beta and mean of r(zeta|z=1); a slab has beta 0."""
    if isinstance(law.smoothing, SpikeSlab):
        zero = torch.zeros((), dtype=torch.float64)
        return zero, zero, zero + 0.5
    if isinstance(law.smoothing, SpikeExponential):
        beta = law.smoothing._bounded_parameter()
        log_scale, mean, _ = truncated_exponential(beta)
        return log_scale, beta.double(), mean
    raise NotImplementedError(f"no closed form for {type(law.smoothing).__name__}")


@register_kl(SmoothedBernoulli, SmoothedBernoulli)
def _kl(p: SmoothedBernoulli, q: SmoothedBernoulli) -> Tensor:
    """KL of the bits, which zeta shows, and P(z = 1) times that of zeta given z = 1."""
    if isinstance(p.smoothing, SpikeGaussian) and isinstance(q.smoothing, SpikeGaussian):
        one = kl_divergence(Normal(p.loc, p.scale), Normal(q.loc, q.scale))
    else:
        (log_scale, beta, mean), (other_scale, other_beta, _) = _exponential(p), _exponential(q)
        one = (log_scale - other_scale + (beta - other_beta) * (mean - 1)).to(p.logits)
    return _kl_of_bits(p.logits, q.logits) + p.probs * one


def _kl_of_bits(p: Tensor, q: Tensor) -> Tensor:
    """KL of Bernoulli laws with these log-odds; torch's own is infinite where a probability rounds to 0 or 1."""
    total = torch.zeros_like(p)
    for sign in (1, -1):
        log_p, log_q = logsigmoid(sign * p), logsigmoid(sign * q)
        total = total + torch.where(log_p.exp() > 0, log_p.exp() * (log_p - log_q), 0.0)
    return total
