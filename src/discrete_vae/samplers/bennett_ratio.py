"""Bennett's acceptance ratio: the free energy between two machines from the work done by states of both."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_HALVINGS = 60  # of a bracket of at most some thousand nats


def bridge_term(up: Tensor, down: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
    """What states of a machine 0 and of a machine 1 give to the ratio of their Z.

    With w = F_1 - F_0, E_0[sigmoid(-(w + c))] = exp(log Z_1 - log Z_0 - c) E_1[sigmoid(w + c)] for every c that the
    states had no part in; the variance is least where c is the answer.

    Args:
        up: w of states of machine 0, nats.
        down: w of states of machine 1, nats.
        guess: c, nats; fits both.

    Returns:
        The terms of both expectations, in (0, 1).
    """
    return torch.sigmoid(-(up + guess)), torch.sigmoid(down + guess)


def solve_gaps(forward: Tensor, backward: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
    """log Z_1 - log Z_0 from sums of terms.

    Source: Bennett 1976, eq. 8.

    Args:
        forward: Sums of the first terms, times any constant, (chain, gap).
        backward: Sums of as many second terms, times the same constant, (chain, gap).
        guess: c, (gap,), nats.

    Returns:
        log Z_1 - log Z_0 of each gap, (gap,), nats; and what each chain adds to the deviation of their sum, (chain,),
        nats, mean 0. Chains that are independent give the standard error by their spread, which then contains the
        correlation along a chain and between its gaps.

    Examples:
        >>> gaps, _ = solve_gaps(torch.tensor([[2.0], [4.0]]), torch.tensor([[3.0], [3.0]]), torch.tensor([0.5]))
        >>> gaps.tolist()
        [0.5]
    """
    of_0, of_1 = forward.mean(0), backward.mean(0)
    return guess + of_0.log() - of_1.log(), (forward / of_0 - backward / of_1).sum(1)


def weighted_ratio(
    up: Tensor, down: Tensor, weights: Tensor, *, num_up: float, num_down: float
) -> tuple[float, Tensor, float]:
    """log Z_1 - log Z_0 at the self-consistent guess, from states of machine 1 that carry weights.

    Source: Bennett 1976, eqs. 8 and 12. Deviation: effective numbers stand for the counts of states.

    Args:
        up: w = F_1 - F_0 of states of machine 0, (state,), nats.
        down: w of states of machine 1, (state,), nats.
        weights: Of the latter, (state,), summing to 1.
        num_up: Effective number of the former.
        num_down: Effective number of the latter.

    Returns:
        The estimate, consistent, nats; what each state of machine 0 adds to the deviation of their mean, (state,), mean
        0, for states that depend on each other; and the standard error that the states of machine 1 bring, as if the
        effective number were of independent ones.

    Examples:
        >>> work = torch.full((4,), 0.25, dtype=torch.float64)
        >>> value, influence, error = weighted_ratio(work, work, work, num_up=4, num_down=4)
        >>> round(value, 9), influence.tolist(), round(error, 9)
        (-0.25, [0.0, 0.0, 0.0, 0.0], 0.0)
    """
    shift = math.log(num_up / num_down)
    low, high = (-torch.stack([up.max(), down.max()]).max(), -torch.stack([up.min(), down.min()]).min())
    low, high = low - abs(shift) - 1, high + abs(shift) + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        of_0, of_1 = bridge_term(up, down, middle + shift)
        above = num_up * of_0.mean() > num_down * (weights * of_1).sum()
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    value = (low + high) / 2
    of_0, of_1 = bridge_term(up, down, value + shift)
    variance_1 = (weights * (of_1 / (weights * of_1).sum() - 1).square()).sum() / num_down
    return float(value), of_0 / of_0.mean() - 1, math.sqrt(float(variance_1))
