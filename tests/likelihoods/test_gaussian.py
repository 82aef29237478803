import math

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.gaussian import GaussianLikelihood


def test_the_density_of_a_constant_feature_stays_bounded():
    """However far the learned scale is pushed, a feature adds at most -log(sqrt(2 pi) s min_scale)."""
    x = torch.full((10, 1), 3.7)
    likelihood = GaussianLikelihood((1,))
    likelihood.initialize_(x)
    with torch.no_grad():
        likelihood.log_scale.fill_(-1e6)
    value = likelihood.log_prob(torch.zeros(10, 1), x)
    bound = -math.log(math.sqrt(2 * math.pi) * 1e-3)
    torch.testing.assert_close(value, torch.full((10,), bound))
    assert bound == pytest.approx(5.99, abs=0.01)


def test_a_scale_at_its_floor_is_not_stuck():
    likelihood = GaussianLikelihood((1,), min_scale=0.1)
    with torch.no_grad():
        likelihood.log_scale.fill_(-10.0)
    likelihood.log_prob(torch.zeros(1, 1), torch.ones(1, 1)).sum().backward()
    assert float(likelihood.log_scale.grad) > 0  # the residual is wide, the scale must rise


def test_start_is_the_law_of_the_training_data():
    x = 5 + 3 * torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    likelihood = GaussianLikelihood((2,))
    start = likelihood.initialize_(x)
    law = likelihood.distribution(start[None])
    torch.testing.assert_close(law.mean.detach()[0], x.mean(0))
    torch.testing.assert_close(law.stddev.detach()[0], x.std(0, correction=0))
    assert likelihood.network_input(x).std().item() == pytest.approx(1, abs=1e-3)


def test_units_do_not_matter():
    """In other units x has the same density but for the Jacobian."""
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = []
    for scale in (1.0, 1000.0):
        likelihood = GaussianLikelihood((2,)).double()
        likelihood.initialize_(scale * x)
        values.append(likelihood.log_prob(torch.ones_like(x), scale * x) + 2 * math.log(scale))
    torch.testing.assert_close(values[0], values[1])


@pytest.mark.parametrize("min_scale", [0.0, -1.0, 1.0, torch.nan])
def test_floor(min_scale):
    with pytest.raises(InvalidInputError, match="min_scale must be a finite number"):
        GaussianLikelihood((1,), min_scale=min_scale)
