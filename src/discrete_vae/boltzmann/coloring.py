"""Coloring of graphs: units of one color are never neighbors, so block Gibbs may draw them together."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The neighbors of each row's unit, one row after another (compressed sparse rows).

    Attributes:
        start: (row + 1,) int64, the entries of row r are start[r] to start[r + 1] - 1.
        neighbor: (entry,) int64, a unit.
        edge: (entry,) int64, the edge that joins the two.
    """

    start: np.ndarray
    neighbor: np.ndarray
    edge: np.ndarray


def adjacency(order: np.ndarray, edges: np.ndarray) -> Adjacency:
    """List the neighbors of each unit in ascending order.

    Args:
        order: (unit,) int64, the unit of each row, a permutation.
        edges: (edge, 2) int64.

    Examples:
        >>> adjacency(np.arange(3), np.array([[0, 1], [2, 1]])).neighbor.tolist()
        [1, 0, 2, 1]
    """
    row_of = np.empty_like(order)
    row_of[order] = np.arange(len(order))
    rows = row_of[edges.T].reshape(-1)
    neighbor = edges.T[::-1].reshape(-1)
    entries = np.lexsort((neighbor, rows))
    start = np.concatenate([[0], np.bincount(rows, minlength=len(order)).cumsum()])
    return Adjacency(start, neighbor[entries], entries % max(1, len(edges)))


def greedy_coloring(num_units: int, edges: np.ndarray) -> np.ndarray:
    """Color a graph by saturation degree; deterministic, and with two colors where these suffice.

    The next unit is the one whose neighbors have the most colors so far, then the one with the most neighbors,
    then the first; it takes the lowest color that none of its neighbors has. Time grows as
    (units + edges) log(units + edges).

    Source: Brelaz 1979, "New methods to color the vertices of a graph" (DSATUR).

    Args:
        num_units: Number of units.
        edges: (edge, 2) int64, without loops.

    Returns:
        (unit,) int64, colors from 0.

    Examples:
        >>> greedy_coloring(4, np.array([[0, 1], [1, 2], [2, 3], [3, 0]])).tolist()
        [0, 1, 0, 1]
    """
    lists = adjacency(np.arange(num_units), edges)
    start, neighbor = lists.start.tolist(), lists.neighbor.tolist()
    degree = np.diff(lists.start)
    # one integer per unit that sorts by saturation, then degree (both descending), then index
    step = num_units * (int(degree.max()) + 1)
    queue = (num_units * (degree.max() - degree) + np.arange(num_units)).tolist()
    priority = queue.copy()
    heapq.heapify(queue)
    colors = [-1] * num_units
    seen = [0] * num_units  # bit c: a neighbor has color c
    while queue:
        unit = heapq.heappop(queue) % num_units
        if colors[unit] >= 0:  # an entry from before its saturation rose
            continue
        bit = ~seen[unit] & (seen[unit] + 1)
        colors[unit] = bit.bit_length() - 1
        for other in neighbor[start[unit] : start[unit + 1]]:
            if colors[other] < 0 and not seen[other] & bit:
                seen[other] |= bit
                priority[other] -= step
                heapq.heappush(queue, priority[other])
    return np.array(colors)


def color_blocks(num_units: int, edges: np.ndarray) -> list[np.ndarray]:
    """The units of each color in ascending order, blocks in the order of their first units.

    A graph with the edges of an RBM so gets the RBM's blocks, the left side first.

    Args:
        num_units: Number of units.
        edges: (edge, 2) int64, without loops.
    """
    colors = greedy_coloring(num_units, edges)
    first = np.unique(colors, return_index=True)[1]
    return [np.flatnonzero(colors == colors[unit]) for unit in np.sort(first)]
