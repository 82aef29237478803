"""How the units of the prior are divided into groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError


def contiguous_groups(num_units: int, num_groups: int) -> tuple[tuple[int, ...], ...]:
    """Divide units into consecutive groups whose sizes differ by at most one.

    For a bipartite machine with its left side first, four groups of 64 + 64 units are two on each side, so every
    pair across groups has its earlier unit on the left.

    Source: the paper is silent on the division; this one is ours.

    Args:
        num_units: Number of units of the prior, at least num_groups.
        num_groups: Number of groups, at least 1.

    Returns:
        The unit indices of each group.

    Raises:
        InvalidInputError: If a number is not a positive integer, or there are more groups than units.

    Examples:
        >>> contiguous_groups(5, 2)
        ((0, 1, 2), (3, 4))
    """
    check_positive_int("num_units", num_units)
    check_positive_int("num_groups", num_groups)
    if num_groups > num_units:
        repair = "Use fewer groups or more units."
        raise InvalidInputError("num_groups", f"must be at most the {num_units} units", num_groups, repair)
    size, larger = divmod(num_units, num_groups)
    bounds = [0]
    for group in range(num_groups):
        bounds.append(bounds[-1] + size + (group < larger))
    return tuple(tuple(range(a, b)) for a, b in pairwise(bounds))


def color_groups(prior: BoltzmannMachine) -> tuple[tuple[int, ...], ...]:
    """One group per color of a machine's graph: no two units of a group are joined, given all other groups.

    What a group of joined units cannot hold, the correlation of its pairs, so never has to be held within one.

    Args:
        prior: The machine; its blocks are the colors.

    Examples:
        >>> from discrete_vae import GraphBoltzmann
        >>> color_groups(GraphBoltzmann(4, [[0, 1], [1, 2], [2, 3], [3, 0]]))
        ((0, 2), (1, 3))
    """
    places = [prior.block_place(block) for block in range(len(prior.blocks))]
    units = range(prior.num_units)
    return tuple(tuple(units[place] if isinstance(place, slice) else place.tolist()) for place in places)


def check_groups(groups: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return groups if they are not empty, disjoint, and cover 0..n-1.

    Raises:
        InvalidInputError: If they are not; names the offending group or unit.
    """
    rule = "must be a list of lists that hold each unit index 0..n-1 exactly once"
    example = "For four units in two groups: [[0, 1], [2, 3]]."
    if isinstance(groups, str) or not isinstance(groups, Sequence) or len(groups) == 0:
        raise InvalidInputError("groups", rule, repr(groups), example)
    seen: set[int] = set()
    for index, group in enumerate(groups):
        if isinstance(group, str) or not isinstance(group, Sequence) or len(group) == 0:
            raise InvalidInputError(
                f"groups[{index}]", "must be a list of at least one unit index", repr(group), example
            )
        for unit in group:
            if isinstance(unit, bool) or not isinstance(unit, int) or unit < 0:
                raise InvalidInputError(
                    f"groups[{index}]", "must hold non-negative integers", repr(unit), example
                )
            if unit in seen:
                raise InvalidInputError("groups", rule, f"unit {unit} twice", example)
            seen.add(unit)
    missing = set(range(len(seen))) - seen
    if missing:
        raise InvalidInputError("groups", rule, f"no unit {min(missing)} but a unit {max(seen)}", example)
    return tuple(tuple(group) for group in groups)
