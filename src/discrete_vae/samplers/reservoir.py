"""States of a frozen machine from which the chains of a machine that has moved on may go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.records import ShowsShapes
from discrete_vae.samplers.frozen_machines import exchange_probabilities, frozen_machine, reduced_energy
from discrete_vae.samplers.packing import pack_bits, unpack_bits

AIMED_RATE = 0.4
"""Exchange rate of a rung that is put between a frozen machine and one out of its reach."""

_HALVINGS = 12  # in the search for its place
_FEWEST_EFFECTIVE = 0.3  # share of chains that must carry the reweighting: they lag behind larger changes


@dataclass(frozen=True, eq=False, repr=False)
class Pairs(ShowsShapes):
    """Chains, and the members of the reservoir that they may go on from.

    Attributes:
        slots: Which members, (chain,).
        free: F of the chains' states for the machine as it is now, (chain,) float64, nats.
        work_here: That less F for the frozen machine.
        work_there: The same of the members.
    """

    slots: Tensor
    free: Tensor
    work_here: Tensor
    work_there: Tensor

    def weights(self, free_before: Tensor) -> Tensor:
        """Weights of chains that follow a machine of before, with F as given, for the machine as it is now."""
        return (free_before - self.free).softmax(0)

    def rate(self, free_before: Tensor) -> float:
        """The exchange rate with chains so reweighted; 0 where too few of them carry the weight."""
        weights = self.weights(free_before)
        rate = (weights * self.probabilities()).sum()
        enough = 1 / weights.square().sum() >= _FEWEST_EFFECTIVE * len(weights)
        return float(torch.where(enough, rate, torch.zeros_like(rate)))

    def probabilities(self) -> Tensor:
        """Probability of each chain to go on from its member."""
        return exchange_probabilities(self.work_here, self.work_there)


class Reservoir(nn.Module):
    """States of a frozen machine, in equilibrium.

    Args:
        machine: The machine.
        z: Its states, (state, unit) float32 in {0,1}.
        effective: Number of independent states that would give the same error.

    Attributes:
        packed: The states, (state, byte) uint8.
        free: Their F for the machine, (state,) float64, nats.
        effective: See above.
    """

    packed: Tensor
    free: Tensor

    def __init__(self, machine: BoltzmannMachine, z: Tensor, effective: float) -> None:
        super().__init__()
        self.effective = effective
        self.register_buffer("packed", pack_bits(z), persistent=False)
        self.register_buffer("free", reduced_energy(machine, z), persistent=False)

    def __len__(self) -> int:
        return len(self.packed)

    def members(self, num_units: int, slots: Tensor | slice = slice(None)) -> Tensor:
        """States, (state, unit) float32 in {0,1}; their first block is to be drawn anew."""
        return unpack_bits(self.packed[slots], num_units)

    def work(self, energy: BoltzmannMachine, slots: Tensor | slice = slice(None)) -> Tensor:
        """F of states for another machine less that for their own, (state,) float64, nats."""
        return reduced_energy(energy, self.members(energy.num_units, slots)) - self.free[slots]

    def pair(
        self, energy: BoltzmannMachine, last: BoltzmannMachine, z: Tensor, generator: torch.Generator
    ) -> Pairs:
        """Pair each chain with a member, all different.

        Args:
            energy: The machine as it is now.
            last: The reservoir's.
            z: States of the chains, (chain, unit).
            generator: Source of the choice, on the CPU.
        """
        slots = torch.randperm(len(self), generator=generator)[: len(z)].to(z.device)
        free = reduced_energy(energy, z)
        return Pairs(slots, free, free - reduced_energy(last, z), self.work(energy, slots))

    def reachable(self, machine_at: Callable[[float], BoltzmannMachine]) -> float:
        """How far a machine may move away for an exchange rate near 0.4, by halving the way.

        The rate is that of the states with each other, half of them reweighted; it is good where it is not small.

        Args:
            machine_at: The machine after a share of its way, from 0 to 1.

        Returns:
            The share, above 0.
        """

        def is_near(share: float) -> bool:
            work = self.work(machine_at(share))
            weights = (-work).softmax(0)
            return float((weights * exchange_probabilities(work, work.roll(1))).sum()) >= AIMED_RATE

        if is_near(1.0):
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if is_near(middle) else (low, middle)
        return high


def next_rung(reservoir: Reservoir, energy: BoltzmannMachine, last: Tensor, now: Tensor) -> Tensor:
    """Parameters of a rung within reach on the straight line from the last one to the machine; ``now`` if that is."""
    share = reservoir.reachable(lambda share: frozen_machine(energy, last + share * (now - last)))
    return now if share == 1.0 else last + share * (now - last)
