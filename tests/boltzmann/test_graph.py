"""Machines on graphs against enumeration and the RBM; edges, colorings and sparse products; planted faults."""

import io
from typing import get_args

import numpy as np
import pytest
import torch

from discrete_vae import GraphBoltzmann
from discrete_vae.boltzmann import graph
from discrete_vae.boltzmann.graph import (
    TOPOLOGIES,
    check_edges,
    color_blocks,
    greedy_coloring,
    sparse_product,
)
from discrete_vae.config import GraphBoltzmannConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing import all_states
from discrete_vae.testing.contracts import check_energy
from tests.boltzmann.graphs import (
    ODD_CYCLE,
    SMALL_GRAPHS,
    random_graph,
    randomize,
    rbm_and_its_graph,
    small_graph,
)
from tests.refusals import refused_argument


@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_small_graphs_obey_the_contract(name):
    check_energy(small_graph(name))


def gradients(values, machines, *inputs):
    """Of each machine's value by the inputs and its parameters, in rows."""
    for value, machine in zip(values, machines, strict=True):
        wanted = [*inputs, *machine.parameters()]
        found = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        yield torch.cat([each.flatten() for each in found])


def test_it_is_the_rbm_on_the_rbms_graph():
    rbm, graph = machines = [machine.double() for machine in rbm_and_its_graph(2, 3)]
    z, exact = all_states(rbm.num_units), {"rtol": 0, "atol": 1e-10}
    assert [block.tolist() for block in graph.blocks] == [block.tolist() for block in rbm.blocks]
    weights = torch.linspace(-1, 2, len(z), dtype=torch.float64)
    for call in ("energy", "free_energy"):
        values = [getattr(machine, call)(z) for machine in machines]
        torch.testing.assert_close(*values, **exact)
        torch.testing.assert_close(*gradients([(each * weights).sum() for each in values], machines), **exact)


@pytest.mark.parametrize("order", ["left first", "right first", "mixed", "one group"])
def test_expected_energy_is_that_of_the_rbm(order):
    machines = [machine.double() for machine in rbm_and_its_graph(4, 4)]
    generator = torch.Generator().manual_seed(1)
    rank = {
        "left first": torch.arange(8),
        "right first": torch.arange(8).flip(0),
        "mixed": torch.randint(3, (8,), generator=generator),
        "one group": torch.zeros(8, dtype=torch.int64),
    }[order]
    bits, q = (torch.rand(4, 8, generator=generator).double().requires_grad_() for _ in range(2))
    values = [
        machine.expected_energy(bits=bits, probabilities=q, order=machine.pair_order(rank))
        for machine in machines
    ]
    torch.testing.assert_close(*values, rtol=0, atol=1e-12)
    found = gradients([value.square().sum() for value in values], machines, bits, q)
    torch.testing.assert_close(*found, rtol=0, atol=1e-11)


class CountsTwice(GraphBoltzmann):
    """An edge that the energy, or one end's conditional, has twice."""

    seen_from = "energy"

    def compute_energy(self, z):
        extra = z[..., 0] * z[..., 1] * self.weight[0].to(z.dtype)
        return super().compute_energy(z) - extra * (self.seen_from == "energy")

    def compute_block_logits(self, z, block):
        extra = z[..., 1:2] * self.weight[0].to(z.dtype) * (self.blocks[block] == 0)
        return super().compute_block_logits(z, block) + extra * (self.seen_from != "energy")


@pytest.mark.parametrize(
    "fault", ["energy", "block_logits", "a unit in two blocks", "weights in another order"]
)
def test_planted_faults_are_rejected(fault):
    machine = small_graph("odd cycle")
    if fault == "a unit in two blocks":
        machine.blocks = (*machine.blocks, machine.blocks[0][:1])
    elif fault == "weights in another order":
        machine.neighbor_edge = machine.neighbor_edge.roll(1)
    else:
        machine = randomize(CountsTwice(5, ODD_CYCLE))
        machine.seen_from = fault
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
    first, second = machine.edges.T
    torch.testing.assert_close(of_graph, (of_dense + of_dense.T)[first, second], rtol=1e-10, atol=1e-8)


@pytest.mark.slow
def test_a_hundred_thousand_units_and_a_million_edges():
    """Construction, energies and both phases of the gradient, without a dense matrix."""
    machine = random_graph(100_000, 1_000_000, scale=0.1)
    assert len(machine.blocks) < 12
    z = (torch.rand(20, 100_000, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    (machine.energy(z).mean() - machine.free_energy(z).mean()).backward()
    assert bool(machine.weight.grad.isfinite().all())
    first, second = machine.edges[:3].T
    pairs = (z[:, first] * z[:, second]).mean(0)
    assert not torch.allclose(machine.weight.grad[:3], -pairs)  # the negative phase is in it


def test_weights_of_other_edges_are_refused():
    """As many edges, so that the shapes fit."""
    first, other = GraphBoltzmann(4, [[0, 1], [1, 2]]), GraphBoltzmann(4, [[0, 1], [2, 3]])
    module = torch.nn.Sequential(first)
    for load, machine in (
        (other.load_state_dict, first),
        (torch.nn.Sequential(other).load_state_dict, module),
    ):
        assert refused_argument(load, machine.state_dict()) == "state_dict"
    turned = GraphBoltzmann(4, [[1, 0], [2, 1]])
    file = io.BytesIO()
    torch.save(randomize(first).state_dict(), file)
    file.seek(0)
    turned.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(turned.weight, first.weight)
    other.load_state_dict(dict(first.state_dict()))  # of before, or from a file without metadata
    assert torch.equal(other.weight, first.weight)


TRIANGLE = [[0, 1], [2, 1], [0, 2]]


def test_pairs_keep_their_order_and_orientation():
    pairs = np.array(TRIANGLE)
    kinds = [TRIANGLE, list(map(tuple, TRIANGLE)), pairs, pairs.astype(np.uint8), torch.tensor(TRIANGLE)]
    for edges in kinds:
        found = check_edges(3, edges)
        assert found.dtype == torch.int64
        assert found.tolist() == TRIANGLE
        found.zero_()  # it owns its memory
    assert pairs.tolist() == kinds[-1].tolist() == TRIANGLE
    for edges in ([], (), np.empty((0, 2), np.int64), torch.empty(0, 2, dtype=torch.int64)):
        assert check_edges(2, edges).shape == (0, 2)
    assert check_edges(4, "complete").tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert check_edges(1, "complete").shape == (0, 2)


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
        ("edges", [[0, 2**70]]),
        ("edges", None),
        ("edges", "torus"),
    ],
)
def test_wrong_edges_are_named(name, edges):
    assert refused_argument(check_edges, 3, edges) == name


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
        ("chimera", 9, (8, 32)),
        ("chimera", 1, (8,)),
        ("chimera", 8.0, ()),
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
        given = {"num_units": 3, "edges": TRIANGLE, **arguments}
        assert refused_argument(GraphBoltzmann, **given) == next(iter(arguments))


