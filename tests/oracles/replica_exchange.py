"""Exact transition matrices of parallel tempering on tiny machines, over the joint states of all replicas."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.samplers.tempering import swap_probabilities
from discrete_vae.testing import all_states
from tests.oracles.transitions import sweep_matrix

# A joint state's number is the sum over replicas r of (number of the state at r) * 2^(units * r).


def joint_law(energy: BoltzmannMachine, ladder: Tensor) -> Tensor:
    """The product of p^t over the ladder, (joint state,) float64."""
    scaled = -ladder[:, None] * energy.energy(all_states(energy.num_units)).detach()
    return _product(list(scaled.softmax(1)))


def joint_sweep_matrix(energy: BoltzmannMachine, ladder: Tensor) -> Tensor:
    """One sweep of every replica, (joint state, joint state)."""
    return _product([sweep_matrix(energy, inverse_temperature=float(t)) for t in ladder])


def joint_swap_matrix(
    energy: BoltzmannMachine,
    ladder: Tensor,
    parity: int,
    swapped_energy: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """One round of exchanges of the pairs (r, r + 1), r of one parity, (joint state, joint state).

    ``swapped_energy`` is what goes into the acceptance in place of the energy: a fault.
    """
    states, replicas = all_states(energy.num_units), len(ladder)
    of_state = (swapped_energy or energy.energy)(states).detach()
    base = len(states)
    joint = torch.arange(base**replicas)
    places = torch.stack([joint // base**r % base for r in range(replicas)], 1)
    probabilities = swap_probabilities(of_state[places], ladder)
    matrix = torch.eye(len(joint), dtype=torch.float64)
    for r in range(parity, replicas - 1, 2):
        exchanged = places.clone()
        exchanged[:, [r, r + 1]] = places[:, [r + 1, r]]
        target = (exchanged * base ** torch.arange(replicas)).sum(1)
        move = torch.diag(1 - probabilities[:, r])
        move[joint, target] += probabilities[:, r]
        matrix = matrix @ move
    return matrix


def _product(parts: list[Tensor]) -> Tensor:
    """The Kronecker product with the first part varying fastest."""
    return reduce(torch.kron, reversed(parts))
