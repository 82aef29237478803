"""Local minima of the energy: starts for chains that must not miss a mode."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.rng import keyed_generator

_STREAM = 0x7175656E
_MAX_SWEEPS = 50


@torch.no_grad()
def greedy_descent(energy: BoltzmannMachine, z: Tensor, *, order: Sequence[int] | None = None) -> Tensor:
    """Go from states to local minima of the energy, which are local maxima of p(z).

    Each block in turn takes its most likely state given the others, until nothing changes or 50 sweeps are done.

    Args:
        energy: The machine.
        z: (state, unit), in {0,1}.
        order: The blocks in the order in which they are taken; None is the machine's.

    Returns:
        (state, unit) float32 in {0,1}.

    Examples:
        >>> from discrete_vae import RBM
        >>> rbm = RBM(1, 1)
        >>> with torch.no_grad():
        ...     _ = rbm.weight.fill_(3.0), rbm.bias.fill_(-1.0)  # minima at 0, 0 and 1, 1
        >>> greedy_descent(rbm, torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist()
        [[0.0, 0.0], [1.0, 1.0]]
    """
    z = z.float().clone()
    for _ in range(_MAX_SWEEPS):
        before = z.clone()
        for block in range(len(energy.blocks)) if order is None else order:
            z[:, energy.block_place(block)] = (energy.compute_block_logits(z, block) > 0).float()
        if torch.equal(before, z):
            break
    return z


@torch.no_grad()
def local_minima(
    energy: BoltzmannMachine, num_states: int, *, num_starts: int = 4000, seed: int = 0
) -> Tensor:
    """Local minima of the energy, the lowest first, by greedy descent from random states.

    The starts go from nearly all off to nearly all on; one half of them descends in the order of the blocks, the
    other in reverse.

    Args:
        energy: The machine.
        num_states: States to return; where fewer different minima are found, they come several times.
        num_starts: Random states to start from.
        seed: Integer from 0 to 2^64 - 1.

    Returns:
        (state, unit) float32 in {0,1}.
    """
    device = energy.bias.device
    generator = keyed_generator(seed, _STREAM, device=device)
    density = torch.linspace(0.02, 0.98, (num_starts + 1) // 2, device=device).repeat(2)[:, None]
    z = (torch.rand(len(density), energy.num_units, generator=generator, device=device) < density).float()
    order = range(len(energy.blocks))
    halves = zip(z.chunk(2), (order, order[::-1]), strict=True)
    z = torch.cat([greedy_descent(energy, half, order=blocks) for half, blocks in halves]).unique(dim=0)
    z = z[energy.compute_energy(z).argsort(stable=True)]
    return z[torch.arange(num_states, device=device) % min(len(z), num_states)]
