"""What it costs to move a state from one inverse temperature to the next, with a block of units summed out."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.boltzmann.energy import BoltzmannEnergy
from discrete_vae.numerics import softplus_sum


@torch.no_grad()
def tempered_work(
    energy: BoltzmannEnergy,
    z: Tensor,
    energies: Tensor,
    block: int,
    below: Tensor,
    here: Tensor,
    above: Tensor,
) -> tuple[Tensor, Tensor]:
    """F_here - F_below and F_above - F_here, with F_t the free energy at t of all units outside one block.

    F_t = t E(z, block off) - sum_j softplus(t l_j), so one product with the weights serves all temperatures.

    Args:
        energy: The machine.
        z: (..., unit), in {0,1}.
        energies: E(z), (...).
        block: Index of the block that is summed out.
        below: Inverse temperature on one side, (...).
        here: That of the state, (...).
        above: That on the other side, (...).

    Returns:
        Two float64 tensors (...), nats.

    Examples:
        >>> from discrete_vae import FactorialBernoulli
        >>> t, z = torch.zeros(1), torch.zeros(1, 2)
        >>> down, up = tempered_work(FactorialBernoulli(2), z, torch.zeros(1), 0, t, t, t + 1)
        >>> down.item(), up.item()  # log Z stays at 2 log 2 whatever t
        (0.0, 0.0)
    """
    logits = energy.compute_block_logits(z, block)
    bits = z.index_select(-1, energy.blocks[block].to(z.device))
    off = energies.double() + (bits * logits).sum(-1).double()
    sums = [softplus_sum(logits * t.to(logits.dtype)[..., None]).double() for t in (below, here, above)]
    down = (here - below).double() * off - (sums[1] - sums[0])
    up = (above - here).double() * off - (sums[2] - sums[1])
    return down, up
