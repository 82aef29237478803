"""log Z by Bennett's acceptance ratio along a tempered path, and its gradient from samples."""

from __future__ import annotations

import math
import operator
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine, LogPartition, check_energy
from discrete_vae.checks import DIVERGED, check_binary, check_number, check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError, LogPartitionWarning
from discrete_vae.kernels.gibbs import check_logits
from discrete_vae.numerics import softplus_sum
from discrete_vae.records import ShowsShapes, with_error
from discrete_vae.rng import key_to_seed
from discrete_vae.samplers.tempering import ModeJumps, ParallelTempering, local_minima

_STREAM = 0x62656E
_MODES = 12  # local minima, whose pairs make the jumps between modes
_JUMPED = 2e-4  # jumps of the coldest replicas per sweep below which they are given up
_TUNING_ROUNDS = 12  # each of the sampler's window; a ladder that stands still ends them early


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
    and then held, unless a rate falls below 0.3 in the first quarter of the run. Of each state the block of units that
    helps most is summed out. The first half of the run is dropped. The constant of each bridge is the estimate from the
    run so far, so the terms of a sweep are unbiased; the estimate is a logarithm of ratios of means, hence consistent,
    not unbiased.

    Chains that start from coins fall into wide modes and may meet a deep, narrow one too seldom to notice. So one
    half of the chains starts from low states of the energy, or from states that the caller knows, and both halves
    must agree; and between low states the chains jump (`ModeJumps`). The run ends when they do, the standard error,
    taken over independent chains and therefore with all correlation inside a chain, is at most the one asked for,
    the chains have made 10 round trips on average in the half that is kept, and its two halves agree.

    Source: Rolfe 2017, section log-partition-function; Bennett 1976. Deviation: the constants are those of the
    earlier part of the run in place of a self-consistent solution, which costs variance of second order only.

    Args:
        energy: The machine.
        std_error: Standard error to reach, nats.
        num_chains: Independent chains of replicas, at least 20.
        max_sweeps: Sweeps a replica after tuning at which the run ends, in whole blocks and 96 at least.
        start: (state, unit), states in the modes of p that are known, such as the chains of training; half of the
            chains start there. None looks for local minima of the energy.
        seed: Integer from 0 to 2^64 - 1.
        report: Called at each check with the sweeps done and the estimate so far.

    Returns:
        The estimate, with the ladder and the health of the chains.

    Warns:
        LogPartitionWarning: If max_sweeps ended the run.

    Examples:
        >>> from discrete_vae import RBM
        >>> print(bennett_log_partition(RBM(2, 2)))  # 4 log 2
        log Z = 2.7726 nats (± 0.0000, bridge sampling)
    """
    found = sample_bridge(
        energy,
        std_error=std_error,
        num_chains=num_chains,
        max_sweeps=max_sweeps,
        start=start,
        seed=seed,
        report=report,
    )
    if not found.estimate.converged:
        warnings.warn(found.warning_text(std_error), LogPartitionWarning, stacklevel=2)
    return found.estimate


def sample_bridge(
    energy: BoltzmannMachine,
    *,
    std_error: float,
    num_chains: int,
    max_sweeps: int,
    start: Tensor | None,
    seed: int,
    report: Callable[[int, LogPartition], None] | None = None,
) -> RunCheck:
    """`bennett_log_partition` without its warning; returns the last check of the run, which has the estimate."""
    begin = time.monotonic()
    check_number("std_error", std_error, above=0, repair="Ask for a few thousandths of a nat.")
    check_positive_int("max_sweeps", max_sweeps)
    if check_positive_int("num_chains", num_chains) < 20:
        raise InvalidInputError("num_chains", "must be at least 20", num_chains, "Their spread is the error.")
    check_logits(check_energy(energy))
    sampler = ParallelTempering(energy, num_chains, seed=key_to_seed(seed, _STREAM))
    half = num_chains // 2
    if start is not None:
        check_binary("start", check_tensor("start", start, ("state", energy.num_units)))
        if len(start) == 0:
            raise InvalidInputError("start", "must hold a state", "none", "Leave it out to look for minima.")
    minima = local_minima(energy, max(half, _MODES), seed=seed)
    known = minima if start is None else start
    sampler.start_from(known[torch.arange(half, device=known.device) % len(known)])
    sampler.jumps = ModeJumps(energy, minima[:_MODES], seed=key_to_seed(seed, _STREAM))
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
        finished = num_sweeps >= max_sweeps and len(run.blocks) >= _MIN_BLOCKS
        if run.num_sweeps < run.next_check and not finished:
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
            return replace(found, estimate=estimate)
        # a mode may have come up that the ladder was not tuned for
        lowest = min(estimate.swap_rates or (1.0,))
        if num_sweeps < max_sweeps // 4 and lowest < LOW_RATE and sampler.retune():
            run, earlier = BridgeRun(sampler), num_sweeps


# A run: sums over blocks of sweeps, and checks of what they give.


_BLOCK_SWEEPS = 12
_STRIDES = ((4, 8.0), (2, 3.0), (1, 0.0))  # sweeps per measured state, from which autocorrelation time on
_MIN_BLOCKS, _GROWTH, _MAX_BLOCKS = 8, 1.2, 256


class BridgeRun:
    """The sums of a run in blocks, of which the first half is dropped at each check."""

    def __init__(self, sampler: ParallelTempering) -> None:
        self.sampler = sampler
        self.unit_block, self.reference = self._choose_block()
        self.constants = self.reference
        self.blocks: list[BridgeSums] = []
        self.sweeps_per_block = _BLOCK_SWEEPS
        self.stride = 1
        self.num_sweeps = 0
        self.next_check = _MIN_BLOCKS * _BLOCK_SWEEPS

    def add_block(self) -> None:
        """Run some sweeps and sum the terms of their states."""
        trips_before = self.sampler.round_trips.clone()
        terms = []
        for _ in range(self.sweeps_per_block // self.stride):
            self.sampler.step(self.stride)
            down, up = self._work(self.unit_block)
            terms.append(bridge_terms(down, up, self.constants, self.reference))
        self.num_sweeps += self.sweeps_per_block
        trips = self.sampler.round_trips - trips_before
        self.blocks.append(replace(_total(terms), round_trips=trips))
        if len(self.blocks) == _MAX_BLOCKS:
            self.blocks = [a + b for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True)]
            self.sweeps_per_block *= 2

    def check(self) -> RunCheck:
        """The estimate from what is kept, which gives the constants of the bridges to come.

        Sums that are not finite are refused: neighbors of the ladder have no states in common.
        """
        self.next_check = math.ceil(self.num_sweeps * _GROWTH)
        sampler = self.sampler
        kept = self.blocks[len(self.blocks) // 2 :]
        middle = len(kept) // 2
        halves = [_total(kept[:middle]), _total(kept[middle:])]
        total = _total(halves)
        solved = solve_bridge(total, self.reference)
        if not math.isfinite(solved.value):
            sizes = {name: float(p.detach().abs().max()) for name, p in sampler.energy.named_parameters()}
            name = max(sizes, key=lambda name: sizes[name])
            rule = "must be small enough for replicas at neighboring temperatures to overlap"
            received = f"a largest absolute value of {sizes[name]:g}"
            raise InvalidInputError(f"energy.{name}", rule, received, DIVERGED)
        self.constants = solved.gaps
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
        half = sampler.num_chains // 2
        starts = total.of_chains(slice(half)), total.of_chains(slice(half, None))
        by_time, by_start = ([solve_bridge(p, self.reference) for p in parts] for parts in (halves, starts))
        apart = max(_distance(*by_time, same_chains=True), _distance(*by_start, same_chains=False))
        return RunCheck(estimate, apart)

    def _work(self, block: int) -> tuple[Tensor, Tensor]:
        """Work down and up the ladder at each replica, (chain, replica), with a block summed out."""
        sampler = self.sampler
        ladder = sampler.inverse_temperatures
        place = sampler.order.argsort(1)  # replica of each walker
        below, above = ladder[(place - 1).clamp_min(0)], ladder[(place + 1).clamp_max(len(ladder) - 1)]
        ways = (below, ladder[place], above)
        down, up = tempered_work(sampler.energy, sampler.walkers, block, ways, energies=sampler.energies)
        return down.gather(1, sampler.order), up.gather(1, sampler.order)

    def _choose_block(self) -> tuple[int, Tensor]:
        """The block whose summing out leaves the least variance, and first bridge constants."""
        sweeps = []
        for _ in range(_BLOCK_SWEEPS):
            self.sampler.step(1)
            works = [torch.stack(self._work(block)) for block in range(len(self.sampler.energy.blocks))]
            sweeps.append(torch.stack(works))
        work = torch.stack(sweeps, 2)  # (block, direction, sweep, chain, replica)
        forward, backward = work[:, 1, ..., :-1].flatten(1, 2), work[:, 0, ..., 1:].flatten(1, 2)
        spread = (forward.var(1) + backward.var(1)).sum(1)
        best = int(spread.argmin())
        return best, -(forward[best].mean(0) + backward[best].mean(0)) / 2


# Sums over a run, and the estimate from them.


LOW_RATE = 0.3
"""An exchange rate below which the ladder is placed anew, or blamed."""

_ROUND_TRIPS = 10.0  # per chain; fewer may not have met a mode that is rare where barriers are low
_APART = 3.5  # standard errors between parts of the run that must agree


@dataclass(frozen=True, eq=False, repr=False)
class BridgeSums(ShowsShapes):
    """Sums of `bridge_term` over a stretch of a run, one entry per chain and gap of the ladder."""

    forward: Tensor  # of exp(c_i - reference) sigmoid(-(w + c_i)) over replica i, (chain, gap)
    backward: Tensor  # of sigmoid(w + c_i) over replica i + 1, (chain, gap)
    squares: Tensor  # of both terms, over chains, and of their product at each inner replica, (3, gap)
    num_states: int  # of each chain and replica that were summed
    round_trips: Tensor  # in the stretch, (chain,)

    def __add__(self, other: BridgeSums) -> BridgeSums:
        return BridgeSums(*map(operator.add, vars(self).values(), vars(other).values()))

    def of_chains(self, chains: slice) -> BridgeSums:
        """The sums of some chains; squares stay those of all."""
        trips = self.round_trips[chains]
        return BridgeSums(self.forward[chains], self.backward[chains], self.squares, self.num_states, trips)


def _total(parts: Sequence[BridgeSums]) -> BridgeSums:
    return reduce(operator.add, parts)


def bridge_terms(down: Tensor, up: Tensor, constants: Tensor, reference: Tensor) -> BridgeSums:
    """Sums of one state of each chain and replica, from its works down and up the ladder, (chain, replica).

    The ends of the ladder have no work beyond, and theirs is ignored. ``reference`` scales the forward terms, (gap,),
    the same along a run.
    """
    forward, backward = bridge_term(up[:, :-1], down[:, 1:], constants)
    forward = forward * (constants - reference).exp()
    product = torch.zeros(len(constants), dtype=forward.dtype, device=forward.device)
    product[1:] = (forward[:, 1:] * backward[:, :-1]).sum(0)
    squares = torch.stack([forward.square().sum(0), backward.square().sum(0), product])
    trips = torch.zeros(len(forward), dtype=torch.int64, device=forward.device)
    return BridgeSums(forward, backward, squares, 1, trips)


@dataclass(frozen=True, eq=False, repr=False)
class BridgeEstimate(ShowsShapes):
    """log Z_{i+1} - log Z_i of each gap, (gap,), nats, with the influence of the chains (`solve_gaps`)."""

    gaps: Tensor
    influence: Tensor
    effective_samples: float

    @property
    def value(self) -> float:
        """The sum over all gaps, nats."""
        return float(self.gaps.sum())

    @property
    def std_error(self) -> float:
        """Standard error of the value over chains, nats."""
        return float(self.influence.std()) / math.sqrt(len(self.influence))


def solve_bridge(sums: BridgeSums, reference: Tensor) -> BridgeEstimate:
    """The estimate from sums that have the same reference.

    Source: Bennett 1976, eqs. 8 and 12; Rolfe 2017, section log-partition-function.
    """
    forward, backward = sums.forward.mean(0), sums.backward.mean(0)
    gaps, influence = solve_gaps(sums.forward, sums.backward, reference)
    # the same variance if all states were independent: a state serves the gaps on both of its sides
    count = len(sums.forward) * sums.num_states
    mean_forward, mean_backward = forward / sums.num_states, backward / sums.num_states
    spread = sums.squares[0] / mean_forward.square() + sums.squares[1] / mean_backward.square() - 2 * count
    crossed = sums.squares[2, 1:] / (mean_forward[1:] * mean_backward[:-1]) - count
    # variance for one state per replica
    independent = max(float(spread.sum() - 2 * crossed.sum()) / count, 0.0)
    variance = float(influence.var()) / len(influence)
    effective = independent / variance if variance > 0 else float(count)
    return BridgeEstimate(gaps, influence, min(effective, float(count)))


@dataclass(frozen=True)
class RunCheck:
    """The estimate of a run so far, and how far parts of it disagree, in standard errors.

    The parts are the two halves of the time that is kept, and the chains that started low and those from coins.
    """

    estimate: LogPartition
    apart: float

    def reaches(self, std_error: float) -> bool:
        """True if the run may end."""
        mixes = (self.estimate.round_trips or 0.0) >= _ROUND_TRIPS
        return self.estimate.std_error <= std_error and mixes and self.apart <= _APART

    def warning_text(self, std_error: float) -> str:
        """The numbers and the remedies."""
        found = self.estimate
        rates, trips = found.swap_rates or (1.0,), found.round_trips or 0.0
        text = (
            f"log Z = {with_error(found.value, found.std_error, 4)} nats after {found.num_sweeps} sweeps, where "
            f"{std_error:g} was asked for: {trips:.1f} round trips per chain ({_ROUND_TRIPS:g} are wanted), exchange "
            f"rates from {min(rates):.2f} to {max(rates):.2f}, parts of the run {self.apart:.1f} standard errors "
            "apart. "
        )
        if min(rates) < LOW_RATE:
            text += "Some neighbors hardly exchange: raise num_chains, so that the ladder is tuned on more states. "
        if trips < _ROUND_TRIPS or self.apart > _APART:
            return text + "The chains mix slowly and the stated error may be too small: raise max_sweeps."
        return text + "Raise max_sweeps or num_chains, or ask for less."


def _distance(first: BridgeEstimate, second: BridgeEstimate, *, same_chains: bool) -> float:
    """Distance of two estimates in standard errors; 0 where nothing fluctuates."""
    spread = math.hypot(first.std_error, second.std_error)
    if same_chains:
        spread = float((first.influence - second.influence).std()) / math.sqrt(len(first.influence))
    distance = abs(first.value - second.value)
    return distance / spread if spread > 1e-7 else (0.0 if distance < 1e-4 else math.inf)


# Bennett's acceptance ratio: log Z_1 - log Z_0 of two machines from the works of states of both.


_HALVINGS = 60  # of a bracket of at most some thousand nats


def bridge_term(up: Tensor, down: Tensor, constant: Tensor) -> tuple[Tensor, Tensor]:
    """Terms, in (0, 1), of states of a machine 0 and of a machine 1 for the ratio of their Z.

    With w = F_1 - F_0, E_0[sigmoid(-(w + c))] = exp(log Z_1 - log Z_0 - c) E_1[sigmoid(w + c)] for every c that the
    states had no part in; the variance is least where c is the answer. ``up`` and ``down`` are w of states of machine 0
    and 1, ``constant`` is c, all in nats.
    """
    return torch.sigmoid(-(up + constant)), torch.sigmoid(down + constant)


def solve_gaps(forward: Tensor, backward: Tensor, constants: Tensor) -> tuple[Tensor, Tensor]:
    """log Z_1 - log Z_0 from sums of as many forward as backward terms, (chain, gap), and constants c, (gap,), nats.

    Returns it for each gap, (gap,), nats; and the influence of each chain on the sum, (chain,), mean 0. Independent
    chains give the standard error by its spread, which contains all correlation within a chain.

    Source: Bennett 1976, eq. 8.
    """
    of_0, of_1 = forward.mean(0), backward.mean(0)
    return constants + of_0.log() - of_1.log(), (forward / of_0 - backward / of_1).sum(1)


def weighted_ratio(
    up: Tensor, down: Tensor, weights: Tensor, *, num_up: float, num_down: float
) -> tuple[float, Tensor, float]:
    """log Z_1 - log Z_0 at the self-consistent constant, from states of machine 1 that carry weights.

    ``up`` and ``down`` are as in `bridge_term`, (state,); the weights of the latter sum to 1; the numbers are effective
    ones. Returns the estimate, consistent, nats; the influence of each state of machine 0, (state,), mean 0; and the
    standard error that the states of machine 1 bring, as if the effective number were of independent ones.

    Source: Bennett 1976, eqs. 8 and 12. Deviation: effective numbers stand for the counts of states.
    """
    shift = math.log(num_up / num_down)
    works = torch.cat([up, down])
    low, high = -works.max() - abs(shift) - 1, -works.min() + abs(shift) + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        of_0, of_1 = bridge_term(up, down, middle + shift)
        above = num_up * of_0.mean() > num_down * (weights * of_1).sum()
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    value = (low + high) / 2
    of_0, of_1 = bridge_term(up, down, value + shift)
    variance_1 = (weights * (of_1 / (weights * of_1).sum() - 1).square()).sum() / num_down
    return float(value), of_0 / of_0.mean() - 1, math.sqrt(float(variance_1))


@torch.no_grad()
def tempered_work(
    energy: BoltzmannMachine,
    z: Tensor,
    block: int,
    inverse_temperatures: Sequence[float | Tensor],
    *,
    energies: Tensor | None = None,
) -> list[Tensor]:
    """F_u - F_t for neighbors t, u of some temperatures, with F_t the free energy at t of all units outside a block.

    F_t = t E(z, block off) - sum_j softplus(t l_j), so one product with the weights serves all temperatures. Sums and
    differences are taken in float64: free energies of some hundred nats, rounded to float32 one by one, would cancel.

    Each temperature is a number or (...), as z is (..., unit), and so are the results, float64, nats. ``energies``,
    E(z), where they are known, save a second product with machines that have pairs outside the block.
    """
    logits = energy.compute_block_logits(z, block).double()
    if energies is None:
        off = energy.compute_energy_without(z, block).double()
    else:
        off = energies.double() + (z[..., energy.block_place(block)] * logits).sum(-1)
    free = []
    for t in inverse_temperatures:
        scale = t.double() if isinstance(t, Tensor) else t
        scaled = logits * (scale[..., None] if isinstance(scale, Tensor) else scale)
        free.append(scale * off - softplus_sum(scaled))
    return [after - before for before, after in pairwise(free)]
