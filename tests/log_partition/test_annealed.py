"""Annealed importance sampling against enumeration, forward and reverse."""

import math

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, annealed_log_partition, exact_log_partition
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing.enumeration import enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_mean
from tests.log_partition.machines import random_rbm


@pytest.mark.parametrize("shape", [(14, 14), (12, 30)])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_forward_agrees_with_enumeration(shape, scale):
    rbm = random_rbm(*shape, scale)
    estimate = annealed_log_partition(rbm, num_chains=500, num_temperatures=300)
    assert estimate.std_error < 0.03
    assert abs(estimate.value - exact_log_partition(rbm).value) < 5 * estimate.std_error + 1e-4


def test_reverse_from_exact_states_agrees_with_enumeration():
    rbm = random_rbm(6, 5)
    machine = enumerate_machine(rbm)
    draws = torch.multinomial(
        machine.prob.detach(), 2000, replacement=True, generator=torch.Generator().manual_seed(0)
    )
    estimate = annealed_log_partition(rbm, start=machine.states[draws].float(), num_temperatures=100)
    assert estimate.method == "annealed reverse"
    assert abs(estimate.value - float(machine.log_partition.detach())) < 5 * estimate.std_error


@pytest.mark.parametrize("reverse", [False, True])
def test_the_mean_weight_is_unbiased_with_few_temperatures(reverse):
    """Two temperatures leave wide weights: a marginal that the sweeps do not keep would show."""
    rbm = random_rbm(3, 4, 1.5)
    machine = enumerate_machine(rbm)
    log_z = float(machine.log_partition.detach())
    ratios = []
    for seed in range(60):
        draws = torch.multinomial(
            machine.prob.detach(), 20_000, replacement=True, generator=torch.Generator().manual_seed(seed)
        )
        start = machine.states[draws].float() if reverse else None
        estimate = annealed_log_partition(rbm, num_chains=20_000, num_temperatures=2, start=start, seed=seed)
        ratios.append(math.exp((estimate.value - log_z) * (-1 if reverse else 1)))
    check_mean(torch.tensor(ratios)[:, None], torch.ones(1), resolution=0.01)


def test_reverse_from_one_of_two_far_modes_disagrees_with_forward():
    """Chains that know one mode only give a log Z that is off by nats: the reason to show both directions."""
    rbm = RBM(20, 20)
    with torch.no_grad():
        rbm.weight.fill_(2.0)
        rbm.bias.fill_(-19.9)  # all-off has weight 1, all-on e^4, and chains never cross
    settings = {"num_chains": 500, "num_temperatures": 300}
    forward = annealed_log_partition(rbm, **settings)
    reverse = annealed_log_partition(rbm, start=torch.zeros(500, 40), **settings)
    assert abs(forward.value - exact_log_partition(rbm).value) < 0.5
    assert reverse.value < forward.value - 2


def test_a_factorial_prior_is_exact():
    prior = FactorialBernoulli(5)
    with torch.no_grad():
        prior.bias.copy_(torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0]))
    estimate = annealed_log_partition(prior, num_chains=3, num_temperatures=2)
    assert estimate.value == pytest.approx(exact_log_partition(prior).value, abs=1e-5)


def test_the_seed_decides():
    rbm = random_rbm(4, 4)
    first, again, other = (
        annealed_log_partition(rbm, num_chains=20, num_temperatures=9, seed=s) for s in (1, 1, 2)
    )
    assert first.value == again.value != other.value


def test_errors():
    rbm = random_rbm(2, 2)
    with pytest.raises(InvalidInputError, match="num_temperatures must be a positive integer"):
        annealed_log_partition(rbm, num_temperatures=0)
    with pytest.raises(InvalidInputError, match="num_chains must be at least 2; received 1"):
        annealed_log_partition(rbm, num_chains=1)
    with pytest.raises(InvalidInputError, match=r"start must have shape \(chain, 4\)"):
        annealed_log_partition(rbm, start=torch.zeros(5, 3))
    with pytest.raises(InvalidInputError, match="start must hold only the values 0 and 1"):
        annealed_log_partition(rbm, start=torch.full((5, 4), 0.5))
