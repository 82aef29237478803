"""Machines as Ising models over spins, and the temperature of samples."""

import math

import numpy as np
import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann
from discrete_vae.boltzmann.base import fit_inverse_temperature
from discrete_vae.testing import all_states, enumerate_machine
from tests.boltzmann.graphs import exact_draws, randomize, small_graph, with_parameters
from tests.refusals import refused_argument

EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [1, 3]]


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rbm_case():
    couplings, fields = numbers(3, 2, seed=0), numbers(5, seed=1)
    pairs = [((i, 3 + j), couplings[i, j]) for i in range(3) for j in range(2)]
    return RBM.from_ising(couplings, fields, dtype=torch.float64), couplings, fields, pairs


def graph_case():
    couplings, fields = numbers(6, seed=2), numbers(5, seed=3)
    machine = GraphBoltzmann.from_ising(5, EDGES, couplings, fields, dtype=torch.float64)
    return machine, couplings, fields, list(zip(EDGES, couplings, strict=True))


def ising_energies(spins, fields, pairs):
    """The definition, term by term."""
    return -(sum(j * spins[:, a] * spins[:, b] for (a, b), j in pairs) + spins @ fields)


@pytest.mark.parametrize("case", [rbm_case, graph_case])
def test_both_ways_have_one_law_and_the_same_numbers(case):
    machine, couplings, fields, pairs = case()
    z, model = all_states(5), machine.to_ising()
    energies = ising_energies(2 * z - 1, fields, pairs)
    torch.testing.assert_close(machine.energy(z), energies + model.offset, rtol=0, atol=1e-13)
    assert model.offset != 0
    law = (-energies).softmax(0)
    torch.testing.assert_close(enumerate_machine(machine).prob.detach(), law, rtol=0, atol=1e-14)
    torch.testing.assert_close(model.couplings, couplings, rtol=0, atol=1e-15)
    torch.testing.assert_close(model.fields, fields, rtol=0, atol=1e-14)
    assert not model.couplings.requires_grad
    # planted: fields that forget what the couplings add to the biases
    with_parameters(machine, bias=2 * fields)
    assert float((machine.energy(z) - energies).detach().std()) > 0.1


@pytest.mark.parametrize(
    "couplings", [np.array([[1, -1]]), np.array([[-1, 1]])[:, ::-1], np.array([[1, -1]], ">f8"), [[1, -1]]]
)
def test_arrays_and_lists_of_any_numbers(couplings):
    machine = RBM.from_ising(couplings, [0, 0, 0])
    assert machine.weight.dtype == torch.float32
    assert machine.weight.tolist() == [[4.0, -4.0]]
    assert machine.bias.tolist() == [0.0, -2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("couplings", lambda: RBM.from_ising([1.0, 2.0], [0.0] * 3)),
        ("couplings", lambda: RBM.from_ising([[1.0], [2.0, 3.0]], [0.0] * 3)),
        ("couplings", lambda: RBM.from_ising([["a"]], [0.0] * 2)),
        ("couplings", lambda: RBM.from_ising(np.array([[1.0 + 1j]]), [0.0] * 2)),
        ("fields", lambda: RBM.from_ising([[1.0, 2.0]], [0.0] * 2)),
        ("couplings", lambda: RBM.from_ising([[1.0, float("nan")]], [0.0] * 3)),
        ("fields", lambda: RBM.from_ising([[1.0, 2.0]], [0.0, 0.0, float("inf")])),
        ("couplings", lambda: GraphBoltzmann.from_ising(5, EDGES, [1.0] * 5, [0.0] * 5)),
        ("z", lambda: fit_inverse_temperature(RBM(2, 2), torch.ones(1, 4))),
        ("z", lambda: fit_inverse_temperature(RBM(2, 2), torch.full((5, 4), 0.5))),
        ("energy", lambda: fit_inverse_temperature(None, torch.ones(5, 4))),
    ],
)
def test_refusals_name_the_argument(name, call):
    assert refused_argument(call) == name


MACHINES = {
    "rbm": lambda: randomize(RBM(3, 4)),
    "factorial": lambda: randomize(FactorialBernoulli(4)),
    "graph": lambda: small_graph("odd cycle, chord, end and loner"),
}


@pytest.mark.parametrize("make", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("t", [-0.5, 0.0, 0.3, 1.0, 3.0])
def test_it_is_found_within_its_error(make, t):
    machine = make()
    found = fit_inverse_temperature(machine, exact_draws(machine, 5000, t=t))
    assert abs(found.value - t) < 5 * found.std_error  # false with probability 6e-7
    assert found.std_error < 0.1 * max(1, t)
    assert not abs(found.value - (t + 0.5)) < 5 * found.std_error  # planted: another temperature


def test_the_error_is_that_of_repetitions():
    machine = MACHINES["rbm"]()
    found = [fit_inverse_temperature(machine, exact_draws(machine, 400, seed=seed)) for seed in range(100)]
    values = torch.tensor([each.value for each in found])
    stated = torch.tensor([each.std_error for each in found]).mean()
    assert float(values.std() / stated) == pytest.approx(1, abs=0.35)  # its own error is 7 %
    assert float(values.mean()) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("steep", [4.0, 100.0])
def test_ground_states_of_any_gap_are_beyond_the_range(steep):
    machine = RBM(4, 4)
    all_off_and_on = torch.cat([torch.zeros(50, 8), torch.ones(50, 8)])
    assert math.isnan(fit_inverse_temperature(machine, all_off_and_on).value)  # no state is preferred
    for sign in (1, -1):
        with_parameters(machine, weight=sign * steep, bias=-2 * sign * steep)
        found = fit_inverse_temperature(machine, all_off_and_on)
        assert (found.value, found.std_error) == (sign * 20.0, math.inf)


def test_samples_that_do_not_vary_leave_the_error_unknown():
    machine = with_parameters(FactorialBernoulli(2), bias=[2.0, -1.0])
    found = fit_inverse_temperature(machine, torch.ones(50, 2))
    assert (math.isfinite(found.value), found.std_error) == (True, math.inf)


@pytest.mark.parametrize("weight", [math.nan, math.inf, 1e30])
def test_weights_of_a_diverged_machine_are_refused(weight):
    machine = with_parameters(RBM(3, 2), weight=weight)
    assert refused_argument(fit_inverse_temperature, machine, all_states(5)) == "energy.weight"


@pytest.mark.parametrize("margin", [0.01, 5.0, 80.0])
def test_one_unit_has_a_closed_form(margin):
    """Of n states with n - m in the better one, t = log((n - m) / m) / margin."""
    machine = with_parameters(FactorialBernoulli(1), bias=margin)
    z = torch.ones(1000, 1)
    z[:450] = 0
    exact = math.log(550 / 450) / margin
    found = fit_inverse_temperature(machine, z)
    if exact > 20:
        assert (found.value, found.std_error) == (20.0, math.inf)
    else:
        assert found.value == pytest.approx(exact, rel=1e-6)
        assert found.std_error == pytest.approx((1 / 550 + 1 / 450) ** 0.5 / margin, rel=1e-6)
