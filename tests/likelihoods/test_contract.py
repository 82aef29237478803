"""Every likelihood, and the faults that the laws must reject."""

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

COUNTS = Support.whole_numbers(2500)
# name -> (how it is built of an event shape, its support, how plausible data are drawn)
CASES = {
    "bernoulli": (BernoulliLikelihood, Support.whole_numbers(2), "bits"),
    "gaussian": (GaussianLikelihood, Support.interval(-40.0, 40.0), "reals"),
    "categorical": (partial(CategoricalLikelihood, num_categories=3), Support.whole_numbers(3), "codes"),
    "negative-binomial": (NegativeBinomialLikelihood, COUNTS, "counts"),
}
VARIANTS = {
    "grid": (partial(GaussianLikelihood, grid_floor=True), Support.interval(-40.0, 40.0), "grid"),
    "zero-inflated": (partial(NegativeBinomialLikelihood, zero_inflated=True), COUNTS, "counts"),
    "exposure": (partial(NegativeBinomialLikelihood, exposure="total"), COUNTS, "counts"),
    "inflated exposure": (
        partial(NegativeBinomialLikelihood, zero_inflated=True, exposure="total"),
        COUNTS,
        "counts",
    ),
}
ALL = CASES | VARIANTS


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


def laws_of(build, support, draw, event=(4,)):
    """Checks by their names, those last that leave the likelihood in float32."""
    likelihood = fitted(build, draw, event)
    parameters, x = outputs(likelihood), data(draw, 3, event).double()
    return {
        "normalized": lambda: contracts.check_normalized(likelihood, parameters, support),
        "marginalizes": lambda: contracts.check_marginalizes(likelihood, parameters, x, support),
        "distribution": lambda: contracts.check_distribution(likelihood, parameters, x, support),
        "gradients": lambda: contracts.check_gradients(likelihood, parameters, x),
        "folding": lambda: contracts.check_folding(likelihood, parameters, x),
        "exposure": lambda: contracts.check_exposure(likelihood, parameters, x),
        "sample_law": lambda: contracts.check_sample_law(likelihood, parameters[0], support),
        "interface": lambda: contracts.check_interface(likelihood.float(), parameters.float(), x.float()),
        "extremes": lambda: contracts.check_extremes(likelihood.float(), x.float()),
        "initialization": lambda: contracts.check_initialization(build(event), data(draw, 50, event)),
    }


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("event", [(4,), (2, 2, 1)], ids=["table", "image"])
def test_every_law_holds(kind, event):
    for name, check in laws_of(*ALL[kind], event).items():
        if name != "sample_law" or len(event) == 1:
            check()


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
    own, state = GumbelLikelihood((4,)), torch.get_rng_state()
    contracts.check_likelihood(own, data("reals", 50, (4,)), Support.interval(-20.0, 80.0), sizes=(30.0,))
    assert own.log_scale.grad is None
    assert own.log_scale.count_nonzero() == 0  # a copy was tried
    assert torch.equal(torch.get_rng_state(), state)  # all draws are from the seed


def variance_of_another_convention(self, right, parameters, generator=None):
    mean = self.mean(parameters)
    size = (-self.log_size).exp().expand_as(mean)
    rate = torch._standard_gamma(size, generator=generator) * mean / size
    return torch.poisson(rate, generator=generator)


def masked_after(self, right, parameters, x, observed=None):
    terms = self.feature_log_prob(parameters, x)
    return terms.sum(-1) if observed is None else torch.where(observed, terms, 0).sum(-1)


def log_of_a_rounded_probability(self, right, parameters, x):
    q = torch.sigmoid(self._only(parameters))
    return (x * q + (1 - x) * (1 - q)).log()


