"""The objective with a negative phase against the one with enumerated log Z: value, loss and every gradient."""

import math

import pytest
import torch

from discrete_vae import RBM, BernoulliLikelihood, DiscreteVAE, HierarchicalPosterior, SpikeExponential
from discrete_vae.boltzmann.base import enumerate_log_partition
from tests.exact_paths import flat_gradient
from tests.refusals import refused_argument

X = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0]], dtype=torch.float64)
# p(z) = (1, 1, 1, 2) / 5 where the weight is log 2: these five states are an exact sample
STATES = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]], dtype=torch.float64)


def build(num_left=1, num_right=1):
    torch.manual_seed(0)
    prior = RBM(num_left, num_right)
    groups = [list(range(num_left)), list(range(num_left, prior.num_units))]
    posterior = HierarchicalPosterior(4, groups, (3,), SpikeExponential(beta=2.0))
    model = DiscreteVAE(prior=prior, posterior=posterior, likelihood=BernoulliLikelihood((4,))).double()
    with torch.no_grad():
        prior.weight.fill_(math.log(2))
    return model.eval()


def elbo(model, **known):
    return model.elbo(X, generator=torch.Generator().manual_seed(3), **known)


def test_it_agrees_with_enumeration():
    model = build()
    exact, sampled = elbo(model), elbo(model, negative_phase=STATES)
    assert exact.log_partition == pytest.approx(math.log(5))
    assert bool(sampled.value.isnan().all())
    assert bool(sampled.kl_discrete.isnan().all())
    torch.testing.assert_close(exact.loss - math.log(5), sampled.loss, rtol=0, atol=1e-12)
    expected = flat_gradient(exact.loss, model)
    torch.testing.assert_close(flat_gradient(sampled.loss, model), expected, rtol=0, atol=1e-12)
    known = elbo(model, negative_phase=STATES, log_partition=math.log(5))
    torch.testing.assert_close(known.value, exact.value)
    torch.testing.assert_close(flat_gradient(known.loss, model), expected, rtol=0, atol=1e-12)
    mean = elbo(model, negative_phase=STATES, log_partition=math.log(5)).value.mean()
    torch.testing.assert_close(flat_gradient(mean, model), -expected, rtol=0, atol=1e-12)


def test_states_of_another_law_give_another_gradient():
    """The planted fault."""
    model = build()
    wrong = elbo(model, negative_phase=STATES[:4]).loss
    assert (flat_gradient(wrong, model) - flat_gradient(elbo(model).loss, model)).abs().max() > 0.05


def test_a_tensor_with_a_gradient_gives_both():
    model = build()
    given = elbo(model, log_partition=enumerate_log_partition(model.prior))
    torch.testing.assert_close(flat_gradient(given.loss, model), flat_gradient(elbo(model).loss, model))


def test_weights_of_warm_up_reach_the_prior_too():
    model = build()
    loss = elbo(model, negative_phase=STATES).weighted_loss(discrete=0.5)
    terms = elbo(model)
    expected = (0.5 * terms.kl_discrete - terms.reconstruction).mean()
    torch.testing.assert_close(flat_gradient(loss, model), flat_gradient(expected, model), rtol=0, atol=1e-12)


def test_what_does_not_train_the_prior_or_is_no_state_is_named():
    model = build()
    twice = {"negative_phase": STATES, "log_partition": enumerate_log_partition(model.prior)}
    assert refused_argument(elbo, model, **twice) == "log_partition"
    for states in (torch.zeros(3, 3), torch.full((2, 2), -1.0), torch.zeros(2)):
        assert refused_argument(elbo, model, negative_phase=states) == "negative_phase"
    without = elbo(model, log_partition=math.log(5))
    assert refused_argument(lambda: without.loss) == "negative_phase"
    model.prior.requires_grad_(False)
    assert bool(elbo(model, log_partition=math.log(5)).loss.isfinite())


@pytest.mark.parametrize(("num_left", "enumerated"), [(12, True), (13, False)])
def test_enumeration_unasked_ends_at_12_units(num_left, enumerated):
    model = build(num_left, 13)
    with torch.no_grad():
        assert bool(elbo(model).value.isfinite().all()) == enumerated
