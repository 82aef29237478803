"""A run of bridge sampling: sums over blocks of sweeps, and looks at them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition import bridge
from discrete_vae.log_partition.bridge import BridgeSums, bridge_terms, solve_bridge
from discrete_vae.log_partition.work import tempered_work
from discrete_vae.samplers.parallel_tempering import ParallelTempering

_BLOCK_SWEEPS = 12
_STRIDES = ((4, 8.0), (2, 3.0), (1, 0.0))  # sweeps per measured state, from which autocorrelation time on
_MIN_BLOCKS, _GROWTH, _MAX_BLOCKS = 8, 1.2, 256


class BridgeRun:
    """The sums of a run in blocks, of which the first half is dropped at each check."""

    def __init__(self, sampler: ParallelTempering) -> None:
        self.sampler = sampler
        self.block, self.reference = self._choose_block()
        self.guess = self.reference
        self.blocks: list[BridgeSums] = []
        self.sweeps_per_block = _BLOCK_SWEEPS
        self.stride = 1
        self.num_sweeps = 0
        self._next_check = _MIN_BLOCKS * _BLOCK_SWEEPS

    @property
    def has_enough_blocks(self) -> bool:
        """Whether there is enough to split in halves."""
        return len(self.blocks) >= _MIN_BLOCKS

    @property
    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return self.num_sweeps >= self._next_check

    def add_block(self) -> None:
        """Run some sweeps and sum their states."""
        trips = self.sampler.round_trips.clone()
        terms = []
        for _ in range(self.sweeps_per_block // self.stride):
            self.sampler.step(self.stride)
            down, up = self._work(self.block)
            terms.append(bridge_terms(down, up, self.guess, self.reference))
        self.num_sweeps += self.sweeps_per_block
        block = reduce(BridgeSums.__add__, terms)
        self.blocks.append(replace(block, round_trips=self.sampler.round_trips - trips))
        if len(self.blocks) == _MAX_BLOCKS:
            self.blocks = [a + b for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True)]
            self.sweeps_per_block *= 2

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
