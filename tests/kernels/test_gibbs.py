"""Sweeps: kernels agree state by state, nothing depends on the division of the work, arguments are checked."""

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann
from discrete_vae.config import PriorConfig, instantiate, members
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels import gibbs_graph, gibbs_rbm, gibbs_torch
from discrete_vae.kernels.gibbs import kernel_for, run_sweeps
from discrete_vae.kernels.gibbs_torch import fair_coins
from tests.boltzmann.graphs import random_graph, randomize, rbm_and_its_graph, small_graph
from tests.boltzmann.test_base import SMALL
from tests.oracles.transitions import check_sweeps

# A decision u < sigmoid(l) may differ between kernels only within rounding (about 1e-6 in the logit), once in some
# 10 million draws; the fixed keys below meet no such case, so states must be equal without exception.


def make_rbm(num_left: int, num_right: int, *, scale: float = 0.4, seed: int = 0) -> RBM:
    rbm = RBM(num_left, num_right)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rbm.weight.normal_(0, scale, generator=generator)
        rbm.bias.normal_(0, 1, generator=generator)
    return rbm


SIDES = [(1, 1), (1, 9), (3, 1), (5, 3), (4, 4), (61, 37), (64, 64), (33, 130), (300, 260)]
MACHINES = {
    f"{left} + {right}": lambda left=left, right=right: make_rbm(left, right) for left, right in SIDES
}
MACHINES |= {
    "one unit": lambda: small_graph("one unit"),
    "no edges": lambda: small_graph("no edges"),
    "triangle": lambda: small_graph("triangle"),
    "odd cycle, chord, end and loner": lambda: small_graph("odd cycle, chord, end and loner"),
    "star": lambda: randomize(GraphBoltzmann(203, [[100, i] for i in range(203) if i != 100]), scale=0.3),
    "complete": lambda: randomize(GraphBoltzmann(23, "complete"), scale=0.3),
    "Chimera": lambda: randomize(GraphBoltzmann(128, "chimera"), scale=0.5),
    "random": lambda: random_graph(301, 1700, scale=0.3),
}
FEW = pytest.mark.parametrize("name", ["5 + 3", "61 + 37", "odd cycle, chord, end and loner", "random"])
TWO = pytest.mark.parametrize("name", ["5 + 3", "complete"])
START = {"key": 2, "first_sweep": 1}


def module_of(energy):
    return gibbs_rbm if isinstance(energy, RBM) else gibbs_graph


def both(energy, z, num_sweeps, **options):
    """The states that the compiled kernel and the reference give."""
    compiled = run_sweeps(energy, z, num_sweeps, **START | options)
    return compiled, run_sweeps(energy, z, num_sweeps, kernel=gibbs_torch.run, **START | options)


@pytest.mark.parametrize("num_chains", [1, 9, 140])
@pytest.mark.parametrize("name", MACHINES)
def test_kernels_give_the_same_states(name, num_chains):
    energy = MACHINES[name]()
    assert kernel_for(energy) is module_of(energy).run
    compiled, reference = both(energy, fair_coins(num_chains, energy.num_units, key=1), 6)
    assert compiled.dtype == reference.dtype == torch.float32
    assert torch.equal(compiled, reference)
    if num_chains == 140:
        assert 0.05 < float(compiled.mean()) < 0.95


def test_an_rbm_and_its_graph_give_the_same_states():
    rbm, graph = rbm_and_its_graph(19, 14, scale=0.4)
    start = fair_coins(50, 33, key=1)
    assert torch.equal(
        run_sweeps(graph, start, 8, key=2, first_sweep=1), run_sweeps(rbm, start, 8, key=2, first_sweep=1)
    )


@FEW
@pytest.mark.parametrize("per_chain", [False, True])
def test_kernels_agree_with_temperatures_and_clamped_units(name, per_chain):
    energy, num_chains = MACHINES[name](), 71
    start = fair_coins(num_chains, energy.num_units, key=1)
    clamped = fair_coins(num_chains if per_chain else 1, energy.num_units, key=3).bool()
    temperatures = torch.linspace(0, 2, num_chains)
    given = clamped if per_chain else clamped[0]
    compiled, reference = both(energy, start, 6, inverse_temperature=temperatures, clamped=given)
    assert torch.equal(compiled, reference)
    held = clamped.expand_as(start)
    assert torch.equal(compiled[held], start[held])
    assert not torch.equal(compiled[~held], start[~held])


