"""The log-likelihood of independent features, against scipy and by hand."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import independent_features
from discrete_vae.likelihoods.families import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    NegativeBinomialLikelihood,
)


@pytest.mark.parametrize("dynamic", [False, True])
def test_equals_the_product_of_bernoulli_laws(dynamic):
    random = np.random.default_rng(0)
    train = random.random((30, 5))
    train = train if dynamic else (train < 0.3).astype(float)
    x = (random.random((9000, 5)) < 0.4).astype(np.float32)  # more rows than one chunk
    means = (train.sum(0) + 0.5) / 31
    per_example = scipy.stats.bernoulli.logpmf(x, means).sum(1)
    found = independent_features(BernoulliLikelihood((5,)), torch.tensor(train), torch.tensor(x))
    assert found.value == pytest.approx(per_example.mean(), abs=1e-12)
    assert found.std_error == pytest.approx(per_example.std(ddof=1) / math.sqrt(9000), abs=1e-12)
    assert found.num_examples == 9000


def test_a_constant_feature_stays_finite():
    found = independent_features(BernoulliLikelihood((2,)), torch.zeros(9, 2), torch.tensor([[1.0, 0.0]]))
    assert found.value == pytest.approx(math.log(0.05) + math.log(0.95))
    assert math.isnan(found.std_error)


def test_a_constant_real_feature_brings_nothing():
    train = torch.cat(
        [torch.randn(99, 1, generator=torch.Generator().manual_seed(0)), torch.full((99, 1), 5.0)], 1
    )
    x = torch.tensor([[0.3, 5.0], [-1.0, 7.0]])
    alone = independent_features(GaussianLikelihood((1,)), train[:, :1], x[:, :1])
    assert independent_features(GaussianLikelihood((2,)), train, x) == alone


def test_another_number_of_features_is_refused():
    with pytest.raises(InvalidInputError, match="x must have shape"):
        independent_features(BernoulliLikelihood((2,)), torch.zeros(9, 2), torch.zeros(9, 3))


def gaps(values, share=0.3):
    return np.where(np.random.default_rng(9).random(values.shape) < share, np.nan, values)


def of_laws(logpmf, train, x):
    """Mean over examples of the sum over their observed entries of each column's own law."""
    terms = np.stack([logpmf(train[:, i][~np.isnan(train[:, i])], x[:, i]) for i in range(x.shape[1])], 1)
    return np.where(np.isnan(x), 0, terms).sum(1).mean()


def gaussian(seen, x):
    return scipy.stats.norm.logpdf(x, seen.mean(), seen.std())


def bernoulli(seen, x):
    p = (seen.sum() + 0.5) / (len(seen) + 1)
    return np.where(x == 1, np.log(p), np.log1p(-p))


def categorical(seen, x):
    counts = np.array([(seen == code).sum() for code in range(4)]) + 0.5
    return np.log(counts / counts.sum())[np.nan_to_num(x).astype(int)]


def negative_binomial(seen, x):
    size = seen.mean() ** 2 / (seen.var() - seen.mean())
    return scipy.stats.nbinom.logpmf(np.nan_to_num(x), size, size / (size + seen.mean()))


@pytest.mark.parametrize(
    ("likelihood", "law", "draw"),
    [
        (GaussianLikelihood, gaussian, lambda random, shape: random.normal(3.0, 2.0, shape)),
        (BernoulliLikelihood, bernoulli, lambda random, shape: 1.0 * (random.random(shape) < 0.3)),
        (
            lambda shape: CategoricalLikelihood(shape, 4),
            categorical,
            lambda random, shape: random.integers(0, 4, shape),
        ),
        (
            NegativeBinomialLikelihood,
            negative_binomial,
            lambda random, shape: random.negative_binomial(2, 0.2, shape),
        ),
    ],
)
def test_each_law_is_fitted_to_what_was_observed(likelihood, law, draw):
    random = np.random.default_rng(0)
    train, x = (gaps(draw(random, (rows, 3)).astype(float)) for rows in (400, 50))
    untouched = likelihood((3,))
    before = {name: value.clone() for name, value in untouched.state_dict().items()}
    found = independent_features(untouched, torch.tensor(train).float(), torch.tensor(x).float())
    assert found.value == pytest.approx(of_laws(law, train, x), abs=2e-5)
    assert all(torch.equal(value, before[name]) for name, value in untouched.state_dict().items())
