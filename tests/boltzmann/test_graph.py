"""Machines on graphs against enumeration and the RBM; edges, colorings and sparse products; planted faults."""

import io
import pickle
import time
from typing import get_args

import numpy as np
import pytest
import torch

from discrete_vae import GraphBoltzmann, exact_log_partition
from discrete_vae.boltzmann import graph
from discrete_vae.boltzmann import graph as graph_module
from discrete_vae.boltzmann.graph import (
    TOPOLOGIES,
    adjacency,
    check_edges,
    color_blocks,
    greedy_coloring,
    sparse_product,
)
from discrete_vae.config import GraphBoltzmannConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing import all_states, enumerate_machine
from discrete_vae.testing.contracts import check_energy
from tests.boltzmann.graphs import (
    ODD_CYCLE,
    SMALL_GRAPHS,
    random_graph,
    randomize,
    rbm_and_its_graph,
    small_graph,
)


@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_small_graphs_obey_the_contract(name):
    check_energy(small_graph(name))


def test_energy_by_hand():
    machine = GraphBoltzmann(3, [[2, 0], [0, 1]]).double()
    with torch.no_grad():
        machine.weight.copy_(torch.tensor([0.5, -1.0]))
        machine.bias.copy_(torch.tensor([0.1, 0.2, 0.3]))
    z = torch.tensor(
        [[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.5, 0.0, 1.0]], dtype=torch.float64
    )
    expected = [-(0.5 + 0.1 + 0.3), -(-1.0 + 0.1 + 0.2), -(0.2 + 0.3), -(0.25 + 0.05 + 0.3)]
    assert machine.energy(z).tolist() == pytest.approx(expected)
    assert machine(z[0]).item() == pytest.approx(expected[0])


@pytest.mark.parametrize("name", [name for name in SMALL_GRAPHS if name != "one unit"])
def test_energy_is_the_sum_over_a_dense_triangle(name):
    machine = small_graph(name).double()
    weight = torch.zeros(machine.num_units, machine.num_units, dtype=torch.float64)
    weight[machine.edges[:, 0], machine.edges[:, 1]] = machine.weight
    z = torch.rand(2, 9, machine.num_units, dtype=torch.float64)
    expected = -torch.einsum("...i,ij,...j->...", z, weight, z) - z @ machine.bias
    torch.testing.assert_close(machine.energy(z), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3), (4, 4), (1, 5), (6, 2)], ids=str)
