"""log Z by enumeration, its gradient, its limits; what all estimates of log Z refuse."""

import math

import pytest
import torch

from discrete_vae import (
    RBM,
    FactorialBernoulli,
    GraphBoltzmann,
    annealed_log_partition,
    bennett_log_partition,
    estimate_log_partition,
    exact_log_partition,
)
from discrete_vae.boltzmann.base import enumerate_log_partition
from discrete_vae.log_partition.estimate import log_partition_surrogate
from discrete_vae.objectives.elbo import gradient_and_value
from discrete_vae.testing import enumerate_machine
from tests.boltzmann.graphs import SMALL_GRAPHS, small_graph, with_parameters
from tests.log_partition.machines import random_rbm
from tests.refusals import refused_argument

MACHINES = {
    **{
        f"rbm, {scale}": random_rbm(*shape, scale)
        for shape, scale in (((2, 7), 0.1), ((6, 6), 1.0), ((9, 3), 5.0))
    },
    **{name: small_graph(name, scale=2.0) for name in SMALL_GRAPHS},
}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_value_and_gradient_equal_the_sum_over_all_states(machine):
    exact, found = enumerate_machine(machine), exact_log_partition(machine)
    assert found.value == pytest.approx(float(exact.log_partition.detach()), abs=1e-10)
    assert (found.std_error, found.method) == (0.0, "enumeration")
    used = [parameter for parameter in machine.parameters() if parameter.numel()]
    wanted = torch.autograd.grad(exact.log_partition, used)
    for a, b in zip(torch.autograd.grad(enumerate_log_partition(machine), used), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_many_chunks_and_a_wide_other_side():
    rbm = random_rbm(16, 40, 0.3)
    codes = torch.arange(1 << 16)[:, None] >> torch.arange(16)
    expected = torch.logsumexp(-rbm.free_energy((codes & 1).double()), 0).item()
    assert exact_log_partition(rbm).value == pytest.approx(expected, abs=1e-9)
    swapped = with_parameters(RBM(40, 16), weight=rbm.weight.T, bias=rbm.bias.roll(-16))
    assert exact_log_partition(swapped).value == pytest.approx(exact_log_partition(rbm).value, abs=1e-9)
    (gradient,) = torch.autograd.grad(enumerate_log_partition(rbm), rbm.bias)
    assert bool(((gradient > 0) & (gradient < 1)).all())
    one = RBM(1, 1)
    assert str(exact_log_partition(one)) == "log Z = 1.3863 nats (exact, enumeration)"
    assert float(exact_log_partition(one)) == pytest.approx(1.386294, abs=1e-6)
    with_parameters(one, weight=1e38)
    assert exact_log_partition(one).value == pytest.approx(1e38)


@pytest.mark.parametrize(
    "machine",
    [RBM(60, 70), GraphBoltzmann(130, "complete"), FactorialBernoulli(130)],
    ids=["rbm", "graph", "factorial"],
)
def test_units_that_do_not_interact_are_not_enumerated(machine):
    with_parameters(machine, bias=torch.linspace(-40.0, 3.0, 130))
    found = exact_log_partition(machine)
    wanted = torch.nn.functional.softplus(machine.bias.double()).sum()
    assert found.value == pytest.approx(float(wanted.detach()), abs=1e-10)
    assert (found.std_error, found.num_samples) == (0.0, 1)
    if isinstance(machine, FactorialBernoulli):
        return
    with torch.no_grad():
        machine.weight.view(-1)[-1] = -1e-9
    assert not machine.is_factorial()
    assert refused_argument(exact_log_partition, machine) == "energy"


def test_samples_give_the_gradient_of_a_log_z_of_unknown_value():
    rbm = RBM(2, 2)
    z = torch.tensor([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0]])
    gradient, value = gradient_and_value(rbm, None, log_partition_surrogate(rbm, z))
    assert gradient is not None
    assert value is not None
    assert gradient.item() == 0.0
    assert math.isnan(value)
    expected = torch.autograd.grad(rbm.compute_negative_phase(z), [*rbm.parameters()])
    for mine, other in zip(torch.autograd.grad(gradient, [*rbm.parameters()]), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


SMALL = random_rbm(2, 2)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("num_temperatures", lambda: annealed_log_partition(SMALL, num_temperatures=0)),
        ("num_chains", lambda: annealed_log_partition(SMALL, num_chains=1)),
        ("start", lambda: annealed_log_partition(SMALL, start=torch.zeros(5, 3))),
        ("start", lambda: annealed_log_partition(SMALL, start=torch.full((5, 4), 0.5))),
        ("start", lambda: annealed_log_partition(SMALL, start=torch.zeros(1, 4))),
        ("std_error", lambda: bennett_log_partition(SMALL, std_error=0.0)),
        ("num_chains", lambda: bennett_log_partition(SMALL, num_chains=5)),
        ("max_sweeps", lambda: bennett_log_partition(SMALL, max_sweeps=0)),
        ("seed", lambda: bennett_log_partition(SMALL, seed=-1)),
        ("start", lambda: bennett_log_partition(SMALL, start=torch.zeros(0, 4))),
        (
            "energy.weight",
            lambda: bennett_log_partition(random_rbm(3, 3, 1e30), num_chains=40, max_sweeps=1000),
        ),
        ("energy", lambda: exact_log_partition(random_rbm(25, 25, 0.1))),
        ("energy", lambda: estimate_log_partition(None)),
        ("num_chains", lambda: estimate_log_partition(SMALL, num_chains=1)),
        ("max_enumerated", lambda: estimate_log_partition(SMALL, max_enumerated=25)),
        ("chains", lambda: estimate_log_partition(SMALL, chains=torch.zeros(5, 3))),
        ("chains", lambda: estimate_log_partition(SMALL, chains=torch.zeros(0, 4), max_enumerated=0)),
        ("z", lambda: log_partition_surrogate(SMALL, torch.zeros(5, 3))),
        ("z", lambda: log_partition_surrogate(SMALL, torch.zeros(0, 4))),
    ],
)
def test_refusals_name_the_argument(name, call):
    assert refused_argument(call) == name


@pytest.mark.parametrize(("name", "value"), [("weight", math.nan), ("weight", math.inf), ("bias", -math.inf)])
def test_a_machine_that_is_not_finite(name, value):
    rbm = RBM(2, 2)
    with torch.no_grad():
        rbm.get_parameter(name).view(-1)[-1] = value
    for estimate in (exact_log_partition, annealed_log_partition, bennett_log_partition):
        assert refused_argument(estimate, rbm) == f"energy.{name}"
