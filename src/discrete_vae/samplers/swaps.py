"""Replica exchange: which neighbors of a ladder trade places, and the trips that walkers make by it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from discrete_vae.samplers.kernels.philox import philox4x32, uniforms

_SWEEPS_A_DRAW = 16
_HOT, _COLD = 1, 2


def swap_probabilities(energies: Tensor, inverse_temperatures: Tensor) -> Tensor:
    """Probability that neighbors r and r + 1 exchange their states, min(1, exp((t_{r+1} - t_r) (E_{r+1} - E_r))).

    The energies are those of whole states. Free energies, with one side of the machine summed out, would leave the
    law of that side alone invariant, and the other side is part of the state that moves.

    Source: Swendsen & Wang 1986; Rolfe 2017, section log-partition-function.

    Args:
        energies: E of the state at each replica, (chain, replica), nats.
        inverse_temperatures: (replica,).

    Returns:
        (chain, replica - 1) in [0, 1].

    Examples:
        >>> swap_probabilities(torch.tensor([[0.0, 1.0, -1.0]]), torch.tensor([0.0, 0.5, 1.0]))
        tensor([[1.0000, 0.3679]])
    """
    return (inverse_temperatures.diff() * energies.diff(dim=1)).clamp(max=0).exp()


def exchanged_order(order: Tensor, accepted: Tensor, parity: int) -> Tensor:
    """Trade the entries of the accepted pairs among pairs (r, r + 1) with r of one parity.

    Args:
        order: Which walker is at each replica, (chain, replica) int64.
        accepted: (chain, replica - 1) bool; pairs of the other parity are ignored.
        parity: 0 or 1.

    Returns:
        A new tensor like order.

    Examples:
        >>> order = torch.tensor([[0, 1, 2]])
        >>> exchanged_order(order, torch.tensor([[True, True]]), parity=1).tolist()
        [[0, 2, 1]]
    """
    lower, upper = order[:, :-1][:, parity::2], order[:, 1:][:, parity::2]
    accepted = accepted[:, parity::2]
    after = order.clone()
    after[:, :-1][:, parity::2] = torch.where(accepted, upper, lower)
    after[:, 1:][:, parity::2] = torch.where(accepted, lower, upper)
    return after


def swap_uniforms(
    num_chains: int, num_pairs: int, *, key: int, sweeps: range, device: torch.device | str = "cpu"
) -> Tensor:
    """The uniforms of the exchanges after some sweeps, those of the words of (key, sweep, chain, pair as unit).

    Args:
        num_chains: Number of chains.
        num_pairs: Pairs of neighbors.
        key: Philox key of the exchanges.
        sweeps: Numbers of the sweeps.
        device: Where to compute.

    Returns:
        (sweep, chain, pair) float32 in (0, 1).
    """
    quads = torch.arange((num_pairs + 3) // 4, device=device)
    chains = torch.arange(num_chains, device=device)[:, None]
    low, high = (
        torch.tensor([word >> shift & 0xFFFFFFFF for word in sweeps], device=device)[:, None, None]
        for shift in (0, 32)
    )
    words = torch.broadcast_tensors(*philox4x32((quads, chains, low, high), key))
    return uniforms(torch.stack(words, -1).flatten(2)[..., :num_pairs])


class SwapUniforms:
    """`swap_uniforms` of one sweep after another, drawn for several sweeps at a time.

    They are drawn on the CPU and copied: elsewhere ten rounds of Philox are a hundred launches.

    Args:
        num_chains: Number of chains.
        num_pairs: Pairs of neighbors.
        key: Philox key of the exchanges.
    """

    def __init__(self, num_chains: int, num_pairs: int, key: int) -> None:
        self._draw = partial(swap_uniforms, num_chains, num_pairs, key=key)
        self._sweeps, self._drawn = range(0), torch.empty(0)

    def __call__(self, sweep: int, device: torch.device | str = "cpu") -> Tensor:
        """The uniforms of a sweep, (chain, pair) float32 in (0, 1)."""
        if sweep not in self._sweeps or self._drawn.device != torch.device(device):
            self._sweeps = range(sweep, sweep + _SWEEPS_A_DRAW)
            self._drawn = self._draw(sweeps=self._sweeps).to(device)
        return self._drawn[sweep - self._sweeps.start]


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
