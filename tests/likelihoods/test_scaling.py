"""Scales of features: moments, standard units, and long tails."""

import numpy as np
import pytest
import torch

from discrete_vae.likelihoods.families import GaussianLikelihood
from discrete_vae.likelihoods.scaling import Standardizer, Tails, feature_moments, long_tails
from discrete_vae.testing import likelihoods as contracts
from tests.likelihoods.test_contract import data, outputs


def test_moments_of_observed_entries():
    # several blocks, the last short
    x = 1e4 + torch.randn(9000, 2, 3, generator=torch.Generator().manual_seed(0))
    observed = torch.rand(9000, 2, 3, generator=torch.Generator().manual_seed(1)) < 0.6
    masked = np.ma.masked_array(x.double().numpy(), ~observed.numpy())
    for got in (feature_moments(x, observed), feature_moments(x.masked_fill(~observed, torch.nan))):
        np.testing.assert_array_equal(got.count, observed.sum(0))
        np.testing.assert_allclose(got.mean, masked.mean(0), rtol=1e-13)
        np.testing.assert_allclose(got.variance, masked.var(0), rtol=1e-10)


def test_standardizer():
    standardizer = Standardizer((3,))
    x = torch.tensor([[1.0, 5.0, torch.nan], [3.0, 5.0, torch.nan]])
    standardizer.fit_(x)
    assert standardizer.location.tolist() == [2, 5, 0]
    assert standardizer.scale.tolist() == [1, 0, 1]  # a constant feature is told from one that was never seen
    assert standardizer(x, ~x.isnan()).tolist() == [[-1, 0, 0], [1, 0, 0]]
    assert standardizer(torch.tensor([4.0, 9.0, 3.0])).tolist() == [2, 0, 3]
    assert standardizer(x.bfloat16()).dtype == torch.bfloat16
    got = feature_moments(torch.tensor([0.1, torch.nan, 2.0]).repeat(11, 1))
    assert (got.count.tolist(), got.mean[1:].tolist()) == ([11, 0, 11], [0, 2])
    assert got.variance.tolist() == [0, 0, 0]  # though the mean of eleven times 0.1 rounds
    for small in (Standardizer((1,)), Standardizer((1,)).double()):
        small.fit_(torch.tensor([[0.0], [1e-300]], dtype=torch.float64))
        assert small.scale.tolist() == [0]  # a spread below float32 counts as none


def skewed(rows=400, seed=0):
    """A normal, a log-normal, a reflected log-normal far from 0, and a two-sided one with values around 0."""
    noise = torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    normal, one, other, both = noise.unbind(1)
    heavy = both.sinh() * both.square().exp().clamp_max(50)
    return torch.stack([5 + normal, (1.5 * one).exp(), 900 - 7 * other.exp(), heavy], 1)


def fitted(x):
    likelihood = GaussianLikelihood((4,), shorten_tails=True).double()
    likelihood.initialize_(x)
    with torch.no_grad():
        likelihood.log_scale.copy_(torch.tensor([-0.3, -1.0, -0.6, -0.8]))
    return likelihood


