"""log Z and draws of a trained machine, both from where its chains ended in training."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.log_partition.estimate import estimate_log_partition
from discrete_vae.noise import generator_of, key_to_seed
from discrete_vae.samplers.block_gibbs import BlockGibbs

_STD_ERROR = 0.01  # of log Z, nats, where it is not enumerated
_SWEEPS = 200


def log_partition_of(machine: BoltzmannMachine, states: Tensor, seed: int) -> LogPartition:
    """log Z, exact or to a hundredth of a nat.

    Args:
        machine: The machine.
        states: (chain, unit), where its chains ended.
        seed: Seed of all noise.
    """
    return estimate_log_partition(machine, chains=states, std_error=_STD_ERROR, seed=seed).best


def swept(machine: BoltzmannMachine, states: Tensor, count: int, seed: int) -> Tensor:
    """Draws of a machine by chains that start where those of training ended, hence in modes that it has.

    Args:
        machine: The machine.
        states: (chain, unit), where its chains ended.
        count: Number of draws.
        seed: Seed of all noise.

    Returns:
        (draw, unit), in {0,1}.
    """
    chosen = torch.randint(len(states), (count,), generator=generator_of(key_to_seed(seed)))
    return BlockGibbs(machine, count, start=states[chosen], seed=seed).step(_SWEEPS)
