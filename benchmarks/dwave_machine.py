"""The machine of a benchmark as D-Wave's `GraphRestrictedBoltzmannMachine`, and its samplers as contenders."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from dwave.plugins.torch.models import GraphRestrictedBoltzmannMachine
from spins import to_spins


def build(weight: np.ndarray, bias: np.ndarray, *, hidden: bool) -> GraphRestrictedBoltzmannMachine:
    """The same law; ``hidden`` declares the right side hidden, as the bipartite sampler wants it."""
    coupling, field = to_spins(weight, bias)
    num_left, num_units = len(weight), len(bias)
    left, right = range(num_left), range(num_left, num_units)
    return GraphRestrictedBoltzmannMachine(
        range(num_units),
        [(i, j) for i in left for j in right],
        hidden_nodes=right if hidden else None,
        linear={i: -float(field[i]) for i in range(num_units)},  # its energy has the other sign
        quadratic={(i, j): -float(coupling[i, j - num_left]) for i in left for j in right},
    )


def stepper(make: Callable, num_chains: int) -> Callable[[int], torch.Tensor]:
    """A step of chains; the number of sweeps is fixed when a sampler is built, so there is one for each number."""

    @functools.cache
    def sampler(num_sweeps):
        return make(num_chains=num_chains, schedule=[1.0] * num_sweeps, seed=0)

    return lambda num_sweeps: (sampler(num_sweeps).sample() + 1) / 2
