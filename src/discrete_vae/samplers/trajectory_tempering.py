"""Parallel trajectory tempering: chains that trade places with states of machines that the training has passed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int, values_are_known
from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import keyed_generator
from discrete_vae.samplers.bennett_ratio import weighted_ratio
from discrete_vae.samplers.chains import MarkovChains, one_at_a_time
from discrete_vae.samplers.frozen_machines import flat_parameters, parameter_vector, reduced_energy
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.sweeps import check_logits, run_sweeps
from discrete_vae.samplers.packing import pack_bits, unpack_bits
from discrete_vae.samplers.reservoir import Pairs, Reservoir, next_rung
from discrete_vae.samplers.rungs import SETS, Rungs
from discrete_vae.samplers.trajectory_state import check_trajectory_state

LOW_RATE = 0.3
"""Exchange rate with the last rung below which the machine is frozen as the next one."""

COLLAPSED_RATE = 0.1
"""Rate below which rungs are put between the last one and the machine."""

MAX_RUNGS = 512
_MANY_RUNGS = 3  # at once; fewer are a matter of course while weights are small
_PAIR_STREAM = 0x70616972


class TrajectoryWarning(UserWarning):
    """The machine changed so much between two calls that its chains had to be led there over many rungs."""


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
    reservoir: Reservoir

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

    @one_at_a_time
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
            z = self._go_on(z, pairs or self._pair(z))
            pairs, count = None, min(self.sweeps_per_swap, end - self.sweep)
            z = run_sweeps(self.energy, z, count, key=self._key, first_sweep=self.sweep + 1)
            self.sweep += count
        self._packed, self._free = pack_bits(z), reduced_energy(self.energy, z)
        return z

    @one_at_a_time
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
        value, influence = self.rungs.log_partition(self.energy)
        weights = pairs.weights(self._free)
        ratio, of_reservoir, error_here = weighted_ratio(
            self.reservoir.work(self.energy),
            pairs.work_here,
            weights,
            num_up=self.reservoir.effective,
            num_down=1 / float(weights.square().sum()),
        )
        # the reservoir was collected from the walkers whose works gave the last gap: their deviations add up
        influence = influence + of_reservoir.view(-1, self.num_chains).mean(0)
        return LogPartition(
            value=value + ratio,
            std_error=math.hypot(float(influence.std()) / math.sqrt(self.num_chains), error_here),
            method="trajectory tempering",
            num_samples=len(self.reservoir) + self.num_chains,
        )

    def _catch_up(self) -> Pairs:
        """Add rungs until the machine is within reach of the last one; returns the pairs that show it."""
        self._follow()
        if values_are_known(self.energy.bias):
            check_logits(self.energy)
        pairs = self._pair(self.z)
        self.swap_rate = rate = pairs.rate(self._free)
        if rate >= LOW_RATE:
            return pairs
        now = parameter_vector(self.energy).to(self.rungs.parameters_of)
        added, frozen = 0, None
        while frozen is not now:
            if len(self.rungs) == MAX_RUNGS:
                raise _too_far()
            if rate >= COLLAPSED_RATE:
                frozen = now
            else:
                frozen = next_rung(self.reservoir, self.energy, self.rungs.parameters_of[-1], now)
            states, effective = self.rungs.add(self.energy, frozen, self.z)
            self._start(self.rungs.states(len(self.rungs) - 1, self.energy.num_units), states, effective)
            added += 1
        if added > _MANY_RUNGS and self.sweep > 0:
            warnings.warn(
                f"the machine changed so much between two calls that {added} rungs were put on the way: its chains are "
                "in equilibrium again, but each rung takes time. Where that happens often, lower the step size.",
                TrajectoryWarning,
                stacklevel=3,
            )
        return self._pair(self.z)

    def _start(self, z: Tensor, states: Tensor, effective: float) -> None:
        """Take chains and reservoir of the last rung."""
        machine = self.rungs.machine(self.energy, len(self.rungs) - 1)
        self.reservoir = Reservoir(machine, states, effective)
        self.register_buffer("_packed", pack_bits(z), persistent=False)
        self.register_buffer("_free", reduced_energy(machine, z), persistent=False)

    def _pair(self, z: Tensor) -> Pairs:
        last = self.rungs.machine(self.energy, len(self.rungs) - 1)
        return self.reservoir.pair(self.energy, last, z, keyed_generator(self.seed, _PAIR_STREAM, self.sweep))

    def _go_on(self, z: Tensor, pairs: Pairs) -> Tensor:
        """The chains, from members of the reservoir where that is accepted; the first block is to be drawn anew."""
        generator = keyed_generator(self.seed, _PAIR_STREAM, self.sweep, 1)
        accepted = torch.rand(len(z), generator=generator).to(z.device) < pairs.probabilities()
        return torch.where(accepted[:, None], self.reservoir.members(self.energy.num_units, pairs.slots), z)

    def _integers(self) -> dict[str, int]:
        return super()._integers() | {"rung_sweep": self.rungs.sweep}

    def _state(self) -> dict[str, Tensor]:
        return {
            "z": self._packed.clone(),
            "free": self._free.clone(),
            "reservoir": self.reservoir.packed.clone(),
            "reservoir_free": self.reservoir.free.clone(),
            "numbers": torch.tensor([self.reservoir.effective, self.swap_rate], dtype=torch.float64),
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
        self._packed, self._free = (state[name].to(device, copy=True) for name in ("z", "free"))
        self.reservoir.packed = state["reservoir"].to(device, copy=True)
        self.reservoir.free = state["reservoir_free"].to(device, copy=True)
        self.reservoir.effective, self.swap_rate = state["numbers"].tolist()
        self.rungs.set_state(
            **{name: state[f"rung_{name}"].to(device, copy=True) for name, _ in self.rungs.named_buffers()}
        )


def _too_far() -> InvalidInputError:
    rule = f"must be within reach over {MAX_RUNGS} rungs"
    repair = "Look for a diverged training step, or use ParallelTempering."
    return InvalidInputError("energy", rule, "more", repair)
