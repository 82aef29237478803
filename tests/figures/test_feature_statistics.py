"""Means and correlations of a table against those of samples."""

import numpy as np
import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.run import draw_feature_statistics, feature_statistics_table
from discrete_vae.figures.style import save_figure

NUM_FEATURES = 30


def mixture(shape, seed, *, flip=0.1, coupled=True):
    """Means of x given one of two centers, (*shape, feature); without coupling, each feature takes its own center."""
    random = np.random.default_rng(seed)
    own = (*shape, NUM_FEATURES if not coupled else 1)
    center = np.arange(NUM_FEATURES) % 2 == 0
    kind = random.random(own) < 0.5
    return torch.from_numpy(np.where(kind ^ center, 1 - flip, flip))


def draw(means, seed):
    return torch.bernoulli(means, generator=torch.Generator().manual_seed(seed))


def test_samples_of_the_right_model_lie_in_the_band():
    """Both axes estimate +-0.64, the correlation of two bits flipped with probability 0.1."""
    found = feature_statistics_table(draw(mixture((1000,), 0), 0), draw(mixture((20, 200), 1), 1))
    assert (found.num_examples, found.num_samples) == (1000, 4000)
    assert len(found.correlations.data) == NUM_FEATURES * (NUM_FEATURES - 1) // 2
    np.testing.assert_allclose(np.abs(found.correlations.samples), 0.64, atol=0.07)
    np.testing.assert_allclose(np.abs(found.correlations.data), 0.64, atol=0.13)
    assert 0.9 < found.correlations.share_inside <= 1
    assert found.means.share_inside > 0.6  # of one shared coin: all features err together


def test_independent_noise_fills_the_band_as_normal_errors_do():
    x = draw(torch.full((2000, 100), 0.3), 0)
    found = feature_statistics_table(x, draw(torch.full((20, 100, 100), 0.3), 1))
    assert abs(found.correlations.share_inside - 0.95) < 0.015  # 4950 pairs
    assert abs(found.means.share_inside - 0.95) < 0.09


def test_a_model_without_the_correlations_is_seen():
    found = feature_statistics_table(
        draw(mixture((1000,), 0), 0), draw(mixture((20, 200), 1, coupled=False), 1)
    )
    assert found.means.share_inside > 0.6
    assert found.correlations.share_inside < 0.01


def test_a_model_with_other_means_is_seen():
    x = draw(torch.full((1000, 10), 0.4), 0)
    found = feature_statistics_table(x, draw(torch.full((20, 200, 10), 0.5), 1)).means
    assert found.share_inside == 0
    assert abs(found.distance - 0.1) < 0.02


def test_constant_features_have_no_correlation():
    x = draw(torch.full((100, 4), 0.5), 0)
    x[:, 1] = 0
    x[:, 3] = 1
    found = feature_statistics_table(x, draw(torch.full((20, 20, 4), 0.5), 1))
    assert len(found.correlations.data) == 1
    assert np.isfinite(found.correlations.std_error).all()


def test_of_very_many_features_some_are_compared():
    found = feature_statistics_table(
        draw(torch.full((50, 700), 0.5), 0), draw(torch.full((10, 10, 700), 0.5), 1)
    )
    assert len(found.means.data) == 700
    assert len(found.correlations.data) == 256 * 255 // 2


@pytest.mark.parametrize(
    ("num_examples", "num_features", "num_chains"),
    [(100, 1, 40), (100, 300, 40), (1, 5, 40), (2, 5, 1), (6, 12, 2)],
)
def test_picture(num_examples, num_features, num_chains, tmp_path, read_picture):
    x = draw(torch.full((num_examples, num_features), 0.3), 0)
    table = feature_statistics_table(x, draw(torch.full((5, num_chains, num_features), 0.3), 1))
    save_figure(draw_feature_statistics(table, name="mine"), tmp_path / "table.png")
    picture = read_picture(tmp_path / "table.png")
    assert picture.shape[1] == 1140
    colors = picture.flatten(0, 1)
    assert ((colors[:, 2] - colors[:, 0]) > 0.3).sum() > 10  # points are blue


@pytest.mark.parametrize(
    ("x", "means", "message"),
    [
        (torch.zeros(0, 3), torch.zeros(20, 1, 3), "x must hold at least 1 example; received 0"),
        (torch.zeros(9, 3), torch.zeros(1, 1, 3), "samples must hold at least 2 samples; received 1"),
        (torch.zeros(9, 3), torch.zeros(20, 1, 4), "samples"),
        (torch.full((9, 3), torch.inf), torch.zeros(20, 1, 3), "x must"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(x, means, message):
    with pytest.raises(InvalidInputError, match=message):
        feature_statistics_table(x, means)


def normal(shape, seed, *, coupled=True):
    """Features of other scales and offsets that share one factor, correlation 0.5."""
    random = np.random.default_rng(seed)
    factor = random.normal(size=(*shape, 1 if coupled else 12))
    x = np.sqrt(0.5) * (factor + random.normal(size=(*shape, 12)))
    return torch.from_numpy(x * np.logspace(-2, 3, 12) + np.logspace(-1, 3, 12))


def test_real_values_with_gaps(tmp_path):
    """The band holds what scales, offsets and gaps leave: a right model inside, one without correlations outside."""
    x = normal((2000,), 0)
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.2] = torch.nan
    x[:, 3] = torch.nan  # a feature that was never observed
    found = feature_statistics_table(x, normal((10, 200), 1))
    assert (len(found.means.data), len(found.correlations.data)) == (11, 55)
    np.testing.assert_allclose(found.correlations.data, 0.5, atol=0.11)
    assert found.correlations.share_inside > 0.8
    assert found.means.distance < 0.1
    assert not found.in_unit_interval
    assert feature_statistics_table(x, normal((10, 200), 1, coupled=False)).correlations.share_inside < 0.05
    save_figure(draw_feature_statistics(found), tmp_path / "table.png")
