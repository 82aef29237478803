"""The variance of stochastic gradients against laws that are known exactly."""

import math

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.gradient_variance import gradient_variance

STEEP = torch.tensor([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0]])  # g = offset + STEEP^T noise
OFFSET = torch.tensor([3.0, -1.0, 0.5])


def linear(parameter, offset=OFFSET, steep=STEEP):
    return lambda noise: (parameter * (offset + torch.randn(2, generator=noise) @ steep)).sum()


@pytest.fixture
def parameter():
    return torch.zeros(3, requires_grad=True)


def test_trace_and_squared_norm_of_a_known_law(parameter):
    exact, norm = float(STEEP.square().sum()), float(OFFSET.square().sum())
    found = [gradient_variance(linear(parameter), [parameter], num_draws=100, seed=s) for s in range(200)]
    for name, value in (("variance", exact), ("squared_norm", norm)):
        values = torch.tensor([getattr(each, name) for each in found], dtype=torch.float64)
        error = float(values.std()) / math.sqrt(len(values))
        assert abs(float(values.mean()) - value) < 4.9 * error, name
        assert error < 0.05 * value
    spread = torch.tensor([each.variance for each in found]).std()
    stated = torch.tensor([each.std_error for each in found]).mean()
    assert stated == pytest.approx(float(spread), rel=0.2)
    assert found[0].mean.dtype == torch.float64


def test_the_squared_norm_of_the_mean_alone_would_be_too_large(parameter):
    """|mean of the draws|^2 holds the variance / number of draws: with 4 draws the test above would reject it."""
    found = [gradient_variance(linear(parameter), [parameter], num_draws=4, seed=s) for s in range(500)]
    norm, exact = float(OFFSET.square().sum()), float(STEEP.square().sum())
    unbiased = torch.tensor([each.squared_norm for each in found], dtype=torch.float64)
    naive = torch.tensor([float(each.mean.square().sum()) for each in found], dtype=torch.float64)
    error = float(naive.std()) / math.sqrt(len(naive))
    assert abs(float(unbiased.mean()) - norm) < 4.9 * error
    assert abs(float(naive.mean()) - norm - exact / 4) < 4.9 * error
    assert exact / 4 > 4.9 * error / 2


def test_the_distance_of_means_tells_bias_from_chance(parameter):
    reference = gradient_variance(linear(parameter), [parameter], num_draws=400, seed=1)
    noisy = gradient_variance(linear(parameter, steep=5 * STEEP), [parameter], num_draws=400, seed=2)
    biased = gradient_variance(linear(parameter, OFFSET * 1.6), [parameter], num_draws=400, seed=2)
    assert noisy.distance(reference) < 10
    assert biased.distance(reference) > 50
    assert biased.distance(reference) == pytest.approx(reference.distance(biased))
    assert reference.distance(reference) == 0


def test_the_noise_is_keyed(parameter):
    first, again, other = (
        gradient_variance(linear(parameter), [parameter], num_draws=10, seed=seed) for seed in (5, 5, 6)
    )
    assert first.variance == again.variance != other.variance
    assert torch.equal(first.mean, again.mean)
    assert first.seconds > 0


def test_a_parameter_that_is_not_reached_counts_as_zero(parameter):
    other = torch.zeros(4, requires_grad=True)
    alone = gradient_variance(linear(parameter), [parameter], num_draws=10)
    both = gradient_variance(linear(parameter), [parameter, other], num_draws=10)
    assert both.variance == alone.variance
    assert both.mean.tolist() == [*alone.mean.tolist(), 0, 0, 0, 0]


@pytest.mark.parametrize("num_draws", [2, 5, 0, 2.5])
def test_numbers_that_make_no_pairs(parameter, num_draws):
    with pytest.raises(InvalidInputError, match="num_draws must be"):
        gradient_variance(linear(parameter), [parameter], num_draws=num_draws)


def test_other_wrong_arguments(parameter):
    with pytest.raises(InvalidInputError, match="parameters must hold at least one tensor"):
        gradient_variance(linear(parameter), [], num_draws=4)
    with pytest.raises(InvalidInputError, match="the gradient must be finite"):
        gradient_variance(linear(parameter, OFFSET * math.inf), [parameter], num_draws=4)
