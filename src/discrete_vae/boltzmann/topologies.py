"""The graphs of quantum annealers, with units in the order in which their maker numbers the nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError

# of 12 parallel lines of Pegasus, how many lines of the other direction lie before their start
_PEGASUS_STARTS = np.array([[2] * 4 + [10] * 4 + [6] * 4, [6] * 4 + [2] * 4 + [10] * 4])


def chimera_edges(num_units: int) -> Tensor:
    """The square Chimera graph of 8 m^2 units, (edge, 2).

    Each cell of an m x m grid is a complete bipartite graph of 4 + 4 units, numbered one cell after another, row
    by row. The first four of a cell are joined to those of the cell below, the others to those of the cell to the
    right, so the graph is bipartite and no unit has more than six neighbors.

    Source: Bunyk et al. 2014, "Architectural considerations in the design of a superconducting quantum annealing
    processor".
    """
    size = _size("a Chimera graph", "8 m^2", num_units, lambda m: 8 * m * m)
    units = torch.arange(num_units).view(size, size, 2, 4)
    inside = torch.stack(torch.broadcast_tensors(units[:, :, 0, :, None], units[:, :, 1, None, :]), -1)
    below = torch.stack([units[:-1, :, 0], units[1:, :, 0]], -1)
    right = torch.stack([units[:, :-1, 1], units[:, 1:, 1]], -1)
    return torch.cat([part.reshape(-1, 2) for part in (inside, below, right)])


def pegasus_edges(num_units: int) -> Tensor:
    """The Pegasus graph of 8 (m - 1) (3 m - 1) units, (edge, 2); no unit has more than 15 neighbors.

    Units are lines of a square grid, joined to the lines that they cross, to the next ones on the same track, and in
    pairs side by side. Lines that cross no other are left out, so nodes have gaps in their numbers: `pegasus_nodes`.

    Source: Boothby, Bunyk, Raymond & Roy 2020, "Next-generation topology of D-Wave quantum processors".
    """
    return torch.from_numpy(_pegasus(num_units)[0])


def pegasus_nodes(num_units: int) -> tuple[int, ...]:
    """The number that each unit's node has in a Pegasus graph with all of its lines, rising."""
    return tuple(_pegasus(num_units)[1].tolist())


def zephyr_edges(num_units: int) -> Tensor:
    """The Zephyr graph of 16 m (2 m + 1) units, (edge, 2); no unit has more than 20 neighbors.

    Units are lines of a square grid, joined to the lines that they cross, to the next ones on the same track, and to
    those on the neighboring track, which lie half a length further.

    Source: Boothby, King & Raymond 2021, "Zephyr topology of D-Wave quantum processors".
    """
    size = _size("a Zephyr graph", "16 m (2 m + 1)", num_units, lambda m: 16 * m * (2 * m + 1))
    # direction, position, copy, track, place
    units = np.arange(num_units).reshape(2, 2 * size + 1, 4, 2, size)
    grid = np.indices(units.shape)
    position, track, place = grid[1], grid[3], grid[4]
    crossing = _crossings(position, 2 * place + track, 2)
    along = _pairs(units[..., :-1], units[..., 1:])
    beside = _pairs(units[..., 0, :], units[..., 1, :])
    further = _pairs(units[..., 0, 1:], units[..., 1, :-1])
    return torch.from_numpy(np.concatenate([crossing, along, beside, further]))


def _pegasus(num_units: int) -> tuple[np.ndarray, np.ndarray]:
    size = 1 + _size("a Pegasus graph", "8 (m - 1) (3 m - 1)", num_units, lambda m: 8 * m * (3 * m + 2))
    nodes = np.arange(24 * size * (size - 1)).reshape(2, size, 12, size - 1)  # direction, position, place
    grid = np.indices(nodes.shape)
    direction, coarse, fine, place = grid[0], grid[1], grid[2], grid[3]
    crossing = _crossings(12 * coarse + fine, 12 * place + _PEGASUS_STARTS[direction, fine], 12)
    along = _pairs(nodes[..., :-1], nodes[..., 1:])
    beside = _pairs(nodes[:, :, ::2], nodes[:, :, 1::2])
    kept = np.unique(crossing)
    edges = np.concatenate([crossing, along, beside])
    edges = edges[np.isin(edges, kept).all(1)]
    return np.searchsorted(kept, edges), kept


def _crossings(position: np.ndarray, start: np.ndarray, length: int) -> np.ndarray:
    """Pairs of lines of both directions that cross, (pair, 2).

    Lines are numbered in the order of position, where each lies across, (direction, ...), and begin at start along.
    """
    across, begin = position.reshape(2, -1), start.reshape(2, -1)
    covers = [
        (begin[mine][:, None] <= across[other]) & (across[other] < begin[mine][:, None] + length)
        for mine, other in itertools.permutations((0, 1))
    ]
    first, second = np.nonzero(covers[0] & covers[1].T)
    return np.stack([first, second + across.shape[1]], axis=1)


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.stack([first.ravel(), second.ravel()], axis=1)


def _size(what: str, formula: str, num_units: int, count: Callable[[int], int]) -> int:
    size = next(m for m in itertools.count(1) if count(m) >= num_units)
    if count(size) != num_units:
        nearest = " and ".join(map(str, sorted({count(max(1, size - 1)), count(size)})))
        repair = f"Near it there are {nearest}."
        raise InvalidInputError("num_units", f"must be {formula} for {what}", num_units, repair)
    return size
