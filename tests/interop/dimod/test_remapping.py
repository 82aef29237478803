"""Priors on solvers with gaps: places, what is fitted, what it costs against enumeration, and lost units drawn."""

import numpy as np
import pytest
import torch

from discrete_vae import RBM, GraphBoltzmann
from discrete_vae.testing import check_frequencies, enumerate_machine
from tests.boltzmann.graphs import exact_draws, randomize, state_counts
from tests.refusals import refused_argument

dimod = pytest.importorskip("dimod", reason="dimod is not installed (extra dwave)")
graphs = pytest.importorskip("dwave.graphs", reason="dwave-graphs is not installed (extra dwave)")

from discrete_vae.interop.dimod import places, remap, solver_graph  # noqa: E402
from discrete_vae.interop.dimod.remapping import estimate_divergence, losses  # noqa: E402

EDGES = [[0, 1], [1, 2], [2, 3], [3, 0], [0, 4], [1, 4], [2, 5], [4, 5], [6, 5], [6, 7], [7, 1], [2, 0]]
NODES = tuple(range(20, 28))


def make_machine(scale=0.8):
    return randomize(GraphBoltzmann(8, EDGES, nodes=NODES), seed=2, scale=scale)


def marginal(machine, units):
    """p of some units, by enumeration, states numbered as in `all_states`."""
    law = enumerate_machine(machine)
    cells = (law.states[:, list(units)].long() << torch.arange(len(units))).sum(1)
    return torch.zeros(2 ** len(units), dtype=torch.float64).index_add(0, cells, law.prob.detach())


def exact_kl(machine, found, other=None):
    p = marginal(machine, found.units)
    q = enumerate_machine(found.energy if other is None else other).prob.detach()
    return float((p * (p / q).log()).sum())


def without(nodes=(), edges=()):
    """The graph of the machine with some units and pairs gone, as a solver's."""
    left = [20 + unit for unit in range(8) if unit not in nodes]
    kept = [pair for pair in EDGES if pair not in list(edges) and not set(pair) & set(nodes)]
    return left, [(20 + a, 20 + b) for a, b in kept]


CASES = {
    "a unit": ((4,), ()),
    "two that are joined": ((4, 5), ()),
    "a coupler": ((), ([1, 2],)),
    "both": ((6,), ([2, 0], [3, 0])),
}


@pytest.mark.parametrize(("nodes", "edges"), CASES.values(), ids=CASES)
def test_the_divergence_is_that_of_enumeration(nodes, edges):
    machine = make_machine()
    z = exact_draws(machine, 8000)
    z = z[machine.energy(z).argsort()]  # as a dimod.SampleSet gives them
    found = remap(machine, *without(nodes, edges), z=z)
    exact = exact_kl(machine, found)
    assert abs(found.divergence.kl - exact) < 5 * found.divergence.std_error + 1e-6
    shift = (enumerate_machine(found.energy).log_partition - enumerate_machine(machine).log_partition).item()
    assert found.divergence.log_partition_shift == pytest.approx(shift, abs=0.05)
    plain = GraphBoltzmann(len(found.units), found.energy.edges)
    with torch.no_grad():
        pairs = machine.edges.tolist()
        kept = [pairs.index([found.units[a], found.units[b]]) for a, b in found.energy.edges.tolist()]
        plain.weight.copy_(machine.weight[kept])
        plain.bias.copy_(machine.bias[list(found.units)])
    dropped = exact_kl(machine, found, plain)
    assert abs(found.dropped.kl - dropped) < 5 * found.dropped.std_error + 1e-6
    assert exact < 0.5 * dropped  # what the fit is for
    assert found.lost_units == nodes
    assert len(found.lost_pairs) == len(EDGES) - len(found.energy.edges)


def test_without_gaps_nothing_changes_and_a_unit_with_one_neighbor_costs_nothing():
    machine = make_machine()
    found = remap(machine, *without())
    assert torch.equal(found.energy.weight, machine.weight)
    assert torch.equal(found.energy.bias, machine.bias)
    assert (found.divergence.kl, found.lost_units, found.lost_pairs) == (0.0, (), ())
    z = exact_draws(machine, 10)
    assert torch.equal(found.complete(z), z)
    chain = randomize(GraphBoltzmann(3, [[0, 1], [1, 2]], nodes=[5, 6, 7]), seed=1)
    with torch.no_grad():
        # what is dropped alone hardly overlaps
        chain.weight[1], chain.bias[1], chain.bias[2] = 30.0, -24.0, 0.0
    found = remap(chain, [5, 6], [(5, 6)], z=exact_draws(chain, 2000))
    assert exact_kl(chain, found) < 1e-8
    assert found.divergence.kl == pytest.approx(0, abs=1e-5)
    assert found.dropped.kl > 1e-3
    with pytest.warns(UserWarning, match=r"20\.0 nats"):  # laws that hardly overlap
        estimate_divergence(lambda z: 20 * z.sum(1).double() - 20, torch.ones(100, 2), torch.zeros(100, 2))