def test_the_density_integrates_to_1_and_has_that_mean_and_mode():
    """By the trapezoidal rule on points that are dense where x is likely, of one feature after the other."""
    likelihood = fitted(skewed())
    assert likelihood.tails.is_long.tolist() == [False, True, True, True]
    parameters = outputs(likelihood)
    law = likelihood.distribution(parameters)
    y = law.loc + law.scale * torch.linspace(-9, 9, 40_001, dtype=torch.float64)[:, None, None]
    x = likelihood.tails.invert(y)
    density = likelihood.feature_log_prob(parameters, x).exp()
    torch.testing.assert_close(likelihood.feature_log_prob(parameters, x), law.log_prob(x))
    total, mean = torch.trapezoid(density, x, dim=0), likelihood.mean(parameters)
    torch.testing.assert_close(total, torch.ones(3, 4).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(torch.trapezoid(density * x, x, dim=0), mean, atol=0, rtol=1e-5)
    torch.testing.assert_close(law.mean, mean)
    best = likelihood.feature_log_prob(parameters, likelihood.mode(parameters))
    assert (best >= density.log().amax(0) - 1e-9).all()


def test_draws_have_the_law():
    likelihood = fitted(skewed())
    parameters = outputs(likelihood)[0].expand(200_000, -1)
    drawn = likelihood.sample(parameters, generator=torch.Generator().manual_seed(3))
    law = likelihood.distribution(parameters[:1])
    score = (likelihood.tails(drawn) - law.loc) / law.scale

    def is_normal(score):  # alpha 5e-6 for the eight moments
        mean, variance = score.mean(0), score.var(0)
        return mean.abs().max() < 5 * 200_000**-0.5 and (variance - 1).abs().max() < 5 * 100_000**-0.5

    assert is_normal(score)
    assert not is_normal(score + 0.03)  # planted
    assert not is_normal(1.02 * score)
    again = law.sample(torch.Size([100]))
    assert again.shape == (100, 1, 4)


def test_the_contract_of_likelihoods():
    likelihood, x = fitted(skewed()), skewed(3, seed=1)
    contracts.check_gradients(likelihood, outputs(likelihood), x)
    contracts.check_folding(likelihood, outputs(likelihood), x)
    contracts.check_interface(likelihood.float(), outputs(likelihood).float(), x.float())
    contracts.check_extremes(likelihood, x.float())
    contracts.check_initialization(GaussianLikelihood((4,), shorten_tails=True), skewed(60).float())
    images = GaussianLikelihood((2, 2, 1), shorten_tails=True)
    contracts.check_initialization(images, data("reals", 50, (2, 2, 1)))


def test_a_wrong_scale_is_noticed():
    """A density without its change of variables does not integrate to 1."""
    likelihood = fitted(skewed())
    likelihood.tails.log_slope = torch.zeros_like
    with pytest.raises(AssertionError):
        contracts.check_normalized(likelihood, outputs(likelihood), contracts.Support.interval(-3e3, 3e3))


def test_features_without_long_tails_stay_as_they_are():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, 2, generator=generator)
    zeros = (3 * noise[:, :1]).exp() * (noise[:, 1:2] > -0.6)  # a quarter of them
    constant, nothing = torch.full((4000, 1), 7.0), torch.full((4000, 1), torch.nan)
    x, values = torch.cat([noise, zeros, constant, nothing], 1), []
    assert not long_tails(x).any()
    gaps = torch.rand(x.shape, generator=generator) < 0.4  # of what is there a quarter are zeros
    assert not long_tails(x.masked_fill(gaps, torch.nan)).any()
    for shorten in (False, True):
        likelihood = GaussianLikelihood((5,), shorten_tails=shorten)
        values.append(likelihood.log_prob(likelihood.initialize_(x).expand(4000, -1), x.nan_to_num()))
    assert torch.equal(*values)


def test_features_on_their_own_have_the_scale_of_the_model():
    """A model whose scales were chosen by another rule is compared on these scales."""
    x = torch.from_numpy(np.random.default_rng(0).beta(0.2, 0.2, (500, 2))).float()
    likelihood = GaussianLikelihood((2,), shorten_tails=True)
    likelihood.initialize_(x)
    assert not likelihood.tails.is_long.any()
    plain = likelihood.log_prob(likelihood.fit_marginals_(x).expand(500, 2), x).mean()
    likelihood.tails.is_long.fill_(True)
    likelihood.tails.width.fill_(0.01)
    start = likelihood.fit_marginals_(x)
    assert likelihood.tails.is_long.all()
    assert likelihood.log_prob(start.expand(500, 2), x).mean() > plain + 0.1
    fresh = GaussianLikelihood((2,), shorten_tails=True)
    again = fresh.log_prob(fresh.fit_marginals_(x).expand(500, 2), x).mean()
    torch.testing.assert_close(again, plain.detach())


