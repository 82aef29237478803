"""Every likelihood, and the faults that the laws must reject."""

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn

from discrete_vae.checks import FINITE
from discrete_vae.config import LikelihoodConfig, members
from discrete_vae.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    NegativeBinomialLikelihood,
)
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.testing import likelihoods as contracts
from discrete_vae.testing.likelihoods import Support


@dataclass
class Case:
    build: partial
    support: Support
    draw: str  # how plausible data are drawn


CASES = {
    "bernoulli": Case(partial(BernoulliLikelihood), Support.whole_numbers(2), "bits"),
    "gaussian": Case(partial(GaussianLikelihood), Support.interval(-40.0, 40.0), "reals"),
    "categorical": Case(partial(CategoricalLikelihood, num_categories=3), Support.whole_numbers(3), "codes"),
    "negative-binomial": Case(NegativeBinomialLikelihood, Support.whole_numbers(2500), "counts"),
}
COUNTS = Support.whole_numbers(2500)
VARIANTS = {
    "grid": Case(partial(GaussianLikelihood, grid_floor=True), Support.interval(-40.0, 40.0), "grid"),
    "zero-inflated": Case(partial(NegativeBinomialLikelihood, zero_inflated=True), COUNTS, "counts"),
    "exposure": Case(partial(NegativeBinomialLikelihood, exposure="total"), COUNTS, "counts"),
    "inflated exposure": Case(
        partial(NegativeBinomialLikelihood, zero_inflated=True, exposure="total"), COUNTS, "counts"
    ),
}
ALL = CASES | VARIANTS
SHAPES = [(4,), (2, 2, 1)]
every = pytest.mark.parametrize("kind", ALL)
shapes = pytest.mark.parametrize("event", SHAPES, ids=["table", "image"])


def data(draw: str, rows: int, event: tuple[int, ...]) -> torch.Tensor:
    """Data whose features have means of their own."""
    generator = torch.Generator().manual_seed(1)
    level = torch.linspace(0.2, 0.8, torch.Size(event).numel()).reshape(event).expand(rows, *event)
    if draw == "bits":
        return torch.bernoulli(level, generator=generator)
    noise = torch.randn(rows, *event, generator=generator)
    if draw in ("reals", "grid"):
        x = 3 * level + 0.5 * noise
        return x if draw == "reals" else (2 * x).round() / 2
    if draw == "codes":
        return (2 * level + 0.7 * noise).round().clamp(0, 2)
    return torch.poisson(9 * level * (0.5 * noise).exp(), generator=generator)


def fitted(build, draw: str, event: tuple[int, ...] = (4,)) -> Likelihood:
    """A float64 likelihood whose statistics and parameters are not those it was built with."""
    likelihood = build(event)
    likelihood.initialize_(data(draw, 200, event))
    with torch.no_grad():
        for parameter in likelihood.parameters():
            parameter.copy_(torch.linspace(-0.3, 0.6, parameter.numel()).reshape(parameter.shape))
    return likelihood.double()


