"""Bennett's acceptance ratio between neighbors of a ladder, as sums that grow with the run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.records import ShowsShapes
from discrete_vae.samplers.bennett_ratio import bridge_term, solve_gaps

LOW_RATE = 0.3
"""An exchange rate below which the ladder is placed anew, or blamed."""

_ROUND_TRIPS = 10.0  # per chain; fewer may not have met a mode that is rare where barriers are low
_APART = 3.5  # standard errors between parts of the run that must agree


@dataclass(frozen=True, eq=False, repr=False)
class BridgeSums(ShowsShapes):
    """Sums over a stretch of a run, one entry per chain and gap of the ladder.

    They are the terms of `bridge_term`, with c_i a guess of log Z_{i+1} - log Z_i.

    Attributes:
        forward: Sums of exp(c_i - reference) sigmoid(-(w + c_i)) over replica i, (chain, gap).
        backward: Sums of sigmoid(w + c_i) over replica i + 1, (chain, gap).
        squares: Sums over chains of the squares of both terms and of their product at each inner replica,
            (3, gap).
        num_states: States of each chain and replica that were summed.
        round_trips: (chain,), round trips of walkers in the stretch.
    """

    forward: Tensor
    backward: Tensor
    squares: Tensor
    num_states: int
    round_trips: Tensor

    def __add__(self, other: BridgeSums) -> BridgeSums:
        return BridgeSums(
            self.forward + other.forward,
            self.backward + other.backward,
            self.squares + other.squares,
            self.num_states + other.num_states,
            self.round_trips + other.round_trips,
        )

    def of_chains(self, chains: slice) -> BridgeSums:
        """The sums of some chains; squares stay those of all."""
        parts = (self.forward, self.backward, self.round_trips)
        forward, backward, trips = (part[chains] for part in parts)
        return BridgeSums(forward, backward, self.squares, self.num_states, trips)


def bridge_terms(down: Tensor, up: Tensor, guess: Tensor, reference: Tensor) -> BridgeSums:
    """The terms of one state of each chain and replica.

    Args:
        down: F_r - F_{r-1} of the state at replica r, (chain, replica); the first column is ignored.
        up: F_{r+1} - F_r, (chain, replica); the last column is ignored.
        guess: c, (gap,).
        reference: What forward terms are scaled by, (gap,), the same along a run.
    """
    forward, backward = bridge_term(up[:, :-1], down[:, 1:], guess)
    forward = forward * (guess - reference).exp()
    product = torch.zeros(len(guess), dtype=forward.dtype, device=forward.device)
    product[1:] = (forward[:, 1:] * backward[:, :-1]).sum(0)
    squares = torch.stack([forward.square().sum(0), backward.square().sum(0), product])
    trips = torch.zeros(len(forward), dtype=torch.int64, device=forward.device)
    return BridgeSums(forward, backward, squares, 1, trips)


@dataclass(frozen=True, eq=False, repr=False)
class BridgeEstimate(ShowsShapes):
    """log Z_1 - log Z_0 from some sums.

    Attributes:
        gaps: log Z_{i+1} - log Z_i, (gap,), nats.
        influence: What each chain adds to the deviation of their sum, (chain,), nats, mean 0; chains are
            independent, so this contains the correlation along the run and between replicas.
        effective_samples: Independent states per replica that would give the same error.
    """

    gaps: Tensor
    influence: Tensor
    effective_samples: float

    @property
    def value(self) -> float:
        """log Z_1 - log Z_0, nats."""
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
    independent = max(
        float(spread.sum() - 2 * crossed.sum()) / count, 0.0
    )  # variance for one state per replica
    variance = float(influence.var()) / len(influence)
    effective = independent / variance if variance > 0 else float(count)
    return BridgeEstimate(gaps, influence, min(effective, float(count)))


@dataclass(frozen=True)
class RunCheck:
    """Whether a run may end: its estimate so far, and how far parts of it disagree.

    Attributes:
        estimate: The estimate so far.
        drift: Distance of the two halves of the time that is kept, in standard errors.
        disagreement: Distance of the chains that started low from those that started from coins, in standard errors.
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

    def warning_text(self, std_error: float, num_sweeps: int) -> str:
        """The numbers and the remedies."""
        estimate = self.estimate
        rates = estimate.swap_rates or (1.0,)
        text = (
            f"log Z = {estimate.value:.4f} +- {estimate.std_error:.4f} nats after {num_sweeps} sweeps, where "
            f"a standard error of {std_error:g} was asked for: {estimate.round_trips:.1f} round trips per chain "
            f"({_ROUND_TRIPS:g} are wanted), exchange rates from {min(rates):.2f} to {max(rates):.2f}, the halves of "
            f"the run {self.drift:.1f} and chains with different starts {self.disagreement:.1f} standard errors apart. "
        )
        if min(rates) < LOW_RATE:
            text += "Some neighbors hardly exchange: raise num_chains, so that the ladder is tuned on more states. "
        if (estimate.round_trips or 0.0) < _ROUND_TRIPS or max(self.drift, self.disagreement) > _APART:
            return text + "The chains mix slowly and the stated error may be too small: raise max_sweeps."
        return text + "Raise max_sweeps or num_chains, or ask for less."


def drift(first: BridgeEstimate, second: BridgeEstimate) -> float:
    """Distance of two parts of the same chains in standard errors."""
    spread = float((first.influence - second.influence).std()) / math.sqrt(len(first.influence))
    return _in_errors(first.value - second.value, spread)


def disagreement(first: BridgeEstimate, second: BridgeEstimate) -> float:
    """Distance of two sets of chains in standard errors."""
    return _in_errors(first.value - second.value, math.hypot(first.std_error, second.std_error))


def _in_errors(distance: float, spread: float) -> float:
    """0 where nothing fluctuates."""
    return abs(distance) / spread if spread > 1e-7 else (0.0 if abs(distance) < 1e-4 else math.inf)
