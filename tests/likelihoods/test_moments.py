import numpy as np
import torch

from discrete_vae.likelihoods.scaling import Standardizer, feature_moments


def test_moments_of_observed_entries():
    x = 1e4 + torch.randn(
        9000, 2, 3, generator=torch.Generator().manual_seed(0)
    )  # several blocks, the last short
    observed = torch.rand(9000, 2, 3, generator=torch.Generator().manual_seed(1)) < 0.6
    masked = np.ma.masked_array(x.double().numpy(), ~observed.numpy())
    for got in (feature_moments(x, observed), feature_moments(x.masked_fill(~observed, torch.nan))):
        np.testing.assert_array_equal(got.count, observed.sum(0))
        np.testing.assert_allclose(got.mean, masked.mean(0), rtol=1e-13)
        np.testing.assert_allclose(got.variance, masked.var(0), rtol=1e-10)


def test_constant_and_unobserved_features():
    x = torch.tensor([0.1, torch.nan, 2.0]).repeat(11, 1)
    got = feature_moments(x)
    assert got.count.tolist() == [11, 0, 11]
    assert got.mean[1:].tolist() == [0, 2]
    assert got.variance.tolist() == [0, 0, 0]  # though the mean of eleven times 0.1 rounds


def test_standardizer():
    standardizer = Standardizer((3,))
    x = torch.tensor([[1.0, 5.0, torch.nan], [3.0, 5.0, torch.nan]])
    standardizer.fit_(x)
    assert standardizer.location.tolist() == [2, 5, 0]
    assert standardizer.scale.tolist() == [1, 0, 1]  # a constant feature is told from one that was never seen
    assert standardizer(x, ~x.isnan()).tolist() == [[-1, 0, 0], [1, 0, 0]]
    assert standardizer(torch.tensor([4.0, 9.0, 3.0])).tolist() == [2, 0, 3]
    assert standardizer(x.bfloat16()).dtype == torch.bfloat16


def test_a_spread_below_float32_counts_as_none():
    for standardizer in (Standardizer((1,)), Standardizer((1,)).double()):
        standardizer.fit_(torch.tensor([[0.0], [1e-300]], dtype=torch.float64))
        assert standardizer.scale.tolist() == [0]
