"""The limit beta -> infinity is the model with zeta = z, and the trained model comes back unharmed."""

from itertools import pairwise

import pytest
import torch

from discrete_vae import RBM, DiscreteVAE, HierarchicalPosterior, SpikeExponential, SpikeSlab
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.log_likelihood import evaluate_log_likelihood
from discrete_vae.evaluation.sharp_limit import has_sharp_limit, sharp_limit
from discrete_vae.likelihoods.bernoulli import BernoulliLikelihood
from discrete_vae.smoothing.sharp_limit import SharpLimit
from discrete_vae.testing.enumeration import enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_mean


def make_model(smoothing):
    torch.manual_seed(0)
    posterior = HierarchicalPosterior(4, [[0], [1, 2]], (5,), smoothing)
    model = DiscreteVAE(prior=RBM(2, 1), posterior=posterior, likelihood=BernoulliLikelihood((4,)))
    with torch.no_grad():
        for parameter in [*model.prior.parameters(), *model.decoder.parameters()]:
            parameter.normal_()
    return model.eval()


def test_zeta_is_z_and_smoothing_comes_back():
    model = make_model(SpikeExponential(beta=2.0))
    smoothing = model.smoothing
    with sharp_limit(model):
        drawn = model.encode(torch.zeros(50, 4))
    assert torch.equal(drawn.zeta, drawn.z)
    with pytest.raises(InvalidInputError), sharp_limit(model):
        model.encode(torch.zeros(50, 3))
    assert model.smoothing is smoothing
    assert (has_sharp_limit(model), has_sharp_limit(make_model(SpikeSlab()))) == (True, False)


def test_it_is_the_limit_of_large_beta():
    rho = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = torch.linspace(-4, 4, 1000, dtype=torch.float64)
    sharp, steep = SharpLimit().icdf(rho, logits), SpikeExponential(beta=1e6).double().icdf(rho, logits)
    torch.testing.assert_close(sharp, steep, rtol=0, atol=1e-3)
    assert SharpLimit().cdf(torch.tensor([0.0, 0.5, 1.0]), torch.zeros(3)).tolist() == [0.5, 0.5, 1.0]


def test_importance_sampling_converges_to_the_sum_over_all_bits():
    """log p(x) of the limit is a finite sum; more samples do not lower the mean, and the last mean is exact."""
    model, x = make_model(SpikeExponential(beta=1.5)), torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    machine = enumerate_machine(model.prior)
    log_z = float(machine.log_partition.detach())
    with torch.no_grad():
        log_joint = (
            model.likelihood.log_prob(
                model.decoder(machine.states.float()), x.expand(len(machine.states), -1)
            ).double()
            + machine.log_prob
        )
        exact = float(torch.logsumexp(log_joint, 0))
    means = []
    with sharp_limit(model):
        for num_samples, repeats in ((1, 400), (4, 400), (100, 400), (2000, 60)):
            values = [
                evaluate_log_likelihood(
                    model, x, log_partition=log_z, num_samples=num_samples, seed=seed
                ).value
                for seed in range(repeats)
            ]
            values = torch.tensor(values, dtype=torch.float64)
            means.append((float(values.mean()), float(values.std()) / repeats**0.5))
    for (low, error), (high, other) in pairwise(means):
        assert high > low - 5 * (error + other)
    assert means[0][0] < exact - 5 * means[0][1]
    check_mean(values[:, None], torch.tensor([exact]), resolution=0.01)
