"""The temperature of samples, against samples of known ones."""

import math

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli
from discrete_vae.boltzmann.ising import fit_inverse_temperature
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing.enumeration import all_states
from tests.boltzmann.graphs import randomize, small_graph

MACHINES = {
    "rbm": lambda: randomize(RBM(3, 4)),
    "factorial": lambda: randomize(FactorialBernoulli(4)),
    "graph": lambda: small_graph("odd cycle, chord, end and loner"),
}


def draws(machine, t, num_samples, seed=0):
    states = all_states(machine.num_units)
    law = (-t * machine.energy(states)).softmax(0)
    generator = torch.Generator().manual_seed(seed)
    return states[torch.multinomial(law, num_samples, replacement=True, generator=generator)].float()


@pytest.mark.parametrize("make", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("t", [-0.5, 0.0, 0.3, 1.0, 3.0])
def test_it_is_found_within_its_error(make, t):
    machine = make()
    found = fit_inverse_temperature(machine, draws(machine, t, 5000))
    assert abs(found.value - t) < 5 * found.std_error  # false with probability 6e-7
    assert found.std_error < 0.1 * max(1, t)
    assert not abs(found.value - (t + 0.5)) < 5 * found.std_error  # planted: another temperature


def test_the_error_is_that_of_repetitions():
    machine = MACHINES["rbm"]()
    found = [fit_inverse_temperature(machine, draws(machine, 1.0, 400, seed)) for seed in range(200)]
    values = torch.tensor([each.value for each in found])
    stated = torch.tensor([each.std_error for each in found]).mean()
    assert float(values.std() / stated) == pytest.approx(1, abs=0.25)  # its own error is 5 %
    assert float(values.mean()) == pytest.approx(1, abs=0.03)


def test_what_cannot_be_told():
    found = fit_inverse_temperature(RBM(2, 2), torch.ones(5, 4))
    assert math.isnan(found.value)
    assert found.std_error == math.inf
    certain = randomize(FactorialBernoulli(4))
    frozen = (certain.bias > 0).float().detach().expand(5, 4)
    found = fit_inverse_temperature(certain, frozen)
    assert (found.value, found.std_error) == (20.0, math.inf)
    assert fit_inverse_temperature(certain, 1 - frozen).value == -20.0


@pytest.mark.parametrize("steep", [4.0, 20.0, 100.0])
def test_ground_states_of_any_gap_are_beyond_the_range(steep):
    machine = RBM(4, 4)
    with torch.no_grad():
        machine.weight.fill_(steep)
        machine.bias.fill_(-2 * steep)
    all_off_and_on = torch.cat([torch.zeros(50, 8), torch.ones(50, 8)])
    found = fit_inverse_temperature(machine, all_off_and_on)
    assert (found.value, found.std_error) == (20.0, math.inf)
    with torch.no_grad():
        machine.weight.neg_(), machine.bias.neg_()
    found = fit_inverse_temperature(machine, all_off_and_on)
    assert (found.value, found.std_error) == (-20.0, math.inf)


@pytest.mark.parametrize("margin", [0.01, 5.0, 80.0])
def test_one_unit_has_a_closed_form(margin):
    """Of n states with n - m in the better one, t = log((n - m) / m) / margin."""
    machine = FactorialBernoulli(1)
    with torch.no_grad():
        machine.bias.fill_(margin)
    z = torch.ones(1000, 1)
    z[:450] = 0
    exact = math.log(550 / 450) / margin
    found = fit_inverse_temperature(machine, z)
    if exact > 20:
        assert (found.value, found.std_error) == (20.0, math.inf)
    else:
        assert found.value == pytest.approx(exact, rel=1e-6)
        assert found.std_error == pytest.approx((1 / 550 + 1 / 450) ** 0.5 / margin, rel=1e-6)


def test_wrong_samples():
    with pytest.raises(InvalidInputError, match="z must hold at least 2 samples; received 1"):
        fit_inverse_temperature(RBM(2, 2), torch.ones(1, 4))
    with pytest.raises(InvalidInputError, match="z must hold only"):
        fit_inverse_temperature(RBM(2, 2), torch.full((5, 4), 0.5))
    with pytest.raises(InvalidInputError, match="energy must be a BoltzmannMachine"):
        fit_inverse_temperature(None, torch.ones(5, 4))
