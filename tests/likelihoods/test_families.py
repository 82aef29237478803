"""Bernoulli, categorical, Gaussian and negative binomial: what is particular to each."""

import math

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch

from discrete_vae import exact_log_partition
from discrete_vae.config import NegativeBinomialLikelihoodConfig
from discrete_vae.inference import reconstruct_rows
from discrete_vae.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    NegativeBinomialLikelihood,
)
from discrete_vae.likelihoods.counts import negative_binomial_log_prob
from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.testing import all_states
from tests.models import small_model
from tests.refusals import refused_argument


def test_expectation_over_a_binarization():
    """log_prob of means q is sum over bits of q(bits) log p(bits)."""
    likelihood = BernoulliLikelihood((3,))
    q, logits = torch.tensor([0.2, 0.5, 0.9]), torch.tensor([1.0, -2.0, 0.3])
    bits = ((torch.arange(8)[:, None] >> torch.arange(3)) & 1).float()
    weights = torch.where(bits == 1, q, 1 - q).prod(-1)
    expected = (weights * likelihood.log_prob(logits.expand(8, 3), bits)).sum()
    torch.testing.assert_close(likelihood.log_prob(logits[None], q[None])[0], expected)


def test_start_is_the_log_odds_kept_from_the_ends_and_gaps_read_as_the_mean():
    x = torch.tensor([[0.0, 1.0, 1.0, torch.nan], [0.0, 1.0, 0.5, torch.nan]])
    likelihood = BernoulliLikelihood((4,))
    assert likelihood.network_input(x, ~x.isnan())[0].tolist() == [0.0, 1.0, 1.0, 0.5]
    start = likelihood.initialize_(x)
    torch.testing.assert_close(start, torch.logit(torch.tensor([0.001, 0.999, 0.75, 0.5])))
    assert likelihood.training_mean.tolist() == [0, 1, 0.75, 0.5]
    hidden = torch.zeros(2, 4, dtype=torch.bool)
    assert likelihood.network_input(x, hidden)[0].tolist() == [0, 1, 0.75, 0.5]
    assert likelihood.network_input(x) is x


@pytest.mark.parametrize(
    ("shape", "dtype"), [((1, 28, 28), torch.bfloat16), ((3,), torch.float32), ((5000,), torch.float32)]
)
def test_the_compiled_total_is_the_plain_one(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    likelihood = BernoulliLikelihood(shape)
    logits = (30 * torch.randn(7, 2, *shape, generator=generator)).to(dtype)
    x = torch.bernoulli(torch.full((2, *shape), 0.4), generator=generator)
    expected = bernoulli_log_prob(x.double(), logits.double()).flatten(2).sum(-1)
    with torch.no_grad():
        found = likelihood.log_prob(logits, x)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-5)
        logits[3, 1].view(-1)[2] = torch.nan
        assert likelihood.log_prob(logits, x).isnan().nonzero().tolist() == [[3, 1]]


def test_one_hot_and_logits_share_their_layout():
    """A decoder that returns a large multiple of the encoder's input gives x back."""
    likelihood = CategoricalLikelihood((2, 3, 4), num_categories=5)
    x = torch.randint(5, (7, 2, 3, 4), generator=torch.Generator().manual_seed(0)).float()
    read = likelihood.network_input(x)
    assert read.shape == (7, 10, 3, 4)
    assert torch.equal(likelihood.mode(100 * read), x)
    torch.testing.assert_close(likelihood.mean(100 * read), x)
    torch.testing.assert_close(likelihood.probabilities(100 * read).flatten(1, 2), read)


def test_start_is_the_frequencies():
    x = torch.tensor([[0.0, torch.nan], [0.0, torch.nan], [2.0, torch.nan]])
    likelihood = CategoricalLikelihood((2,), 3)
    start = likelihood.initialize_(x)
    wanted = torch.tensor([[2.5, 0.5, 1.5], [0.5, 0.5, 0.5]]) / torch.tensor([[4.5], [1.5]])
    torch.testing.assert_close(likelihood.probabilities(start[None])[0].T, wanted)
    torch.testing.assert_close(likelihood.network_input(x, ~x.isnan())[0, 1::2], wanted[1])


