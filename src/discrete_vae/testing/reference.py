"""What tests compare with: exact quantities of small machines, and checks with a declared false-alarm rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy import special
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.errors import InvalidInputError

# Boltzmann machines, by summing over all states in float64.

MAX_UNITS = 20


def all_states(num_units: int) -> Tensor:
    """Every state of n binary units, (2^n, unit), float64; unit 0 is the lowest bit of the row's number.

    Examples:
        >>> all_states(2).int().tolist()
        [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    if num_units > MAX_UNITS:
        rule = f"must be at most {MAX_UNITS}"
        raise InvalidInputError("num_units", rule, num_units, "Enumerate a smaller machine.")
    return ((torch.arange(1 << num_units)[:, None] >> torch.arange(num_units)) & 1).double()


@dataclass(frozen=True, eq=False)
class Enumeration:
    """A Boltzmann machine, enumerated.

    Attributes:
        states: (state, unit), float64.
        log_prob: log p(z), (state,), float64, differentiable in the parameters.
        log_partition: log Z, float64 scalar, likewise.
    """

    states: Tensor
    log_prob: Tensor
    log_partition: Tensor

    @property
    def prob(self) -> Tensor:
        """p(z), (state,)."""
        return self.log_prob.exp()

    def expectation(self, values: Tensor) -> Tensor:
        """E_p of values given for each state, (state, ...) -> (...)."""
        return torch.tensordot(self.prob, values.double(), dims=1)

    def pair_moments(self) -> Tensor:
        """E_p[z_i z_j], (unit, unit); the diagonal holds E_p[z_i]."""
        return self.states.T @ (self.prob[:, None] * self.states)


def enumerate_machine(energy: BoltzmannMachine) -> Enumeration:
    """Sum over all states through `energy.energy` alone, so it shares nothing with free energies or conditionals."""
    states = all_states(energy.num_units)
    negative = -energy.energy(states)
    log_partition = torch.logsumexp(negative, 0)
    return Enumeration(states, negative - log_partition, log_partition)


def conditional_logits(energy: BoltzmannMachine, unit: int) -> Tensor:
    """log p(z_i = 1 | rest) - log p(z_i = 0 | rest) for each state, from two energies, (state,)."""
    states = all_states(energy.num_units)
    on, off = states.clone(), states.clone()
    on[:, unit], off[:, unit] = 1, 0
    return energy.energy(off) - energy.energy(on)


# Statistical checks; they fail for too few samples.

ALPHA = 1e-6
"""False-alarm rate of one check, all of its components together."""

_MIN_BATCHES = 30
_MIN_EXPECTED_COUNT = 5.0


class TooFewSamplesError(Exception):
    """A statistical check was given too little data to mean anything: it neither passed nor failed."""


def check_mean(
    batch_means: Tensor,
    expected: Tensor,
    *,
    alpha: float = ALPHA,
    resolution: float | None = None,
    rounding: float = 1e-9,
) -> None:
    """Check that independent batch means have the expected mean, component by component.

    Each component's deviation is divided by its standard error over batches; with Student's t in place of the
    normal and Bonferroni over components, a correct estimator fails with probability alpha at most (as far as batch
    means are near normal).

    Args:
        batch_means: (batch, component), means over at least 30 independent batches of equal size.
        expected: (component,), exact values.
        alpha: False-alarm rate of the whole check.
        resolution: Largest standard error with which passing means something; None asks for none.
        rounding: What a mean may be off by beside the standard error, relative to 1 and the expected value's size: that
            of the arithmetic, which is all that components have which do not fluctuate.

    Raises:
        TooFewSamplesError: If there are fewer batches, or the resolution is not reached.
    """
    batch_means, expected = batch_means.double().flatten(1), expected.double().flatten()
    num_batches = len(batch_means)
    if num_batches < _MIN_BATCHES:
        raise TooFewSamplesError(f"{num_batches} batches; at least {_MIN_BATCHES} are needed")
    error = batch_means.std(0) / math.sqrt(num_batches)
    if resolution is not None and float(error.max()) > resolution:
        raise TooFewSamplesError(f"standard error {float(error.max()):.3g} above {resolution:.3g}")
    deviation = batch_means.mean(0) - expected
    slack = rounding * (1 + expected.abs())
    score = deviation.abs() / (error + slack)
    limit = -float(special.stdtrit(num_batches - 1, alpha / (2 * len(expected))))
    worst = int(score.argmax())
    if not float(score[worst]) <= limit:  # a NaN fails too
        raise AssertionError(
            f"component {worst}: mean {float(batch_means.mean(0)[worst]):.6g}, expected {float(expected[worst]):.6g}, "
            f"{float(score[worst]):.1f} standard errors apart (limit {limit:.1f})"
        )


def check_frequencies(counts: Tensor, probabilities: Tensor, *, alpha: float = ALPHA) -> None:
    """Check counts, (cell,), of independent draws against probabilities, (cell,), with Pearson's chi-square.

    Cells that expect fewer than 5 draws are pooled. A drawn cell of probability 0 fails as well.

    Raises:
        TooFewSamplesError: If fewer than two cells expect 5 draws.
    """
    counts, expected = counts.double(), probabilities.double() * counts.double().sum()
    if bool((counts[expected == 0] > 0).any()):
        raise AssertionError("a state of probability 0 was drawn")
    common = expected >= _MIN_EXPECTED_COUNT
    if int(common.sum()) < 2:
        raise TooFewSamplesError(f"{int(counts.sum())} draws over {len(counts)} cells")
    got, want = (torch.cat([part[common], part[~common].sum()[None]]) for part in (counts, expected))
    if float(want[-1]) < _MIN_EXPECTED_COUNT:
        got, want = (torch.cat([part[:-2], part[-2:].sum()[None]]) for part in (got, want))
    chi_square = float(((got - want).square() / want).sum())
    freedom = len(got) - 1
    p_value = float(special.chdtrc(freedom, chi_square))
    if not p_value >= alpha:  # a NaN fails too
        found = f"chi-square {chi_square:.1f} for {freedom} degrees of freedom"
        raise AssertionError(f"{found}, p = {p_value:.2g}")