# what is wrong -> (kind, law that is broken, method, the wrong one: of self, the right method, its arguments)
PLANTED = {
    "zeros are added, and other counts keep their probability": (
        *("zero-inflated", "normalized", "feature_log_prob"),
        lambda self, right, p, x: right(p, x) - (x != 0) * nn.functional.logsigmoid(-self._logits(p)),
    ),
    "draws have no added zeros": (
        *("zero-inflated", "sample_law", "sample"),
        lambda self, right, p, **more: right(torch.cat([p[..., :4], p[..., 4:] - 30], -1), **more),
    ),
    "the exposure is read off entries that were not observed": (
        *("exposure", "exposure", "at_exposure"),
        lambda self, right, p, x, observed=None: right(p, x.nan_to_num(7.0)),
    ),
    "the exposure changes the added zeros too": (
        *("inflated exposure", "distribution", "feature_log_prob"),
        lambda self, right, p, x: right(p + self._log_exposure(x, None), x),
    ),
    "the standard deviation of draws lacks the feature's scale": (
        *("gaussian", "sample_law", "sample"),
        lambda self, right, p, **more: self.mean(p) + self._scale() * torch.empty_like(p).normal_(**more),
    ),
    "draws are 1 - x": (
        *("bernoulli", "sample_law", "sample"),
        lambda self, right, p, **more: right(-p, **more),
    ),
    "draws have variance mu + r mu^2": (
        *("negative-binomial", "sample_law", "sample"),
        variance_of_another_convention,
    ),
    "the generator is forgotten": (
        *("bernoulli", "sample_law", "sample"),
        lambda self, right, p, **more: right(p),
    ),
    "the density of standardized x is taken for that of x": (
        *("gaussian", "normalized", "feature_log_prob"),
        lambda self, right, p, x: right(p, x) + self.standardizer.scale.log(),
    ),
    "Poisson's law, the dispersion forgotten": (
        *("negative-binomial", "distribution", "feature_log_prob"),
        lambda self, right, p, x: torch.xlogy(x, self.mean(p)) - self.mean(p) - torch.lgamma(x + 1),
    ),
    "the feature's start is left out of the mean": (
        *("negative-binomial", "distribution", "mean"),
        lambda self, right, p: self.unfold(p).squeeze(-2).exp(),
    ),
    "codes run fastest in the folded axis": (
        *("categorical", "folding", "unfold"),
        lambda self, right, p: p.unflatten(-1, (4, 3)).transpose(-1, -2),
    ),
    "a mask after the density leaves NaN in the gradient": (
        *("gaussian", "marginalizes", "log_prob"),
        masked_after,
    ),
    "unobserved entries count as 0": (
        *("bernoulli", "marginalizes", "log_prob"),
        lambda self, right, p, x, seen=None: right(p, x if seen is None else x.masked_fill(~seen, 0)),
    ),
    "the learned scale gets no gradient": (
        *("gaussian", "gradients", "_scale"),
        lambda self, right: right().detach() + 0 * self.log_scale,
    ),
    "the density has the decoder's precision": (
        *("bernoulli", "interface", "unfold"),
        lambda self, right, p: right(p).to(p.dtype),
    ),
    "NaN reaches the encoder": (
        *("negative-binomial", "interface", "network_input"),
        lambda self, right, x, observed=None: right(x),
    ),
    "the log of a probability that rounds to 0 or 1": (
        *("bernoulli", "extremes", "feature_log_prob"),
        log_of_a_rounded_probability,
    ),
    "statistics over entries that were not observed": (
        *("bernoulli", "initialization", "initialize_"),
        lambda self, right, x, observed=None: right(x),
    ),
}


@pytest.mark.parametrize(("kind", "law", "method", "wrong"), PLANTED.values(), ids=PLANTED)
def test_planted_faults_are_rejected(kind, law, method, wrong):
    build, support, draw = ALL[kind]
    base, settings = (build.func, build.keywords) if isinstance(build, partial) else (build, {})
    right = getattr(base, method)
    body = {method: lambda self, *given, **more: wrong(self, partial(right, self), *given, **more)}
    fault = partial(type("Faulty", (base,), body), **settings)
    laws = laws_of(fault, support, draw)
    with pytest.raises(AssertionError):
        laws[law]()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("num_draws", [1, 5])
def test_values_may_lie_in_memory_in_any_order(kind, num_draws):
    build, _, draw = ALL[kind]
    likelihood, x = fitted(build, draw, (6,)).float(), data(draw, 7, (6,))
    parameters = torch.stack([outputs(likelihood, 7, 1.0 + number) for number in range(num_draws)]).float()
    expected = likelihood.log_prob(parameters, x)
    apart = torch.empty(7, 12)[:, ::2].copy_(x)
    for other in (x.T.contiguous().T, apart):
        torch.testing.assert_close(likelihood.log_prob(parameters, other), expected)
