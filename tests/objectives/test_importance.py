"""Bounds with importance samples of layers and of zeta: networks run once, mean field, the ends of the interval."""

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann, MixtureOfRamps, OverlappingPower
from discrete_vae.nets.mlp import MLP
from discrete_vae.objectives.importance import mean_field_bound
from discrete_vae.testing import enumerate_machine
from tests.boltzmann.graphs import randomize
from tests.models import LAYERS, small_model
from tests.transformations import OVERLAPPING, SMOOTHINGS

X = torch.bernoulli(torch.full((8, 5), 0.5), generator=torch.Generator().manual_seed(0))


def model_with_layers():
    return small_model(hierarchy=LAYERS | {"num_layers": 3})


def bound_of(model, num_samples, seed=2):
    given = {"log_partition": 0.0, "negative_phase": torch.zeros(3, 4), "num_importance_samples": num_samples}
    return model.elbo(X, **given, generator=torch.Generator().manual_seed(seed))


def test_each_network_runs_once_over_all_rows(monkeypatch):
    rows = {}

    def counted(self, *inputs, forward=MLP.forward):
        rows.setdefault(self, []).append(max((value.shape[:-1] for value in inputs), key=len))
        return forward(self, *inputs)

    model = model_with_layers().train()
    monkeypatch.setattr(MLP, "forward", counted)
    bound_of(model, 6).loss.backward()
    first, *later = [network.network for network in model.hierarchy.posterior]
    assert rows[first] == [(8,)]
    assert [rows[network] for network in later] == [[(6, 8)]] * 2
    assert all(len(calls) == 1 for calls in rows.values())
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    assert min(float(p.grad.abs().max()) for p in model.hierarchy.parameters()) > 0


def test_frozen_layers_are_left_alone():
    """Where the layers' posterior does not train, the gradient of all else is that of the full bound."""
    model = model_with_layers().eval()
    names, gradients = [name for name, _ in model.named_parameters()], []
    for frozen in (False, True):
        model.hierarchy.posterior.requires_grad_(not frozen)
        model.zero_grad()
        bound_of(model, 3).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name in names:
        if name.startswith("hierarchy.posterior"):
            assert gradients[1][name] is None
        else:
            torch.testing.assert_close(gradients[1][name], gradients[0][name])


# Of zeta.


MACHINES = {
    "rbm": lambda: RBM(3, 2),
    "triangle": lambda: GraphBoltzmann(4, "complete"),
    "factorial": lambda: FactorialBernoulli(3),
}


@pytest.mark.parametrize("name", MACHINES)
def test_mean_field_lies_below_log_z_and_rises_with_each_sweep(name):
    machine, generator = randomize(MACHINES[name]().double(), scale=2.0), torch.Generator().manual_seed(1)
    fields = 3 * torch.randn(50, machine.num_units, generator=generator, dtype=torch.float64)
    start = torch.rand(50, machine.num_units, generator=generator, dtype=torch.float64)
    states = enumerate_machine(machine).states
    exact = torch.logsumexp(fields @ states.T - machine.compute_energy(states), -1)
    swept = [mean_field_bound(machine, fields, start, num_sweeps=n) for n in (0, 1, 2, 5, 50)]
    bounds = torch.stack(swept).detach()
    assert bool((bounds.diff(dim=0) >= -1e-10).all())
    assert bool((bounds[-1] <= exact.detach() + 1e-10).all())
    if name == "factorial":
        torch.testing.assert_close(bounds[1], exact.detach())
    else:
        assert float((exact.detach() - bounds[3]).max()) > 1e-3


@pytest.mark.parametrize("kind", OVERLAPPING)
def test_the_ends_of_the_interval_leave_finite_numbers(kind):
    """zeta of 0 and 1, to which float32 rounds, and logits of any size."""
    smoothing = SMOOTHINGS[kind]()
    ends = torch.tensor([0.0, 1.0, 1e-38, 1 - 2.0**-24, 0.5])
    zeta = ends.repeat(7).requires_grad_()
    logits = torch.tensor([-200.0, -30.0, -9.0, 0.0, 9.0, 30.0, 200.0]).repeat_interleave(5).requires_grad_()
    fields = smoothing.log_ratio(zeta)
    ratio = torch.nn.functional.softplus(logits + fields) - torch.nn.functional.softplus(logits)
    density = smoothing.log_density_of_zero(zeta)
    gradients = torch.autograd.grad((ratio + density).sum(), (zeta, logits))
    assert all(bool(value.isfinite().all()) for value in (fields, ratio, density, *gradients))
    assert bool((fields.view(7, 5)[:, :2].sign() == torch.tensor([-1, 1])).all())


def test_trained_steps_stay_finite_where_zeta_is_rounded():
    model = small_model(smoothing={"kind": "overlapping-power"}).train()
    x = X.repeat(4, 1)
    bound = model.elbo(x, num_importance_samples=4, generator=torch.Generator().manual_seed(0))
    bound.loss.backward()
    assert bool(bound.value.isfinite().all())
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    assert min(float(p.grad.abs().max()) for p in model.posterior.networks.parameters()) > 0


def test_without_a_gradient_the_value_is_the_same():
    model, values = small_model(smoothing={"kind": "ramps"}).eval(), []
    for context in (torch.enable_grad, torch.no_grad):
        with context():
            bound = model.elbo(X, num_importance_samples=3, generator=torch.Generator().manual_seed(0))
        values.append(bound.value.detach())
    torch.testing.assert_close(*values, rtol=0, atol=1e-6)


@pytest.mark.parametrize("smoothing", [MixtureOfRamps(), OverlappingPower(b=2.0)])
def test_log_ratio_is_that_of_the_densities(smoothing):
    """Slopes of the CDF at saturated logits."""
    smoothing = smoothing.double()
    zeta = torch.linspace(0.05, 0.95, 19, dtype=torch.float64, requires_grad=True)
    off, on = (
        torch.autograd.grad(smoothing.cdf(zeta, torch.full_like(zeta, logit)).sum(), zeta)[0].log()
        for logit in (-45.0, 45.0)
    )
    torch.testing.assert_close(smoothing.log_ratio(zeta), on - off)
    torch.testing.assert_close(smoothing.log_density_of_zero(zeta), off)