@TWO
def test_one_chain_with_its_own_mask(name):
    energy = MACHINES[name]()
    clamped = torch.arange(energy.num_units)[None] % 2 == 0
    compiled, reference = both(energy, fair_coins(1, energy.num_units, key=1), 9, clamped=clamped)
    assert torch.equal(compiled, reference)


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
    with torch.no_grad():
        energy.bias.copy_(400 * expected - 200)
    for z in both(energy, torch.zeros(2000, energy.num_units), 50, key=0):
        assert torch.equal(z, expected.expand_as(z))


@TWO
@pytest.mark.parametrize("kernel", [None, gibbs_torch.run], ids=["compiled", "torch"])
@pytest.mark.parametrize("division", [[12], [1] * 12, [5, 7], [11, 1]], ids=str)
def test_sweeps_may_be_divided_among_calls(name, kernel, division):
    energy = MACHINES[name]()
    z = start = fair_coins(30, energy.num_units, key=1)
    done = 0
    for num_sweeps in division:
        z = run_sweeps(energy, z, num_sweeps, key=2, first_sweep=1 + done, kernel=kernel)
        done += num_sweeps
    assert torch.equal(z, run_sweeps(energy, start, 12, kernel=kernel, **START))


@FEW
@pytest.mark.parametrize("kernel", [None, gibbs_torch.run], ids=["compiled", "torch"])
def test_chains_may_be_divided_among_calls(name, kernel):
    energy = MACHINES[name]()
    start = fair_coins(79, energy.num_units, key=1)
    whole = run_sweeps(energy, start, 12, kernel=kernel, **START)
    parts = [
        run_sweeps(energy, start[begin:end], 12, first_chain=begin, kernel=kernel, **START)
        for begin, end in ((0, 1), (1, 8), (8, 79))
    ]
    assert torch.equal(whole, torch.cat(parts))


@pytest.mark.parametrize("name", ["61 + 37", "Chimera"])
@pytest.mark.parametrize("num_chains", [1, 2, 17, 1003])
def test_threads_do_not_matter(threads_of_torch, name, num_chains):
    energy = MACHINES[name]()
    start, clamped = (fair_coins(num_chains, energy.num_units, key=key) for key in (1, 5))
    options = {"inverse_temperature": torch.linspace(0.5, 1.5, num_chains), "clamped": clamped > 0}
    for chosen in ({}, options):
        threads_of_torch(1)
        one = run_sweeps(energy, start, 15, **START, **chosen)
        threads_of_torch(2)
        assert torch.equal(one, run_sweeps(energy, start, 15, **START, **chosen))


@TWO
def test_input_is_left_alone_output_owns_its_memory_and_weights_are_read_anew(name):
    energy = MACHINES[name]()
    start = fair_coins(40, energy.num_units, key=1)
    copy = start.clone()
    for kernel in (None, gibbs_torch.run):
        after = run_sweeps(energy, start, 3, kernel=kernel, **START)
        assert torch.equal(start, copy)
        assert after.data_ptr() != start.data_ptr()
        assert not after.requires_grad
    with torch.no_grad():
        energy.weight.neg_()
    assert not torch.equal(run_sweeps(energy, start, 3, **START), after)


@TWO
def test_other_layouts_and_dtypes(name):
    energy = MACHINES[name]()
    start = fair_coins(6, energy.num_units, key=1)
    expected = run_sweeps(energy, start, 3, **START)
    assert torch.equal(expected, run_sweeps(energy, start.double(), 3, **START))
    assert torch.equal(expected, run_sweeps(energy, start.T.contiguous().T, 3, **START))
    assert kernel_for(energy.double()) is gibbs_torch.run
    low = energy.bfloat16()
    assert kernel_for(low) is module_of(low).run
    assert torch.equal(run_sweeps(low, start, 3, **START), run_sweeps(low.float(), start, 3, **START))


def test_surrounding_autocast_does_not_reach_the_logits():
    rbm, start = make_rbm(9, 6), fair_coins(30, 15, key=1)
    expected = run_sweeps(rbm, start, 5, key=2, first_sweep=1, kernel=gibbs_torch.run)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = run_sweeps(rbm, start, 5, key=2, first_sweep=1, kernel=gibbs_torch.run)
    assert torch.equal(expected, inside)


