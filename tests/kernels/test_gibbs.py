"""Sweeps: kernels agree state by state, nothing depends on the division of the work, arguments are checked."""

from functools import partial

import pytest
import torch

from discrete_vae import RBM, GraphBoltzmann
from discrete_vae.config import PriorConfig, instantiate, members
from discrete_vae.kernels import gibbs, gibbs_graph, gibbs_rbm
from discrete_vae.kernels.gibbs import fair_coins, kernel_for, run_sweeps
from tests.boltzmann.graphs import random_graph, randomize, rbm_and_its_graph, small_graph, with_parameters
from tests.boltzmann.test_base import SMALL
from tests.kernels.test_gibbs_law import make_rbm
from tests.oracles.transitions import check_sweeps
from tests.refusals import refused_argument

# A decision u < sigmoid(l) may differ between kernels only within rounding, once in some 10 million draws.
# The fixed keys below meet no such case, so states must be equal without exception.
MACHINES = {
    f"{left} + {right}": lambda left=left, right=right: make_rbm(left, right, scale=0.4)
    for left, right in [(1, 1), (5, 3), (61, 37), (64, 64), (300, 260)]
}
MACHINES |= {
    name: lambda name=name: small_graph(name) for name in ("one unit", "odd cycle, chord, end and loner")
}
MACHINES |= {
    "star": lambda: randomize(GraphBoltzmann(203, [[100, i] for i in range(203) if i != 100]), scale=0.3),
    "complete": lambda: randomize(GraphBoltzmann(23, "complete"), scale=0.3),
    "random": lambda: random_graph(301, 1700, scale=0.3),
}
FEW = pytest.mark.parametrize("name", ["61 + 37", "odd cycle, chord, end and loner"])
TWO = pytest.mark.parametrize("name", ["5 + 3", "complete"])
KERNELS = pytest.mark.parametrize("kernel", [None, gibbs.run_reference], ids=["compiled", "torch"])
START = {"key": 2, "first_sweep": 1}


def module_of(energy):
    return gibbs_rbm if isinstance(energy, RBM) else gibbs_graph


def both(energy, z, num_sweeps, **options):
    """The states that the compiled kernel and the reference give."""
    compiled = run_sweeps(energy, z, num_sweeps, **START | options)
    return compiled, run_sweeps(energy, z, num_sweeps, kernel=gibbs.run_reference, **START | options)


@pytest.mark.parametrize("name", MACHINES)
def test_kernels_give_the_same_states(name):
    energy = MACHINES[name]()
    assert kernel_for(energy) is module_of(energy).run
    for num_chains in (1, 9, 140):
        compiled, reference = both(energy, fair_coins(num_chains, energy.num_units, key=1), 6)
        assert compiled.dtype == reference.dtype == torch.float32
        assert torch.equal(compiled, reference)
    assert 0.05 < float(compiled.mean()) < 0.95


def test_an_rbm_and_its_graph_give_the_same_states():
    rbm, graph = rbm_and_its_graph(19, 14, scale=0.4)
    start = fair_coins(50, 33, key=1)
    assert torch.equal(run_sweeps(graph, start, 8, **START), run_sweeps(rbm, start, 8, **START))


@FEW
@pytest.mark.parametrize(("per_chain", "num_chains"), [(False, 71), (True, 71), (True, 1)])
def test_kernels_agree_with_temperatures_and_clamped_units(name, per_chain, num_chains):
    energy = MACHINES[name]()
    start = fair_coins(num_chains, energy.num_units, key=1)
    clamped = fair_coins(num_chains if per_chain else 1, energy.num_units, key=3).bool()
    temperatures = torch.linspace(2, 0, num_chains)
    given = clamped if per_chain else clamped[0]
    compiled, reference = both(energy, start, 6, inverse_temperature=temperatures, clamped=given)
    assert torch.equal(compiled, reference)
    held = clamped.expand_as(start)
    assert torch.equal(compiled[held], start[held])
    assert num_chains == 1 or not torch.equal(compiled[~held], start[~held])


@pytest.mark.parametrize("name", ["5 + 3", "odd cycle, chord, end and loner"])
def test_kernels_agree_across_the_32_bit_boundary_and_far_chains(name):
    energy = MACHINES[name]()
    start = fair_coins(12, energy.num_units, key=1)
    options = {"key": 2**64 - 1, "first_sweep": 2**32 - 2, "first_chain": 2**32 - 12}
    compiled, reference = both(energy, start, 5, **options)
    assert torch.equal(compiled, reference)
    wrapped = run_sweeps(energy, start, 3, **options)
    wrapped = run_sweeps(energy, wrapped, 2, **{**options, "first_sweep": 1})
    assert not torch.equal(compiled, wrapped)
    compiled, reference = both(energy, start, 1, **{**options, "first_sweep": 2**64 - 1})
    assert torch.equal(compiled, reference)


