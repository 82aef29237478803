"""log Z by bridge sampling between the replicas of parallel tempering."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine, check_energy
from discrete_vae.checks import check_binary, check_number, check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition import bridge
from discrete_vae.log_partition.bridge import BridgeSums, bridge_terms, solve_bridge
from discrete_vae.log_partition.record import LogPartition
from discrete_vae.log_partition.work import tempered_work
from discrete_vae.noise import key_to_seed
from discrete_vae.samplers.kernels.sweeps import check_logits
from discrete_vae.samplers.mode_jumps import ModeJumps
from discrete_vae.samplers.parallel_tempering import ParallelTempering
from discrete_vae.samplers.quench import quenched_states

_STREAM = 0x62656E
_MODES = 12  # low states, whose pairs make the jumps between modes
_JUMPED = 2e-4  # jumps of the coldest replicas per sweep below which they are given up
_BLOCK_SWEEPS = 12
_STRIDES = ((4, 8.0), (2, 3.0), (1, 0.0))  # sweeps per measured state, from which autocorrelation time on
_MIN_BLOCKS, _GROWTH, _MAX_BLOCKS = 8, 1.2, 256
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
        max_sweeps: Sweeps per replica after tuning, at most.
        start: (state, unit), states in the modes of p that are known, such as the chains of training; half of the
            chains start there. None looks for low states (`quenched_states`).
        seed: Integer from 0 to 2^64 - 1.
        report: Called at each check with the sweeps done and the estimate so far.

    Returns:
        The estimate, with the ladder and the health of the chains.

    Raises:
        InvalidInputError: If an argument breaks its rule, or the energy has a parameter that is not finite or too
            large.

    Warns:
        LogPartitionWarning: If max_sweeps ended the run.

    Examples:
        >>> from discrete_vae import RBM
        >>> print(bennett_log_partition(RBM(2, 2)))  # 4 log 2
        log Z = 2.7726 nats (+- 0.0000, bridge sampling)
    """
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
        if estimate.converged:
            return estimate
        if finished:
            warnings.warn(found.warning_text(std_error, num_sweeps), LogPartitionWarning, stacklevel=2)
            return estimate
        # a mode may have come up that the ladder was not tuned for
        if num_sweeps < max_sweeps // 4 and found.lowest_rate < bridge.LOW_RATE and sampler.retune():
            run, earlier = BridgeRun(sampler), num_sweeps


