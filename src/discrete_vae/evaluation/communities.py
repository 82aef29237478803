"""States between which chains move more often than chance, from counts of moves."""

from __future__ import annotations

import numpy as np

_ROUNDING = 1e-12  # groups between which moves are as frequent as by chance are one


def communities(counts: np.ndarray) -> tuple[np.ndarray, float]:
    """Group states so that moves stay inside groups: greedy modularity.

    Each state starts as its own group; the two groups whose union raises the modularity most are merged, until every
    union would lower it. Two groups between which nothing ever moves are never merged, so the number of groups is
    found, not given.

    Source: Newman 2004, Fast algorithm for detecting community structure in networks; of moves of a Markov chain it is
    the stability of Delvenne, Yaliraki & Barahona 2010.

    Args:
        counts: (state, state), moves from the one to the other, not negative, at least one in all.

    Returns:
        The group of each state, (state,) int64, numbered from the group with most moves; and the modularity: the
        share of moves inside groups less what it would be by chance, 0 for one group, near 1 for many that are apart.

    Examples:
        >>> counts = np.array([[5, 4, 0], [4, 5, 0], [0, 0, 4]])
        >>> groups, modularity = communities(counts)
        >>> groups.tolist(), round(modularity, 3)
        ([0, 0, 1], 0.298)
    """
    flow = np.asarray(counts, np.float64)
    flow = (flow + flow.T) / (2 * flow.sum())
    visits = flow.sum(1)
    gain = flow - np.outer(visits, visits)
    group = np.arange(len(flow))
    modularity = float(np.trace(gain))
    np.fill_diagonal(gain, -np.inf)
    while len(flow) > 1:
        into, out = np.unravel_index(gain.argmax(), gain.shape)
        if gain[into, out] < -_ROUNDING:
            break
        modularity += 2 * float(gain[into, out])
        gain[into] += gain[out]
        gain[:, into] = gain[into]
        gain[into, into] = gain[out] = gain[:, out] = -np.inf
        group[group == out] = into
    _, group = np.unique(group, return_inverse=True)
    order = np.argsort(-np.bincount(group, weights=visits), kind="stable")
    return np.argsort(order)[group], modularity
