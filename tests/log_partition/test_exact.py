"""log Z by enumeration, its gradient, its limits."""

import math

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann, exact_log_partition
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.exact import enumerate_log_partition
from discrete_vae.testing import enumerate_machine
from tests.log_partition.machines import random_rbm


@pytest.mark.parametrize(("left", "right"), [(1, 1), (2, 7), (9, 3), (6, 6)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_value_and_gradient_equal_the_sum_over_all_states(left, right, scale):
    rbm = random_rbm(left, right, scale)
    exact = enumerate_machine(rbm)
    estimate = exact_log_partition(rbm)
    assert estimate.value == pytest.approx(float(exact.log_partition.detach()), abs=1e-10)
    assert (estimate.std_error, estimate.method) == (0.0, "enumeration")
    wanted = torch.autograd.grad(exact.log_partition, list(rbm.parameters()))
    got = torch.autograd.grad(enumerate_log_partition(rbm), list(rbm.parameters()))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_many_chunks_and_a_wide_other_side():
    rbm = random_rbm(16, 40, 0.3)
    codes = torch.arange(1 << 16)[:, None] >> torch.arange(16)
    expected = torch.logsumexp(-rbm.free_energy((codes & 1).double()), 0).item()
    assert exact_log_partition(rbm).value == pytest.approx(expected, abs=1e-9)
    swapped = RBM(40, 16)
    with torch.no_grad():
        swapped.weight.copy_(rbm.weight.T)
        swapped.bias.copy_(torch.cat([rbm.bias[16:], rbm.bias[:16]]))
    assert exact_log_partition(swapped).value == pytest.approx(exact_log_partition(rbm).value, abs=1e-9)
    (gradient,) = torch.autograd.grad(enumerate_log_partition(rbm), rbm.bias)
    assert bool(((gradient > 0) & (gradient < 1)).all())


def test_two_far_modes():
    """The machine on which annealing is off by nats: W = 1, biases near -10, so all-off and all-on compete."""
    rbm = RBM(20, 20)
    with torch.no_grad():
        rbm.weight.fill_(1.0)
        rbm.bias.fill_(-10.0)
    counts = torch.arange(21, dtype=torch.float64)
    log_choose = torch.lgamma(torch.tensor(21.0)) - torch.lgamma(counts + 1) - torch.lgamma(21 - counts)
    by_counts = log_choose - 10 * counts + 20 * torch.nn.functional.softplus(counts - 10)
    assert exact_log_partition(rbm).value == pytest.approx(float(torch.logsumexp(by_counts, 0)), abs=1e-5)


def test_factorial_prior_needs_no_enumeration():
    prior = FactorialBernoulli(300)
    estimate = exact_log_partition(prior)
    assert estimate.value == pytest.approx(300 * math.log(2))
    assert estimate.num_samples == 1


@pytest.mark.parametrize("machine", [RBM(60, 70), GraphBoltzmann(130, "complete")], ids=["rbm", "graph"])
def test_units_that_do_not_interact_are_not_enumerated(machine):
    with torch.no_grad():
        machine.bias.copy_(torch.linspace(-40.0, 3.0, 130))
    found = exact_log_partition(machine)
    wanted = torch.nn.functional.softplus(machine.bias.double()).sum()
    assert found.value == pytest.approx(float(wanted.detach()), abs=1e-10)
    assert (found.std_error, found.num_samples) == (0.0, 1)
    with torch.no_grad():
        machine.weight.view(-1)[-1] = -1e-9
    assert not machine.is_factorial()
    with pytest.raises(InvalidInputError, match="^energy "):
        exact_log_partition(machine)


def test_the_record_prints_its_error():
    assert str(exact_log_partition(RBM(1, 1))) == "log Z = 1.3863 nats (exact, enumeration)"
    assert float(exact_log_partition(RBM(1, 1))) == pytest.approx(2 * math.log(2))


def test_large_weights_have_an_exact_value():
    rbm = RBM(1, 1)
    with torch.no_grad():
        rbm.weight.fill_(1e38)
    assert exact_log_partition(rbm).value == pytest.approx(1e38)