class BridgeRun:
    """The sums of a run in blocks, of which the first half is dropped at each check."""

    def __init__(self, sampler: ParallelTempering) -> None:
        self.sampler = sampler
        self.block, self.reference = self._choose_block()
        self.guess = self.reference
        self.blocks: list[BridgeSums] = []
        self.sweeps_a_block = _BLOCK_SWEEPS
        self.stride = 1
        self.num_sweeps = 0
        self._next_check = _MIN_BLOCKS * _BLOCK_SWEEPS

    @property
    def has_enough_blocks(self) -> bool:
        """Whether there is enough to split in halves."""
        return len(self.blocks) >= _MIN_BLOCKS

    @property
    def is_due(self) -> bool:
        """Whether the sweeps since the last check suffice for the next one."""
        return self.num_sweeps >= self._next_check

    def add_block(self) -> None:
        """Run some sweeps and sum their states."""
        trips = self.sampler.round_trips.clone()
        terms = []
        for _ in range(self.sweeps_a_block // self.stride):
            self.sampler.step(self.stride)
            down, up = self._work(self.block)
            terms.append(bridge_terms(down, up, self.guess, self.reference))
        self.num_sweeps += self.sweeps_a_block
        block = reduce(BridgeSums.__add__, terms)
        self.blocks.append(replace(block, round_trips=self.sampler.round_trips - trips))
        if len(self.blocks) == _MAX_BLOCKS:
            self.blocks = [a + b for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True)]
            self.sweeps_a_block *= 2

    def check(self) -> bridge.RunCheck:
        """The estimate from what is kept, which becomes the constant of the bridges to come.

        Raises:
            InvalidInputError: If a sum is not finite, because neighbors of the ladder have no states in common.
        """
        self._next_check = math.ceil(self.num_sweeps * _GROWTH)
        sampler = self.sampler
        kept = self.blocks[len(self.blocks) // 2 :]
        middle = len(kept) // 2
        halves = [reduce(BridgeSums.__add__, part) for part in (kept[:middle], kept[middle:])]
        total = reduce(BridgeSums.__add__, halves)
        solved = solve_bridge(total, self.reference)
        if not math.isfinite(solved.value):
            raise _out_of_reach(sampler.energy)
        self.guess = solved.gaps
        correlation = sampler.num_chains * total.num_states / max(solved.effective_samples, 1.0) * self.stride
        self.stride = next(stride for stride, least in _STRIDES if correlation >= least)
        estimate = LogPartition(
            value=sampler.energy.num_units * math.log(2) + solved.value,
            std_error=solved.std_error,
            method="bridge sampling",
            num_samples=sampler.num_chains * sampler.num_replicas * total.num_states,
            inverse_temperatures=tuple(sampler.inverse_temperatures.tolist()),
            swap_rates=tuple(sampler.swap_rates.tolist()),
            round_trips=float(total.round_trips.double().mean()),
            effective_samples=solved.effective_samples,
        )
        by_time = [solve_bridge(half, self.reference) for half in halves]
        half = sampler.num_chains // 2
        by_start = [
            solve_bridge(total.of_chains(chains), self.reference)
            for chains in (slice(half), slice(half, None))
        ]
        return bridge.RunCheck(estimate, bridge.drift(*by_time), bridge.disagreement(*by_start))

    def _work(self, block: int) -> tuple[Tensor, Tensor]:
        """Work down and up the ladder at each replica, (chain, replica), with a block summed out."""
        sampler = self.sampler
        ladder = sampler.inverse_temperatures
        place = sampler.order.argsort(1)  # replica of each walker
        below, above = ladder[(place - 1).clamp_min(0)], ladder[(place + 1).clamp_max(len(ladder) - 1)]
        temperatures = (below, ladder[place], above)
        down, up = tempered_work(
            sampler.energy, sampler.walkers, block, temperatures, energies=sampler.energies
        )
        return down.gather(1, sampler.order), up.gather(1, sampler.order)

    def _choose_block(self) -> tuple[int, Tensor]:
        """The block whose summing out leaves the least variance, and first guesses of log Z over the gaps."""
        sweeps = [self._work_of_all_blocks() for _ in range(_BLOCK_SWEEPS)]
        work = torch.stack(sweeps, 2)  # (block, direction, sweep, chain, replica)
        forward, backward = work[:, 1, ..., :-1].flatten(1, 2), work[:, 0, ..., 1:].flatten(1, 2)
        spread = (forward.var(1) + backward.var(1)).sum(1)
        best = int(spread.argmin())
        return best, -(forward[best].mean(0) + backward[best].mean(0)) / 2

    def _work_of_all_blocks(self) -> Tensor:
        self.sampler.step(1)
        return torch.stack([torch.stack(self._work(b)) for b in range(len(self.sampler.energy.blocks))])


def _out_of_reach(energy: BoltzmannMachine) -> InvalidInputError:
    """The error for a machine whose sums are not finite; it names the largest parameter."""
    name, largest = max(
        ((name, float(parameter.detach().abs().max())) for name, parameter in energy.named_parameters()),
        key=lambda pair: pair[1],
    )
    rule = "must be small enough for replicas at neighboring temperatures to overlap"
    repair = "Look for a diverged training step and restore an earlier state."
    return InvalidInputError(f"energy.{name}", rule, f"a largest absolute value of {largest:g}", repair)
