"""Exact quantities of small Boltzmann machines, by summing over all states in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.errors import InvalidInputError

MAX_UNITS = 20


def all_states(num_units: int) -> Tensor:
    """Every state of n binary units, (2^n, unit), float64; unit 0 is the lowest bit of the row's number.

    Examples:
        >>> all_states(2).int().tolist()
        [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    if num_units > MAX_UNITS:
        raise InvalidInputError(
            "num_units", f"must be at most {MAX_UNITS}", num_units, "Enumerate a smaller machine."
        )
    return ((torch.arange(1 << num_units)[:, None] >> torch.arange(num_units)) & 1).double()


@dataclass(frozen=True, eq=False)
class Enumeration:
    """A Boltzmann machine, enumerated.

    Attributes:
        states: (state, unit), float64.
        log_prob: log p(z), (state,), float64, differentiable in the parameters.
        log_partition: log Z, float64 scalar, differentiable in the parameters.
    """

    states: Tensor
    log_prob: Tensor
    log_partition: Tensor

    @property
    def prob(self) -> Tensor:
        """p(z), (state,)."""
        return self.log_prob.exp()

    def expectation(self, values: Tensor) -> Tensor:
        """E_p of values given for each state, (state, ...) -> (...)."""
        return torch.tensordot(self.prob, values.double(), dims=1)

    def pair_moments(self) -> Tensor:
        """E_p[z_i z_j], (unit, unit); the diagonal holds E_p[z_i]."""
        return self.states.T @ (self.prob[:, None] * self.states)


def enumerate_machine(energy: BoltzmannMachine) -> Enumeration:
    """Sum over all states through `energy.energy` alone, so it shares nothing with free energies or conditionals."""
    states = all_states(energy.num_units)
    negative = -energy.energy(states)
    log_partition = torch.logsumexp(negative, 0)
    return Enumeration(states, negative - log_partition, log_partition)


def conditional_logits(energy: BoltzmannMachine, unit: int) -> Tensor:
    """log p(z_i = 1 | rest) - log p(z_i = 0 | rest) for each state, from two energies, (state,)."""
    states = all_states(energy.num_units)
    on, off = states.clone(), states.clone()
    on[:, unit], off[:, unit] = 1, 0
    return energy.energy(off) - energy.energy(on)