def test_values_and_outputs_far_out_stay_finite():
    likelihood = fitted(skewed()).float()
    far = torch.tensor([[-1e4], [1e4]]).expand(2, 4)
    for values in (likelihood.mean(far), likelihood.mode(far), likelihood.sample(far)):
        assert values.isfinite().all()
    x = torch.tensor([0.0, 1e-30, 0.0, 1e-30, 1e4, 2e-30, 1e4, 0.0, 1e-30, 3e4])[:, None]
    tails = Tails((1,))
    tails.fit_(x)
    assert tails(x).isfinite().all()
    assert tails.log_slope(x).isfinite().all()


LAWS = {
    "normal": lambda random, size: random.normal(size=size),
    "uniform": lambda random, size: random.random(size),
    "heaped at both ends": lambda random, size: random.beta(0.2, 0.2, size),
    "percent": lambda random, size: np.round(100 * random.beta(0.4, 0.6, size)),
    "two groups": lambda random, size: random.normal(8 * (random.random(size) < 0.5), 1.0),
    "exponential": lambda random, size: random.exponential(size=size),
    "lognormal": lambda random, size: random.lognormal(0, 1, size),
    "t3": lambda random, size: random.standard_t(3, size),
}


@pytest.mark.parametrize(
    ("law", "least", "most"),
    [
        *((law, (0, 0, 0), (0.02, 0, 0)) for law in ("normal", "uniform", "heaped at both ends", "percent")),
        ("two groups", (0, 0, 0), (0.06, 0, 0)),
        ("exponential", (0.85, 1, 1), (1, 1, 1)),
        ("lognormal", (0.95, 1, 1), (1, 1, 1)),
        ("t3", (0.45, 0.85, 1), (1, 1, 1)),
    ],
)
def test_tails_are_judged_by_their_length(law, least, most):
    """Shares of features of 100, 1,000 and 10,000 values; the bounds leave 5 standard errors."""
    random = np.random.default_rng(0)
    shares = [
        float(long_tails(torch.from_numpy(LAWS[law](random, (rows, features)))).double().mean())
        for rows, features in ((100, 600), (1000, 100), (10_000, 10))
    ]
    assert all(low <= share <= high for low, share, high in zip(least, shares, most, strict=True)), shares
    scaled = torch.from_numpy(LAWS[law](random, (100, 50)))
    assert torch.equal(long_tails(1e6 * scaled), long_tails(scaled))


def test_a_peak_on_few_values_gains_nothing():
    """log p(x) + log(width) is at most 0 where values lie on a grid, and as before elsewhere."""
    random = torch.Generator().manual_seed(0)
    bits = (torch.rand(2000, 2, generator=random) < torch.tensor([0.5, 0.05])).float()
    ages = (40 + 12 * torch.randn(2000, 1, generator=random)).round().clamp(18, 80) / 10
    x = torch.cat([bits, ages, torch.randn(2000, 2, generator=random), torch.full((2000, 1), 7.0)], 1)
    x[:, 4] = x[:, 4].round(decimals=2)  # nearly as many values as rows
    x[::9, 2] = torch.nan
    floors, plain = (GaussianLikelihood((6,), grid_floor=floor) for floor in (True, False))
    for likelihood in (floors, plain):
        likelihood.initialize_(x)
        with torch.no_grad():
            likelihood.log_scale.fill_(-20.0)  # collapsed
    observed = ~x.isnan()
    standard = floors.standardizer(x.nan_to_num())  # each value is foreseen
    width = torch.tensor([1.0, 1.0, 0.1])
    found = floors.feature_log_prob(standard, x.nan_to_num())[:, :3] + width.log()
    torch.testing.assert_close(found[observed[:, :3]].max(), torch.tensor(0.0), rtol=0, atol=1e-3)
    assert plain.feature_log_prob(standard, x.nan_to_num())[:, :2].min() > 5  # without a floor
    others = [each.feature_log_prob(standard, x.nan_to_num())[:, 3:] for each in (floors, plain)]
    torch.testing.assert_close(*others)
    assert floors.floor[1] > 1  # of rare bits: a peak of their own spread would be higher
