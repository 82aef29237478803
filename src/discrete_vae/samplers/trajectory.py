"""Parallel trajectory tempering: chains that trade places with states of machines that training has passed."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine, LogPartition
from discrete_vae.checks import check_positive_int, values_are_known
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.gibbs import check_logits, run_sweeps
from discrete_vae.kernels.gibbs_torch import fair_coins
from discrete_vae.log_partition.bridge import bridge_term, solve_gaps, weighted_ratio
from discrete_vae.numerics import softplus_sum
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import key_to_seed, keyed_generator
from discrete_vae.samplers.gibbs import MarkovChains, check_entry, one_at_a_time, pack_bits, unpack_bits

# Machines that stand still while another one is trained: their parameters as vectors, and what states cost in
# them.


@torch.no_grad()
def parameter_vector(energy: BoltzmannMachine) -> Tensor:
    """A copy of all parameters of a machine, (parameter,), float32 or wider."""
    parts = [parameter.flatten() for parameter in energy.parameters()]
    return torch.cat(parts).to(torch.promote_types(energy.bias.dtype, torch.float32), copy=True)


@torch.no_grad()
def frozen_machine(energy: BoltzmannMachine, parameters: Tensor) -> BoltzmannMachine:
    """A machine of the kind of another one with parameters of its own, which take no gradient.

    Args:
        energy: The other one.
        parameters: As `parameter_vector` gives them.
    """
    machine = copy.deepcopy(energy).to(parameters.dtype).requires_grad_(False)
    taken = 0
    for parameter in machine.parameters():
        parameter.grad = None
        parameter.copy_(parameters[taken : taken + parameter.numel()].view_as(parameter))
        taken += parameter.numel()
    return machine


def flat_parameters(energy: BoltzmannMachine, z: Tensor) -> Tensor:
    """The parameters of a machine without energy, whose units are fair coins: 0.

    Args:
        energy: The machine.
        z: Some states, (state, unit) float32 in {0,1}.

    Returns:
        (parameter,), see `parameter_vector`.

    Raises:
        InvalidInputError: If these states have another energy than 0.
    """
    vector = torch.zeros_like(parameter_vector(energy))
    if bool((frozen_machine(energy, vector).compute_energy(z) != 0).any()):
        repair = "Write its energy as a sum of terms that its parameters multiply."
        raise InvalidInputError("energy", "must be 0 where all parameters are 0", "another energy", repair)
    return vector


@torch.no_grad()
def reduced_energy(machine: BoltzmannMachine, z: Tensor) -> Tensor:
    """F of the units outside the first block.

    A sweep draws the first block before it reads it, so it acts on the other units alone, and their law is the one that
    an exchange before a sweep has to keep.

    Args:
        machine: The machine.
        z: (..., unit), in {0,1}.

    Returns:
        (...) float64, nats.
    """
    off = machine.compute_energy_without(z, 0).double()
    return off - softplus_sum(machine.compute_block_logits(z, 0)).double()


def exchange_probabilities(work_here: Tensor, work_there: Tensor) -> Tensor:
    """Probability that states of two machines trade places, min(1, exp(w(x) - w(y))), w = F_here - F_there.

    It leaves the product of both machines' laws of the units outside the first block invariant.

    Args:
        work_here: w of the state x of the one machine, nats.
        work_there: w of the state y of the other.

    Examples:
        >>> exchange_probabilities(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor([1.0000, 0.3679])
    """
    return (work_here - work_there).clamp(max=0).exp()


# A ladder whose rungs are frozen machines: replica exchange among them, and log Z from its works.


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


# States of a frozen machine from which the chains of a machine that has moved on may go on.


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


# The saved state of trajectory tempering.


def check_trajectory_state(
    state: Mapping[str, Any], name: Callable[[str], str], *, num_chains: int, num_units: int, like: Tensor
) -> None:
    """Check that a state is one of chains of a machine of this size and of its past.

    Args:
        state: Its entries.
        name: What messages call an entry.
        num_chains: Chains.
        num_units: Units of the machine.
        like: Parameters of rungs, (any rung, parameter).

    Raises:
        InvalidInputError: If an entry has another shape or type, or holds what is not finite.
    """
    parameters = state["rung_parameters_of"]
    rungs = max(1, len(parameters)) if isinstance(parameters, Tensor) and parameters.ndim == 2 else 1
    num_bytes, members = (num_units + 7) // 8, SETS * num_chains
    for entry, dtype, shape in (
        ("z", torch.uint8, (num_chains, num_bytes)),
        ("free", torch.float64, (num_chains,)),
        ("reservoir", torch.uint8, (members, num_bytes)),
        ("reservoir_free", torch.float64, (members,)),
        ("numbers", torch.float64, (2,)),
        ("rung_parameters_of", like.dtype, (rungs, like.shape[1])),
        ("rung_walkers", torch.uint8, (rungs, num_chains, num_bytes)),
        ("rung_guess", torch.float64, (rungs - 1,)),
        ("rung_of_lower", torch.float64, (num_chains, rungs - 1)),
        ("rung_of_upper", torch.float64, (num_chains, rungs - 1)),
    ):
        value = check_entry(name(entry), state[entry], dtype, shape)
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise InvalidInputError(
                name(entry), "must be finite", "NaN or an infinity", "Load the right file."
            )


# Parallel trajectory tempering: chains that trade places with states of machines that the training has
# passed.


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
