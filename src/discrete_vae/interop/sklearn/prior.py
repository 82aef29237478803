"""log Z and draws of a trained machine, both from where its chains ended in training."""

from __future__ import annotations

import copy
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.log_partition.annealed import annealed_log_partition
from discrete_vae.log_partition.bennett import LogPartitionWarning, sample_bridge
from discrete_vae.log_partition.exact import MAX_ENUMERATED_UNITS, quick_exact_log_partition
from discrete_vae.noise import generator_of, key_to_seed
from discrete_vae.samplers.block_gibbs import BlockGibbs

_STD_ERROR = 0.01  # of log Z, nats, where it is not enumerated
_CHAINS = 500
_SWEEPS = 200
_SILENT_SECONDS = 5.0


def log_partition_of(
    machine: BoltzmannMachine, states: Tensor, seed: int, *, max_sweeps: int
) -> LogPartition:
    """log Z, exact or to a hundredth of a nat, with progress on standard error beyond some seconds.

    Args:
        machine: The machine; its chains run in float32, for which there are compiled kernels.
        states: (chain, unit), where its chains ended.
        seed: Seed of all noise.
        max_sweeps: Sweeps of bridge sampling, at most.

    Warns:
        LogPartitionWarning: If these did not reach the standard error; the one that is stated then has the distance
            from annealing in it.
    """
    exact = quick_exact_log_partition(machine, MAX_ENUMERATED_UNITS)
    if exact is not None:
        return exact
    single = copy.deepcopy(machine).float()
    found, _ = sample_bridge(
        single,
        std_error=_STD_ERROR,
        num_chains=_CHAINS,
        max_sweeps=max_sweeps,
        start=states,
        seed=seed,
        report=_shown(max_sweeps),
    )
    if found.converged:
        return found
    other = annealed_log_partition(single, num_chains=100, num_temperatures=1000, seed=seed)
    error = math.hypot(found.std_error, other.std_error, other.value - found.value)
    more = 10 * max(max_sweeps, found.num_sweeps or 0)
    warnings.warn(
        f"log Z = {found.value:.2f} +- {error:.2f} nats after {found.num_sweeps} sweeps, where {_STD_ERROR:g} is "
        "wanted: all scores are off by the same number of about that size. Give log_partition_sweeps="
        f"{more}, or train a machine that mixes faster: fewer hidden units or epochs.",
        LogPartitionWarning,
        stacklevel=2,
    )
    return replace(found, std_error=error)


def _shown(max_sweeps: int) -> Callable[[int, LogPartition], None]:
    """Shows the estimates along a run that takes its time."""
    last = time.monotonic()

    def report(num_sweeps: int, found: LogPartition) -> None:
        nonlocal last
        if time.monotonic() - last > _SILENT_SECONDS and sys.stderr is not None:
            last = time.monotonic()
            done = f"{num_sweeps} of at most {max_sweeps} sweeps"
            print(f"log Z, {done}: {found.value:.2f} +- {found.std_error:.2f} nats", file=sys.stderr)

    return report


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