def test_rare_codes_are_drawn_at_their_rate():
    """A code of probability 1e-5, in four million draws."""
    likelihood = CategoricalLikelihood((1,), 2)
    logits = torch.tensor([1e-5]).logit()
    rows = torch.cat([torch.zeros(1), logits]).expand(4_000_000, 2)
    count = int(likelihood.sample(rows, generator=torch.Generator().manual_seed(0)).sum())
    assert abs(count - 40) < 5 * 40**0.5


def test_what_is_no_code_has_probability_0_and_nan_stays_nan():
    likelihood = CategoricalLikelihood((2,), 3).double()
    logits = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    x = torch.tensor([[0.0, 2.0], [torch.inf, 1.0], [0.0, -torch.inf], [3.0, 0.5], [torch.nan, 1.0]])
    found = likelihood.log_prob(logits, x)
    torch.testing.assert_close(found[:, 0], likelihood.distribution(logits[:, 0]).log_prob(x[0]).sum(-1))
    assert (found[:, 1:4] == -torch.inf).all()
    assert found[:, 4].isnan().all()
    (slope,) = torch.autograd.grad(found[:, 0].sum(), logits)
    assert slope.isfinite().all()
    observed = torch.tensor([[False, True]]).expand(5, 2)
    assert likelihood.log_prob(logits, x, observed)[:, [0, 1, 4]].isfinite().all()


def test_the_density_of_a_feature_stays_bounded():
    """However far the learned scale is pushed, a feature adds at most -log(sqrt(2 pi) s min_scale)."""
    x = torch.tensor([[2.0], [4.0]])
    likelihood = GaussianLikelihood((1,))
    likelihood.initialize_(x)
    with torch.no_grad():
        likelihood.log_scale.fill_(-1e6)
    value = likelihood.log_prob(torch.tensor([[-1.0], [1.0]]), x)
    bound = -math.log(math.sqrt(2 * math.pi) * 1e-3)
    torch.testing.assert_close(value, torch.full((2,), bound))
    # a model of before, where the scale of a constant feature was 1, keeps its density
    old = {"location": torch.full((1,), 3.7), "scale": torch.ones(1)}
    state = {f"standardizer.{name}": of_data for name, of_data in old.items()}
    likelihood.load_state_dict(state | {"log_scale": torch.full((1,), -1e6)})
    value = likelihood.log_prob(torch.zeros(1, 1), torch.full((1, 1), 3.7))
    assert value.item() == pytest.approx(bound, abs=1e-4)
    likelihood = GaussianLikelihood((1,), min_scale=0.1)
    with torch.no_grad():
        likelihood.log_scale.fill_(-10.0)
    likelihood.log_prob(torch.zeros(1, 1), torch.ones(1, 1)).sum().backward()
    assert float(likelihood.log_scale.grad) > 0  # the residual is wide: a scale at its floor is not stuck


