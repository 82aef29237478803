"""Lists of edges: named graphs, and the check of a list that the user gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError

_RULE = "must be pairs of two different units, each pair once"
_EXAMPLE = "For a triangle: [[0, 1], [1, 2], [0, 2]]."


def check_edges(num_units: int, edges: str | Sequence[Sequence[int]] | np.ndarray | Tensor) -> Tensor:
    """Return the edges of a graph as a tensor.

    Args:
        num_units: Number of units.
        edges: The name of a graph of `TOPOLOGIES`, or pairs of units, in any order.

    Returns:
        (edge, 2) int64, as given.

    Raises:
        InvalidInputError: If the name is unknown, or a pair is not made of two different units from 0 to
            num_units - 1 or is there twice; names the first such pair.

    Examples:
        >>> check_edges(3, "complete").tolist()
        [[0, 1], [0, 2], [1, 2]]
    """
    if isinstance(edges, str):
        if edges not in TOPOLOGIES:
            known = f"must be pairs of units or one of {', '.join(map(repr, TOPOLOGIES))}"
            raise InvalidInputError("edges", known, repr(edges), _EXAMPLE)
        return TOPOLOGIES[edges](num_units)
    pairs = _as_array(edges)
    _refuse((pairs < 0) | (pairs >= num_units), pairs, f"must hold units from 0 to {num_units - 1}")
    _refuse(pairs[:, :1] == pairs[:, 1:], pairs, "must join two different units")
    codes = pairs.min(1) * num_units + pairs.max(1)
    first = np.unique(codes, return_index=True)[1]
    again = np.ones((len(pairs), 1), bool)
    again[first] = False
    _refuse(again, pairs, "must join units that no earlier edge joins")
    return torch.from_numpy(pairs)


def complete_edges(num_units: int) -> Tensor:
    """Every pair of units, (edge, 2): the general Boltzmann machine of eq. RBM-distribution."""
    return torch.triu_indices(num_units, num_units, 1).T.contiguous()


def chimera_edges(num_units: int) -> Tensor:
    """The square Chimera graph of 8 m^2 units, (edge, 2).

    Each cell of an m x m grid is a complete bipartite graph of 4 + 4 units, numbered one cell after another, row
    by row. The first four of a cell are joined to those of the cell below, the others to those of the cell to the
    right, so the graph is bipartite and no unit has more than six neighbors.

    Source: Bunyk et al. 2014, "Architectural considerations in the design of a superconducting quantum annealing
    processor".

    Raises:
        InvalidInputError: If the number of units is not 8 m^2.
    """
    size = math.isqrt(num_units // 8)
    if num_units != 8 * size * size:
        repair = f"The nearest sizes are {8 * size**2 or 8} and {8 * (size + 1) ** 2}."
        raise InvalidInputError("num_units", "must be 8 m^2 for a Chimera graph", num_units, repair)
    units = torch.arange(num_units).view(size, size, 2, 4)
    inside = torch.stack(torch.broadcast_tensors(units[:, :, 0, :, None], units[:, :, 1, None, :]), -1)
    below = torch.stack([units[:-1, :, 0], units[1:, :, 0]], -1)
    right = torch.stack([units[:, :-1, 1], units[:, 1:, 1]], -1)
    return torch.cat([part.reshape(-1, 2) for part in (inside, below, right)])


TOPOLOGIES: dict[str, Callable[[int], Tensor]] = {"chimera": chimera_edges, "complete": complete_edges}
"""Graphs that have a name, as functions of the number of units."""


def _as_array(edges: Sequence[Sequence[int]] | np.ndarray | Tensor) -> np.ndarray:
    """A new array (edge, 2) int64."""
    try:
        array = np.asarray(edges.cpu() if isinstance(edges, Tensor) else edges)
    except (ValueError, TypeError):  # ragged
        raise InvalidInputError("edges", _RULE, "entries of several lengths", _EXAMPLE) from None
    if array.shape == (0,):
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        received = f"an array of {array.dtype} and shape {array.shape}"
        raise InvalidInputError("edges", _RULE, received, _EXAMPLE)
    return array.astype(np.int64)


def _refuse(wrong: np.ndarray, pairs: np.ndarray, rule: str) -> None:
    """Name the first wrong pair, if there is one; wrong is (edge, 1 or 2)."""
    found = np.flatnonzero(wrong.any(1))
    if len(found):
        index = int(found[0])
        more = f" ({len(found) - 1} more such edges follow.)" if len(found) > 1 else ""
        raise InvalidInputError(f"edges[{index}]", rule, pairs[index].tolist(), f"Change the edge.{more}")
