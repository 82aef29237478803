"""A run of parallel tempering whose states become bridge sums, and what is to be seen in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from discrete_vae.boltzmann.energy import BoltzmannEnergy
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.bridge import BridgeEstimate, BridgeSums, bridge_terms, solve_bridge
from discrete_vae.log_partition.record import LogPartition
from discrete_vae.log_partition.tempered_work import tempered_work
from discrete_vae.samplers.parallel_tempering import ParallelTempering

_BLOCK_SWEEPS = 12
_STRIDES = ((4, 8.0), (2, 3.0), (1, 0.0))  # sweeps a measured state, from which autocorrelation time on
_LEAST_BLOCKS, _GROWTH, _MOST_BLOCKS = 8, 1.2, 256
_ROUND_TRIPS = 10.0  # a chain; fewer may not have met a mode that is rare where barriers are low
_APART = 3.5  # standard errors between parts of the run that must agree
LOW_RATE = 0.3
"""An exchange rate below which the ladder is placed anew, or blamed."""


@dataclass(frozen=True)
class RunCheck:
    """What a look at the run found.

    Attributes:
        estimate: The estimate so far.
        drift: Distance of the two halves of the time that is kept, in standard errors.
        disagreement: The same for the chains that started low and those that started from coins.
    """

    estimate: LogPartition
    drift: float
    disagreement: float

    @property
    def lowest_rate(self) -> float:
        """The lowest exchange rate of the ladder."""
        return min(self.estimate.swap_rates or (1.0,))

    def reaches(self, std_error: float) -> bool:
        """Whether the run may end."""
        mixes = (self.estimate.round_trips or 0.0) >= _ROUND_TRIPS
        agrees = max(self.drift, self.disagreement) <= _APART
        return self.estimate.std_error <= std_error and mixes and agrees

    def complaint(self, std_error: float, num_sweeps: int) -> str:
        """The figures and the remedies."""
        estimate = self.estimate
        rates = estimate.swap_rates or (1.0,)
        text = (
            f"log Z = {estimate.value:.4f} +- {estimate.std_error:.4f} nats after {num_sweeps} sweeps, where "
            f"a standard error of {std_error:g} was asked for: {estimate.round_trips:.1f} round trips a chain "
            f"({_ROUND_TRIPS:g} are wanted), exchange rates from {min(rates):.2f} to {max(rates):.2f}, the halves of "
            f"the run {self.drift:.1f} and chains with different starts {self.disagreement:.1f} standard errors apart. "
        )
        if min(rates) < LOW_RATE:
            text += "Some neighbours hardly exchange: raise num_chains, so that the ladder is tuned on more states. "
        if (estimate.round_trips or 0.0) < _ROUND_TRIPS or max(self.drift, self.disagreement) > _APART:
            return text + "The chains mix slowly and the stated error may be too small: raise max_sweeps."
        return text + "Raise max_sweeps or num_chains, or ask for less."


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
        self._next_check = _LEAST_BLOCKS * _BLOCK_SWEEPS

    @property
    def can_check(self) -> bool:
        """Whether there is enough to split in halves."""
        return len(self.blocks) >= _LEAST_BLOCKS

    @property
    def is_due(self) -> bool:
        """Whether it is time for a look."""
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
        if len(self.blocks) == _MOST_BLOCKS:
            self.blocks = [a + b for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True)]
            self.sweeps_a_block *= 2

    def check(self) -> RunCheck:
        """The estimate from what is kept, which becomes the constant of the bridges to come.

        Raises:
            InvalidInputError: If a sum is not finite, because neighbours of the ladder have no states in common.
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
        return RunCheck(estimate, _drift(*by_time), _disagreement(*by_start))

    def _work(self, block: int) -> tuple[Tensor, Tensor]:
        """Work down and up the ladder at each replica, (chain, replica), with a block summed out."""
        sampler = self.sampler
        ladder = sampler.inverse_temperatures.to(sampler.order.device)
        place = sampler.order.argsort(1)  # replica of each walker
        below, above = ladder[(place - 1).clamp_min(0)], ladder[(place + 1).clamp_max(len(ladder) - 1)]
        down, up = tempered_work(
            sampler.energy, sampler.walkers, sampler.energies, block, below, ladder[place], above
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


def _out_of_reach(energy: BoltzmannEnergy) -> InvalidInputError:
    """The error for a machine whose sums are not finite; it names the largest parameter."""
    name, largest = max(
        ((name, float(parameter.detach().abs().max())) for name, parameter in energy.named_parameters()),
        key=lambda pair: pair[1],
    )
    rule = "must be small enough for replicas at neighbouring temperatures to overlap"
    repair = "Look for a diverged training step and restore an earlier state."
    return InvalidInputError(f"energy.{name}", rule, f"a largest absolute value of {largest:g}", repair)


def _drift(first: BridgeEstimate, second: BridgeEstimate) -> float:
    """Distance of two parts of the same chains in standard errors."""
    spread = float((first.influence - second.influence).std()) / math.sqrt(len(first.influence))
    return _in_errors(first.value - second.value, spread)


def _disagreement(first: BridgeEstimate, second: BridgeEstimate) -> float:
    """Distance of two sets of chains in standard errors."""
    return _in_errors(first.value - second.value, math.hypot(first.std_error, second.std_error))


def _in_errors(distance: float, spread: float) -> float:
    """0 where nothing fluctuates."""
    return abs(distance) / spread if spread > 1e-7 else (0.0 if abs(distance) < 1e-4 else math.inf)