@pytest.mark.parametrize("shorten_tails", [False, True])
def test_a_constant_feature_brings_nothing(shorten_tails):
    """The likelihood is that of the other features, its gradients too; what is drawn is the constant."""
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    x[:, 2].mul_(3).exp_()  # long tails
    x[:, 1] = 3.7
    both, alone = (GaussianLikelihood((size,), shorten_tails=shorten_tails) for size in (3, 2))
    both.initialize_(x)
    alone.initialize_(x[:, [0, 2]])
    m = torch.randn(400, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    value = both.log_prob(m, x)
    assert torch.equal(value, alone.log_prob(m[:, [0, 2]], x[:, [0, 2]]))
    of_m, of_scale = torch.autograd.grad(value.sum(), (m, both.log_scale))
    assert of_m[:, 1].abs().max() == of_scale[1] == 0
    other = x.clone()
    other[:, 1] = 1e6  # elsewhere than in training
    assert torch.equal(both.log_prob(m, other), value)
    assert torch.equal(both.network_input(other), both.network_input(x))
    for found in (both.mean(m), both.mode(m), both.sample(m), both.distribution(m).sample()):
        assert bool((found[:, 1] == x[0, 1]).all())
    assert bool(both.distribution(m).log_prob(x).isfinite().all())


def test_start_is_the_law_of_the_training_data():
    x = 5 + 3 * torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    likelihood = GaussianLikelihood((2,))
    start = likelihood.initialize_(x)
    law = likelihood.distribution(start[None])
    torch.testing.assert_close(law.mean.detach()[0], x.mean(0))
    torch.testing.assert_close(law.stddev.detach()[0], x.std(0, correction=0))
    assert likelihood.network_input(x).std().item() == pytest.approx(1, abs=1e-3)


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
    x, log_mean = torch.tensor([0.0, 2.0, 40.0, 900.0]), torch.tensor([1.0, 1.0, 3.5, 6.8])
    poisson = torch.distributions.Poisson(log_mean.double().exp()).log_prob(x.double())
    got = negative_binomial_log_prob(x, log_mean, torch.tensor(60.0))  # the limit of a large size
    torch.testing.assert_close(got.double(), poisson, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("log_mean", [-60.0, -45.0, -38.0, 59.0])
def test_a_count_far_from_its_mean_has_a_gradient(log_mean):
    found = []
    for dtype in (torch.float32, torch.float64):
        at = torch.full((4,), log_mean, dtype=dtype, requires_grad=True)
        value = negative_binomial_log_prob(
            torch.tensor([0, 1, 100, 1e6], dtype=dtype), at, torch.zeros((), dtype=dtype)
        )
        found += [value.detach().double(), torch.autograd.grad(value.sum(), at)[0].double()]
    torch.testing.assert_close(found[:2], found[2:], rtol=1e-5, atol=1e-5)


def test_the_size_stays_between_its_bounds_without_a_projection():
    likelihood, values = NegativeBinomialLikelihood((1,)), []
    for given in (-20.0, math.log(1e-4), 90.0, math.log(1e6)):
        torch.nn.init.constant_(likelihood.log_size, given)
        values.append(likelihood.log_prob(torch.zeros(1, 1), torch.tensor([[3.0]])).item())
    assert values[::2] == pytest.approx(values[1::2], rel=1e-6)


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


def test_start_finds_mean_and_size_within_bounds():
    true = NegativeBinomialLikelihood((2,))
    with torch.no_grad():
        true.log_size.copy_(torch.tensor([0.7, 3.0]).log())
        true.log_start.copy_(torch.tensor([5.0, 20.0]).log())
    x = true.sample(torch.zeros(40_000, 2), generator=torch.Generator().manual_seed(0))
    likelihood = NegativeBinomialLikelihood((2,))
    start = likelihood.initialize_(x)
    torch.testing.assert_close(likelihood.mean(start[None])[0], x.mean(0))
    torch.testing.assert_close(likelihood.log_size, true.log_size, rtol=0, atol=0.1)
    with torch.no_grad():
        likelihood.log_size.copy_(torch.tensor([-100.0, 100.0]))
    likelihood.project_()
    sizes = likelihood.log_size.exp().detach()
    torch.testing.assert_close(sizes, torch.tensor([1e-4, 1e6]), rtol=1e-4, atol=0)
    likelihood = NegativeBinomialLikelihood((3,))  # features without spread
    likelihood.initialize_(torch.tensor([[0.0, 4.0, torch.nan]]).repeat(10, 1))
    torch.testing.assert_close(likelihood.log_start.exp(), torch.tensor([0.05, 4.0, 1.0]))
    sizes = likelihood.log_size.exp().detach()
    torch.testing.assert_close(sizes, torch.tensor([1e4, 1e4, 1.0]), rtol=1e-4, atol=0)
    for wrong in ("row", "total"):
        assert refused_argument(NegativeBinomialLikelihood, (1,), exposure=wrong) == "exposure"


def by_hand(x, mean, size, zeros=0.0):
    """log(pi [x = 0] + (1 - pi) NB(x; mu, r)), by SciPy, (..., feature) float64."""
    law = scipy.stats.nbinom(size, size / (size + mean))
    return torch.from_numpy(np.log(zeros * (x == 0) + (1 - zeros) * law.pmf(x)))


def test_counts_of_any_mean_are_drawn():
    likelihood = NegativeBinomialLikelihood((3,))
    torch.nn.init.constant_(likelihood.log_size, 13)  # nearly Poisson
    log_mean = torch.tensor([3.0, 42.0, 80.0])
    drawn = likelihood.sample(log_mean.expand(400, 3), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.double().mean(0).log().float(), log_mean, atol=0.06, rtol=0)


def test_added_zeros_by_hand():
    likelihood = NegativeBinomialLikelihood((3,), zero_inflated=True).double()
    with torch.no_grad():
        likelihood.log_size.copy_(torch.tensor([0.4, 2.0, 30.0]).log())
        likelihood.log_start.copy_(torch.tensor([1.0, 5.0, 9.0]).log())
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 4.0, 12.0]]).double()
    parameters = torch.tensor([[0.3, -0.2, 0.1, -1.0, 0.5, 2.0]]).expand(2, 6).double()
    mean = torch.tensor([1.0, 5.0, 9.0]) * torch.tensor([0.3, -0.2, 0.1]).double().exp()
    zeros = torch.tensor([-1.0, 0.5, 2.0]).double().sigmoid()
    want = by_hand(x.numpy(), mean.numpy(), np.array([0.4, 2.0, 30.0]), zeros.numpy())
    found = likelihood.feature_log_prob(parameters, x)
    torch.testing.assert_close(found, want, rtol=1e-6, atol=1e-6)  # buffers were float32
    law = likelihood.distribution(parameters)
    counts = torch.arange(2000.0).double()[:, None, None]
    probabilities = law.log_prob(counts).exp()
    variance = (probabilities * counts.square()).sum(0) - law.mean.square()
    torch.testing.assert_close(law.variance, variance, rtol=1e-6, atol=1e-6)
    assert (likelihood.mode(parameters)[:, 2] == 0).all()  # the count would be 8 without added zeros


