"""Lists of edges: named graphs, layouts that are taken, mistakes that are named."""

from typing import get_args

import numpy as np
import pytest
import torch

from discrete_vae import GraphBoltzmann
from discrete_vae.boltzmann.graph import TOPOLOGIES, check_edges
from discrete_vae.config import GraphBoltzmannConfig
from discrete_vae.errors import InvalidInputError

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
    ("edges", "argument", "message"),
    [
        ([[0, 1], [2, 2]], "edges[1]", "must join two different units; received [2, 2]"),
        ([[0, 1], [0, 3]], "edges[1]", "must hold units from 0 to 2; received [0, 3]"),
        ([[-1, 1]], "edges[0]", "must hold units from 0 to 2; received [-1, 1]"),
        ([[0, 1], [1, 2], [0, 1]], "edges[2]", "must join units that no earlier edge joins; received [0, 1]"),
        (
            [[0, 1], [1, 0], [1, 0]],
            "edges[1]",
            "received [1, 0]. Change the edge. (1 more such edges follow.)",
        ),
        ([[0, 1, 2]], "edges", "each pair once; received an array of int64 and shape (1, 3)"),
        ([0, 1], "edges", "shape (2,)"),
        ([[0, 1], [2]], "edges", "entries of several lengths"),
        ([[0.0, 1.0]], "edges", "an array of float64"),
        ([[True, False]], "edges", "an array of bool"),
        (torch.zeros(2, 1, dtype=torch.int64), "edges", "shape (2, 1)"),
        ([[0, 2**70]], "edges", "an array of object"),
        (None, "edges", "an array of object"),
        (
            "torus",
            "edges",
            "must be pairs of units or one of 'chimera', 'complete', 'pegasus', 'zephyr'; received",
        ),
    ],
)
def test_mistakes_are_named(edges, argument, message):
    with pytest.raises(InvalidInputError) as caught:
        check_edges(3, edges)
    assert caught.value.argument == argument
    assert message in str(caught.value)


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


@pytest.mark.parametrize("num_units", [1, 7, 9, 16, 64])
def test_chimera_has_few_sizes(num_units):
    with pytest.raises(InvalidInputError, match=r"num_units must be 8 m\^2 for a Chimera graph; received"):
        check_edges(num_units, "chimera")


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
        ("pegasus", 41, "sizes are 40 and 128"),
        ("zephyr", 10, "size is 48"),
        ("chimera", 9, "sizes are 8 and 32"),
    ],
)
def test_sizes_that_a_named_graph_lacks(name, num_units, nearest):
    with pytest.raises(InvalidInputError, match=f"The nearest {nearest}"):
        check_edges(num_units, name)


def test_nodes_are_kept_and_checked():
    graph = GraphBoltzmann(3, TRIANGLE, nodes=np.array([7, 0, 12]))
    assert graph.nodes == (7, 0, 12)
    for nodes in ([0, 1], [0, 1, 1], [0, 1, -2], [0.0, 1.0, 2.0], 3):
        with pytest.raises(InvalidInputError, match="nodes must be 3 different whole numbers of at least 0"):
            GraphBoltzmann(3, TRIANGLE, nodes=nodes)


def test_the_config_offers_every_named_graph():
    names, _pairs = get_args(GraphBoltzmannConfig.model_fields["edges"].annotation)
    assert set(get_args(names)) == set(TOPOLOGIES)
