"""log Z by bridge sampling between the replicas of parallel tempering."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from discrete_vae.boltzmann.check_machine import check_energy
from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_binary, check_number, check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition import bridge
from discrete_vae.log_partition.bridge_run import BridgeRun
from discrete_vae.noise import key_to_seed
from discrete_vae.samplers.kernels.sweeps import check_logits
from discrete_vae.samplers.mode_jumps import ModeJumps
from discrete_vae.samplers.parallel_tempering import ParallelTempering
from discrete_vae.samplers.quench import quenched_states

_STREAM = 0x62656E
_MODES = 12  # low states, whose pairs make the jumps between modes
_JUMPED = 2e-4  # jumps of the coldest replicas per sweep below which they are given up
_TUNING_ROUNDS = 12  # each of the sampler's window; a ladder that stands still ends them early


class LogPartitionWarning(UserWarning):
    """log Z may be off by more than was asked for; the message has the numbers and what to do."""


def bennett_log_partition(
    energy: BoltzmannMachine,
    *,
    std_error: float = 0.003,
    num_chains: int = 500,
    max_sweeps: int = 50_000,
    start: Tensor | None = None,
    seed: int = 0,
    report: Callable[[int, LogPartition], None] | None = None,
) -> LogPartition:
    """log Z by Bennett's acceptance ratio between neighboring replicas, from t = 0, where it is n log 2, to t = 1.

    Replicas at p^t trade places (`ParallelTempering`); their number and places are tuned to exchange rates near 0.5
    and then held. Of each state the block of units that helps most is summed out. The first half of the run is
    dropped. The constant of each bridge is the estimate from the run so far, so the terms of a sweep are unbiased;
    the estimate is a logarithm of ratios of means, hence consistent, not unbiased.

    Chains that start from coins fall into wide modes and may meet a deep, narrow one too seldom to notice. So one
    half of the chains starts from low states of the energy, or from states that the caller knows, and both halves
    must agree; and between low states the chains jump (`ModeJumps`). The run ends when they do, the standard error,
    taken over independent chains and therefore with all correlation inside a chain, is at most the one asked for,
    the chains have made 10 round trips on average, and the two halves of the time that is kept agree.

    Source: Rolfe 2017, section log-partition-function; Bennett 1976. Deviation: the constants are those of the
    earlier part of the run in place of a self-consistent solution, which costs variance of second order only.

    Args:
        energy: The machine.
        std_error: Standard error to reach, nats.
        num_chains: Independent chains of replicas, at least 20.
        max_sweeps: Sweeps a replica after tuning, at most.
        start: (state, unit), states in the modes of p that are known, such as the chains of training; half of the
            chains start there. None looks for low states (`quenched_states`).
        seed: Integer from 0 to 2^64 - 1.
        report: Called at each check with the sweeps done and the estimate so far.

    Returns:
        The estimate, with the ladder and the health of the chains.

    Raises:
        InvalidInputError: If a number is too small, start is no binary (state, unit) tensor, or the energy has a
            parameter that is not finite or too large.

    Warns:
        LogPartitionWarning: If max_sweeps ended the run.

    Examples:
        >>> from discrete_vae import RBM
        >>> print(bennett_log_partition(RBM(2, 2)))  # 4 log 2
        log Z = 2.7726 nats (+- 0.0000, bridge sampling)
    """
    found, last = sample_bridge(
        energy,
        std_error=std_error,
        num_chains=num_chains,
        max_sweeps=max_sweeps,
        start=start,
        seed=seed,
        report=report,
    )
    if not found.converged:
        warnings.warn(last.warning_text(std_error, found.num_sweeps or 0), LogPartitionWarning, stacklevel=2)
    return found


def sample_bridge(
    energy: BoltzmannMachine,
    *,
    std_error: float,
    num_chains: int,
    max_sweeps: int,
    start: Tensor | None,
    seed: int,
    report: Callable[[int, LogPartition], None] | None = None,
) -> tuple[LogPartition, bridge.RunCheck]:
    """`bennett_log_partition` without its warning; returns the last look at the run beside the estimate."""
    begin = time.monotonic()
    check_number("std_error", std_error, above=0, repair="Ask for a few thousandths of a nat.")
    check_positive_int("max_sweeps", max_sweeps)
    if check_positive_int("num_chains", num_chains) < 20:
        repair = "The spread over chains is the standard error."
        raise InvalidInputError("num_chains", "must be at least 20", num_chains, repair)
    check_logits(check_energy(energy))
    sampler = ParallelTempering(energy, num_chains, seed=key_to_seed(seed, _STREAM))
    half = num_chains // 2
    if start is None:
        known = quenched_states(energy, half, seed=seed)
    else:
        known = check_binary("start", check_tensor("start", start, ("state", energy.num_units)))
        if len(known) == 0:
            raise InvalidInputError(
                "start", "must hold a state", "none", "Leave it out to look for low states."
            )
    sampler.start_from(known[torch.arange(half, device=known.device) % len(known)])
    jumps = ModeJumps(energy, quenched_states(energy, _MODES, seed=seed), seed=key_to_seed(seed, _STREAM))
    sampler.jumps = jumps if len(jumps.masks) else None
    for _ in range(_TUNING_ROUNDS):
        before = sampler.inverse_temperatures
        sampler.step(max(20, -(-2000 // num_chains)))
        if sampler.inverse_temperatures is before:
            break
    sampler.adapting = False
    if int(sampler.jumped) < _JUMPED * num_chains * sampler.sweep:
        sampler.jumps = None  # they cost time, and chains do not take them
    sampler.reset_statistics()
    run, earlier = BridgeRun(sampler), 0
    while True:
        run.add_block()
        num_sweeps = earlier + run.num_sweeps
        finished = num_sweeps >= max_sweeps and run.has_enough_blocks
        if not run.is_due and not finished:
            continue
        found = run.check()
        estimate = replace(
            found.estimate,
            converged=found.reaches(std_error),
            num_sweeps=num_sweeps,
            seconds=time.monotonic() - begin,
        )
        if report is not None:
            report(num_sweeps, estimate)
        if estimate.converged or finished:
            return estimate, found
        # a mode may have come up that the ladder was not tuned for
        if num_sweeps < max_sweeps // 4 and found.lowest_rate < bridge.LOW_RATE and sampler.retune():
            run, earlier = BridgeRun(sampler), num_sweeps