@pytest.mark.parametrize(("zero_inflated", "gaps"), [(False, 0.0), (False, 0.3), (True, 0.3)])
def test_start_finds_the_law_at_its_exposures(zero_inflated, gaps):
    generator = torch.Generator().manual_seed(0)
    shares = torch.linspace(1, 3, 40) / 80
    totals = 2000 * (0.6 * torch.randn(4000, 1, generator=generator)).exp()
    rates = torch._standard_gamma(torch.full((4000, 40), 3.0), generator=generator) / 3
    x = torch.poisson(totals * shares * rates, generator=generator)
    if zero_inflated:
        x = x * (torch.rand(x.shape, generator=generator) > 0.2)
    x = x.masked_fill(torch.rand(x.shape, generator=generator) < gaps, torch.nan)
    likelihood = NegativeBinomialLikelihood((40,), zero_inflated=zero_inflated, exposure="total")
    start = likelihood.fit_marginals_(x)
    # a share has a standard error of at most 1.7 %; alpha is about 1e-6
    torch.testing.assert_close(likelihood.shares, shares, rtol=0.1, atol=0)
    # a total has noise of its own, which adds to that of the counts
    assert 2 < likelihood.log_size.exp().median() < 3.5
    if zero_inflated:
        assert (start[40:].sigmoid() - 0.2).abs().max() < 0.05
        return
    alone = NegativeBinomialLikelihood((40,))
    alone.initialize_(x)
    assert alone.log_size.exp().median() < 1.8  # the spread of the totals is taken for the features' own
    assert 1600 < float(likelihood.reference) < 2400