def outputs(likelihood: Likelihood, rows: int = 3, scale: float = 0.7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (rows, *likelihood.parameter_shape)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def test_every_likelihood_is_here():
    kinds = {config.model_fields["kind"].default for config in members(LikelihoodConfig)}
    assert kinds == CASES.keys() | {"table"}  # whose laws are in test_table.py


@every
@shapes
def test_log_prob(kind, event):
    case = ALL[kind]
    likelihood = fitted(case.build, case.draw, event)
    parameters, x = outputs(likelihood), data(case.draw, 3, event).double()
    contracts.check_normalized(likelihood, parameters, case.support)
    contracts.check_marginalizes(likelihood, parameters, x, case.support)
    contracts.check_distribution(likelihood, parameters, x, case.support)
    contracts.check_gradients(likelihood, parameters, x)
    contracts.check_folding(likelihood, parameters, x)
    contracts.check_exposure(likelihood, parameters, x)


@every
def test_sample(kind):
    likelihood = fitted(ALL[kind].build, ALL[kind].draw)
    contracts.check_sample_law(likelihood, outputs(likelihood)[0], ALL[kind].support)


@every
@shapes
def test_interface(kind, event):
    likelihood = fitted(ALL[kind].build, ALL[kind].draw, event).float()
    x = data(ALL[kind].draw, 3, event)
    contracts.check_interface(likelihood, outputs(likelihood).float(), x)
    contracts.check_extremes(likelihood, x)


@every
@shapes
def test_initialization(kind, event):
    contracts.check_initialization(ALL[kind].build(event), data(ALL[kind].draw, 50, event))


class GumbelLikelihood(Likelihood):
    """What a user writes: the rest comes from the base class."""

    def __init__(self, event_shape):
        super().__init__(event_shape)
        self.log_scale = nn.Parameter(torch.zeros(self.event_shape))

    def domain(self, *, exact=False):
        return FINITE

    def distribution(self, parameters):
        location = self.unfold(parameters).squeeze(-len(self.event_shape) - 1)
        scale = self.log_scale.to(location.dtype).exp().expand_as(location)
        return torch.distributions.Gumbel(location, scale, validate_args=False)

    def sample(self, parameters, *, generator=None):
        law = self.distribution(parameters)
        return law.loc - law.scale * torch.empty_like(law.loc).exponential_(generator=generator).log()


def test_a_users_own_likelihood():
    own = GumbelLikelihood((4,))
    contracts.check_likelihood(own, data("reals", 50, (4,)), Support.interval(-20.0, 80.0), sizes=(30.0,))
    assert own.log_scale.grad is None
    assert own.log_scale.count_nonzero() == 0  # a copy was tried


class ScaleTwice(GaussianLikelihood):
    """A fault: the standard deviation of draws lacks the feature's scale."""

    def sample(self, parameters, *, generator=None):
        mean = self.mean(parameters)
        return mean + self._scale() * torch.randn(mean.shape, generator=generator, dtype=mean.dtype)


class NoJacobian(GaussianLikelihood):
    """A fault: the density of standardized x is taken for that of x."""

    def feature_log_prob(self, parameters, x):
        return super().feature_log_prob(parameters, x) + self.standardizer.scale.log()


class OtherConvention(NegativeBinomialLikelihood):
    """A fault: draws have variance mu + r mu^2."""

    def sample(self, parameters, *, generator=None):
        mean = self.mean(parameters)
        size = (-self.log_size).exp().expand_as(mean)
        rate = torch._standard_gamma(size, generator=generator) * mean / size
        return torch.poisson(rate, generator=generator)


class Truncated(NegativeBinomialLikelihood):
    """A fault: Poisson's law, the dispersion forgotten."""

    def feature_log_prob(self, parameters, x):
        mean = self.mean(parameters)
        return torch.xlogy(x, mean) - mean - torch.lgamma(x + 1)


class InnerFold(CategoricalLikelihood):
    """A fault: the codes run fastest in the folded axis."""

    def unfold(self, parameters):
        shape = (self.event_shape[0], self.parameters_per_feature)
        return parameters.unflatten(-len(self.event_shape), shape).transpose(
            -len(self.event_shape), -len(self.event_shape) - 1
        )


class Flipped(BernoulliLikelihood):
    """A fault: draws of 1 - x."""

    def sample(self, parameters, *, generator=None):
        return super().sample(-parameters, generator=generator)


class OwnNoise(BernoulliLikelihood):
    """A fault: the generator is forgotten."""

    def sample(self, parameters, *, generator=None):
        return super().sample(parameters)


class MaskAfter(GaussianLikelihood):
    """A fault: unobserved entries are masked after the density, which leaves NaN in the gradient."""

    def log_prob(self, parameters, x, observed=None):
        terms = self.feature_log_prob(parameters, x)
        return terms.sum(-1) if observed is None else torch.where(observed, terms, 0).sum(-1)


class MaskForgotten(BernoulliLikelihood):
    """A fault: unobserved entries count as 0."""

    def log_prob(self, parameters, x, observed=None):
        return super().log_prob(parameters, x if observed is None else x.masked_fill(~observed, 0))


class Detached(GaussianLikelihood):
    """A fault: the learned scale gets no gradient."""

    def _scale(self):
        return super()._scale().detach() + 0 * self.log_scale


class Narrow(BernoulliLikelihood):
    """A fault: the density is computed in the decoder's precision."""

    def unfold(self, parameters):
        return super().unfold(parameters).to(parameters.dtype)


class Textbook(BernoulliLikelihood):
    """A fault: log of a probability that rounds to 0 or 1."""

    def feature_log_prob(self, parameters, x):
        q = torch.sigmoid(self._only(parameters))
        return (x * q + (1 - x) * (1 - q)).log()


class HeedsUnobserved(BernoulliLikelihood):
    """A fault: statistics over entries that were not observed."""

    def initialize_(self, x, observed=None):
        return super().initialize_(x)


class Unfilled(NegativeBinomialLikelihood):
    """A fault: NaN reaches the encoder."""

    def network_input(self, x, observed=None):
        return super().network_input(x)


class FaultyMean(NegativeBinomialLikelihood):
    """A fault: the feature's start is left out of the mean."""

    def mean(self, parameters):
        return self.unfold(parameters).squeeze(-2).exp()


class AddedOnly(NegativeBinomialLikelihood):
    """A fault: zeros are added, and other counts keep their probability."""

    def feature_log_prob(self, parameters, x):
        found = super().feature_log_prob(parameters, x)
        return torch.where(x == 0, found, found - nn.functional.logsigmoid(-self._logits(parameters)))


class NoneAdded(NegativeBinomialLikelihood):
    """A fault: draws without the added zeros."""

    def sample(self, parameters, *, generator=None):
        return super().sample(
            torch.cat([parameters[..., :4], parameters[..., 4:] - 30], -1), generator=generator
        )


class CountsGaps(NegativeBinomialLikelihood):
    """A fault: the exposure is read off entries that were not observed."""

    def at_exposure(self, parameters, x, observed=None):
        return super().at_exposure(parameters, x.nan_to_num(7.0))


class AddsToLogits(NegativeBinomialLikelihood):
    """A fault: the exposure changes the added zeros too."""

    def feature_log_prob(self, parameters, x):
        offset = self._log_exposure(x, None)
        return super().feature_log_prob(parameters + offset, x)


PLANTED = [
    (partial(AddedOnly, zero_inflated=True), "zero-inflated", "normalized"),
    (partial(NoneAdded, zero_inflated=True), "zero-inflated", "sample_law"),
    (partial(CountsGaps, exposure="total"), "exposure", "exposure"),
    (partial(AddsToLogits, zero_inflated=True, exposure="total"), "inflated exposure", "distribution"),
    (ScaleTwice, "gaussian", "sample_law"),
    (Flipped, "bernoulli", "sample_law"),
    (OtherConvention, "negative-binomial", "sample_law"),
    (OwnNoise, "bernoulli", "sample_law"),
    (NoJacobian, "gaussian", "normalized"),
    (Truncated, "negative-binomial", "distribution"),
    (FaultyMean, "negative-binomial", "distribution"),
    (InnerFold, "categorical", "folding"),
    (MaskAfter, "gaussian", "marginalizes"),
    (MaskForgotten, "bernoulli", "marginalizes"),
    (Detached, "gaussian", "gradients"),
    (Narrow, "bernoulli", "interface"),
    (Unfilled, "negative-binomial", "interface"),
    (Textbook, "bernoulli", "extremes"),
    (HeedsUnobserved, "bernoulli", "initialization"),
]


@pytest.mark.parametrize(("fault", "kind", "law"), PLANTED)
def test_planted_faults_are_rejected(fault, kind, law):
    case = ALL[kind]
    likelihood = fitted(partial(fault, **case.build.keywords) if kind == "categorical" else fault, case.draw)
    parameters, x = outputs(likelihood), data(case.draw, 3, (4,)).double()
    checks = {
        "sample_law": lambda: contracts.check_sample_law(likelihood, parameters[0], case.support),
        "normalized": lambda: contracts.check_normalized(likelihood, parameters, case.support),
        "distribution": lambda: contracts.check_distribution(likelihood, parameters, x, case.support),
        "exposure": lambda: contracts.check_exposure(likelihood, parameters, x),
        "folding": lambda: contracts.check_folding(likelihood, parameters, x),
        "marginalizes": lambda: contracts.check_marginalizes(likelihood, parameters, x, case.support),
        "gradients": lambda: contracts.check_gradients(likelihood, parameters, x),
        "interface": lambda: contracts.check_interface(likelihood.float(), parameters.float(), x.float()),
        "extremes": lambda: contracts.check_extremes(likelihood.float(), x.float()),
        "initialization": lambda: contracts.check_initialization(fault((4,)), data(case.draw, 50, (4,))),
    }
    with pytest.raises(AssertionError):
        checks[law]()