@pytest.mark.parametrize("make", [lambda: RBM(8, 8), lambda: small_graph("Chimera cell", scale=0.0)])
def test_saturated_units_never_flip(make):
    energy = make()
    expected = torch.tensor([1.0, 0.0]).repeat(energy.num_units // 2)
    with_parameters(energy, bias=400 * expected - 200)
    for z in both(energy, torch.zeros(2000, energy.num_units), 50, key=0):
        assert torch.equal(z, expected.expand_as(z))


@FEW
@KERNELS
def test_sweeps_and_chains_may_be_divided_among_calls(name, kernel):
    energy = MACHINES[name]()
    start = fair_coins(79, energy.num_units, key=1)
    whole = run_sweeps(energy, start, 12, kernel=kernel, **START)
    z = start
    for first, num_sweeps in ((1, 1), (2, 4), (6, 7)):
        z = run_sweeps(energy, z, num_sweeps, key=2, first_sweep=first, kernel=kernel)
    assert torch.equal(z, whole)
    parts = [
        run_sweeps(energy, start[begin:end], 12, first_chain=begin, kernel=kernel, **START)
        for begin, end in ((0, 1), (1, 8), (8, 79))
    ]
    assert torch.equal(whole, torch.cat(parts))


@pytest.mark.parametrize("name", ["61 + 37", "random"])
def test_threads_do_not_matter(threads_of_torch, name):
    energy, num_chains = MACHINES[name](), 1003
    start, clamped = (fair_coins(num_chains, energy.num_units, key=key) for key in (1, 5))
    options = {"inverse_temperature": torch.linspace(0.5, 1.5, num_chains), "clamped": clamped > 0}
    for chosen in ({}, options):
        threads_of_torch(1)
        one = run_sweeps(energy, start, 15, **START, **chosen)
        threads_of_torch(2)
        assert torch.equal(one, run_sweeps(energy, start, 15, **START, **chosen))


@TWO
def test_other_layouts_and_dtypes(name):
    energy = MACHINES[name]()
    start = fair_coins(6, energy.num_units, key=1)
    expected = run_sweeps(energy, start, 3, **START)
    assert torch.equal(expected, run_sweeps(energy, start.double(), 3, **START))
    assert torch.equal(expected, run_sweeps(energy, start.T.contiguous().T, 3, **START))
    assert kernel_for(energy.double()) is gibbs.run_reference
    low = energy.bfloat16()
    assert kernel_for(low) is module_of(low).run
    assert torch.equal(run_sweeps(low, start, 3, **START), run_sweeps(low.float(), start, 3, **START))


@pytest.mark.parametrize("size", [7, 64])
def test_the_size_of_a_graphs_chunk_does_not_matter(size, monkeypatch):
    energy = randomize(GraphBoltzmann(128, "chimera"), scale=0.5)
    start = fair_coins(150, 128, key=1)
    expected = run_sweeps(energy, start, 5, **START)
    monkeypatch.setattr(gibbs_graph, "chunk_size", lambda *sizes: size)
    assert torch.equal(run_sweeps(energy, start, 5, **START), expected)


@pytest.mark.parametrize("shape", [(5, 3), (100, 70)], ids=str)
def test_rows_that_are_made_when_they_are_due_are_those_of_whole_tables(shape, monkeypatch):
    rbm, z = make_rbm(*shape, scale=0.4), fair_coins(30, sum(shape), key=1)
    whole = run_sweeps(rbm, z, 3, **START)
    monkeypatch.setattr(gibbs_rbm, "LARGEST_TABLE", 0)
    monkeypatch.setattr(gibbs_rbm, "_kept", gibbs_rbm._Kept())
    assert torch.equal(run_sweeps(rbm, z, 3, **START), whole)
    assert not any(table.size for table in gibbs_rbm._kept.tables)


@pytest.mark.slow
def test_a_large_machine_follows_the_reference():
    energy = random_graph(100_000, 1_000_000, scale=0.2)
    start = fair_coins(70, 100_000, key=1)
    z = run_sweeps(energy, start, 3, **START)
    assert torch.equal(z[:3], run_sweeps(energy, start[:3], 3, **START))
    compiled, reference = both(energy, start[:3], 1)
    assert int((reference != compiled).sum()) <= 2  # rounding at the edge of a decision


@TWO
@pytest.mark.parametrize("parameter", ["weight", "bias"])
def test_parameters_that_are_not_finite_are_refused(name, parameter):
    for value in (float("nan"), -float("inf"), 3e38):
        energy = MACHINES[name]()
        with torch.no_grad():
            getattr(energy, parameter).view(-1)[2] = value
        start = torch.zeros(4, energy.num_units)
        assert refused_argument(run_sweeps, energy, start, 3, **START) == f"energy.{parameter}"


def test_the_reference_in_parts_is_the_reference(monkeypatch):
    rbm, z, masks = make_rbm(6, 5), fair_coins(31, 11, key=1), fair_coins(31, 11, key=2).bool()

    def run():
        given = ({}, {"clamped": masks[0]})
        given += ({"clamped": masks, "inverse_temperature": torch.linspace(0, 2, 31)},)
        reference = {"kernel": gibbs.run_reference, "first_chain": 5}
        return torch.cat([run_sweeps(rbm, z, 3, **START, **reference, **each) for each in given])

    whole = run()
    monkeypatch.setattr(gibbs, "_LARGEST_PART", 44)  # four chains
    assert torch.equal(run(), whole)


@pytest.mark.parametrize("config", members(PriorConfig))
@pytest.mark.parametrize("kernel", [gibbs.run_reference, gibbs.run_on_device], ids=["torch", "gpu"])
def test_sweeps_keep_the_law(config, kernel):
    energy = randomize(instantiate(config(**SMALL[config.model_fields["kind"].default])))
    step = partial(run_sweeps, energy, num_sweeps=1, key=7, first_sweep=1, kernel=kernel)
    check_sweeps(energy, step, repeats=1000)


@TWO
@KERNELS
def test_states_that_are_not_binary_are_refused(name, kernel):
    energy = MACHINES[name]()
    for value in (0.5, 2.0, -1.0, float("nan")):
        start = torch.zeros(70, energy.num_units)
        start[66, 3] = value
        assert refused_argument(run_sweeps, energy, start, 3, kernel=kernel, **START) == "z"