def test_codes_do_not_see_the_exposure():
    likelihood = NegativeBinomialLikelihood((4,), exposure="total")
    counts = torch.tensor([[3.0, 5.0, 2.0, 0.0], [10.0, 1.0, 4.0, 5.0], [6.0, 6.0, 6.0, 2.0]])
    likelihood.initialize_(counts)
    assert likelihood.reference == 20
    read = likelihood.network_input(counts)
    torch.testing.assert_close(likelihood.network_input(4 * counts), read)
    # what is left of a row with a gap stands for the same total
    shares, observed = likelihood.shares, torch.tensor([[True, True, False, True]])
    row = 100 * shares[None]
    exposed = [
        likelihood.at_exposure(torch.zeros(1, 4), x, mask)
        for x, mask in ((row, None), (row.masked_fill(~observed, torch.nan), observed))
    ]
    torch.testing.assert_close(exposed[1], exposed[0])
    torch.testing.assert_close(likelihood.mean(exposed[0]).sum(), torch.tensor(100.0))
    torch.testing.assert_close(likelihood.mean(torch.zeros(1, 4)).sum(), torch.tensor(20.0))
    nothing = likelihood.at_exposure(torch.zeros(1, 4), torch.zeros(1, 4))
    torch.testing.assert_close(likelihood.mean(nothing).sum(), torch.tensor(0.5))
    unknown = likelihood.at_exposure(torch.zeros(1, 4), torch.zeros(1, 4), torch.zeros(1, 4).bool())
    assert not unknown.any()


def test_the_likelihood_of_a_model_with_exposure_is_that_by_hand():
    """In the limit zeta = z, log p(x | s) is a sum over all states, here with the law written out."""
    likelihood = NegativeBinomialLikelihoodConfig(exposure="total")
    model = small_model(3, hidden=(8,), likelihood=likelihood, missing=True)
    x = torch.tensor([[9.0, 3.0, 8.0], [1.0, 2.0, 2.0], [40.0, 5.0, 15.0], [4.0, 0.0, 0.0]])
    model.initialize_(x)
    with torch.no_grad():
        model.prior.bias.normal_()
        for parameter in model.decoder.parameters():
            parameter.normal_(0, 0.6)
        model.likelihood.log_size.copy_(torch.tensor([1.0, 4.0, 0.5]).log())
    x[3, 1] = torch.nan
    sharp = model.double().eval().discretized()
    law, states = sharp.likelihood, all_states(4).double()
    log_z = exact_log_partition(model.prior).value

    def apart():
        found = sharp.log_likelihood(
            x, 20_000, log_partition=log_z, generator=torch.Generator().manual_seed(1)
        )
        assert found.std_error.max() < 0.05
        return ((found.value - torch.stack(exact)).abs() / found.std_error).max()

    with torch.no_grad():
        rates = (sharp.parameters_of(states) + law.log_start).exp() / law.reference  # (state, feature)
        shares, size = law.shares, law.log_size.exp().numpy()
        log_prior = -sharp.prior.compute_energy(states) - log_z
        exact = []
        for row in x:
            seen = ~row.isnan()
            exposure = row[seen].sum() / shares[seen].sum()
            terms = by_hand(row.nan_to_num().numpy(), (exposure * rates).numpy(), size)
            exact.append((terms[:, seen].sum(1) + log_prior).logsumexp(0))
        assert apart() < 5  # alpha about 2e-6
        law.has_exposure = False  # a fault: the encoder reads rates, and the density has no exposure
        assert apart() > 20
        law.has_exposure = True
    whole = x[:3].double()
    torch.testing.assert_close(model.reconstruct(2 * whole, seed=3), 2 * model.reconstruct(whole, seed=3))
    rows = reconstruct_rows(model, 2 * whole), 2 * reconstruct_rows(model, whole)
    torch.testing.assert_close(*rows, check_dtype=False)
