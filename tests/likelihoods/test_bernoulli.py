import pytest
import torch

from discrete_vae.likelihoods.families import BernoulliLikelihood
from discrete_vae.numerics import bernoulli_log_prob


def test_expectation_over_a_binarization():
    """log_prob of means q is sum over bits of q(bits) log p(bits)."""
    likelihood = BernoulliLikelihood((3,))
    q, logits = torch.tensor([0.2, 0.5, 0.9]), torch.tensor([1.0, -2.0, 0.3])
    bits = ((torch.arange(8)[:, None] >> torch.arange(3)) & 1).float()
    weights = torch.where(bits == 1, q, 1 - q).prod(-1)
    expected = (weights * likelihood.log_prob(logits.expand(8, 3), bits)).sum()
    torch.testing.assert_close(likelihood.log_prob(logits[None], q[None])[0], expected)


def test_start_is_the_log_odds_kept_from_the_ends():
    x = torch.tensor([[0.0, 1.0, 1.0, torch.nan], [0.0, 1.0, 0.5, torch.nan]])
    likelihood = BernoulliLikelihood((4,))
    start = likelihood.initialize_(x)
    wanted = torch.logit(torch.tensor([0.001, 0.999, 0.75, 0.5]))
    torch.testing.assert_close(start, wanted)
    assert likelihood.training_mean.tolist() == [0, 1, 0.75, 0.5]


def test_unobserved_entries_read_as_the_training_mean():
    likelihood = BernoulliLikelihood((2,))
    x = torch.tensor([[1.0, torch.nan], [0.0, 1.0], [0.0, 1.0]])
    assert likelihood.network_input(x, ~x.isnan())[0].tolist() == [1.0, 0.5]
    likelihood.initialize_(x)
    assert likelihood.network_input(x, ~x.isnan())[0].tolist() == [1.0, 1.0]
    assert likelihood.network_input(x) is x


@pytest.mark.parametrize("shape", [(784,), (1, 28, 28), (3,), (5000,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
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
    with torch.no_grad():
        found = likelihood.log_prob(logits, x)
    assert found.isnan().nonzero().tolist() == [[3, 1]]
