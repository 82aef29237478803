"""Estimates from noise that is drawn, with Gaussian layers, against quadrature; alpha 1e-6 each."""

import pytest
import torch

from discrete_vae import DisARM, LearnedBaseline, LeaveOneOut, NaiveKL, Reinforce, RunningMean
from discrete_vae.boltzmann.base import enumerate_log_partition
from discrete_vae.objectives.elbo import Batch, loss_gradients
from discrete_vae.objectives.gradients import draw_discretely
from discrete_vae.testing import check_mean
from tests import test_model_exact as plain
from tests.exact_paths import flat_gradient
from tests.test_hierarchy_exact import X, build, exact_terms

LAYERS, TRIANGLE = "one layer, no sharing", "triangle, first unit last"
WEIGHTS = (0.6, 0.8)


def baseline(kind, model, **settings):
    sizes = {"group_of_unit": model.posterior.group_of_unit, "num_features": model.posterior.num_features}
    return kind(**settings, **sizes)


ESTIMATORS = {
    "running mean": lambda model: Reinforce.of(model, baseline=baseline(RunningMean, model)),
    "learned baseline": lambda model: Reinforce.of(
        model, baseline=baseline(LearnedBaseline, model, hidden=[5])
    ),
    "leave-one-out": lambda model: LeaveOneOut.of(model),
    "DisARM": lambda model: DisARM.of(model),
    "naive KL, running mean": lambda model: NaiveKL.of(model, baseline=baseline(RunningMean, model)),
}


def estimates(model, estimator, x, num_batches=40):
    """Rows of the weighted loss less log Z and of its gradient; the estimator learns on the way."""
    generator = torch.Generator().manual_seed(2)
    own = list(estimator.parameters())
    for _ in range(num_batches):
        given = {"log_partition": enumerate_log_partition(model.prior), "generator": generator}
        given |= {"discrete": WEIGHTS[0], "continuous": WEIGHTS[1]}
        loss = model.estimate_gradient(estimator, x.repeat(300, 1), **given).loss
        gradient = flat_gradient(loss, model) if not own else None
        if gradient is None:
            (*found,) = torch.autograd.grad(loss, [*model.parameters(), *own])
            gradient = torch.cat([part.flatten() for part in found[: -len(own)]])
            with torch.no_grad():
                for parameter, of_own in zip(own, found[-len(own) :], strict=True):
                    parameter -= 0.1 * of_own
        yield torch.cat([loss.detach()[None], gradient])


def expected_with_layers(model, num_nodes):
    reconstruction, discrete, continuous = exact_terms(model, num_nodes)
    return WEIGHTS[0] * discrete + WEIGHTS[1] * continuous - reconstruction


def row(loss, model):
    log_z = enumerate_log_partition(model.prior).detach()
    return torch.cat([(loss.detach() - WEIGHTS[0] * log_z)[None], flat_gradient(loss, model)])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_loss_and_every_gradient_are_unbiased_with_gaussian_layers(name):
    model, num_nodes = build(LAYERS)
    estimator = ESTIMATORS[name](model).train()
    found = torch.stack(list(estimates(model, estimator, X)))
    check_mean(found, row(expected_with_layers(model, num_nodes), model), resolution=0.05)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("naive KL, running mean", TRIANGLE),
        ("naive KL, running mean", "overlapping-exponential"),
        ("leave-one-out", "ramps"),
        ("DisARM", "depends on x"),
    ],
)
def test_loss_and_every_gradient_are_unbiased_for_other_transformations(name, case):
    model, num_nodes = plain.build(case)
    reconstruction, kl = plain.exact_elbo(model, num_nodes)
    found = torch.stack(list(estimates(model, ESTIMATORS[name](model), plain.X)))
    check_mean(found, row(WEIGHTS[0] * kl - reconstruction, model), resolution=0.06)


def test_draws_that_agree_in_z_agree_in_all_that_is_below():
    model, _ = build(LAYERS)
    uniforms = torch.rand(1, len(X), 2, dtype=torch.float64).expand(3, -1, -1)
    weights = loss_gradients(len(X), *WEIGHTS, like=X)
    for term in draw_discretely(model, Batch(X, None), weights, uniforms).terms:
        assert torch.equal(term, term[:1].expand(3, -1))


class DropsTooMuch(NaiveKL):
    """A fault: only the last group's score multiplies the energies of pairs."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.before[:-1] = True


def test_a_naive_gradient_that_drops_too_much_is_rejected():
    model, num_nodes = plain.build(TRIANGLE)
    reconstruction, kl = plain.exact_elbo(model, num_nodes)
    found = torch.stack(list(estimates(model, DropsTooMuch.of(model), plain.X)))
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(found, row(WEIGHTS[0] * kl - reconstruction, model))