@TWO
@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, float("nan")])
@pytest.mark.parametrize("kernel", [None, gibbs_torch.run], ids=["compiled", "torch"])
def test_states_that_are_not_binary_are_refused(name, value, kernel):
    energy = MACHINES[name]()
    start = torch.zeros(70, energy.num_units)
    start[66, 3] = value
    with pytest.raises(InvalidInputError) as caught:
        run_sweeps(energy, start, 1, kernel=kernel, **START)
    assert caught.value.argument == "z"


@TWO
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
@pytest.mark.parametrize("parameter", ["weight", "bias"])
def test_parameters_that_are_not_finite_are_refused(name, value, parameter):
    energy = MACHINES[name]()
    with torch.no_grad():
        getattr(energy, parameter).view(-1)[2] = value
    with pytest.raises(InvalidInputError) as caught:
        run_sweeps(energy, torch.zeros(4, energy.num_units), 3, **START)
    assert caught.value.argument == f"energy.{parameter}"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_sweeps": 0}, "num_sweeps"),
        ({"num_sweeps": True}, "num_sweeps"),
        ({"num_sweeps": 2.0}, "num_sweeps"),
        ({"key": -1}, "key"),
        ({"key": 2**64}, "key"),
        ({"first_sweep": 0}, "first_sweep"),
        ({"first_sweep": 2**64 - 1}, "first_sweep"),
        ({"first_chain": 2**32 - 3}, "first_chain"),
        ({"z": torch.zeros(4, 7)}, "z"),
        ({"z": torch.zeros(8)}, "z"),
        ({"z": torch.zeros(0, 8)}, "z.shape[0]"),
        ({"z": torch.zeros(4, 8, dtype=torch.long)}, "z"),
        ({"z": torch.full((4, 8), 0.5)}, "z"),
        ({"z": torch.full((4, 8), float("nan"))}, "z"),
        ({"z": torch.full((4, 8), 2.0)}, "z"),
        ({"z": torch.zeros(4, 8, device="meta")}, "z"),
        ({"inverse_temperature": torch.ones(3)}, "inverse_temperature"),
        ({"inverse_temperature": torch.full((4,), float("nan"))}, "inverse_temperature"),
        ({"inverse_temperature": torch.full((4,), float("inf"))}, "inverse_temperature"),
        ({"clamped": torch.zeros(8)}, "clamped"),
        ({"clamped": torch.zeros(7, dtype=torch.bool)}, "clamped"),
        ({"clamped": torch.zeros(3, 8, dtype=torch.bool)}, "clamped"),
    ],
)
@pytest.mark.parametrize("kernel", [None, gibbs_torch.run], ids=["compiled", "torch"])
def test_wrong_arguments_are_refused(change, name, kernel):
    arguments = {"z": torch.zeros(4, 8), "num_sweeps": 3, "kernel": kernel, **START, **change}
    with pytest.raises(InvalidInputError) as caught:
        run_sweeps(make_rbm(5, 3), **arguments)
    assert caught.value.argument == name


def test_factorial_machine_follows_its_biases_word_by_word():
    energy = FactorialBernoulli(5)
    z = run_sweeps(energy, torch.zeros(64, 5), 3, key=9, first_sweep=1)
    last_only = run_sweeps(energy, torch.ones(64, 5), 1, key=9, first_sweep=3)
    assert torch.equal(z, last_only)


_MASKS = fair_coins(31, 11, key=2).bool()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clamped": _MASKS[0]},
        {"clamped": _MASKS, "inverse_temperature": torch.linspace(0, 2, 31)},
    ],
)
def test_the_reference_in_parts_is_the_reference(options, monkeypatch):
    rbm, z = make_rbm(6, 5), fair_coins(31, 11, key=1)

    def run():
        return run_sweeps(rbm, z, 3, key=2, first_sweep=1, first_chain=5, kernel=gibbs_torch.run, **options)

    whole = run()
    monkeypatch.setattr(gibbs_torch, "_LARGEST_PART", 44)  # four chains
    assert torch.equal(run(), whole)


@pytest.mark.parametrize("config", members(PriorConfig))
@pytest.mark.parametrize("choose", [kernel_for, lambda energy: gibbs_torch.run], ids=["own", "torch"])
def test_sweeps_keep_the_law(config, choose):
    kind = config.model_fields["kind"].default
    energy = randomize(instantiate(config(**SMALL[kind])))

    def step(z):
        return run_sweeps(energy, z, 1, key=7, first_sweep=1, kernel=choose(energy))

    check_sweeps(energy, step, repeats=1000)
