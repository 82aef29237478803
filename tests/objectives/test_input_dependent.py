"""Reconstruction and KL under a transformation that depends on x, against quadrature, and faults that are rejected."""

import dataclasses

import pytest
import torch

from discrete_vae import RBM, SpikeGaussian, kl_to_boltzmann
from discrete_vae.testing.enumeration import enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_mean
from tests.objectives import test_kl_boltzmann as of_kl
from tests.objectives import test_reconstruction as of_reconstruction
from tests.oracles.polynomial_posterior import PolynomialPosterior

NODES = 32
OF_X = ([0.4, -0.3, 0.6], [0.5, 0.4, 0.3])  # loc and scale of each unit

# name -> (left, right, groups, offsets of the logits, loc and scale, the prior's mean)
CASES = {
    "three units, three groups": (2, 1, [[0], [1], [2]], [0.3, -0.8, 0.5], OF_X, 0.0),
    "two units in one group": (2, 1, [[0, 1], [2]], [0.5, -0.4, 0.2], OF_X, 1.0),
    "a group across both sides": (2, 1, [[0, 2], [1]], [0.1, 0.6, -0.5], OF_X, -0.5),
    "steep": (1, 1, [[0], [1]], [2.5, -1.5], ([1.0, -0.5], [0.4, 0.25]), 0.3),
}


def build(name, **options):
    left, right, groups, offset, of_x, prior_loc = CASES[name]
    rbm = RBM(left, right).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        rbm.weight.copy_(1.5 * torch.randn(left, right, generator=generator, dtype=torch.float64))
        rbm.bias.copy_(torch.randn(left + right, generator=generator, dtype=torch.float64))
    smoothing = SpikeGaussian(prior_loc, **options)
    return rbm, PolynomialPosterior(groups, smoothing, offset, of_x=of_x)


def exact(rbm, posterior, nodes=NODES):
    """Reconstruction with its gradients, then KL with its gradients."""
    reconstruction = of_reconstruction.exact(posterior, nodes)
    return torch.cat([reconstruction, of_kl.exact_value_and_gradient(rbm, posterior, nodes)])


def estimates(rbm, posterior, kl=kl_to_boltzmann, num_batches=40, batch_size=2000):
    """The same of one draw, a row per batch."""
    generator = torch.Generator().manual_seed(2)
    rows = []
    for _ in range(num_batches):
        groups, zeta = posterior.rsample(batch_size, generator)
        found = of_reconstruction.log_likelihood(zeta).mean()
        divergence = kl(rbm, groups, log_partition=enumerate_machine(rbm).log_partition).mean()
        of_zeta = torch.autograd.grad(found, list(posterior.parameters()), retain_graph=True)
        of_kl_term = of_kl.flat_gradient(divergence, of_kl.parameters(rbm, posterior))
        parts = [found.detach()[None], *(gradient.flatten() for gradient in of_zeta)]
        rows.append(torch.cat([*parts, divergence.detach()[None], of_kl_term]))
    return torch.stack(rows)


@pytest.mark.parametrize("name", CASES)
def test_every_value_and_gradient_is_unbiased(name):
    """Gradients for loc and scale are among them, and the units' own terms are differentiated through q too."""
    model = build(name)
    check_mean(estimates(*model), exact(*model), resolution=0.03, rounding=1e-8)


def test_quadrature_has_converged():
    model = build("three units, three groups")
    torch.testing.assert_close(exact(*model), exact(*model, 40), rtol=1e-7, atol=1e-7)


def test_the_shifted_form_has_right_values_and_biased_gradients():
    rbm, posterior = build("three units, three groups", shifted=True)
    found, expected = estimates(rbm, posterior), exact(rbm, posterior)
    size = 1 + sum(parameter.numel() for parameter in posterior.parameters())
    values = torch.tensor([0, size])
    check_mean(found[:, values], expected[values], resolution=0.03)
    for of_term in (slice(size), slice(size, None)):
        with pytest.raises(AssertionError, match="standard errors apart"):
            check_mean(found[:, of_term], expected[of_term])


def without_the_term(rbm, groups, log_partition):
    """A fault: as if prior and posterior shared r."""
    bare = [dataclasses.replace(group, kl_of_zeta=None) for group in groups]
    return kl_to_boltzmann(rbm, bare, log_partition=log_partition)


def fixed_q(rbm, groups, log_partition):
    """A fault: the term has the right value, and sends no gradient to q."""
    kl = without_the_term(rbm, groups, log_partition)
    for group in groups:
        q = torch.sigmoid(group.logits)
        kl = kl + (group.kl_of_zeta / q * q.detach()).sum(-1)
    return kl


@pytest.mark.parametrize("fault", [without_the_term, fixed_q])
def test_planted_faults_are_rejected(fault):
    model = build("three units, three groups")
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(*model, fault), exact(*model))
