"""Trips of walkers between the ends of a ladder."""

from __future__ import annotations

import torch
from torch import Tensor

_HOT, _COLD = 1, 2


def count_trips(order: Tensor, last_end: Tensor) -> Tensor:
    """Count the walkers that come back to the hottest replica from the coldest, and remember who is at an end.

    Args:
        order: Which walker is at each replica, the hottest first, (chain, replica) int64, at least 2 replicas.
        last_end: The end that each walker was at last, (chain, walker) uint8, 0 before the first visit to the hottest;
            changed in place.

    Returns:
        Round trips that end now, (chain,), 0 or 1.

    Examples:
        >>> last_end = torch.zeros(1, 2, dtype=torch.uint8)
        >>> orders = ([[0, 1]], [[1, 0]], [[0, 1]])  # walker 0 is hot, cold, and hot again
        >>> [int(count_trips(torch.tensor(order), last_end)) for order in orders]
        [0, 0, 1]
    """
    hot, cold = order[:, :1], order[:, -1:]
    back = (last_end.gather(1, hot) == _COLD).flatten()
    last_end.scatter_(1, hot, _HOT)
    was_hot = last_end.gather(1, cold) != 0  # a trip starts at the hot end
    last_end.scatter_(1, cold, torch.where(was_hot, _COLD, 0).to(torch.uint8))
    return back.to(torch.int64)
