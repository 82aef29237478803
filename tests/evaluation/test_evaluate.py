"""Estimates over a data set: sums, errors, keyed noise, the digits of parts, a baseline."""

import copy
import math

import numpy as np
import pytest
import scipy.stats
import torch

from discrete_vae import exact_log_partition
from discrete_vae.config import BinaryColumnConfig, CountColumnConfig
from discrete_vae.evaluation.evaluate import (
    PART_SIZE,
    elbo_parts,
    evaluate_elbo,
    evaluate_log_likelihood,
    independent_features,
    join_log_likelihoods,
    positive_weights,
    repeated_by_weight,
    samples_in_memory,
    standard_error,
    weighted_mean,
)
from discrete_vae.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    NegativeBinomialLikelihood,
    TableLikelihood,
)
from tests.inference.models import small_model, some_bits
from tests.refusals import refused_argument


@pytest.fixture(scope="module")
def model():
    return small_model(scale=0.3)


X = some_bits(12)


def test_log_likelihood_is_the_mean_over_examples(model):
    log_z, seen = exact_log_partition(model.prior).value, []
    given = {"log_partition": log_z, "num_samples": 200}
    estimate = evaluate_log_likelihood(model, X, **given, report=lambda done, mean: seen.append((done, mean)))
    alone = [evaluate_log_likelihood(model, X[:k], **given) for k in (1, 2)]
    assert seen[:2] == [(number, pytest.approx(each.value)) for number, each in enumerate(alone, 1)]
    assert seen[-1] == (12, pytest.approx(estimate.value))
    assert estimate.num_examples == 12
    assert 0 < estimate.monte_carlo_std_error < estimate.std_error
    assert 0 < estimate.doubling_gain < 0.1
    elbo = evaluate_elbo(model, X, **given)
    assert elbo.elbo < estimate.value
    assert elbo.num_samples == 200
    assert math.isnan(alone[0].std_error)  # one example has no spread
    assert math.isnan(evaluate_elbo(model, X[:1], log_partition=0.0).elbo_std_error)


def test_log_partition_shifts_everything_and_its_error_joins(model):
    low, high = (evaluate_log_likelihood(model, X, log_partition=z, num_samples=50).value for z in (0.0, 2.0))
    assert low - high == pytest.approx(2.0)
    a, b = (evaluate_elbo(model, X, log_partition=z, log_partition_std_error=0.15 * z) for z in (0.0, 2.0))
    assert b.kl_discrete - a.kl_discrete == pytest.approx(2.0, abs=1e-5)
    assert a.elbo == pytest.approx(a.reconstruction - a.kl_discrete - a.kl_continuous, abs=1e-9)
    assert b.total_std_error == pytest.approx(math.sqrt(b.elbo_std_error**2 + 0.09))
    assert a.total_std_error == a.elbo_std_error == pytest.approx(b.elbo_std_error)


def test_an_evaluation_of_a_piece_has_the_digits_of_one_in_parts(model):
    size, settings = PART_SIZE + 30, {"log_partition": 2.0, "num_samples": 5}
    x, numbers = some_bits(size, seed=2), range(size)
    parts = [
        evaluate_log_likelihood(model, x[rows], indices=numbers[rows], **settings)
        for rows in (slice(PART_SIZE), slice(PART_SIZE, size))
    ]
    whole = evaluate_log_likelihood(model, x, **settings)
    assert whole == join_log_likelihoods(parts)
    chosen = [2, 3, 7]
    part = evaluate_log_likelihood(model, x[chosen], indices=chosen, **settings).examples
    assert part.index.tolist() == chosen
    for name in ("value", "std_error", "ess"):
        assert getattr(part, name).equal(getattr(whole.examples, name)[chosen])


def test_draws_and_blocks_of_examples_have_noise_of_their_own(model):
    x = some_bits(500).repeat(2, 1)
    once, twice = (elbo_parts(model, x, log_partition=0.0, num_samples=number) for number in (1, 2))
    assert not once[:500].allclose(once[500:])
    assert not once.allclose(twice)


def test_the_budget_decides_the_chunks_and_not_the_estimate(model):
    assert samples_in_memory(model, 1000.0) == 5000
    assert 1 <= samples_in_memory(model, 0.02) < samples_in_memory(model, 0.1) < 3000
    assert samples_in_memory(model, 1e-9) == 1
    elsewhere = copy.deepcopy(model).to("meta")
    assert samples_in_memory(elsewhere, 1000.0) > 5000  # memory alone limits those of an accelerator
    small, large = (
        evaluate_log_likelihood(model, X[:2], log_partition=0.0, num_samples=3000, max_memory=budget)
        for budget in (0.1, 100.0)
    )
    assert small.value == pytest.approx(large.value, abs=1e-5)  # the noise of a sample is its own