@pytest.mark.parametrize("nodes", [(4,), (4, 5), (0, 6)])
def test_lost_units_are_drawn_from_their_conditional(nodes):
    machine = make_machine()
    found = remap(machine, *without(nodes), z=exact_draws(machine, 2000))
    z = exact_draws(machine, 20_000, seed=1)
    full = found.complete(z[:, list(found.units)], seed=3)
    assert torch.equal(full[:, list(found.units)], z[:, list(found.units)])

    def check(states):
        check_frequencies(state_counts(states), enumerate_machine(machine).prob.detach())

    check(full)
    full[:, list(nodes)] = exact_draws(machine, 20_000, seed=2)[:, list(nodes)]
    with pytest.raises(AssertionError):  # planted: drawn without their neighbors
        check(full)


def two_clusters(strength):
    """Two triples of spins that agree, joined by one pair: two modes, of which a cut makes four."""
    pairs = [[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [2, 3]]
    return GraphBoltzmann.from_ising(6, pairs, [strength] * 7, [0.0] * 6)


def test_modes_that_only_the_remapped_prior_has_are_counted():
    machine = two_clusters(1.5)
    found = remap(machine, range(6), machine.edges.tolist()[:-1], z=exact_draws(machine, 4000))
    exact = exact_kl(machine, found)
    assert exact > 0.4
    assert abs(found.divergence.kl - exact) < 5 * found.divergence.std_error
    # planted: by some of the prior's own samples alone, none of which has the new modes
    z = exact_draws(machine, 100)
    z = z[z[:, 2] == z[:, 3]]
    d = (found.energy.energy(z) - machine.energy(z)).detach()
    assert float(d.mean() + (-d).exp().mean().log()) < 0.7 * exact


@pytest.mark.parametrize(
    ("family", "num_units", "size"), [("chimera", 32, 2), ("pegasus", 40, 2), ("zephyr", 48, 1)]
)
def test_symmetries_keep_every_pair_and_shifts_lie_on_the_larger_lattice(family, num_units, size):
    machine = randomize(GraphBoltzmann(num_units, family))
    theirs = [getattr(graphs, f"{family}_graph")(number) for number in (size, 3)]
    found = places(machine, num_symmetries=20)
    assert found.shape == (21, num_units)
    assert found[0].tolist() == list(machine.nodes)
    assert len(np.unique(found, axis=0)) > 15
    assert not losses(machine, found, theirs[0].nodes, theirs[0].edges).any()
    found = places(machine, lattice=(family, 3), num_symmetries=2)[1:]
    assert len({frozenset(place) for place in found.tolist()}) > 3
    assert not losses(machine, found, theirs[1].nodes, theirs[1].edges).any()


def test_a_gap_is_gone_around():
    machine, whole = randomize(GraphBoltzmann(48, "zephyr")), graphs.zephyr_graph(3)
    whole.remove_nodes_from([24, 30, 100])
    candidates = places(machine, lattice=("zephyr", 3), num_symmetries=3)
    found = remap(machine, whole.nodes, whole.edges, candidates=candidates)
    assert found.lost_pairs == ()
    assert found.divergence.kl == 0
    nodes = found.energy.nodes
    assert set(nodes) <= set(whole.nodes)
    assert all(whole.has_edge(nodes[a], nodes[b]) for a, b in found.energy.edges.tolist())


def test_a_prior_that_is_not_trained_goes_around_a_gap_too():
    machine, whole = GraphBoltzmann(8, "chimera"), graphs.chimera_graph(2)
    whole.remove_edge(0, 4)
    candidates = places(machine, lattice=("chimera", 2), num_symmetries=300)
    assert remap(machine, whole.nodes, whole.edges, candidates=candidates).lost_pairs == ()


def test_a_broken_coupler_is_laid_under_a_weak_pair():
    machine, cell = randomize(GraphBoltzmann(8, "chimera")), graphs.chimera_graph(1)
    cell.remove_edge(0, 4)
    z, candidates = exact_draws(machine, 500), places(machine, num_symmetries=500)
    found = remap(machine, cell.nodes, cell.edges, candidates=candidates, z=z)
    (lost,) = found.lost_pairs
    assert list(lost) == machine.edges[int(machine.weight.abs().argmin())].tolist()


def test_the_nodes_of_a_solver_may_be_numpys_integers():
    nodes = list(np.array([4, 7, 9]))
    solver = dimod.StructureComposite(dimod.RandomSampler(), nodes, [(nodes[0], nodes[2])])
    found = solver_graph(solver)
    assert (found.nodes, found.edges) == ((4, 7, 9), ((0, 2),))
    assert all(type(node) is int for node in found.nodes)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: remap(RBM(2, 2), [0], []), "energy"),
        (lambda: places(RBM(2, 2)), "energy"),
        (lambda: remap(make_machine(), [0], []), "nodes"),
        (lambda: remap(make_machine(), [20], [], candidates=np.zeros((1, 3), int)), "candidates"),
        (lambda: remap(make_machine(), [20], [], candidates=np.zeros((0, 8), int)), "candidates"),
        (lambda: remap(make_machine(), [20], [], z=torch.zeros(99, 8)), "z"),
        (lambda: remap(randomize(GraphBoltzmann(14, "complete")), [0], []), "nodes"),
        (lambda: solver_graph(3), "solver"),
        *(
            (lambda machine=machine, lattice=lattice: places(machine, lattice=lattice), "lattice")
            for machine in (GraphBoltzmann(32, "chimera"), GraphBoltzmann(8, [[0, 1]]))
            for lattice in (("cube", 3), ("zephyr", 3), ("chimera", 1), ("chimera",), "chimera")
        ),
    ],
)
def test_what_does_not_fit_is_named(call, name):
    assert refused_argument(call) == name
