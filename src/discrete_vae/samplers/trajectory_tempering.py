"""Parallel trajectory tempering: chains that trade places with states of machines that the training has passed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int, values_are_known
from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import keyed_generator
from discrete_vae.samplers.bennett_ratio import weighted_ratio
from discrete_vae.samplers.chains import MarkovChains
from discrete_vae.samplers.frozen_machines import (
    exchange_probabilities,
    flat_parameters,
    frozen_machine,
    parameter_vector,
    reduced_energy,
)
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.sweeps import check_logits, run_sweeps
from discrete_vae.samplers.packing import pack_bits, unpack_bits
from discrete_vae.samplers.rungs import SETS, Rungs
from discrete_vae.samplers.trajectory_state import check_trajectory_state

LOW_RATE = 0.3
"""Exchange rate with the last rung below which the machine is frozen as the next one."""

COLLAPSED_RATE = 0.1
"""Rate below which rungs are put between the last one and the machine."""

MAX_RUNGS = 512
_AIMED_RATE = 0.4  # with rungs that are put between
_HALVINGS = 12  # in the search for their place
_FEWEST_EFFECTIVE = 0.3  # share of chains that must carry the reweighting: they lag behind larger changes
_MANY_RUNGS = 3  # at once; fewer are a matter of course while weights are small
_PAIR_STREAM = 0x70616972


class TrajectoryWarning(UserWarning):
    """The machine changed so much between two calls that its chains had to be led there over many rungs."""


@dataclass(frozen=True)
class _Pairs:
    """Chains, and the members of the reservoir that they may go on from."""

    slots: Tensor
    free: Tensor
    free_last: Tensor
    work_there: Tensor

    @property
    def work_here(self) -> Tensor:
        return self.free - self.free_last


class TrajectoryTempering(MarkovChains):
    """Persistent chains of a machine that changes, led by frozen machines of its own past.

    Each rung of a ladder is the machine as it was at some time; the first one has no energy, so that its states are
    fair coins and its log Z is n log 2. A reservoir holds ten states of the last rung per
    chain. Before the sweeps of each call, each chain x is paired with a random member y of the reservoir and goes on
    from there with the probability min(1, exp(w(x) - w(y))), w = F_now - F_last, F the free energy of the units outside
    the first block. That is an exchange of both, which leaves p invariant, and carries chains between modes that sweeps
    do not cross. The reservoir keeps y and forgets x: traded, states would only change places, and the numbers in each
    mode, chains and reservoir together, would stay as they were while p changes.

    When the exchange rate, with chains reweighted to the present weights, falls below 0.3, the machine is frozen as the
    next rung: walkers of all rungs exchange states, the chains and a new reservoir are taken from the last one's, and
    Bennett's ratio of the works across all gaps gives its log Z. Where the rate falls below 0.1 at once, or few chains
    carry the reweighting, rungs are put on the straight line between. So `log_partition` has a value with its error at
    any time.

    A mode that opens where neither chains nor rungs have states, and that their sweeps do not find, is missed, and no
    error shows it.

    It is a module that does not own the energy: see `MarkovChains`. Each call looks at one number, the exchange rate,
    and so waits for an accelerator.

    Source: arXiv 2607.27077. Deviations: the reservoir keeps its members; rungs between where the machine changed too
    much, in place of a smaller step of the optimizer; all rungs are run again for each new one, so that modes are in
    proportion and all gaps gain; the error of log Z from the spread over chains.

    Args:
        energy: The machine to sample.
        num_chains: Number of chains, at least 2: their spread is the error of log Z.
        seed: Integer from 0 to 2^64 - 1.
        sweeps_per_swap: Sweeps of a call after which chains are paired with the reservoir once more.

    Attributes:
        energy: The machine; its parameters are read anew at every step.
        num_chains: Number of chains.
        seed: The seed.
        sweep: Number of sweeps run so far, without those of the rungs.
        swap_rate: The exchange rate that the last call found.

    Raises:
        InvalidInputError: If a number is out of its range, or the machine has energy where all its parameters are 0.

    Examples:
        >>> from discrete_vae import RBM
        >>> chains = TrajectoryTempering(RBM(3, 2), num_chains=4, seed=0)
        >>> chains.step(10).shape
        torch.Size([4, 5])
        >>> print(chains.log_partition())  # 5 log 2
        log Z = 3.4657 nats (+- 0.0000, trajectory tempering)
    """

    _packed: Tensor
    _free: Tensor
    _reservoir: Tensor
    _reservoir_free: Tensor

    def __init__(
        self, energy: BoltzmannMachine, num_chains: int, *, seed: int = 0, sweeps_per_swap: int = 100
    ) -> None:
        super().__init__(energy, num_chains, seed)
        if num_chains < 2:
            repair = "The spread over chains is the error of log Z."
            raise InvalidInputError("num_chains", "must be at least 2", num_chains, repair)
        self.sweeps_per_swap = check_positive_int("sweeps_per_swap", sweeps_per_swap)
        self.swap_rate = 1.0
        device = energy.bias.device
        first = flat_parameters(energy, fair_coins(8, energy.num_units, key=self._key, device=device))
        self.rungs = Rungs(energy, first, num_chains, seed)
        z = fair_coins((1 + SETS) * num_chains, energy.num_units, key=self._key, device=device)
        self._start(z[:num_chains], z[num_chains:], float(SETS * num_chains))

    @property
    def z(self) -> Tensor:
        """A copy of the states, (chain, unit) float32 in {0,1}."""
        self._follow()
        return unpack_bits(self._packed, self.energy.num_units)

    @property
    def num_rungs(self) -> int:
        """Machines of the ladder."""
        return len(self.rungs)

    @torch.no_grad()
    def step(self, num_sweeps: int) -> Tensor:
        """Go on from members of the reservoir where that is accepted, then run sweeps on all chains.

        Args:
            num_sweeps: Sweeps to run, at least 1.

        Returns:
            A copy of the states, (chain, unit) float32 in {0,1}, without gradient.

        Raises:
            InvalidInputError: If num_sweeps is not a positive integer, or the energy has a parameter that is not
                finite.

        Warns:
            TrajectoryWarning: If more than three rungs had to be added at once after the first call.
        """
        end = self.sweep + check_positive_int("num_sweeps", num_sweeps)
        pairs = self._catch_up()
        z = self.z
        while self.sweep < end:
            z = self._renew(z, pairs or self._pair(z))
            pairs, count = None, min(self.sweeps_per_swap, end - self.sweep)
            z = run_sweeps(self.energy, z, count, key=self._key, first_sweep=self.sweep + 1)
            self.sweep += count
        self._packed, self._free = pack_bits(z), reduced_energy(self.energy, z)
        return z

    @torch.no_grad()
    def log_partition(self) -> LogPartition:
        """log Z of the machine as it is now: that of the last rung and Bennett's ratio between it and the chains.

        Where the machine is out of reach of the last rung, rungs are added first, as by `step`.

        Returns:
            The estimate. Its error is that of states in equilibrium; chains that lag behind fast weights add to it.

        Raises:
            InvalidInputError: If the energy has a parameter that is not finite.
        """
        pairs = self._catch_up()
        value, error = self.rungs.log_partition(self.energy)
        weights = (self._free - pairs.free).softmax(0)
        ratio, ratio_error = weighted_ratio(
            reduced_energy(self.energy, self._members()) - self._reservoir_free,
            pairs.work_here,
            weights,
            num_up=self._effective,
            num_down=1 / float(weights.square().sum()),
        )
        return LogPartition(
            value=value + ratio,
            std_error=math.hypot(error, ratio_error),
            method="trajectory tempering",
            num_samples=len(self._reservoir) + self.num_chains,
        )

    def _catch_up(self) -> _Pairs:
        """Add rungs until the machine is within reach of the last one; returns the pairs that show it."""
        self._follow()
        if values_are_known(self.energy.bias):
            check_logits(self.energy)
        pairs = self._pair(self.z)
        self.swap_rate = rate = self._rate(pairs)
        if rate >= LOW_RATE:
            return pairs
        now = parameter_vector(self.energy).to(self.rungs.parameters_of)
        added, frozen = 0, None
        while frozen is not now:
            if len(self.rungs) == MAX_RUNGS:
                raise _too_far()
            frozen = now if rate >= COLLAPSED_RATE else self._reachable(now)
            reservoir, effective = self.rungs.add(self.energy, frozen, self.z)
            self._start(self.rungs.states(len(self.rungs) - 1, self.energy.num_units), reservoir, effective)
            added += 1
        if added > _MANY_RUNGS and self.sweep > 0:
            warnings.warn(
                f"the machine changed so much between two calls that {added} rungs were put on the way: its chains are "
                "in equilibrium again, but each rung takes time. Where that happens often, lower the step size.",
                TrajectoryWarning,
                stacklevel=3,
            )
        return self._pair(self.z)

    def _start(self, z: Tensor, reservoir: Tensor, effective: float) -> None:
        """Take chains and reservoir of the last rung."""
        machine = self.rungs.machine(self.energy, len(self.rungs) - 1)
        self._effective = effective
        for name, value in {
            "_packed": pack_bits(z),
            "_free": reduced_energy(machine, z),
            "_reservoir": pack_bits(reservoir),
            "_reservoir_free": reduced_energy(machine, reservoir),
        }.items():
            self.register_buffer(name, value, persistent=False)

    def _pair(self, z: Tensor) -> _Pairs:
        """Pair each chain with a member of the reservoir, all different."""
        generator = keyed_generator(self.seed, _PAIR_STREAM, self.sweep)
        slots = torch.randperm(len(self._reservoir), generator=generator)[: self.num_chains].to(z.device)
        last = self.rungs.machine(self.energy, len(self.rungs) - 1)
        return _Pairs(
            slots,
            free=reduced_energy(self.energy, z),
            free_last=reduced_energy(last, z),
            work_there=reduced_energy(self.energy, self._members(slots)) - self._reservoir_free[slots],
        )

    def _rate(self, pairs: _Pairs) -> float:
        """The exchange rate, with chains reweighted to the machine as it is now."""
        weights = (self._free - pairs.free).softmax(0)
        rate = (weights * exchange_probabilities(pairs.work_here, pairs.work_there)).sum()
        enough = 1 / weights.square().sum() >= _FEWEST_EFFECTIVE * self.num_chains
        return float(torch.where(enough, rate, torch.zeros_like(rate)))

    def _renew(self, z: Tensor, pairs: _Pairs) -> Tensor:
        """Take what is accepted from the reservoir, which keeps it; the first block is to be drawn anew."""
        generator = keyed_generator(self.seed, _PAIR_STREAM, self.sweep, 1)
        uniforms = torch.rand(self.num_chains, generator=generator).to(z.device)
        accepted = uniforms < exchange_probabilities(pairs.work_here, pairs.work_there)
        return torch.where(accepted[:, None], self._members(pairs.slots), z)

    def _members(self, slots: Tensor | slice = slice(None)) -> Tensor:
        """States of the reservoir, (state, unit) float32 in {0,1}."""
        return unpack_bits(self._reservoir[slots], self.energy.num_units)

    def _reachable(self, now: Tensor) -> Tensor:
        """The point on the line from the last rung to the machine that exchanges with the rung at a rate near 0.4.

        The rate is that of the reservoir with itself, reweighted; rungs that are close are estimated well.
        """
        last = self.rungs.parameters_of[-1]
        z = self._members()

        def rate(share: float) -> float:
            work = reduced_energy(frozen_machine(self.energy, last + share * (now - last)), z)
            work = work - self._reservoir_free
            weights = (-work).softmax(0)
            return float((weights * exchange_probabilities(work, work.roll(1))).sum())

        low, high = 0.0, 1.0
        if rate(high) >= _AIMED_RATE:
            return now
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if rate(middle) >= _AIMED_RATE else (low, middle)
        return last + high * (now - last)

    def _integers(self) -> dict[str, int]:
        return super()._integers() | {"rung_sweep": self.rungs.sweep}

    def _state(self) -> dict[str, Tensor]:
        return {
            "z": self._packed.clone(),
            "free": self._free.clone(),
            "reservoir": self._reservoir.clone(),
            "reservoir_free": self._reservoir_free.clone(),
            "numbers": torch.tensor([self._effective, self.swap_rate], dtype=torch.float64),
        } | {f"rung_{name}": value.clone() for name, value in self.rungs.named_buffers()}

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        check_trajectory_state(
            state,
            name,
            num_chains=self.num_chains,
            num_units=self.energy.num_units,
            like=self.rungs.parameters_of,
        )

    def _take_integers(self, values: Mapping[str, int]) -> None:
        super()._take_integers(values)
        self.rungs.seed, self.rungs.sweep = self.seed, values["rung_sweep"]

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        device = self._packed.device
        for name in ("free", "reservoir", "reservoir_free"):
            setattr(self, f"_{name}", state[name].to(device, copy=True))
        self._packed = state["z"].to(device, copy=True)
        self._effective, self.swap_rate = state["numbers"].tolist()
        self.rungs.set_state(
            **{name: state[f"rung_{name}"].to(device, copy=True) for name, _ in self.rungs.named_buffers()}
        )


def _too_far() -> InvalidInputError:
    rule = f"must be within reach over {MAX_RUNGS} rungs"
    repair = "Look for a diverged training step, or use ParallelTempering."
    return InvalidInputError("energy", rule, "more", repair)