@pytest.mark.parametrize(
    ("evaluate", "argument", "value"),
    [
        (evaluate_elbo, "num_samples", 0),
        (evaluate_log_likelihood, "indices", [1]),
        (evaluate_log_likelihood, "max_memory", 0.0),
        *((evaluate_elbo, "weights", each) for each in (np.zeros(12), np.ones(11), np.arange(12.0))),
        (evaluate_elbo, "weights", np.full(12, np.inf)),
    ],
)
def test_wrong_arguments_are_named(model, evaluate, argument, value):
    given = {"log_partition": 0.0, "num_samples": 2, argument: value}
    assert refused_argument(evaluate, model, X, **given) == argument
    likelihood, train = BernoulliLikelihood((2,)), torch.zeros(9, 2)
    assert refused_argument(independent_features, likelihood, train, torch.zeros(9, 3)) == "x"


def test_constant_features_stay_finite_and_a_real_one_brings_nothing():
    found = independent_features(BernoulliLikelihood((2,)), torch.zeros(9, 2), torch.tensor([[1.0, 0.0]]))
    assert found.value == pytest.approx(math.log(0.05) + math.log(0.95))
    assert math.isnan(found.std_error)
    real = torch.randn(99, 1, generator=torch.Generator().manual_seed(0))
    train, x = torch.cat([real, torch.full((99, 1), 5.0)], 1), torch.tensor([[0.3, 5.0], [-1.0, 7.0]])
    alone = independent_features(GaussianLikelihood((1,)), train[:, :1], x[:, :1])
    assert independent_features(GaussianLikelihood((2,)), train, x) == alone


def half_more(seen):
    """Counts of codes with half of one more for each, as shares."""
    counts = np.array([(seen == code).sum() for code in range(4)]) + 0.5
    return counts / counts.sum()


def logpmf_of_counts(seen, x):
    size = seen.mean() ** 2 / (seen.var() - seen.mean())
    return scipy.stats.nbinom.logpmf(np.nan_to_num(x), size, size / (size + seen.mean()))


LAWS = [
    (
        GaussianLikelihood((3,)),
        lambda seen, x: scipy.stats.norm.logpdf(x, seen.mean(), seen.std()),
        lambda random, shape: random.normal(3.0, 2.0, shape),
    ),
    (
        BernoulliLikelihood((3,)),
        lambda seen, x: scipy.stats.bernoulli.logpmf(np.nan_to_num(x), (seen.sum() + 0.5) / (len(seen) + 1)),
        lambda random, shape: 1.0 * (random.random(shape) < 0.3),
    ),
    (
        CategoricalLikelihood((3,), 4),
        lambda seen, x: np.log(half_more(seen))[np.nan_to_num(x).astype(int)],
        lambda random, shape: random.integers(0, 4, shape),
    ),
    (
        NegativeBinomialLikelihood((3,)),
        logpmf_of_counts,
        lambda random, shape: random.negative_binomial(2, 0.2, shape),
    ),
]


@pytest.mark.parametrize(("likelihood", "logpmf", "draw"), LAWS)
def test_each_law_is_fitted_to_what_was_observed(likelihood, logpmf, draw):
    random = np.random.default_rng(0)
    train, x = (
        np.where(random.random((rows, 3)) < 0.3, np.nan, draw(random, (rows, 3))) for rows in (400, 9000)
    )  # more rows than one chunk
    columns = zip(train.T, x.T, strict=True)
    terms = np.stack([logpmf(column[~np.isnan(column)], of_x) for column, of_x in columns], 1)
    per_example = np.where(np.isnan(x), 0, terms).sum(1)
    before = {name: value.clone() for name, value in likelihood.state_dict().items()}
    found = independent_features(likelihood, torch.tensor(train).float(), torch.tensor(x).float())
    assert found.value == pytest.approx(per_example.mean(), abs=2e-5)
    assert found.std_error == pytest.approx(per_example.std(ddof=1) / math.sqrt(9000), rel=1e-4)
    assert found.num_examples == 9000
    assert all(torch.equal(value, before[name]) for name, value in likelihood.state_dict().items())


WEIGHTS = np.array([1.0, 3, 1, 1, 2, 1, 5, 1, 1, 1, 2, 1])
TERMS = ("reconstruction", "kl_discrete", "kl_continuous")


def weighted_error(values):
    """Of the weighted mean, a ratio of two sums over twelve examples."""
    off = WEIGHTS * (values.numpy() - np.average(values, weights=WEIGHTS))
    return math.sqrt(12 / 11 * (off**2).sum()) / WEIGHTS.sum()


