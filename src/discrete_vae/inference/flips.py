"""From one code to another, a bit at a time, without climbing higher than needed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int, check_states

_WIDTH = 64


@torch.no_grad()
def order_of_flips(
    machine: BoltzmannMachine, start: Tensor, end: Tensor, *, width: int = _WIDTH
) -> tuple[list[int], np.ndarray]:
    """An order in which to flip the bits that two states differ in, whose highest energy is low.

    Of the orders the one with the lowest highest energy is sought, among equals that with the lowest mean energy, by
    a beam search: of the sets of flipped bits of each size the best are kept. It is exact where the sets of any size
    are no more than are kept, up to 8 bits with 70 of them.

    Args:
        machine: The prior.
        start: The first state, (unit,), in {0,1}.
        end: The last state, (unit,), in {0,1}.
        width: How many sets of each size are kept.

    Returns:
        The units in the order of their flips, and the energies of the states on the way, both ends included.

    Raises:
        InvalidInputError: If a state is none of the machine's, or width is no positive integer.

    Examples:
        >>> from discrete_vae import FactorialBernoulli
        >>> machine = FactorialBernoulli(3)
        >>> with torch.no_grad():
        ...     _ = machine.bias.copy_(torch.tensor([-1.0, 2.0, 0.5]))
        >>> order_of_flips(machine, torch.zeros(3), torch.ones(3))  # the probable bits first
        ([1, 2, 0], array([ 0. , -2. , -2.5, -1.5]))
    """
    check_positive_int("width", width)
    both = [
        check_states(name, z[None], ("state", machine.num_units))[0]
        for name, z in (("start", start), ("end", end))
    ]
    first, last = (z.to(machine.bias.dtype) for z in both)
    units = (first != last).nonzero().flatten()
    masks = np.zeros((1, len(units)), bool)  # (set, bit that differs): which are flipped
    begin = machine.compute_energy(first[None]).double().cpu().numpy()
    peak, total, parents, energies = begin, begin, [], [begin]
    for _ in range(len(units)):
        owner, bit = np.nonzero(~masks)
        grown = masks[owner]
        grown[np.arange(len(owner)), bit] = True
        _, unique = np.unique(np.packbits(grown, axis=1), axis=0, return_inverse=True)
        states = first.repeat(len(grown), 1)
        states[:, units] = torch.where(torch.from_numpy(grown).to(first.device), last[units], first[units])
        energy = machine.compute_energy(states).double().cpu().numpy()
        new_peak, new_total = np.maximum(peak[owner], energy), total[owner] + energy
        best = np.lexsort((new_total, new_peak))
        _, firsts = np.unique(unique.ravel()[best], return_index=True)  # each set by its best way
        kept = best[np.sort(firsts)][:width]
        parents.append((owner[kept], bit[kept]))
        energies.append(energy[kept])
        masks, peak, total = grown[kept], new_peak[kept], new_total[kept]
    order, along, place = [], [energies[-1][0]], 0
    for step in range(len(units) - 1, -1, -1):
        owner, bit = parents[step]
        order.append(int(units[bit[place]]))
        place = owner[place]
        along.append(energies[step][place])
    return order[::-1], np.array(along[::-1]) + 0.0  # no negative zero
