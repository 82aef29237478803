"""The bound with importance samples of the Gaussian layers against quadrature: order, value and every gradient."""

import math

import pytest
import torch

from discrete_vae.hierarchy.base import ManyDraws
from discrete_vae.log_partition.estimate import exact_log_partition
from discrete_vae.testing import check_mean
from tests.exact_paths import EXACT, STEPS, by_path, flat_gradient
from tests.test_hierarchy_exact import X, build, exact_log_likelihood, exact_terms, kl_of, posterior_grid

ONE, TWO = "one layer, no sharing", "two layers, complete sharing"
NODES = {ONE: (12, 20), TWO: (8, 14)}


def exact_bound(model, num_samples, num_nodes):
    """Mean over X of E log (1/k) sum_j w_j - KL, from densities and the grid of all k samples' noise."""
    means = []
    for x in X:
        q, weight, log_px, of_h = posterior_grid(model, x, num_nodes)
        log_weight = log_px - of_h
        inner, many = log_weight, weight
        for _ in range(num_samples - 1):
            inner = torch.logaddexp(inner[:, :, None], log_weight[:, None, :]).flatten(1)
            many = (many[:, None] * weight).flatten()
        means.append(q.expectation((inner - math.log(num_samples)) @ many - kl_of(model, q)))
    return torch.stack(means).mean()


def estimates(model, path=EXACT):
    """Rows of the bound with two samples and of its gradient."""
    found = path.estimates(model, X.repeat(400, 1), 40, num_importance_samples=2)
    signs = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
    return torch.stack([torch.cat([(terms.double() @ signs)[None], gradient]) for terms, gradient in found])


def expected(model, num_samples, num_nodes):
    value = exact_bound(model, num_samples, num_nodes)
    return torch.cat([value.detach()[None], flat_gradient(value, model)])


def test_the_bounds_rise_from_the_elbo_to_the_log_likelihood():
    model, num_nodes = build(ONE)
    reconstruction, *kls = exact_terms(model, num_nodes).detach()
    bounds = [exact_bound(model, k, NODES[ONE]).detach() for k in (1, 2, 3)]
    log_likelihood = exact_log_likelihood(model, num_nodes).mean().detach()
    assert float(bounds[0]) == pytest.approx(float(reconstruction - sum(kls)), abs=1e-6)
    rises = torch.stack([*bounds, log_likelihood]).diff()
    assert bool((rises > 1e-4).all())
    generator = torch.Generator().manual_seed(3)
    log_z = exact_log_partition(model.prior)
    with torch.no_grad():
        given = {"log_partition": log_z, "num_importance_samples": 50, "generator": generator}
        values = [model.elbo(X.repeat(4000, 1), **given).value.mean() for _ in range(10)]
    assert float(bounds[-1]) < float(torch.stack(values).mean()) < float(log_likelihood)


@pytest.mark.parametrize(("name", "path"), by_path([ONE, TWO], [TWO], STEPS), ids=str)
def test_value_and_every_gradient_are_unbiased(name, path):
    model, _ = build(name)
    with path.taken(model) as computed:
        found = estimates(computed, path)
    check_mean(found, expected(model, 2, NODES[name]), resolution=0.03, rounding=path.rounding)


def plain_weights(model, monkeypatch):
    """A fault: the path through h has the weights of the parameters, without the square."""
    monkeypatch.setattr(torch.Tensor, "register_hook", lambda *_: None)
    right = ManyDraws.path_gradient
    faulty = lambda self, weights: right(self, torch.ones_like(weights))  # noqa: E731
    monkeypatch.setattr(ManyDraws, "path_gradient", faulty)


def closed_kl(model, monkeypatch):
    """A fault: the KL of the layers in closed form inside the logarithm, in place of each sample's own ratio."""

    def faulty(hierarchy, features, zeta, log_likelihood, num_samples, *, generator=None):
        repeated = zeta.expand(num_samples, *zeta.shape)
        below = hierarchy.rsample(features, repeated, generator=generator)
        found = log_likelihood(below.decoder_input)
        bound = torch.logsumexp(found - below.kl(), 0) - math.log(num_samples)
        return found.mean(0), found.mean(0) - bound

    monkeypatch.setattr("discrete_vae.objectives.elbo.partial_bound", faulty)


def no_indirect_path(model, monkeypatch):
    """A fault: what later layers' networks read of h is left out of the gradient of log q."""
    right = ManyDraws.path_gradient

    def faulty(self, weights):
        found = right(self, weights)
        direct = -weights[..., None] * self.noise[..., 0, :] * torch.exp(-self.layers[0].log_std.detach())
        return torch.cat([direct.unsqueeze(-2), found[..., 1:, :]], -2)

    monkeypatch.setattr(ManyDraws, "path_gradient", faulty)


@pytest.mark.parametrize(("fault", "name"), [(plain_weights, ONE), (closed_kl, ONE), (no_indirect_path, TWO)])
def test_planted_faults_are_rejected(fault, name, monkeypatch):
    model, _ = build(name)
    right = expected(model, 2, NODES[name])
    fault(model, monkeypatch)
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(model), right)


def test_the_gradient_of_the_posterior_is_zero_where_it_is_exact():
    """The decoder reads nothing of h and the posterior is the prior: each draw's weights are one constant."""
    model, _ = build(TWO)
    with torch.no_grad():
        model.decoder.network.output.weight.zero_()
        for network in [*model.hierarchy.posterior, *model.hierarchy.prior.networks]:
            network.network.output.weight.zero_()
            network.network.output.bias.copy_(torch.tensor([0.3, -0.2]))
    bound = model.elbo(X, log_partition=0.0, num_importance_samples=5)
    weights = [p for name, p in model.hierarchy.posterior.named_parameters()]
    gradients = torch.autograd.grad(bound.kl_continuous.sum(), weights)
    assert max(float(g.abs().max()) for g in gradients) < 1e-12
