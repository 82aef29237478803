"""Colorings: proper, deterministic, two colors where these suffice, blocks in a fixed order."""

import numpy as np
import pytest

from discrete_vae.boltzmann.graph import adjacency, check_edges, color_blocks, greedy_coloring


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
