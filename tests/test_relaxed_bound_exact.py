"""The bound with importance samples of zeta against quadrature: order, value and every gradient."""

import math

import pytest
import torch

from discrete_vae import OverlappingExponential
from discrete_vae.boltzmann.base import enumerate_log_partition
from discrete_vae.log_partition.estimate import exact_log_partition
from discrete_vae.objectives import importance
from discrete_vae.objectives.elbo import Batch, loss_terms
from discrete_vae.objectives.importance import mean_field_bound
from discrete_vae.posterior import LogitPaths
from discrete_vae.testing import check_mean, enumerate_machine
from tests.exact_paths import flat_gradient, log_prior
from tests.test_model_exact import (
    X,
    build,
    exact_elbo,
    exact_log_likelihood,
    log_likelihood_of,
    quadrature_of,
)
from tests.transformations import OVERLAPPING, log_densities

NODES = 6
CONVERGED = 80


def exact_sum(energy, fields, start=None, *, num_sweeps=None):
    """log Z(b + g) over all states."""
    states = enumerate_machine(energy).states.to(fields.dtype)
    return torch.logsumexp(fields @ states.T - energy.compute_energy(states), -1)


def converged(energy, fields, start, *, num_sweeps=None):
    return mean_field_bound(energy, fields, start, num_sweeps=CONVERGED)


def log_ratio(model, q, of_log_z):
    """log p(zeta) - log q(zeta | x) on the nodes; the first with a bound of the log Z in it, if one is given."""
    zeta = q.nodes.zeta
    off, on = log_densities(model.smoothing, zeta)
    log_one, log_zero = (torch.nn.functional.logsigmoid(sign * q.logits) for sign in (1, -1))
    of_q = torch.logaddexp(log_zero + off, log_one + on).sum(-1)
    machine = enumerate_machine(model.prior)
    if of_log_z is None:
        states = machine.states.to(zeta.dtype)
        of_p = torch.logsumexp(machine.log_prob + off @ (1 - states).T + on @ states.T, -1)
    else:
        start = torch.sigmoid(q.logits + on - off).detach()
        of_p = off.sum(-1) + of_log_z(model.prior, on - off, start) - machine.log_partition
    return of_p - of_q


def exact_bound(model, num_samples, of_log_z=None, weight=1.0, num_nodes=NODES):
    """Mean over X of E log (1/k) sum_j exp(c (log p(zeta) - log q(zeta|x)) + log p(x|zeta)), k at most 2."""
    means = []
    for x in X:
        q = quadrature_of(model, x, num_nodes)
        log_weight = weight * log_ratio(model, q, of_log_z) + log_likelihood_of(model, x, q.nodes.zeta)
        if num_samples == 2:
            pairs = torch.logaddexp(log_weight[:, None], log_weight) - math.log(2)
            log_weight = pairs @ (q.nodes.weight * q.log_q.exp())
        means.append(q.expectation(log_weight))
    return torch.stack(means).mean()


def expected(model, weight=1.0, of_log_z=None):
    value = exact_bound(model, 2, of_log_z, weight)
    return torch.cat([value.detach()[None], flat_gradient(value, model)])


def estimates(model, weight=1.0, num_batches=32, num_rows=300):
    """Rows of the bound, whose value is that of weight 1, and of the weighted bound's gradient."""
    generator = torch.Generator().manual_seed(0)
    x = X.repeat(num_rows, 1)
    for _ in range(num_batches):
        log_z = enumerate_log_partition(model.prior)
        batch = Batch(x, None, log_z - log_z.detach(), 2, weight, generator)
        reconstruction, relative, _ = loss_terms(model, batch)
        value = (reconstruction - relative).detach().mean() - log_z.detach()
        gradient = flat_gradient((reconstruction - weight * relative).mean(), model)
        yield torch.cat([value[None], gradient])


