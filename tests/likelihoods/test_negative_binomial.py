import math

import mpmath
import pytest
import torch

from discrete_vae.likelihoods.families import (
    NegativeBinomialLikelihood,
    negative_binomial_log_prob,
    stirling_error,
)

COUNTS = [0.0, 1.0, 3.0, 7.0, 8.0, 50.0, 3000.0, 200_000.0]
MEANS = [1e-40, 1e-6, 0.3, 4.0, 60.0, 2900.0, 1e6, 1e40]
SIZES = [1e-3, 0.5, 10.0, 1e3, 1e6]


def grid(dtype=torch.float64):
    x, mean, size = (torch.tensor(v, dtype=torch.float64) for v in (COUNTS, MEANS, SIZES))
    x, mean, size = torch.meshgrid(x, mean, size, indexing="ij")
    return x.flatten().to(dtype), mean.flatten().log().to(dtype), size.flatten().log().to(dtype)


def exact(x, log_mean, log_size):
    """log NB and its slopes in log mu and log r, with 60 digits."""
    with mpmath.workdps(60):
        x, mu, r = mpmath.mpf(x), mpmath.exp(mpmath.mpf(log_mean)), mpmath.exp(mpmath.mpf(log_size))
        value = mpmath.loggamma(x + r) - mpmath.loggamma(r) - mpmath.loggamma(x + 1)
        value += r * mpmath.log(r / (r + mu)) + x * mpmath.log(mu / (r + mu))
        by_mean = r * (x - mu) / (r + mu)
        digammas = mpmath.digamma(x + r) - mpmath.digamma(r) + mpmath.log(r / (r + mu))
        return [float(value), float(by_mean), float(r * (digammas + (mu - x) / (r + mu)))]


def test_stirling_error():
    z = torch.logspace(-4, 6, 41, dtype=torch.float64)
    with mpmath.workdps(40):
        mp = [mpmath.mpf(v) for v in z.tolist()]
        logs = [(v + 0.5) * mpmath.log(v) - v + mpmath.log(2 * mpmath.pi) / 2 for v in mp]
        want = [float(mpmath.loggamma(v + 1) - log) for v, log in zip(mp, logs, strict=True)]
    torch.testing.assert_close(stirling_error(z), torch.tensor(want, dtype=z.dtype), rtol=1e-11, atol=1e-13)


def textbook(x, log_mean, log_size):
    size, log_sum = log_size.exp(), torch.logaddexp(log_mean, log_size)
    choose = torch.lgamma(x + size) - torch.lgamma(size) - torch.lgamma(x + 1)
    return choose + size * (log_size - log_sum) + x * (log_mean - log_sum)


def worst_error(function, dtype):
    """Largest error of value, slope in log mu and slope in log r, each over 1 + its own size."""
    inputs = [value.to(dtype).requires_grad_() for value in grid(torch.float32)]
    value = function(*inputs)
    got = torch.stack([value, *torch.autograd.grad(value.sum(), inputs[1:])], -1).detach().double()
    want = torch.tensor([exact(*row) for row in torch.stack(inputs, -1).tolist()], dtype=torch.float64)
    return ((got - want).abs() / (1 + want.abs())).amax(0).tolist()


def test_digits_of_value_and_gradient():
    assert max(worst_error(negative_binomial_log_prob, torch.float64)) < 1e-11
    value, by_mean, by_size = worst_error(negative_binomial_log_prob, torch.float32)
    assert max(value, by_mean) < 1e-5
    assert by_size < 3e-4
    assert max(worst_error(textbook, torch.float32)) > 0.3  # which is why it is not used


def test_large_size_is_poisson():
    x = torch.tensor([0.0, 2.0, 40.0, 900.0])
    log_mean = torch.tensor([1.0, 1.0, 3.5, 6.8])
    got = negative_binomial_log_prob(x, log_mean, torch.tensor(60.0))
    want = torch.distributions.Poisson(log_mean.double().exp()).log_prob(x.double())
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_variance_is_mean_plus_mean_squared_over_size():
    likelihood = NegativeBinomialLikelihood((1,))
    with torch.no_grad():
        likelihood.log_size.fill_(math.log(2.5))
    law = likelihood.distribution(torch.tensor([[math.log(4.0)]]))
    assert law.mean.item() == pytest.approx(4, rel=1e-5)
    assert law.variance.item() == pytest.approx(4 + 16 / 2.5, rel=1e-5)


def test_the_distribution_has_the_likelihoods_digits():
    likelihood = NegativeBinomialLikelihood((4,))
    with torch.no_grad():
        likelihood.log_size.copy_(torch.tensor([0.5, 10.0, 1e4, 1e6]).log())
    x = torch.tensor([[1e5, 1e5, 1e5, 1e5], [0.0, 7.0, 12345.0, 1e6]])
    parameters = torch.tensor([11.0, 11.5, 11.51, 11.513]).expand(2, 4)
    log_size = likelihood.log_size.detach().expand_as(x)
    rows = torch.stack([x, parameters, log_size], -1).double().flatten(0, 1)
    want = torch.tensor([exact(*row)[0] for row in rows.tolist()]).view_as(x)
    law = likelihood.distribution(parameters)
    torch.testing.assert_close(law.log_prob(x), want, rtol=2e-6, atol=2e-5)
    torch.testing.assert_close(law.log_prob(x.long()), law.log_prob(x))
    joint = torch.distributions.Independent(law.expand((3, 2, 4)), 1)
    torch.testing.assert_close(joint.log_prob(x), likelihood.log_prob(parameters, x).expand(3, 2))
    draws = law.expand((20_000, 2, 4)).sample()
    torch.testing.assert_close(draws.mean(0), law.mean.detach(), rtol=0.1, atol=0)
    textbook_error = (
        torch.distributions.NegativeBinomial(law.total_count, logits=law.logits).log_prob(x) - want
    )
    assert textbook_error.abs().max() > 0.05


def test_start_finds_mean_and_size():
    true = NegativeBinomialLikelihood((2,))
    with torch.no_grad():
        true.log_size.copy_(torch.tensor([0.7, 3.0]).log())
        true.log_start.copy_(torch.tensor([5.0, 20.0]).log())
    x = true.sample(torch.zeros(40_000, 2), generator=torch.Generator().manual_seed(0))
    likelihood = NegativeBinomialLikelihood((2,))
    start = likelihood.initialize_(x)
    torch.testing.assert_close(likelihood.mean(start[None])[0], x.mean(0))
    torch.testing.assert_close(likelihood.log_size, true.log_size, rtol=0, atol=0.1)


def test_start_of_features_without_spread():
    likelihood = NegativeBinomialLikelihood((3,))
    likelihood.initialize_(torch.tensor([[0.0, 4.0, torch.nan]]).repeat(10, 1))
    torch.testing.assert_close(likelihood.log_start.exp(), torch.tensor([0.05, 4.0, 1.0]))
    torch.testing.assert_close(
        likelihood.log_size.exp().detach(), torch.tensor([1e4, 1e4, 1.0]), rtol=1e-4, atol=0
    )


def test_size_is_kept_in_its_bounds():
    likelihood = NegativeBinomialLikelihood((2,))
    with torch.no_grad():
        likelihood.log_size.copy_(torch.tensor([-100.0, 100.0]))
    likelihood.project_()
    torch.testing.assert_close(
        likelihood.log_size.exp().detach(), torch.tensor([1e-4, 1e6]), rtol=1e-4, atol=0
    )
