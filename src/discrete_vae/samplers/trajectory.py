"""Parallel trajectory tempering: chains that exchange states with parameter snapshots of the training's past."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from discrete_vae.boltzmann.base import BoltzmannMachine, LogPartition
from discrete_vae.checks import check_number, check_positive_int, values_are_known
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.gibbs import check_logits, fair_coins, run_sweeps
from discrete_vae.log_partition.bridge import bridge_term, solve_gaps, weighted_ratio
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import key_to_seed, keyed_generator
from discrete_vae.samplers.gibbs import MarkovChains, one_at_a_time, pack_bits, unpack_bits
from discrete_vae.samplers.tempering import exchange_probabilities, reduced_energy

LOW_RATE = 0.3  # exchange rate with the last snapshot below which the machine becomes the next one
COLLAPSED_RATE = 0.1  # rate below which snapshots are put between the last one and the machine
MAX_SNAPSHOTS = 512
_MANY = 3  # snapshots at once; fewer are a matter of course while weights are small
_PAIR_STREAM = 0x70616972


class TrajectoryWarning(UserWarning):
    """The machine changed so much between two calls that its chains had to be led there over many snapshots."""


class TrajectoryTempering(MarkovChains):
    """Persistent chains of a machine that changes, led by parameter snapshots of its own past.

    Each snapshot of a ladder is the machine as it was at some time; the first one has no energy, so that its states are
    fair coins and its log Z is n log 2. A reservoir holds ten states of the last snapshot per chain. Before the sweeps
    of each call, each chain x is paired with a random member y of the reservoir and goes on from there with the
    probability min(1, exp(w(x) - w(y))), w = F_now - F_last, F the free energy of the units outside the first block.
    That is an exchange of both, which leaves p invariant, and carries chains between modes that sweeps do not cross.
    The reservoir keeps y and forgets x: traded, states would only change places, and the numbers in each mode, chains
    and reservoir together, would stay as they were while p changes.

    When the exchange rate, with chains reweighted to the present weights, falls below 0.3, the machine becomes the
    next snapshot: replicas of all snapshots exchange states, the chains and a new reservoir are taken from the last
    one's, and Bennett's ratio of the works across all gaps gives its log Z. Where the rate falls below 0.1 at once, or
    few chains carry the reweighting, snapshots are put on the straight line between. So `log_partition` has a value
    with its error at any time.

    A mode that opens where neither chains nor snapshots have states, and that their sweeps do not find, is missed, and
    no error shows it.

    It is a module that does not own the energy: see `MarkovChains`, also for its other attributes. Each call looks at
    one number, the exchange rate, and so waits for an accelerator.

    Source: Béreux et al. 2024 (arXiv 2405.15376); arXiv 2607.27077. Deviations: the reservoir keeps its members;
    snapshots between where the machine changed too much, in place of a smaller step of the optimizer; all snapshots are
    run again for each new one, so that modes are in proportion and all gaps gain; the error of log Z from the spread
    over chains.

    Args:
        energy: The machine to sample; one whose energy is 0 where all its parameters are.
        num_chains: Number of chains, at least 2: their spread is the error of log Z.
        seed: Integer from 0 to 2^64 - 1.
        sweeps_per_swap: Sweeps of a call after which chains are paired with the reservoir once more.

    Attributes:
        sweep: Number of sweeps run so far, without those of the snapshots.
        swap_rate: The exchange rate that the last call found.

    Examples:
        >>> from discrete_vae import RBM
        >>> chains = TrajectoryTempering(RBM(3, 2), num_chains=4, seed=0)
        >>> chains.step(10).shape
        torch.Size([4, 5])
        >>> print(chains.log_partition())  # 5 log 2
        log Z = 3.4657 nats (± 0.0000, trajectory tempering)
    """

    reservoir: Reservoir
    _entries: ClassVar = {  # some are older than the names of the buffers
        "z": "_packed",
        "free": "_free",
        "reservoir": "reservoir.packed",
        "reservoir_free": "reservoir.free",
        "rung_parameters_of": "ladder.snapshots",
        "rung_walkers": "ladder.replicas",
        "rung_guess": "ladder.constants",
        "rung_of_lower": "ladder.lower_sums",
        "rung_of_upper": "ladder.upper_sums",
    }

    def __init__(
        self, energy: BoltzmannMachine, num_chains: int, *, seed: int = 0, sweeps_per_swap: int = 100
    ) -> None:
        super().__init__(energy, num_chains, seed)
        if num_chains < 2:
            raise InvalidInputError(
                "num_chains", "must be at least 2", num_chains, "Their spread is the error."
            )
        self.sweeps_per_swap = check_positive_int("sweeps_per_swap", sweeps_per_swap)
        self.swap_rate = 1.0
        device = energy.bias.device
        first = torch.zeros_like(parameters_of(energy))
        states = fair_coins(8, energy.num_units, key=self._key, device=device)
        if bool((machine_with(energy, first).compute_energy(states) != 0).any()):
            rule = "must be 0 where all parameters are 0"
            repair = "Write its energy as a sum of terms that its parameters multiply."
            raise InvalidInputError("energy", rule, "another energy", repair)
        self._check_memory((1 + SETS) * num_chains)
        self.ladder = SnapshotLadder(energy, first, num_chains, seed)
        z = fair_coins((1 + SETS) * num_chains, energy.num_units, key=self._key, device=device)
        self._start(z[:num_chains], z[num_chains:], float(SETS * num_chains))

    @property
    def num_rungs(self) -> int:
        """Snapshots of the ladder."""
        return len(self.ladder)

    @one_at_a_time
    @torch.no_grad()
    def step(self, num_sweeps: int) -> Tensor:
        """Go on from members of the reservoir where that is accepted, then run sweeps on all chains; returns `z`.

        A `TrajectoryWarning` tells of more than three snapshots added at once after the first call.
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
        """log Z of the present machine: that of the last snapshot and Bennett's ratio between it and the chains.

        Where the machine is out of reach of the last snapshot, others are added first, as by `step`. The error is that
        of states in equilibrium; chains that lag behind fast weights add to it.
        """
        pairs = self._catch_up()
        value, influence = self.ladder.log_partition(self.energy)
        weights = pairs.weights(self._free)
        ratio, of_reservoir, error_here = weighted_ratio(
            self.reservoir.work(self.energy),
            pairs.work_here,
            weights,
            num_up=self.reservoir.effective,
            num_down=1 / float(weights.square().sum()),
        )
        # the reservoir was collected from the replicas whose works gave the last gap: their deviations add up
        influence = influence + of_reservoir.view(-1, self.num_chains).mean(0)
        return LogPartition(
            value=value + ratio,
            std_error=math.hypot(float(influence.std()) / math.sqrt(self.num_chains), error_here),
            method="trajectory tempering",
            num_samples=len(self.reservoir) + self.num_chains,
        )

    def _catch_up(self) -> Pairs:
        """Add snapshots until the machine is within reach of the last one; returns the pairs that show it."""
        self._follow()
        if values_are_known(self.energy.bias):
            check_logits(self.energy)
        pairs = self._pair(self.z)
        self.swap_rate = rate = pairs.rate(self._free)
        if rate >= LOW_RATE:
            return pairs
        now = parameters_of(self.energy).to(self.ladder.snapshots)
        added, snapshot = 0, None
        while snapshot is not now:
            if len(self.ladder) == MAX_SNAPSHOTS:
                rule = f"must be within reach over {MAX_SNAPSHOTS} snapshots"
                repair = "Look for a diverged training step, or use ParallelTempering."
                raise InvalidInputError("energy", rule, "more", repair)
            snapshot = now
            if rate < COLLAPSED_RATE:
                snapshot = self.reservoir.reachable(self.energy, self.ladder.snapshots[-1], now)
            states, effective = self.ladder.add(self.energy, snapshot, self.z)
            self._start(self.ladder.states(-1, self.energy.num_units), states, effective)
            added += 1
        if added > _MANY and self.sweep > 0:
            warnings.warn(
                f"the machine changed so much that {added} snapshots were put on the way: its chains are in "
                "equilibrium again, but each one takes time. Where that happens often, lower the step size.",
                TrajectoryWarning,
                stacklevel=3,
            )
        return self._pair(self.z)

    def _start(self, z: Tensor, states: Tensor, effective: float) -> None:
        machine = self.ladder.machine(self.energy, -1)
        self.reservoir = Reservoir(machine, states, effective)
        self._packed = nn.Buffer(pack_bits(z), persistent=False)
        self._free = nn.Buffer(reduced_energy(machine, z), persistent=False)

    def _pair(self, z: Tensor) -> Pairs:
        """Pair each chain, in states z of the present machine, with a member of the reservoir."""
        generator = keyed_generator(self.seed, _PAIR_STREAM, self.sweep)
        slots = torch.randperm(len(self.reservoir), generator=generator, device="cpu")[: len(z)].to(z.device)
        free = reduced_energy(self.energy, z)
        work_here = free - reduced_energy(self.ladder.machine(self.energy, -1), z)
        return Pairs(slots, free, work_here, self.reservoir.work(self.energy, slots))

    def _go_on(self, z: Tensor, pairs: Pairs) -> Tensor:
        """The chains, from members of the reservoir where that is accepted; the first block is to be drawn anew."""
        generator = keyed_generator(self.seed, _PAIR_STREAM, self.sweep, 1)
        accepted = torch.rand(len(z), generator=generator, device="cpu").to(z.device) < pairs.probabilities()
        return torch.where(accepted[:, None], self.reservoir.members(self.energy.num_units, pairs.slots), z)

    def _integers(self) -> dict[str, int]:
        return super()._integers() | {"rung_sweep": self.ladder.sweep}

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {
            "numbers": self._free.new_tensor([self.reservoir.effective, self.swap_rate])
        }

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        parameters, num_chains = state["rung_parameters_of"], self.num_chains
        count = max(1, len(parameters)) if isinstance(parameters, Tensor) and parameters.ndim == 2 else 1
        self._check_entries(
            state,
            name,
            rung_parameters_of=(count, self.ladder.snapshots.shape[1]),
            rung_walkers=(count, *self.ladder.replicas.shape[1:]),
            rung_guess=(count - 1,),
            rung_of_lower=(num_chains, count - 1),
            rung_of_upper=(num_chains, count - 1),
        )
        check_number(name("numbers"), float(state["numbers"][0]), above=0.0, repair="Load the right file.")

    def _take_integers(self, values: Mapping[str, int]) -> None:
        super()._take_integers(values)
        self.ladder.seed, self.ladder.sweep = self.seed, values["rung_sweep"]

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        super()._take_state(state)
        self.reservoir.effective, self.swap_rate = state["numbers"].tolist()
        self.ladder._machines.clear()  # of the snapshots before


