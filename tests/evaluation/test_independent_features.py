"""The log-likelihood of independent features, against scipy and by hand."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.independent_features import independent_features


@pytest.mark.parametrize("dynamic", [False, True])
def test_equals_the_product_of_bernoulli_laws(dynamic):
    random = np.random.default_rng(0)
    train = random.random((30, 5))
    train = train if dynamic else (train < 0.3).astype(float)
    x = (random.random((9000, 5)) < 0.4).astype(np.float32)  # more rows than one chunk
    means = (train.sum(0) + 0.5) / 31
    per_example = scipy.stats.bernoulli.logpmf(x, means).sum(1)
    found = independent_features(torch.tensor(train), torch.tensor(x))
    assert found.value == pytest.approx(per_example.mean(), abs=1e-12)
    assert found.std_error == pytest.approx(per_example.std(ddof=1) / math.sqrt(9000), abs=1e-12)
    assert found.num_examples == 9000


def test_a_constant_feature_stays_finite():
    found = independent_features(torch.zeros(9, 2), torch.tensor([[1.0, 0.0]]))
    assert found.value == pytest.approx(math.log(0.05) + math.log(0.95))
    assert math.isnan(found.std_error)


def test_another_number_of_features_is_refused():
    with pytest.raises(InvalidInputError, match="x must have shape"):
        independent_features(torch.zeros(9, 2), torch.zeros(9, 3))
