"""log Z of machines on graphs with odd cycles, which need three blocks or more."""

import math

import pytest
import torch

from discrete_vae import BlockGibbs, annealed_log_partition, exact_log_partition
from discrete_vae.log_partition.exact import enumerate_log_partition, log_partition_surrogate
from discrete_vae.testing import check_mean, enumerate_machine
from tests.boltzmann.graphs import SMALL_GRAPHS, random_graph, rbm_and_its_graph, small_graph


@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_enumeration_and_its_gradient(name):
    machine = small_graph(name, scale=2.0)
    exact = enumerate_machine(machine)
    assert exact_log_partition(machine).value == pytest.approx(float(exact.log_partition.detach()), abs=1e-10)
    used = [parameter for parameter in machine.parameters() if parameter.numel()]
    wanted = torch.autograd.grad(exact.log_partition, used)
    for a, b in zip(torch.autograd.grad(enumerate_log_partition(machine), used), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_annealing_agrees_with_enumeration():
    machine = random_graph(18, 60, scale=1.0)
    estimate = annealed_log_partition(machine, num_chains=500, num_temperatures=300)
    assert estimate.std_error < 0.05
    assert abs(estimate.value - exact_log_partition(machine).value) < 5 * estimate.std_error


def test_annealing_of_a_graph_and_its_rbm():
    rbm, graph = rbm_and_its_graph(9, 7)
    values = [annealed_log_partition(m, num_chains=50, num_temperatures=40).value for m in (rbm, graph)]
    assert values[0] == pytest.approx(values[1], abs=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["odd cycle", "complete"])
def test_the_mean_weight_is_unbiased_with_few_temperatures(name, reverse):
    """Two temperatures leave wide weights: a marginal that the sweeps do not keep would show."""
    machine = small_graph(name, scale=1.5)
    exact = enumerate_machine(machine)
    log_z = float(exact.log_partition.detach())
    ratios = []
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        draws = torch.multinomial(exact.prob.detach(), 5000, replacement=True, generator=generator)
        start = exact.states[draws].float() if reverse else None
        estimate = annealed_log_partition(
            machine, num_chains=5000, num_temperatures=2, start=start, seed=seed
        )
        ratios.append(math.exp((estimate.value - log_z) * (-1 if reverse else 1)))
    check_mean(torch.tensor(ratios)[:, None], torch.ones(1), resolution=0.03)


def test_the_negative_phase_of_the_chains():
    machine = small_graph("odd cycle, chord, end and loner", scale=0.7)
    z = BlockGibbs(machine, 4000, seed=3).step(200)
    parameters = list(machine.parameters())
    rows = [
        torch.cat(torch.autograd.grad(log_partition_surrogate(machine, chains), parameters))
        for chains in z.split(100)
    ]
    exact = torch.cat(torch.autograd.grad(enumerate_machine(machine).log_partition, parameters))
    check_mean(torch.stack(rows), exact, resolution=0.02)
