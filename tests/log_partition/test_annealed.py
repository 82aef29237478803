"""Annealed importance sampling against enumeration, forward and reverse."""

import math
from itertools import pairwise

import pytest
import torch

from discrete_vae import (
    BlockGibbs,
    FactorialBernoulli,
    annealed_log_partition,
    estimate_log_partition,
    exact_log_partition,
)
from discrete_vae.kernels.gibbs import fair_coins, run_sweeps
from discrete_vae.log_partition.bridge import tempered_work
from discrete_vae.log_partition.estimate import annealed_weights
from discrete_vae.testing import check_mean
from tests.boltzmann.graphs import exact_draws, random_graph, small_graph, with_parameters
from tests.boltzmann.products import PRODUCTS, operations_of
from tests.log_partition.machines import random_rbm, two_far_modes

MACHINES = [random_rbm(14, 14, 1.0), random_rbm(12, 30, 0.1), random_graph(18, 60, scale=1.0)]


@pytest.mark.parametrize("machine", MACHINES, ids=["rbm", "weak", "graph"])
def test_forward_agrees_with_enumeration(machine):
    estimate = annealed_log_partition(machine, num_chains=500, num_temperatures=300)
    assert estimate.std_error < 0.05
    assert abs(estimate.value - exact_log_partition(machine).value) < 5 * estimate.std_error + 1e-4


def test_reverse_from_exact_states_a_factorial_prior_and_the_seed():
    rbm = random_rbm(6, 5)
    estimate = annealed_log_partition(rbm, start=exact_draws(rbm, 2000), num_temperatures=100)
    assert estimate.method == "annealed reverse"
    assert abs(estimate.value - exact_log_partition(rbm).value) < 5 * estimate.std_error
    prior = with_parameters(FactorialBernoulli(5), bias=[1.0, -2.0, 0.5, 3.0, 0.0])
    estimate = annealed_log_partition(prior, num_chains=3, num_temperatures=2)
    assert estimate.value == pytest.approx(exact_log_partition(prior).value, abs=1e-5)
    few = {"num_chains": 20, "num_temperatures": 9}
    values = [annealed_log_partition(rbm, seed=seed, **few).value for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(
    ("machine", "reverse", "number"),
    [
        (random_rbm(3, 4, 1.5), False, 20_000),
        (small_graph("odd cycle", scale=1.5), True, 5000),
    ],
    ids=["rbm", "odd cycle in reverse"],
)
def test_the_mean_weight_is_unbiased_with_few_temperatures(machine, reverse, number):
    """Two temperatures leave wide weights: a marginal that the sweeps do not keep would show."""
    log_z = exact_log_partition(machine).value
    ratios = []
    for seed in range(60):
        start = exact_draws(machine, number, seed=seed) if reverse else None
        estimate = annealed_log_partition(
            machine, num_chains=number, num_temperatures=2, start=start, seed=seed
        )
        ratios.append(math.exp((estimate.value - log_z) * (-1 if reverse else 1)))
    check_mean(torch.tensor(ratios)[:, None], torch.ones(1), resolution=0.01 if number > 5000 else 0.03)


def test_reverse_from_one_of_two_far_modes_disagrees_with_forward():
    """Chains that know one mode only give a log Z that is off by nats: the reason to show both directions."""
    rbm, settings = two_far_modes(), {"num_chains": 300, "num_temperatures": 200}
    forward = annealed_log_partition(rbm, **settings)
    reverse = annealed_log_partition(rbm, start=torch.zeros(300, 40), **settings)
    assert abs(forward.value - exact_log_partition(rbm).value) < 0.5
    assert reverse.value < forward.value - 2


def test_a_temperature_costs_one_product_of_the_weights_for_its_weight():
    for energy, products in (
        (random_rbm(6, 5), ["aten::mm", "aten::mv"]),
        (small_graph("Chimera cell"), None),
    ):
        z = torch.ones(4, energy.num_units)
        names = operations_of(lambda energy=energy, z=z: tempered_work(energy, z, 0, (0.2, 0.3)))
        assert sum(name in {"aten::mm", "aten::_sparse_mm", "aten::addmm"} for name in names) <= 2
        assert products in (None, [name for name in names if name in PRODUCTS])


def test_annealing_in_float32_weights_is_exact_in_float64():
    """The weights of the very chains, against free energies of float64 states: no cancellation of rounded sums."""
    rbm = random_rbm(40, 60, 0.3)
    ladder = torch.linspace(0, 1, 201, dtype=torch.float64).tolist()
    z = fair_coins(50, 100, key=5)
    got = annealed_weights(rbm, z, ladder, key=5)
    expected = torch.zeros(50, dtype=torch.float64)
    for sweep, (here, there) in enumerate(pairwise(ladder), start=1):
        with torch.no_grad():
            free = [rbm.free_energy(z.double(), 0, t) for t in (here, there)]
        expected += free[0] - free[1]
        z = run_sweeps(rbm, z, 1, key=5, first_sweep=sweep, inverse_temperature=torch.full((50,), there))
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-5)


def test_one_chain_leaves_reverse_annealing_out():
    machine, states = random_rbm(5, 4), torch.zeros(1, 9)
    few = {"max_enumerated": 0, "std_error": 0.2, "num_chains": 20, "num_temperatures": 20}
    found = estimate_log_partition(machine, chains=states, **few)
    assert found.reverse is None
    assert found.forward is not None


def test_temperatures_do_not_depend_on_torchs_default_dtype():
    machine, values = random_rbm(5, 4), []
    for dtype in (torch.float32, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            chains = BlockGibbs(machine, 20, inverse_temperature=0.7, seed=1)
            values.append(
                (annealed_log_partition(machine, num_chains=9).value, chains.step(50), chains.to("cpu"))
            )
        finally:
            torch.set_default_dtype(torch.float32)
    assert values[0][0] == values[1][0]
    assert torch.equal(values[0][1], values[1][1])
