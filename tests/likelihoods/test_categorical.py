import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.families import CategoricalLikelihood


def test_one_hot_and_logits_share_their_layout():
    """A decoder that returns a large multiple of the encoder's input gives x back."""
    likelihood = CategoricalLikelihood((2, 3, 4), num_categories=5)
    x = torch.randint(5, (7, 2, 3, 4), generator=torch.Generator().manual_seed(0)).float()
    read = likelihood.network_input(x)
    assert read.shape == (7, 10, 3, 4)
    assert torch.equal(likelihood.mode(100 * read), x)
    torch.testing.assert_close(likelihood.mean(100 * read), x)
    torch.testing.assert_close(likelihood.probabilities(100 * read).flatten(1, 2), read)


def test_start_is_the_frequencies():
    x = torch.tensor([[0.0, torch.nan], [0.0, torch.nan], [2.0, torch.nan]])
    likelihood = CategoricalLikelihood((2,), 3)
    start = likelihood.initialize_(x)
    wanted = torch.tensor([[2.5, 0.5, 1.5], [0.5, 0.5, 0.5]]) / torch.tensor([[4.5], [1.5]])
    torch.testing.assert_close(likelihood.probabilities(start[None])[0].T, wanted)
    torch.testing.assert_close(likelihood.network_input(x, ~x.isnan())[0, 1::2], wanted[1])


def test_rare_codes_are_drawn_at_their_rate():
    """A code of probability 1e-5, in four million draws."""
    likelihood = CategoricalLikelihood((1,), 2)
    logits = torch.tensor([1e-5]).logit()
    rows = torch.cat([torch.zeros(1), logits]).expand(4_000_000, 2)
    count = int(likelihood.sample(rows, generator=torch.Generator().manual_seed(0)).sum())
    assert abs(count - 40) < 5 * 40**0.5


def test_one_category_is_refused():
    with pytest.raises(InvalidInputError, match="num_categories must be at least 2; received 1"):
        CategoricalLikelihood((3,), 1)


def test_what_is_no_code_has_probability_0_and_nan_stays_nan():
    likelihood = CategoricalLikelihood((2,), 3).double()
    logits = torch.randn(
        4, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).requires_grad_()
    x = torch.tensor([[0.0, 2.0], [torch.inf, 1.0], [0.0, -torch.inf], [3.0, 0.5], [torch.nan, 1.0]])
    found = likelihood.log_prob(logits, x)
    wanted = likelihood.distribution(logits[:, 0]).log_prob(x[0]).sum(-1)
    torch.testing.assert_close(found[:, 0], wanted)
    assert (found[:, 1:4] == -torch.inf).all()
    assert found[:, 4].isnan().all()
    (slope,) = torch.autograd.grad(found[:, 0].sum(), logits)
    assert slope.isfinite().all()
    observed = torch.tensor([[False, True]]).expand(5, 2)
    assert likelihood.log_prob(logits, x, observed)[:, [0, 1, 4]].isfinite().all()
