import math

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.families import GaussianLikelihood


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
    assert bound == pytest.approx(5.99, abs=0.01)


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


def test_a_model_of_before_keeps_the_density_of_a_constant_feature():
    """There the scale of a constant feature was 1, and its sigma was learned."""
    likelihood = GaussianLikelihood((1,))
    likelihood.load_state_dict(
        {
            "log_scale": torch.full((1,), -1e6),
            "standardizer.location": torch.full((1,), 3.7),
            "standardizer.scale": torch.ones(1),
        }
    )
    value = likelihood.log_prob(torch.zeros(1, 1), torch.full((1, 1), 3.7))
    assert value.item() == pytest.approx(5.99, abs=0.01)


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
