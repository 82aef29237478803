"""The Bernoulli likelihood."""

import pytest
import torch

from discrete_vae.config import LikelihoodConfig, instantiate, members
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.bernoulli import BernoulliLikelihood


@pytest.mark.parametrize("config", members(LikelihoodConfig))
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_log_prob_is_bernoulli(config, hidden):
    likelihood = instantiate(config(hidden=hidden), num_latents=3, num_features=4).eval()
    zeta, x = torch.rand(6, 3), torch.bernoulli(torch.full((6, 4), 0.5))
    expected = torch.distributions.Bernoulli(likelihood.mean(zeta)).log_prob(x).sum(-1)
    torch.testing.assert_close(likelihood.log_prob(x, zeta), expected, rtol=1e-4, atol=1e-5)


def test_sums_to_one_over_all_x():
    likelihood = BernoulliLikelihood(2, 3)
    x = ((torch.arange(8)[:, None] >> torch.arange(3)) & 1).float()
    total = likelihood.log_prob(x, torch.rand(1, 2).expand(8, 2)).exp().sum()
    assert float(total.detach()) == pytest.approx(1.0, abs=1e-5)


def test_leading_sample_axis():
    likelihood = BernoulliLikelihood(2, 3)
    assert likelihood.log_prob(torch.zeros(5, 3), torch.rand(7, 5, 2)).shape == (7, 5)


def test_without_hidden_layers_it_is_linear_and_logistic():
    likelihood = BernoulliLikelihood(2, 3)
    assert sorted(p.numel() for p in likelihood.parameters()) == [3, 6]


def test_errors():
    with pytest.raises(InvalidInputError, match=r"x must have shape \(batch, 3\)"):
        BernoulliLikelihood(2, 3).log_prob(torch.zeros(1, 4), torch.zeros(1, 2))
    with pytest.raises(InvalidInputError, match=r"inputs\[0\] must have shape \(\.\.\., 2\)"):
        BernoulliLikelihood(2, 3).mean(torch.zeros(1, 4))
    with pytest.raises(InvalidInputError, match="must be a positive integer"):
        BernoulliLikelihood(2, 0)
