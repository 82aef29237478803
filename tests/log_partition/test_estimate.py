"""log Z by enumeration and by annealing, what estimates it by which, and what they refuse."""

import math
from itertools import pairwise

import pytest
import torch

from discrete_vae import (
    RBM,
    BlockGibbs,
    FactorialBernoulli,
    GraphBoltzmann,
    annealed_log_partition,
    bennett_log_partition,
    estimate_log_partition,
    exact_log_partition,
)
from discrete_vae.boltzmann.base import LogPartition, enumerate_log_partition
from discrete_vae.kernels.gibbs import fair_coins, run_sweeps
from discrete_vae.log_partition.bridge import sample_bridge, tempered_work
from discrete_vae.log_partition.estimate import (
    AnnealingDisagreementWarning,
    annealed_weights,
    comparable_log_partition,
    log_partition_surrogate,
    quick_log_partition,
)
from discrete_vae.objectives.elbo import gradient_and_value
from discrete_vae.testing import check_mean, enumerate_machine
from tests.boltzmann.graphs import SMALL_GRAPHS, exact_draws, random_graph, small_graph, with_parameters
from tests.boltzmann.products import PRODUCTS, operations_of
from tests.log_partition.machines import random_rbm, two_far_modes, wide_and_deep_mode
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
    assert str(LogPartition(1.5, 3e-5, "a method", 1)) == "log Z = 1.50000 nats (± 0.00003, a method)"
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


# Annealed importance sampling, forward and reverse.


ANNEALED = [random_rbm(14, 14, 1.0), random_rbm(12, 30, 0.1), random_graph(18, 60, scale=1.0)]


@pytest.mark.parametrize("machine", ANNEALED, ids=["rbm", "weak", "graph"])
def test_forward_annealing_agrees_with_enumeration(machine):
    estimate = annealed_log_partition(machine, num_chains=500, num_temperatures=300)
    assert estimate.std_error < 0.05
    assert abs(estimate.value - exact_log_partition(machine).value) < 5 * estimate.std_error + 1e-4


def test_reverse_annealing_from_exact_states_a_factorial_prior_and_the_seed():
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


def test_temperatures_do_not_depend_on_torchs_default_dtype(default_dtype):
    machine, values, states = random_rbm(5, 4), [], []
    for dtype in (torch.float32, torch.bfloat16):
        default_dtype(dtype)
        values.append(annealed_log_partition(machine, num_chains=9).value)
        states.append(BlockGibbs(machine, 20, inverse_temperature=0.7, seed=1).step(50))
    assert values[0] == values[1]
    assert torch.equal(*states)


# The method by the size of the machine, and another one beside it.


def test_bridge_sampling_where_enumeration_is_out_of_reach():
    rbm = random_rbm(6, 6)
    chains = BlockGibbs(rbm, 300, seed=1).step(200)
    sizes = {"num_chains": 300, "num_temperatures": 100, "max_enumerated": 4}
    estimate = estimate_log_partition(rbm, chains=chains, std_error=0.03, **sizes)
    exact = exact_log_partition(rbm).value
    assert estimate.best.method == "bridge sampling"
    assert estimate.best.converged
    assert abs(estimate.best.value - exact) < 4 * estimate.best.std_error
    for check in (estimate.forward, estimate.reverse):
        assert check.num_samples == 300
        assert abs(check.value - exact) < 4 * check.std_error
    assert estimate.gap == estimate.reverse.value - estimate.forward.value
    few = {"num_chains": 10, "num_temperatures": 5}
    assert quick_log_partition(rbm, max_enumerated=6, **few).method == "enumeration"
    assert quick_log_partition(rbm, max_enumerated=2, **few).method == "annealed forward"
    without_weights = quick_log_partition(RBM(64, 64), max_enumerated=2, **few)
    assert (without_weights.value, without_weights.std_error) == (pytest.approx(128 * math.log(2)), 0)


def test_annealing_that_disagrees_is_reported():
    rbm = two_far_modes(6, 4.0, excess=0.5)  # the chains know all-off alone
    settings = {"std_error": 0.05, "num_temperatures": 50, "max_enumerated": 4}
    with pytest.warns(AnnealingDisagreementWarning):
        estimate = estimate_log_partition(rbm, chains=torch.zeros(50, 12), **settings)
    assert estimate.best.value == pytest.approx(exact_log_partition(rbm).value, abs=0.2)


def test_annealing_starts_at_chains_of_all_energies_in_whatever_order_they_come():
    rbm = two_far_modes(8, 4.0, excess=0.05)
    # of the mode that has exp(0.8) times the weight
    number = round(1000 * torch.sigmoid(torch.tensor(0.8)).item())
    by_energy = torch.cat([torch.ones(number, 16), torch.zeros(1000 - number, 16)])
    settings = {"std_error": 0.1, "num_chains": 300, "num_temperatures": 300, "max_enumerated": 4}
    found = estimate_log_partition(rbm, chains=by_energy, **settings)
    exact = exact_log_partition(rbm).value
    assert found.reverse is not None
    # beyond it once in two million runs
    assert abs(found.reverse.value - exact) < 5 * found.reverse.std_error


def test_log_z_for_comparison_finds_a_mode_that_annealing_misses():
    rbm = wide_and_deep_mode(10, 16, 2.0, 14.0)
    exact = exact_log_partition(rbm).value
    annealed = annealed_log_partition(rbm, num_chains=50, num_temperatures=200)
    assert exact - annealed.value > max(1.5, 8 * annealed.std_error)
    found = comparable_log_partition(rbm, chains=torch.ones(1, 36), max_enumerated=0)
    assert abs(found.value - exact) < 4 * found.std_error
    assert found.std_error < 0.05


def test_what_does_not_converge_has_the_distance_of_two_methods_in_its_error():
    rbm = random_rbm(10, 10, 2.0)
    found = comparable_log_partition(rbm, chains=torch.zeros(1, 20), max_enumerated=0, max_sweeps=30, seed=3)
    annealed = annealed_log_partition(rbm, num_chains=200, num_temperatures=300, seed=3)
    assert not found.converged
    asked = {"std_error": 0.02, "num_chains": 100, "max_sweeps": 30, "seed": 3}
    bridged = sample_bridge(rbm, start=torch.zeros(1, 20), **asked).estimate
    distance = annealed.value - bridged.value
    assert found.std_error == math.hypot(bridged.std_error, annealed.std_error, distance)
    assert comparable_log_partition(rbm, chains=torch.zeros(1, 20)).std_error == 0


# Refusals.


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