class TestSameAsTheRBM:
    def test_blocks(self, shape):
        rbm, graph = rbm_and_its_graph(*shape)
        assert [block.tolist() for block in graph.blocks] == [block.tolist() for block in rbm.blocks]

    def test_energies_conditionals_and_free_energies(self, shape):
        rbm, graph = (machine.double() for machine in rbm_and_its_graph(*shape))
        z = all_states(rbm.num_units)
        exact = {"rtol": 0, "atol": 1e-12}
        torch.testing.assert_close(graph.energy(z), rbm.energy(z), **exact)
        for block in range(2):
            torch.testing.assert_close(graph.block_logits(z, block), rbm.block_logits(z, block), **exact)
            torch.testing.assert_close(
                graph.free_energy(z, block, 0.3), rbm.free_energy(z, block, 0.3), **exact
            )
        torch.testing.assert_close(graph.free_energy(z), rbm.free_energy(z), **exact)

    def test_gradients(self, shape):
        rbm, graph = (machine.double() for machine in rbm_and_its_graph(*shape))
        z = all_states(rbm.num_units)
        for values in ((rbm.energy(z), graph.energy(z)), (rbm.free_energy(z), graph.free_energy(z))):
            weights = torch.linspace(-1, 2, len(z), dtype=torch.float64)
            of_rbm, of_graph = (
                torch.autograd.grad((value * weights).sum(), list(machine.parameters()))
                for value, machine in zip(values, (rbm, graph), strict=True)
            )
            for a, b in zip(of_rbm, of_graph, strict=True):
                torch.testing.assert_close(a.flatten(), b, rtol=0, atol=1e-10)

    def test_log_partition(self, shape):
        rbm, graph = rbm_and_its_graph(*shape)
        assert exact_log_partition(graph).value == pytest.approx(exact_log_partition(rbm).value, abs=1e-12)

    @pytest.mark.parametrize("order", ["left first", "right first", "mixed", "one group"])
    def test_expected_energy(self, shape, order):
        rbm, graph = (machine.double() for machine in rbm_and_its_graph(*shape))
        n, generator = rbm.num_units, torch.Generator().manual_seed(1)
        rank = {
            "left first": torch.arange(n),
            "right first": torch.arange(n).flip(0),
            "mixed": torch.randint(3, (n,), generator=generator),
            "one group": torch.zeros(n, dtype=torch.int64),
        }[order]
        bits, q = (
            torch.rand(4, n, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)
        )
        inputs = [(bits, q, *machine.parameters()) for machine in (rbm, graph)]
        values = [machine.expected_energy(bits, q, machine.pair_order(rank)) for machine in (rbm, graph)]
        torch.testing.assert_close(values[0], values[1], rtol=0, atol=1e-12)
        of_rbm, of_graph = (
            torch.autograd.grad(value.square().sum(), wrt, allow_unused=True, materialize_grads=True)
            for value, wrt in zip(values, inputs, strict=True)
        )
        for a, b in zip(of_rbm, of_graph, strict=True):
            torch.testing.assert_close(a.reshape(b.shape), b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("ranks", [[0, 0, 0, 0, 0], [0, 1, 2, 3, 4], [1, 0, 1, 0, 2], [2, 2, 0, 1, 1]])
def test_expected_energy_is_unbiased_for_a_posterior_without_hierarchy(ranks):
    """With independent units the average over bits drawn from q is the exact mean, whatever the order."""
    machine = small_graph("odd cycle").double()
    states, q = all_states(5), torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    prob = (states * q + (1 - states) * (1 - q)).prod(-1)
    order = machine.pair_order(torch.tensor(ranks))
    value = prob @ machine.expected_energy(states, q.expand_as(states), order)
    torch.testing.assert_close(value, prob @ machine.energy(states), rtol=0, atol=1e-12)


class TestFaultsAreRejected:
    def test_two_neighbors_in_one_block(self, monkeypatch):
        monkeypatch.setattr(
            graph_module, "color_blocks", lambda n, edges: [np.array([0, 1, 3]), np.array([2, 4])]
        )
        with pytest.raises(AssertionError):
            check_energy(randomize(GraphBoltzmann(5, ODD_CYCLE)))

    def test_a_unit_in_two_blocks(self):
        machine = small_graph("odd cycle")
        machine.blocks = (*machine.blocks, machine.blocks[0][:1])
        with pytest.raises(AssertionError, match="cover each unit once"):
            check_energy(machine)

    @pytest.mark.parametrize("seen_from", ["energy", "block_logits"])
    def test_an_edge_counted_twice(self, seen_from):
        class Twice(GraphBoltzmann):
            def compute_energy(self, z):
                extra = z[..., 0] * z[..., 1] * self.weight[0].to(z.dtype)
                return super().compute_energy(z) - extra * (seen_from == "energy")

            def compute_block_logits(self, z, block):
                extra = z[..., 1:2] * self.weight[0].to(z.dtype) * (self.blocks[block] == 0)
                return super().compute_block_logits(z, block) + extra * (seen_from == "block_logits")

        with pytest.raises(AssertionError):
            check_energy(randomize(Twice(5, ODD_CYCLE)))

    def test_weights_in_another_order(self):
        machine = small_graph("odd cycle")
        machine.neighbor_edge = machine.neighbor_edge.roll(1)
        with pytest.raises(AssertionError):
            check_energy(machine)


def test_many_weights_and_their_gradient():
    """A machine that is too large to enumerate, against dense products."""
    machine = random_graph(300, 2000).double()
    weight = torch.zeros(300, 300, dtype=torch.float64)
    weight[machine.edges[:, 0], machine.edges[:, 1]] = machine.weight.detach()
    weight = (weight + weight.T).requires_grad_()
    z = (torch.rand(11, 300, generator=torch.Generator().manual_seed(1)) < 0.5).double()
    fields = z @ weight + machine.bias
    for index, block in enumerate(machine.blocks):
        torch.testing.assert_close(machine.block_logits(z, index), fields[:, block], rtol=0, atol=1e-11)
    dense = -((z @ weight) * z).sum(-1) / 2 - z @ machine.bias
    torch.testing.assert_close(machine.energy(z), dense, rtol=0, atol=1e-10)
    (of_dense,) = torch.autograd.grad(dense.square().sum(), weight)
    (of_graph,) = torch.autograd.grad(machine.energy(z).square().sum(), machine.weight)
    both = (
        of_dense[machine.edges[:, 0], machine.edges[:, 1]]
        + of_dense[machine.edges[:, 1], machine.edges[:, 0]]
    )
    torch.testing.assert_close(of_graph, both, rtol=1e-10, atol=1e-8)


def test_the_state_holds_parameters_only_and_survives_copies():
    machine = small_graph("odd cycle")
    assert set(machine.state_dict()) == {"weight", "bias"}
    copy = pickle.loads(pickle.dumps(machine))
    z = all_states(5)
    assert torch.equal(copy.energy(z), machine.energy(z))
    assert torch.equal(machine.double().edges, copy.edges)


def test_float64_states_are_computed_in_float64():
    machine = small_graph("odd cycle")
    assert machine.energy(torch.ones(1, 5)).dtype == torch.float32
    assert machine.energy(torch.ones(1, 5).double()).dtype == torch.float64
    assert machine.block_logits(torch.ones(1, 5).double(), 0).dtype == torch.float64


def test_log_partition_of_an_odd_cycle():
    machine = small_graph("odd cycle")
    expected = float(enumerate_machine(machine).log_partition.detach())
    estimate = exact_log_partition(machine)
    assert estimate.value == pytest.approx(expected, abs=1e-12)
    assert estimate.num_samples == 2 ** (5 - max(len(block) for block in machine.blocks))


@pytest.mark.slow
def test_a_hundred_thousand_units_and_a_million_edges():
    """Construction, energies and both phases of the gradient, in seconds and without a dense matrix."""
    begin = time.perf_counter()
    machine = random_graph(100_000, 1_000_000, scale=0.1)
    assert len(machine.blocks) < 12
    z = (torch.rand(20, 100_000, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    (machine.energy(z).mean() - machine.free_energy(z).mean()).backward()
    assert bool(machine.weight.grad.isfinite().all())
    first, second = machine.edges[:3].T
    pairs = (z[:, first] * z[:, second]).mean(0)
    assert machine.weight.grad[:3].tolist() != pairs.tolist()  # the negative phase is in it
    assert time.perf_counter() - begin < 120


def test_weights_of_other_edges_are_refused():
    """As many edges, so that the shapes fit."""
    first, other = GraphBoltzmann(4, [[0, 1], [1, 2]]), GraphBoltzmann(4, [[0, 1], [2, 3]])
    module = torch.nn.Sequential(first)
    for load, machine in (
        (other.load_state_dict, first),
        (torch.nn.Sequential(other).load_state_dict, module),
    ):
        with pytest.raises(InvalidInputError, match="^state_dict "):
            load(machine.state_dict())
    turned = GraphBoltzmann(4, [[1, 0], [2, 1]])
    file = io.BytesIO()
    torch.save(randomize(first).state_dict(), file)
    file.seek(0)
    turned.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(turned.weight, first.weight)
    other.load_state_dict(dict(first.state_dict()))  # of before, or from a file without metadata
    assert torch.equal(other.weight, first.weight)


TRIANGLE = [[0, 1], [2, 1], [0, 2]]


@pytest.mark.parametrize(
    "edges",
    [
        TRIANGLE,
        [tuple(edge) for edge in TRIANGLE],
        np.array(TRIANGLE),
        np.array(TRIANGLE, np.uint8),
        torch.tensor(TRIANGLE),
        torch.tensor(TRIANGLE, dtype=torch.int32),
    ],
    ids=["lists", "tuples", "int64 array", "uint8 array", "int64 tensor", "int32 tensor"],
)
def test_pairs_keep_their_order_and_orientation(edges):
    got = check_edges(3, edges)
    assert got.dtype == torch.int64
    assert got.tolist() == TRIANGLE


def test_the_answer_owns_its_memory():
    given = torch.tensor(TRIANGLE)
    check_edges(3, given).zero_()
    assert given.tolist() == TRIANGLE


@pytest.mark.parametrize("edges", [[], (), np.empty((0, 2), np.int64), torch.empty(0, 2, dtype=torch.int64)])
def test_no_edges(edges):
    assert check_edges(2, edges).shape == (0, 2)


@pytest.mark.parametrize(
    ("name", "edges"),
    [
        ("edges[1]", [[0, 1], [2, 2]]),
        ("edges[1]", [[0, 1], [0, 3]]),
        ("edges[0]", [[-1, 1]]),
        ("edges[2]", [[0, 1], [1, 2], [0, 1]]),
        ("edges[1]", [[0, 1], [1, 0], [1, 0]]),
        ("edges", [[0, 1, 2]]),
        ("edges", [0, 1]),
        ("edges", [[0, 1], [2]]),
        ("edges", [[0.0, 1.0]]),
        ("edges", [[True, False]]),
        ("edges", torch.zeros(2, 1, dtype=torch.int64)),
        ("edges", [[0, 2**70]]),
        ("edges", None),
        ("edges", "torus"),
    ],
)
def test_wrong_edges_are_named(name, edges):
    with pytest.raises(InvalidInputError) as caught:
        check_edges(3, edges)
    assert caught.value.argument == name


def test_complete_graph():
    assert check_edges(4, "complete").tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert check_edges(1, "complete").shape == (0, 2)


@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_chimera_graph(size):
    edges = check_edges(8 * size**2, "chimera")
    assert len(edges) == 16 * size**2 + 8 * size * (size - 1)
    assert torch.equal(check_edges(8 * size**2, edges), edges)  # no loops, nothing twice
    degree = torch.bincount(edges.flatten())
    assert int(degree.min()) == (4 if size == 1 else 5)
    assert int(degree.max()) == min(6, 3 + size)


def test_chimera_cells_are_joined_below_and_to_the_right():
    edges = set(map(tuple, check_edges(32, "chimera").tolist()))
    assert {(0, 4), (3, 7), (0, 16), (11, 27), (4, 12), (23, 31)} <= edges
    assert not {(0, 1), (0, 8), (4, 20), (15, 31), (7, 8)} & edges


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", ["chimera", "pegasus", "zephyr"])
def test_named_graphs_are_those_of_their_maker(name, size):
    graphs = pytest.importorskip("dwave.graphs", reason="dwave-graphs is not installed (extra dwave)")
    theirs = getattr(graphs, f"{name}_graph")(size + (name == "pegasus"))
    ours = GraphBoltzmann(len(theirs), name)
    assert ours.nodes == tuple(sorted(theirs))
    node = torch.tensor(ours.nodes)[ours.edges]
    assert {frozenset(edge) for edge in node.tolist()} == {frozenset(edge) for edge in theirs.edges()}


@pytest.mark.parametrize(
    ("name", "num_units", "nearest"),
    [
        ("pegasus", 41, (40, 128)),
        ("zephyr", 10, (48,)),
        *(("chimera", number, (8, 32)) for number in (9, 16)),
        ("chimera", 1, (8,)),
    ],
)
def test_sizes_that_a_named_graph_lacks(name, num_units, nearest):
    with pytest.raises(InvalidInputError, match="^num_units ") as caught:
        check_edges(num_units, name)
    assert all(str(size) in caught.value.repair for size in nearest)


def test_nodes_are_kept_and_checked():
    graph = GraphBoltzmann(3, TRIANGLE, nodes=np.array([7, 0, 12]))
    assert graph.nodes == (7, 0, 12)
    wrong = [{"nodes": nodes} for nodes in ([0, 1], [0, 1, 1], [0, 1, -2], [0.0, 1.0, 2.0], 3)]
    for arguments in wrong + [{"num_units": number} for number in (0, -1, 2.0, True)]:
        with pytest.raises(InvalidInputError, match=f"^{next(iter(arguments))} "):
            GraphBoltzmann(**{"num_units": 3, "edges": TRIANGLE, **arguments})


def test_the_config_offers_every_named_graph():
    names, _pairs = get_args(GraphBoltzmannConfig.model_fields["edges"].annotation)
    assert set(get_args(names)) == set(TOPOLOGIES)


def random_edges(num_units, num_edges, seed):
    generator = np.random.default_rng(seed)
    pairs = np.sort(generator.integers(0, num_units, (4 * num_edges, 2)), 1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    return generator.permutation(pairs)[:num_edges]


def cycle(length):
    return np.stack([np.arange(length), (np.arange(length) + 1) % length], 1)


def is_proper(colors, edges):
    return bool((colors[edges[:, 0]] != colors[edges[:, 1]]).all())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("num_units", "num_edges"), [(5, 8), (40, 100), (300, 2000)])
def test_neighbors_have_different_colors(num_units, num_edges, seed):
    edges = random_edges(num_units, num_edges, seed)
    colors = greedy_coloring(num_units, edges)
    assert is_proper(colors, edges)
    assert set(colors) == set(range(colors.max() + 1))
    assert colors.max() <= np.bincount(edges.ravel()).max()
    np.testing.assert_array_equal(colors, greedy_coloring(num_units, edges))
    # neither the order of the edges nor their orientation matters
    shuffled = np.random.default_rng(seed).permutation(edges)[:, ::-1]
    np.testing.assert_array_equal(colors, greedy_coloring(num_units, shuffled))


@pytest.mark.parametrize(
    ("num_units", "edges", "num_colors"),
    [
        (4, np.empty((0, 2), np.int64), 1),
        (3, cycle(3), 3),
        (7, cycle(7), 3),
        (8, cycle(8), 2),
        (6, check_edges(6, "complete").numpy(), 6),
        (128, check_edges(128, "chimera").numpy(), 2),
        # the crown graph, on which a greedy coloring in the order 0, 1, 2, ... needs five colors
        (10, np.array([[2 * i, 2 * j + 1] for i in range(5) for j in range(5) if i != j]), 2),
    ],
    ids=["no edges", "triangle", "odd cycle", "even cycle", "complete", "chimera", "crown"],
)
def test_number_of_colors(num_units, edges, num_colors):
    colors = greedy_coloring(num_units, edges)
    assert is_proper(colors, edges) or len(edges) == 0
    assert colors.max() + 1 == num_colors


@pytest.mark.parametrize("seed", range(5))
def test_every_random_bipartite_graph_gets_two_colors(seed):
    sides = np.random.default_rng(seed).permutation(60)
    edges = random_edges(60, 900, seed)
    left = np.isin(edges, sides[:30])
    edges = edges[left[:, 0] != left[:, 1]]
    assert greedy_coloring(60, edges).max() == 1


def test_blocks_are_ordered_by_their_first_units():
    sides = np.array([[i, 3 + j] for i in range(3) for j in range(5)])
    assert [block.tolist() for block in color_blocks(8, sides)] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    blocks = color_blocks(50, random_edges(50, 200, 0))
    assert [block[0] for block in blocks] == sorted(block[0] for block in blocks)
    assert all((np.diff(block) > 0).all() for block in blocks)
    assert sorted(np.concatenate(blocks)) == list(range(50))


def test_adjacency_lists_each_edge_from_both_ends():
    edges = np.array([[0, 2], [3, 0], [2, 3]])
    order = np.array([2, 0, 1, 3])
    start, neighbor, edge = adjacency(order, edges)
    assert start.tolist() == [0, 2, 4, 4, 6]
    assert neighbor.tolist() == [0, 3, 2, 3, 0, 2]
    assert edge.tolist() == [0, 2, 0, 1, 1, 2]


ROWS = torch.tensor([0, 0, 2, 3, 3, 1])
COLUMNS = torch.tensor([1, 4, 0, 2, 1, 1])


def arguments(lead=(3,), seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    z = torch.randn(*lead, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    return values, z


def product(values, z):
    return sparse_product(values, z, torch.stack([ROWS, COLUMNS]), 4)


@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 3), (0,)], ids=str)
def test_value_equals_the_dense_product(lead):
    values, z = arguments(lead)
    dense = torch.zeros(4, 5, dtype=torch.float64).index_put((ROWS, COLUMNS), values)
    torch.testing.assert_close(product(values, z), z @ dense.T, rtol=0, atol=1e-14)


@pytest.mark.parametrize("part", [1 << 24, 7])
def test_derivatives_of_first_and_second_order(part, monkeypatch):
    monkeypatch.setattr(graph, "_LARGEST_PART", part)
    values, z = arguments()
    torch.autograd.gradcheck(product, (values, z))
    torch.autograd.gradgradcheck(product, (values, z))


@pytest.mark.parametrize("wanted", [0, 1])
def test_one_gradient_alone(wanted):
    inputs = list(arguments())
    both = torch.autograd.grad(product(*inputs).square().sum(), inputs)
    inputs[1 - wanted] = inputs[1 - wanted].detach()
    (alone,) = torch.autograd.grad(product(*inputs).square().sum(), inputs[wanted])
    torch.testing.assert_close(alone, both[wanted], rtol=0, atol=0)


def test_no_entries():
    empty = torch.empty(0, dtype=torch.int64)
    values = torch.empty(0, requires_grad=True)
    z = torch.ones(2, 3, requires_grad=True)
    got = sparse_product(values, z, torch.stack([empty, empty]), 4)
    assert torch.equal(got, torch.zeros(2, 4))
    got.sum().backward()
    assert values.grad.shape == (0,)
    assert torch.equal(z.grad, torch.zeros(2, 3))