def test_weighted_means_are_those_of_repeated_examples(model):
    again = X[np.repeat(np.arange(12), WEIGHTS.astype(int))]
    plain = evaluate_log_likelihood(model, X, log_partition=1.0, num_samples=20)
    found = plain.weighted(torch.from_numpy(WEIGHTS))
    assert found.value == pytest.approx(np.average(found.examples.value.numpy(), weights=WEIGHTS))
    samples = np.sqrt(((WEIGHTS * found.examples.std_error.numpy()) ** 2).sum()) / WEIGHTS.sum()
    assert found.monte_carlo_std_error == pytest.approx(samples)
    assert found.std_error == pytest.approx(weighted_error(found.examples.value))
    assert found.effective_examples == pytest.approx(WEIGHTS.sum() ** 2 / (WEIGHTS**2).sum())
    weighted = independent_features(model.likelihood, X, X, train_weights=WEIGHTS, weights=WEIGHTS)
    repeated = independent_features(model.likelihood, again, again)
    assert weighted.value == pytest.approx(repeated.value, rel=1e-12)
    assert weighted.std_error == pytest.approx(weighted_error(weighted.examples.value))
    elbo = evaluate_elbo(model, X, log_partition=1.0, num_samples=3, weights=WEIGHTS)
    parts = dict(zip(TERMS, elbo_parts(model, X, log_partition=1.0, num_samples=3).T, strict=True))
    parts["elbo"] = parts["reconstruction"] - parts["kl_discrete"] - parts["kl_continuous"]
    for name, values in parts.items():
        assert getattr(elbo, name) == pytest.approx(np.average(values, weights=WEIGHTS))
        assert getattr(elbo, f"{name}_std_error") == pytest.approx(weighted_error(values))
    assert elbo.elbo == pytest.approx(elbo.reconstruction - elbo.kl_discrete - elbo.kl_continuous, rel=1e-6)
    assert elbo.effective_examples == found.effective_examples
    equal = [evaluate_elbo(model, X, log_partition=1.0, weights=each) for each in (None, np.full(12, 0.3))]
    assert equal[0] == equal[1]  # to the last digit


@pytest.mark.parametrize("factor", [2.0**-700, 2.0**700, 2.0**1020])
def test_a_common_factor_of_weights_changes_no_digit(factor, model):
    """Not even one that their squares, or their sum, have no number for."""
    plain = evaluate_log_likelihood(model, X, log_partition=1.0, num_samples=20)
    found, scaled = (plain.weighted(torch.from_numpy(each)) for each in (WEIGHTS, WEIGHTS * factor))
    assert scaled == found
    assert float(standard_error(scaled.examples.value, scaled.examples.weight)) > 0


def test_the_error_of_a_weighted_mean_is_its_spread_over_samples():
    """Of 3,000 samples: the estimated spread has an error of 1.3 %, so 6 % is one false alarm in 100,000."""
    random = np.random.default_rng(0)
    means, errors = [], []
    for _ in range(3000):
        weights = random.exponential(size=150)
        values = torch.from_numpy(random.normal(size=150) + weights)
        weights = torch.from_numpy(weights)
        means.append(float(weighted_mean(values, weights)))
        errors.append(float(standard_error(values, weights)) ** 2)
    spread = np.std(means)
    assert math.sqrt(np.mean(errors)) == pytest.approx(spread, rel=0.06)
    plain = float(values.std()) / math.sqrt(150)  # the planted fault: the error of the plain mean
    assert plain != pytest.approx(spread, rel=0.06)
    equal = standard_error(values, torch.full_like(values, 0.3))
    assert float(equal) == pytest.approx(float(standard_error(values)))


def test_examples_repeat_in_proportion_to_any_weights():
    weights = torch.from_numpy(np.random.default_rng(0).exponential(size=50))
    rows, copies = repeated_by_weight(weights)
    shares = torch.bincount(rows, minlength=50) / 400
    assert copies == 8
    assert float((shares - weights / weights.sum()).abs().max()) < 1 / 400
    # fewer of examples that take much memory
    assert len(repeated_by_weight(weights, num_bytes=2**40)[0]) == 100
    huge = positive_weights(np.array([1.7e308, 1e308, 1.2e308]), 3)
    assert len(repeated_by_weight(huge)[0]) == 24
    rows, copies = repeated_by_weight(torch.tensor([0.1, 0.3], dtype=torch.float64))
    assert (rows.tolist(), copies) == ([0, 1, 1, 1], 1)


@pytest.mark.parametrize(
    "likelihood",
    [
        BernoulliLikelihood((3,)),
        CategoricalLikelihood((3,), 4),
        NegativeBinomialLikelihood((3,)),
        NegativeBinomialLikelihood((3,), zero_inflated=True),
        NegativeBinomialLikelihood((3,), exposure="total"),
        TableLikelihood(
            (3,), [BinaryColumnConfig(name="a"), BinaryColumnConfig(name="b"), CountColumnConfig(name="c")]
        ),
    ],
)
def test_weights_that_hardly_differ_hardly_change_what_a_value_that_was_never_seen_is_worth(likelihood):
    x = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).repeat(40, 1)
    new, weights = torch.tensor([[1.0, 1.0, 1.0]]), torch.ones(80)
    weights[3] = 1.0001
    alike, other = (independent_features(likelihood, x, new, train_weights=each) for each in (None, weights))
    assert other.value == pytest.approx(alike.value, abs=0.02)
