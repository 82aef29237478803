"""What it costs to move states from one inverse temperature to another, with a block of units summed out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.numerics import softplus_sum


@torch.no_grad()
def tempered_work(
    energy: BoltzmannMachine,
    z: Tensor,
    block: int,
    inverse_temperatures: Sequence[float | Tensor],
    *,
    energies: Tensor | None = None,
) -> list[Tensor]:
    """F_u - F_t for neighbors t, u of some temperatures, with F_t the free energy at t of all units outside a block.

    F_t = t E(z, block off) - sum_j softplus(t l_j), so one product with the weights serves all temperatures. Sums and
    differences are taken in float64: free energies of some hundred nats, rounded to float32 one by one, would cancel.

    Args:
        energy: The machine.
        z: (..., unit), in {0,1}.
        block: Index of the block that is summed out.
        inverse_temperatures: At least two, each a number or (...).
        energies: E(z), (...), where it is known: saves a second product with machines that have pairs outside the
            block.

    Returns:
        A float64 tensor (...) for each pair of neighbors, nats.

    Examples:
        >>> from discrete_vae import FactorialBernoulli
        >>> down, up = tempered_work(FactorialBernoulli(2), torch.zeros(1, 2), 0, (0, 0, 1))
        >>> down.item(), up.item()  # log Z stays at 2 log 2 whatever t
        (0.0, 0.0)
    """
    logits = energy.compute_block_logits(z, block).double()
    if energies is None:
        off = energy.compute_energy_without(z, block).double()
    else:
        off = energies.double() + (z[..., energy.block_place(block)] * logits).sum(-1)
    free = []
    for t in inverse_temperatures:
        scale = t.double() if isinstance(t, Tensor) else t
        scaled = logits * (scale[..., None] if isinstance(scale, Tensor) else scale)
        free.append(scale * off - softplus_sum(scaled))
    return [after - before for before, after in pairwise(free)]