@pytest.mark.parametrize("kind", OVERLAPPING)
def test_the_bounds_are_ordered(kind):
    """ELBO <= L'_1 <= L'_2 <= L_2 <= log p(x), L'_1 <= L_1, whatever the sweeps of mean field."""
    model, _ = build(kind)
    with torch.no_grad():
        model.prior.weight.mul_(2)
    reconstruction, kl = exact_elbo(model, NODES)
    elbo = float((reconstruction - kl).detach())
    log_likelihood = float(exact_log_likelihood(model, NODES).mean())

    def bound(num_samples, of_log_z):
        return float(exact_bound(model, num_samples, of_log_z).detach())

    def swept(num_sweeps):
        return lambda energy, fields, start: mean_field_bound(energy, fields, start, num_sweeps=num_sweeps)

    firsts = [bound(1, swept(n)) for n in (1, 2, 5)]
    assert elbo < firsts[0] <= firsts[1] <= firsts[2] < bound(1, exact_sum)
    seconds = [bound(2, mean_field_bound), bound(2, exact_sum)]
    assert firsts[2] < seconds[0] < seconds[1] < log_likelihood
    assert bound(2, exact_sum) == pytest.approx(bound(2, None), abs=1e-9)
    generator, log_z = torch.Generator().manual_seed(3), exact_log_partition(model.prior)
    given = {"log_partition": log_z, "num_importance_samples": 50, "generator": generator}
    with torch.no_grad():
        many = model.elbo(X.repeat(300, 1), **given).value
    assert seconds[0] < float(many.mean()) < log_likelihood


def test_mean_field_starts_at_the_elbo():
    """Without a sweep the bound of one draw is the ELBO, z averaged out."""
    model, _ = build("ramps")

    def unswept(energy, fields, start):
        return mean_field_bound(energy, fields, start, num_sweeps=0)

    for x in X:
        q = quadrature_of(model, x, NODES)
        kl = q.expectation(q.log_q - log_prior(model.prior)(q.nodes.z))
        torch.testing.assert_close(q.expectation(log_ratio(model, q, unswept)), -kl, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "weight"), [*((kind, 1.0) for kind in OVERLAPPING), ("overlapping-exponential", 0.3)]
)
def test_value_and_every_gradient_are_unbiased(kind, weight, monkeypatch):
    """With the exact sum for log Z(b + g)."""
    model, _ = build(kind)
    monkeypatch.setattr(importance, "mean_field_bound", exact_sum)
    right = expected(model, weight)
    right[0] = exact_bound(model, 2).detach()
    check_mean(torch.stack(list(estimates(model, weight))), right, resolution=0.05)


def test_mean_field_that_has_converged_has_the_gradient_of_its_value(monkeypatch):
    model, _ = build("overlapping-exponential")
    monkeypatch.setattr(importance, "mean_field_bound", converged)
    check_mean(torch.stack(list(estimates(model))), expected(model, of_log_z=converged), resolution=0.05)


def plain_weights(monkeypatch):
    """A fault: the path through zeta has the weights of the parameters, without the square."""
    monkeypatch.setattr(importance, "path_weights", lambda weights, weight: torch.ones_like(weights))


def no_paths(monkeypatch):
    """A fault: what later groups' logits owe to zeta is left out of the gradient of log q."""
    monkeypatch.setattr(LogitPaths, "gradient", lambda self, pull: torch.zeros_like(pull))


def no_density(monkeypatch):
    """A fault: r(zeta|0) is cancelled before it is differentiated by beta."""
    right = OverlappingExponential.log_density_of_zero
    detached = lambda self, zeta: right(self, zeta).detach()  # noqa: E731
    monkeypatch.setattr(OverlappingExponential, "log_density_of_zero", detached)


def squares_without_warm_up(monkeypatch):
    """A fault: v^2 whatever the weight of the KL."""
    monkeypatch.setattr(importance, "path_weights", lambda weights, weight: weights)


@pytest.mark.parametrize(
    ("fault", "weight"),
    [(plain_weights, 1.0), (no_paths, 1.0), (no_density, 1.0), (squares_without_warm_up, 0.3)],
)
def test_planted_faults_are_rejected(fault, weight, monkeypatch):
    model, _ = build("overlapping-exponential")
    monkeypatch.setattr(importance, "mean_field_bound", exact_sum)
    right = expected(model, weight)
    right[0] = exact_bound(model, 2).detach()
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(torch.stack(list(estimates(model, weight))), right)


def test_quadrature_has_converged():
    model, _ = build("overlapping-power")
    coarse, fine = (exact_bound(model, 2, num_nodes=n).detach() for n in (5, 7))
    torch.testing.assert_close(coarse, fine, rtol=0, atol=1e-4)
