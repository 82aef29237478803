"""Colouring of graphs: units of one colour are never neighbours, so block Gibbs may draw them together."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The neighbours of each row's unit, one row after another (compressed sparse rows).

    Attributes:
        start: (row + 1,) int64, the entries of row r are start[r] to start[r + 1] - 1.
        neighbour: (entry,) int64, a unit.
        edge: (entry,) int64, the edge that joins the two.
    """

    start: np.ndarray
    neighbour: np.ndarray
    edge: np.ndarray


def adjacency(order: np.ndarray, edges: np.ndarray) -> Adjacency:
    """List the neighbours of each unit in ascending order.

    Args:
        order: (unit,) int64, the unit of each row, a permutation.
        edges: (edge, 2) int64.

    Examples:
        >>> adjacency(np.arange(3), np.array([[0, 1], [2, 1]])).neighbour.tolist()
        [1, 0, 2, 1]
    """
    row_of = np.empty_like(order)
    row_of[order] = np.arange(len(order))
    rows = row_of[edges.T].reshape(-1)
    neighbour = edges.T[::-1].reshape(-1)
    entries = np.lexsort((neighbour, rows))
    start = np.concatenate([[0], np.bincount(rows, minlength=len(order)).cumsum()])
    return Adjacency(start, neighbour[entries], entries % max(1, len(edges)))


def greedy_colouring(num_units: int, edges: np.ndarray) -> np.ndarray:
    """Colour a graph by saturation degree; deterministic, and with two colours where these suffice.

    The next unit is the one whose neighbours have the most colours so far, then the one with the most neighbours,
    then the first; it takes the lowest colour that none of its neighbours has. Time grows as
    (units + edges) log(units + edges).

    Source: Brelaz 1979, "New methods to color the vertices of a graph" (DSATUR).

    Args:
        num_units: Number of units.
        edges: (edge, 2) int64, without loops.

    Returns:
        (unit,) int64, colours from 0.

    Examples:
        >>> greedy_colouring(4, np.array([[0, 1], [1, 2], [2, 3], [3, 0]])).tolist()
        [0, 1, 0, 1]
    """
    lists = adjacency(np.arange(num_units), edges)
    start, neighbour = lists.start.tolist(), lists.neighbour.tolist()
    degree = np.diff(lists.start)
    # one integer a unit that sorts by saturation, then degree (both descending), then index
    step = num_units * (int(degree.max()) + 1)
    queue = (num_units * (degree.max() - degree) + np.arange(num_units)).tolist()
    priority = queue.copy()
    heapq.heapify(queue)
    colours = [-1] * num_units
    seen = [0] * num_units  # bit c: a neighbour has colour c
    while queue:
        unit = heapq.heappop(queue) % num_units
        if colours[unit] >= 0:  # an entry from before its saturation rose
            continue
        bit = ~seen[unit] & (seen[unit] + 1)
        colours[unit] = bit.bit_length() - 1
        for other in neighbour[start[unit] : start[unit + 1]]:
            if colours[other] < 0 and not seen[other] & bit:
                seen[other] |= bit
                priority[other] -= step
                heapq.heappush(queue, priority[other])
    return np.array(colours)


def colour_blocks(num_units: int, edges: np.ndarray) -> list[np.ndarray]:
    """The units of each colour in ascending order, blocks in the order of their first units.

    A graph with the edges of an RBM so gets the RBM's blocks, the left side first.

    Args:
        num_units: Number of units.
        edges: (edge, 2) int64, without loops.
    """
    colours = greedy_colouring(num_units, edges)
    first = np.unique(colours, return_index=True)[1]
    return [np.flatnonzero(colours == colours[unit]) for unit in np.sort(first)]
