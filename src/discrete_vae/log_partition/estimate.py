"""log Z of any machine: exact where enumeration is quick, else by bridge sampling, with annealing as a check."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine, LogPartition, check_energy
from discrete_vae.checks import check_binary, check_index, check_number, check_positive_int, check_tensor
from discrete_vae.log_partition.annealed import annealed_log_partition
from discrete_vae.log_partition.bridge import bennett_log_partition, sample_bridge
from discrete_vae.log_partition.exact import MAX_ENUMERATED_UNITS, quick_exact_log_partition
from discrete_vae.records import ShowsTable
from discrete_vae.rng import key_to_seed

AGREEMENT = 0.1
"""Nats by which annealing may differ from the estimate before a warning."""

_COMPARED_TO, _COMPARED_SWEEPS = 0.02, 2000  # two seconds for 64 + 64 units


class AnnealingDisagreementWarning(UserWarning):
    """Annealing and bridge sampling differ: log Z, and every likelihood with it, may be off by that much."""


@dataclass(frozen=True)
class CheckedLogPartition(ShowsTable):
    """log Z, exact or by bridge sampling, and its check by annealing.

    Attributes:
        best: The value to use: exact, or by bridge sampling.
        forward: Annealed from t = 0, a check; None where best is exact.
        reverse: Annealed in reverse from the chains, a check; None where best is exact or there are no chains.
    """

    best: LogPartition
    forward: LogPartition | None = None
    reverse: LogPartition | None = None

    @property
    def value(self) -> float:
        """log Z, nats: that of best."""
        return self.best.value

    @property
    def std_error(self) -> float:
        """Standard error of the value, nats; 0 where it is exact."""
        return self.best.std_error

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return str(self.best)

    @property
    def gap(self) -> float | None:
        """Reverse minus forward, nats; None without both."""
        if self.reverse is None or self.forward is None:
            return None
        return self.reverse.value - self.forward.value


def estimate_log_partition(
    energy: BoltzmannMachine,
    *,
    chains: Tensor | None = None,
    std_error: float = 0.003,
    max_sweeps: int = 50_000,
    num_chains: int = 500,
    num_temperatures: int = 2000,
    max_enumerated: int = MAX_ENUMERATED_UNITS,
    seed: int = 0,
    report: Callable[[int, LogPartition], None] | None = None,
) -> CheckedLogPartition:
    """log Z by enumeration where one side is small enough, else by bridge sampling, with annealing as a check.

    Args:
        energy: The machine.
        chains: (chain, unit), states of p in the modes that are known: half of the bridge's chains and reverse
            annealing start there. None leaves both out.
        std_error: Standard error that bridge sampling goes for, nats.
        max_sweeps: Sweeps of bridge sampling, at most.
        num_chains: Chains of annealing in either direction, at most.
        num_temperatures: Temperatures of annealing.
        max_enumerated: Most units to enumerate.
        seed: Seed of all of it.
        report: Called along bridge sampling with the sweeps done and the estimate so far.

    Returns:
        The estimate, with both directions of annealing.

    Warns:
        LogPartitionWarning: If bridge sampling did not reach the standard error, or its chains do not mix.
        AnnealingDisagreementWarning: If annealing in a direction differs from the estimate by more than 0.1 nats and
            four standard errors.

    Examples:
        >>> from discrete_vae import RBM
        >>> print(estimate_log_partition(RBM(3, 40)))  # 43 log 2
        log Z = 29.8053 nats (exact, enumeration)
    """
    check_energy(energy)
    check_number("std_error", std_error, above=0, repair="Ask for a few thousandths of a nat.")
    for name, number in (
        ("max_sweeps", max_sweeps),
        ("num_chains", num_chains),
        ("num_temperatures", num_temperatures),
    ):
        check_positive_int(name, number)
    check_index("max_enumerated", max_enumerated, MAX_ENUMERATED_UNITS + 1, repair="0 never enumerates.")
    key_to_seed(seed)
    if chains is not None:
        check_binary("chains", check_tensor("chains", chains, ("chain", energy.num_units)))
    exact = quick_exact_log_partition(energy, max_enumerated)
    if exact is not None:
        return CheckedLogPartition(exact)
    best = bennett_log_partition(
        energy, std_error=std_error, max_sweeps=max_sweeps, start=chains, seed=seed, report=report
    )
    anneal = partial(annealed_log_partition, energy, num_temperatures=num_temperatures, seed=seed)
    forward = anneal(num_chains=num_chains)
    reverse = None if chains is None else anneal(start=chains[:num_chains])
    for check in (forward, reverse):
        if check is not None:
            _compare(best, check)
    return CheckedLogPartition(best, forward, reverse)


def _compare(best: LogPartition, check: LogPartition) -> None:
    gap = check.value - best.value
    if abs(gap) > max(AGREEMENT, 4 * math.hypot(check.std_error, best.std_error)):
        warnings.warn(
            f"{check.method} gives log Z {gap:+.3f} nats from {best.method} ({check.std_error:.3f} and "
            f"{best.std_error:.3f} standard errors): modes may be missed. Forward annealing misses deep narrow modes, "
            "reverse annealing all modes that its chains do not know; where bridge sampling converged, trust it, "
            "else raise its sweeps.",
            AnnealingDisagreementWarning,
            stacklevel=3,
        )


def quick_log_partition(
    energy: BoltzmannMachine, *, num_chains: int, num_temperatures: int, max_enumerated: int, seed: int = 0
) -> LogPartition:
    """log Z in a second: exact for few units or no weights, else annealed; for display along a training run."""
    found = quick_exact_log_partition(energy, max_enumerated)
    if found is not None:
        return found
    return annealed_log_partition(energy, num_chains=num_chains, num_temperatures=num_temperatures, seed=seed)


def comparable_log_partition(
    energy: BoltzmannMachine,
    *,
    chains: Tensor,
    max_enumerated: int = 16,
    std_error: float = _COMPARED_TO,
    max_sweeps: int | None = None,
    num_chains: int = 100,
    annealing: tuple[int, int] = (200, 300),
    seed: int = 0,
    report: Callable[[int, LogPartition], None] | None = None,
) -> LogPartition:
    """log Z with an error that can be relied on, in seconds: for comparing the bounds of two models.

    Exact for few units or no weights, else by bridge sampling, half of it from the chains. Where that does not
    converge, its own error may miss what separates the modes. Then annealing is a second opinion, and the distance of
    the two counts as an error, in quadrature with both of theirs.

    Args:
        energy: The machine.
        chains: (chain, unit), states of p in the modes that are known, such as those of training.
        max_enumerated: Most units to enumerate.
        std_error: Standard error that bridge sampling goes for, nats.
        max_sweeps: Sweeps of bridge sampling, at most; None is 2,000.
        num_chains: Chains of bridge sampling.
        annealing: Chains and temperatures of annealing.
        seed: Seed of all of it.
        report: Called along bridge sampling with the sweeps done and the estimate so far.
    """
    exact = quick_exact_log_partition(energy, max_enumerated)
    if exact is not None:
        return exact
    found = sample_bridge(
        energy,
        std_error=std_error,
        num_chains=num_chains,
        max_sweeps=_COMPARED_SWEEPS if max_sweeps is None else max_sweeps,
        start=chains,
        seed=seed,
        report=report,
    ).estimate
    if found.converged:
        return found
    annealed_chains, num_temperatures = annealing
    other = annealed_log_partition(
        energy, num_chains=annealed_chains, num_temperatures=num_temperatures, seed=seed
    )
    error = math.hypot(found.std_error, other.std_error, other.value - found.value)
    return replace(found, std_error=error)