# A ladder of parameter snapshots: replica exchange among them, and log Z from its works.


SETS = 10  # states of the last snapshot that are collected, per chain

_SWEEP_STREAM, _SWAP_STREAM = 0x72756E67, 0x65786368
_SWEEPS_PER_ROUND = 4  # as dear as the free energies of an exchange
_THERMALIZING_ROUNDS = 40  # some twenty autocorrelation times of a pair that exchanges at a rate of 0.3
_ROUNDS_PER_SET = 2
_KEPT = 0.8  # of earlier sums at each new snapshot, since early states were further from equilibrium


class SnapshotLadder(nn.Module):
    """Parameter snapshots, the first one of fair coins, each with replicas that trade places with the next one's.

    A round is an exchange of every other pair of neighbors, then some sweeps of all. Exchanges are within a chain, so
    chains stay independent; they keep the law of the units outside the first block, which is all that the next sweep
    reads. The first snapshot is drawn anew by each sweep, exactly, and so fills modes that higher ones do not leave.

    Attributes:
        snapshots: (snapshot, parameter).
        replicas: Their states, (snapshot, chain, byte) uint8.
        constants: Constants of the bridges between neighbors, (gap,) float64, nats.
        lower_sums: Sums of the bridges' terms over states of the lower neighbor, (chain, gap) float64.
        upper_sums: Those of the upper neighbor.
        sweep: Sweeps of each replica so far.
    """

    def __init__(self, energy: BoltzmannMachine, first: Tensor, num_chains: int, seed: int) -> None:
        super().__init__()
        self.seed, self.sweep = seed, 0
        self._machines: list[BoltzmannMachine] = []  # of the snapshots, as far as they were asked for
        empty = torch.zeros(num_chains, 0, dtype=torch.float64, device=first.device)
        z = torch.zeros(num_chains, energy.num_units, dtype=torch.float32, device=first.device)
        self.snapshots = nn.Buffer(first[None], persistent=False)
        self.replicas = nn.Buffer(pack_bits(z)[None], persistent=False)
        self.constants = nn.Buffer(empty[0], persistent=False)
        self.lower_sums = nn.Buffer(empty, persistent=False)
        self.upper_sums = nn.Buffer(empty.clone(), persistent=False)
        self._advance(energy, [z])

    def __len__(self) -> int:
        return len(self.snapshots)

    def machine(self, energy: BoltzmannMachine, index: int) -> BoltzmannMachine:
        """The machine of a snapshot; it must not be changed."""
        device = self.snapshots.device
        if any(machine.bias.device != device for machine in self._machines):
            self._machines.clear()
        for vector in self.snapshots[len(self._machines) :]:
            self._machines.append(machine_with(energy, vector))
        return self._machines[index]

    def states(self, index: int, num_units: int) -> Tensor:
        """The replicas of a snapshot, (chain, unit) float32 in {0,1}."""
        return unpack_bits(self.replicas[index], num_units)

    @torch.no_grad()
    def add(self, energy: BoltzmannMachine, parameters: Tensor, start: Tensor) -> tuple[Tensor, float]:
        """Add a snapshot on top, with replicas that start in (chain, unit), and bring all replicas to equilibrium.

        Returns states of the new snapshot, (set * chain, unit), and the number of independent ones with the same error.
        """
        z = [self.states(index, energy.num_units) for index in range(len(self))] + [start]
        new = len(self)
        self.snapshots = torch.cat([self.snapshots, parameters[None]])
        works = []
        for number in range(_THERMALIZING_ROUNDS):
            found = self._round(energy, z, number)
            if new - 1 in found and number >= _THERMALIZING_ROUNDS // 2:
                works.append(found[new - 1])
        up, down = (torch.cat(parts) for parts in zip(*works, strict=True))
        constant, *_ = weighted_ratio(up, down, torch.full_like(down, 1 / len(down)), num_up=1, num_down=1)
        constants = torch.cat([self.constants, self.constants.new_tensor([constant])])
        sums = [nn.functional.pad(_KEPT * part, (0, 1)) for part in (self.lower_sums, self.upper_sums)]
        sets = []
        for number in range(SETS * _ROUNDS_PER_SET):
            for gap, (up, down) in self._round(energy, z, number).items():
                for total, terms in zip(sums, bridge_term(up, down, constants[gap]), strict=True):
                    total[:, gap] += terms
            if number % _ROUNDS_PER_SET:
                sets.append(z[-1])
        self.constants = constants
        self.lower_sums, self.upper_sums = sums
        collected = torch.cat(sets)
        work = self._work(energy, new - 1, collected)
        return collected, _effective_number(bridge_term(work, work, constants[-1])[1].view(SETS, -1))

    def log_partition(self, energy: BoltzmannMachine) -> tuple[float, Tensor]:
        """log Z of the last snapshot, nats, and what each chain adds to its deviation, (chain,), see `solve_gaps`."""
        gaps, influence = solve_gaps(self.lower_sums, self.upper_sums, self.constants)
        return energy.num_units * math.log(2) + float(gaps.sum()), influence

    def _round(
        self, energy: BoltzmannMachine, z: list[Tensor], number: int
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """Exchange and sweep, in place; returns by gap the works of the lower snapshot's states and of the upper's."""
        generator = keyed_generator(self.seed, _SWAP_STREAM, self.sweep)
        uniforms = torch.rand(len(z), len(z[0]), generator=generator, device="cpu").to(z[0].device)
        works = {}
        for gap in range(number % 2, len(self) - 1, 2):
            both = torch.stack(z[gap : gap + 2])
            up, down = works[gap] = self._work(energy, gap, both).unbind()
            accepted = (uniforms[gap] < exchange_probabilities(down, up))[:, None]
            z[gap], z[gap + 1] = both.where(~accepted, both.flip(0)).unbind()
        self._advance(energy, z)
        return works

    def _work(self, energy: BoltzmannMachine, gap: int, z: Tensor) -> Tensor:
        """F of states for the upper snapshot of a gap less that for the lower one, nats."""
        upper, lower = self.machine(energy, gap + 1), self.machine(energy, gap)
        return reduced_energy(upper, z) - reduced_energy(lower, z)

    def _advance(self, energy: BoltzmannMachine, z: list[Tensor]) -> None:
        key = key_to_seed(self.seed, _SWEEP_STREAM)
        for index, states in enumerate(z):
            z[index] = run_sweeps(
                self.machine(energy, index),
                states,
                _SWEEPS_PER_ROUND,
                key=key,
                first_sweep=self.sweep + 1,
                first_chain=index * len(states),
            )
        self.sweep += _SWEEPS_PER_ROUND
        self.replicas = torch.stack([pack_bits(states) for states in z])


@torch.no_grad()
def machine_with(energy: BoltzmannMachine, parameters: Tensor) -> BoltzmannMachine:
    """A machine of the kind of another one with parameters (parameter,) of its own, which take no gradient."""
    machine = copy.deepcopy(energy).to(parameters.dtype).requires_grad_(False)
    sizes = [parameter.numel() for parameter in machine.parameters()]
    for parameter, part in zip(machine.parameters(), parameters.split(sizes), strict=True):
        parameter.copy_(part.view_as(parameter))
    return machine


@torch.no_grad()
def parameters_of(energy: BoltzmannMachine) -> Tensor:
    """A copy of all parameters of a machine, (parameter,), float32 or wider."""
    vector = parameters_to_vector(energy.parameters())
    return vector.to(torch.promote_types(energy.bias.dtype, torch.float32), copy=True)


def _effective_number(values: Tensor) -> float:
    """Independent values that would have the error of these, (set, chain), whose chains are independent."""
    whole, of_means = float(values.var()), float(values.mean(0).var())
    if not whole > 0:
        return float(values.numel())
    return min(values.shape[1] * whole / of_means, float(values.numel())) if of_means > 0 else 1.0


# The reservoir: states of the last snapshot from which the chains of the present machine may go on.


AIMED_RATE = 0.4
"""Exchange rate of a snapshot that is put between the last one and a machine out of its reach."""

_HALVINGS = 12  # in the search for its place
_FEWEST_EFFECTIVE = 0.3  # share of chains that must carry the reweighting: they lag behind larger changes


@dataclass(frozen=True, eq=False, repr=False)
class Pairs(ShowsShapes):
    """Chains, and the members of the reservoir, (chain,), that they may go on from.

    ``free`` is F of the chains' states for the present machine, (chain,) float64, nats; ``work_here`` is that less F
    for the snapshot, ``work_there`` the same of the members.
    """

    slots: Tensor
    free: Tensor
    work_here: Tensor
    work_there: Tensor

    def weights(self, free_before: Tensor) -> Tensor:
        """Weights of chains that follow an earlier machine, with F as given, for the present one."""
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
    """States of a snapshot, in equilibrium.

    Attributes:
        packed: The states, (state, byte) uint8.
        free: Their F for the snapshot's machine, (state,) float64, nats.
        effective: Number of independent states that would give the same error.
    """

    def __init__(self, machine: BoltzmannMachine, z: Tensor, effective: float) -> None:
        super().__init__()
        self.effective = effective
        self.packed = nn.Buffer(pack_bits(z), persistent=False)
        self.free = nn.Buffer(reduced_energy(machine, z), persistent=False)

    def __len__(self) -> int:
        return len(self.packed)

    def members(self, num_units: int, slots: Tensor | slice = slice(None)) -> Tensor:
        """States, (state, unit) float32 in {0,1}; their first block is to be drawn anew."""
        return unpack_bits(self.packed[slots], num_units)

    def work(self, energy: BoltzmannMachine, slots: Tensor | slice = slice(None)) -> Tensor:
        """F of states for another machine less that for their own, (state,) float64, nats."""
        return reduced_energy(energy, self.members(energy.num_units, slots)) - self.free[slots]

    def reachable(self, energy: BoltzmannMachine, last: Tensor, now: Tensor) -> Tensor:
        """Parameters within reach on the straight line from the last snapshot to the machine; ``now`` if that is.

        The place, for an exchange rate near 0.4, is found by halving the way. The rate is that of the states with each
        other, half of them reweighted; it is good where it is not small.
        """

        def is_near(share: float) -> bool:
            work = self.work(machine_with(energy, last + share * (now - last)))
            weights = (-work).softmax(0)
            return float((weights * exchange_probabilities(work, work.roll(1))).sum()) >= AIMED_RATE

        low = high = 1.0
        if not is_near(1.0):
            low = 0.0
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                low, high = (middle, high) if is_near(middle) else (low, middle)
        return now if high == 1.0 else last + high * (now - last)