def test_the_config_offers_every_named_graph():
    names, _pairs = get_args(GraphBoltzmannConfig.model_fields["edges"].annotation)
    assert set(get_args(names)) == set(TOPOLOGIES)


def cycle(length):
    return np.stack([np.arange(length), (np.arange(length) + 1) % length], 1)


@pytest.mark.parametrize(("num_units", "num_edges"), [(5, 8), (300, 2000)])
def test_neighbors_have_different_colors(num_units, num_edges):
    edges = random_graph(num_units, num_edges, seed=1).edges.numpy()
    colors = greedy_coloring(num_units, edges)
    assert (colors[edges[:, 0]] != colors[edges[:, 1]]).all()
    assert set(colors) == set(range(colors.max() + 1))
    assert colors.max() <= np.bincount(edges.ravel()).max()
    # neither the order of the edges nor their orientation matters
    shuffled = np.random.default_rng(0).permutation(edges)[:, ::-1]
    np.testing.assert_array_equal(colors, greedy_coloring(num_units, shuffled))
    blocks = color_blocks(num_units, edges)
    assert [block[0] for block in blocks] == sorted(block[0] for block in blocks)
    assert all((np.diff(block) > 0).all() for block in blocks)
    assert sorted(np.concatenate(blocks)) == list(range(num_units))


def bipartite_edges():
    sides = np.random.default_rng(0).permutation(60)
    edges = random_graph(60, 900).edges.numpy()
    left = np.isin(edges, sides[:30])
    return edges[left[:, 0] != left[:, 1]]


@pytest.mark.parametrize(
    ("num_units", "edges", "num_colors"),
    [
        (4, np.empty((0, 2), np.int64), 1),
        (7, cycle(7), 3),
        (8, cycle(8), 2),
        (6, check_edges(6, "complete").numpy(), 6),
        (128, check_edges(128, "chimera").numpy(), 2),
        (60, bipartite_edges(), 2),
        # the crown graph, on which a greedy coloring in the order 0, 1, 2, ... needs five colors
        (10, np.array([[2 * i, 2 * j + 1] for i in range(5) for j in range(5) if i != j]), 2),
    ],
    ids=["no edges", "odd cycle", "even cycle", "complete", "chimera", "bipartite", "crown"],
)
def test_number_of_colors(num_units, edges, num_colors):
    colors = greedy_coloring(num_units, edges)
    assert (colors[edges[:, 0]] != colors[edges[:, 1]]).all()
    assert colors.max() + 1 == num_colors


PLACES = torch.tensor([[0, 0, 2, 3, 3, 1], [1, 4, 0, 2, 1, 1]])


@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 3), (0,)], ids=str)
def test_sparse_products_and_their_derivatives_are_those_of_dense_ones(lead, monkeypatch):
    def product(values, z):
        return sparse_product(values, z, PLACES, 4)

    generator = torch.Generator().manual_seed(0)
    values = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    z = torch.randn(*lead, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    dense = torch.zeros(4, 5, dtype=torch.float64).index_put(tuple(PLACES), values)
    torch.testing.assert_close(product(values, z), z @ dense.T, rtol=0, atol=1e-14)
    if 0 in lead:
        return
    for part in (graph._LARGEST_PART, 7):  # as a whole, and cut into parts
        monkeypatch.setattr(graph, "_LARGEST_PART", part)
        torch.autograd.gradcheck(product, (values, z))
        torch.autograd.gradgradcheck(product, (values, z))
    both = torch.autograd.grad(product(values, z).square().sum(), (values, z))
    for wanted, inputs in enumerate([(values, z.detach()), (values.detach(), z)]):
        (alone,) = torch.autograd.grad(product(*inputs).square().sum(), inputs[wanted])
        torch.testing.assert_close(alone, both[wanted], rtol=0, atol=0)


def test_a_sparse_product_of_no_entries():
    values, z = torch.empty(0, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    found = sparse_product(values, z, PLACES[:, :0], 4)
    assert torch.equal(found, torch.zeros(2, 4))
    found.sum().backward()
    assert values.grad.shape == (0,)
    assert torch.equal(z.grad, torch.zeros(2, 3))
