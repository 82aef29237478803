"""Lists of edges: named graphs, and the check of a list that the user gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.topologies import chimera_edges, pegasus_edges, pegasus_nodes, zephyr_edges
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


TOPOLOGIES: dict[str, Callable[[int], Tensor]] = {
    "chimera": chimera_edges,
    "complete": complete_edges,
    "pegasus": pegasus_edges,
    "zephyr": zephyr_edges,
}
"""Graphs that have a name, as functions of the number of units."""


def check_nodes(
    num_units: int, nodes: Sequence[int] | None, edges: str | Sequence[Sequence[int]] | np.ndarray | Tensor
) -> tuple[int, ...]:
    """The number of each unit's node in a larger graph.

    Args:
        num_units: Number of units.
        nodes: The numbers; None means those that the maker of a named graph gives its nodes, else 0, 1, ...
        edges: As in `check_edges`.

    Raises:
        InvalidInputError: If they are not one number of at least 0 for each unit, all different.

    Examples:
        >>> check_nodes(2, [30, 31], [[0, 1]]), check_nodes(2, None, [[0, 1]])
        ((30, 31), (0, 1))
    """
    if nodes is None:
        return (
            pegasus_nodes(num_units)
            if isinstance(edges, str) and edges == "pegasus"
            else tuple(range(num_units))
        )
    rule = f"must be {num_units} different whole numbers of at least 0, one for each unit"
    try:
        found = tuple(operator.index(node) for node in nodes)
    except TypeError:
        raise InvalidInputError("nodes", rule, repr(nodes)[:80], "Leave them out for 0, 1, ...") from None
    if len(found) != num_units or len(set(found)) != num_units or min(found) < 0:
        received = f"{len(found)} numbers, {len(set(found))} of them different"
        raise InvalidInputError("nodes", rule, received, "Leave them out for 0, 1, ...")
    return found


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
