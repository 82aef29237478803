"""A ladder whose rungs are frozen machines: replica exchange among them, and log Z from its works."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.noise import key_to_seed, keyed_generator
from discrete_vae.samplers.bennett_ratio import bridge_term, solve_gaps, weighted_ratio
from discrete_vae.samplers.frozen_machines import (
    exchange_probabilities,
    frozen_machine,
    reduced_energy,
)
from discrete_vae.samplers.kernels.sweeps import run_sweeps
from discrete_vae.samplers.packing import pack_bits, unpack_bits

SETS = 10
"""States of the last rung that are collected, per chain."""

_SWEEP_STREAM, _SWAP_STREAM = 0x72756E67, 0x65786368
_SWEEPS_PER_ROUND = 4  # as dear as the free energies of an exchange
_THERMALIZING_ROUNDS = 40  # some twenty autocorrelation times of a pair that exchanges at a rate of 0.3
_ROUNDS_PER_SET = 2
_KEPT = 0.8  # of earlier sums at each new rung, since early states were further from equilibrium


class Rungs(nn.Module):
    """Frozen machines, the first one of fair coins, each with walkers that trade places with the next one's.

    A round is an exchange of every other pair of neighbors, then some sweeps of all. Exchanges are within a chain, so
    chains stay independent; they keep the law of the units outside the first block, which is all that the next sweep
    reads. The first rung is drawn anew by each sweep, exactly, and so fills modes that higher rungs do not leave.

    Args:
        energy: A machine of the rungs' kind.
        first: Parameters of the first one, which have no energy.
        num_chains: Walkers per rung.
        seed: Seed of the walkers.

    Attributes:
        parameters_of: (rung, parameter).
        walkers: (rung, chain, byte) uint8, their states.
        guess: (gap,) float64, the constants of the bridges, nats.
        of_lower: (chain, gap) float64, sums of the terms of rung r.
        of_upper: Those of rung r + 1.
        sweep: Sweeps of each walker so far.
    """

    parameters_of: Tensor
    walkers: Tensor
    guess: Tensor
    of_lower: Tensor
    of_upper: Tensor

    def __init__(self, energy: BoltzmannMachine, first: Tensor, num_chains: int, seed: int) -> None:
        super().__init__()
        self.seed, self.sweep = seed, 0
        self._machines: list[BoltzmannMachine] = []
        empty = torch.zeros(num_chains, 0, dtype=torch.float64, device=first.device)
        z = torch.zeros(num_chains, energy.num_units, device=first.device)
        self.set_state(
            parameters_of=first[None],
            walkers=pack_bits(z)[None],
            guess=empty[0],
            of_lower=empty,
            of_upper=empty.clone(),
        )
        self._advance(energy, [z])

    def __len__(self) -> int:
        return len(self.parameters_of)

    def set_state(self, **buffers: Tensor) -> None:
        """Replace buffers."""
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)
        if "parameters_of" in buffers:
            self._machines = []

    def machine(self, energy: BoltzmannMachine, rung: int) -> BoltzmannMachine:
        """The machine of a rung; it must not be changed."""
        device = self.parameters_of.device
        if any(machine.bias.device != device for machine in self._machines):
            self._machines = []
        for vector in self.parameters_of[len(self._machines) :]:
            self._machines.append(frozen_machine(energy, vector))
        return self._machines[rung]

    def states(self, rung: int, num_units: int) -> Tensor:
        """The walkers of a rung, (chain, unit) float32 in {0,1}."""
        return unpack_bits(self.walkers[rung], num_units)

    @torch.no_grad()
    def add(self, energy: BoltzmannMachine, parameters: Tensor, start: Tensor) -> tuple[Tensor, float]:
        """Freeze a machine on top and bring all walkers to equilibrium.

        Args:
            energy: A machine of the rungs' kind.
            parameters: Of the new rung, (parameter,).
            start: Where its walkers start, (chain, unit).

        Returns:
            States of the new rung, (set * chain, unit), and the number of independent ones that would give the same
            error.
        """
        z = [self.states(rung, energy.num_units) for rung in range(len(self))] + [start]
        machines, new = [*self._machines], len(self)
        self.set_state(parameters_of=torch.cat([self.parameters_of, parameters[None]]))
        self._machines = machines
        works = []
        for number in range(_THERMALIZING_ROUNDS):
            found = self._round(energy, z, number)
            if new - 1 in found and number >= _THERMALIZING_ROUNDS // 2:
                works.append(found[new - 1])
        up, down = (torch.cat(parts) for parts in zip(*works, strict=True))
        guess, *_ = weighted_ratio(up, down, torch.full_like(down, 1 / len(down)), num_up=1, num_down=1)
        sums = [torch.nn.functional.pad(_KEPT * part, (0, 1)) for part in (self.of_lower, self.of_upper)]
        guesses = torch.cat([self.guess, self.guess.new_tensor([guess])])
        sets = []
        for number in range(SETS * _ROUNDS_PER_SET):
            for gap, (up, down) in self._round(energy, z, number).items():
                for total, terms in zip(sums, bridge_term(up, down, guesses[gap]), strict=True):
                    total[:, gap] += terms
            if number % _ROUNDS_PER_SET:
                sets.append(z[-1])
        self.set_state(guess=guesses, of_lower=sums[0], of_upper=sums[1])
        collected = torch.cat(sets)
        work = reduced_energy(self.machine(energy, new), collected)
        work = work - reduced_energy(self.machine(energy, new - 1), collected)
        return collected, _effective_number(bridge_term(work, work, guesses[-1])[1].view(SETS, -1))

    def log_partition(self, energy: BoltzmannMachine) -> tuple[float, Tensor]:
        """log Z of the last rung, nats, and what each chain adds to its deviation, (chain,), see `solve_gaps`."""
        gaps, influence = solve_gaps(self.of_lower, self.of_upper, self.guess)
        return energy.num_units * math.log(2) + float(gaps.sum()), influence

    def _round(
        self, energy: BoltzmannMachine, z: list[Tensor], number: int
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """Exchange and sweep, in place; returns the works across gaps, of the lower rung's states and the upper's."""
        generator = keyed_generator(self.seed, _SWAP_STREAM, self.sweep)
        uniforms = torch.rand(len(z), len(z[0]), generator=generator).to(z[0].device)
        works = {}
        for gap in range(number % 2, len(self) - 1, 2):
            both = torch.stack(z[gap : gap + 2])
            work = reduced_energy(self.machine(energy, gap + 1), both)
            up, down = works[gap] = (work - reduced_energy(self.machine(energy, gap), both)).unbind()
            accepted = (uniforms[gap] < exchange_probabilities(down, up))[:, None]
            z[gap], z[gap + 1] = both.where(~accepted, both.flip(0)).unbind()
        self._advance(energy, z)
        return works

    def _advance(self, energy: BoltzmannMachine, z: list[Tensor]) -> None:
        """Sweep all walkers, in place."""
        key = key_to_seed(self.seed, _SWEEP_STREAM)
        for rung, states in enumerate(z):
            z[rung] = run_sweeps(
                self.machine(energy, rung),
                states,
                _SWEEPS_PER_ROUND,
                key=key,
                first_sweep=self.sweep + 1,
                first_chain=rung * len(states),
            )
        self.sweep += _SWEEPS_PER_ROUND
        self.walkers = torch.stack([pack_bits(states) for states in z])


def _effective_number(values: Tensor) -> float:
    """Independent values that would have the error of these, (set, chain), whose chains are independent."""
    whole, of_means = float(values.var()), float(values.mean(0).var())
    if not whole > 0:
        return float(values.numel())
    return min(values.shape[1] * whole / of_means, float(values.numel())) if of_means > 0 else 1.0
