"""log Z of a trained prior by the best means at hand."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import Tensor

from discrete_vae.boltzmann.energy import BoltzmannEnergy
from discrete_vae.log_partition.annealed import annealed_log_partition
from discrete_vae.log_partition.exact import MAX_ENUMERATED_UNITS, exact_log_partition, num_enumerated_units
from discrete_vae.log_partition.record import LogPartition

AGREEMENT = 0.1
"""Nats by which forward and reverse annealing may differ before a warning."""


class AnnealingDisagreementWarning(UserWarning):
    """Forward and reverse annealing differ: log Z, and every likelihood with it, may be off by that much."""


@dataclass(frozen=True)
class PriorLogPartition:
    """log Z and how it was had.

    Attributes:
        best: The value to use: exact, or annealed forward.
        reverse: Annealed in reverse from the chains; None where best is exact or there are no chains.
    """

    best: LogPartition
    reverse: LogPartition | None

    @property
    def gap(self) -> float | None:
        """Reverse minus forward, nats; None without a reverse estimate."""
        return None if self.reverse is None else self.reverse.value - self.best.value


def estimate_log_partition(
    prior: BoltzmannEnergy,
    *,
    chains: Tensor | None = None,
    num_chains: int = 2000,
    num_temperatures: int = 5000,
    max_enumerated: int = MAX_ENUMERATED_UNITS,
    seed: int = 0,
) -> PriorLogPartition:
    """log Z by enumeration where one side is small enough, else by annealing.

    Args:
        prior: The machine.
        chains: (chain, unit), states of p for reverse annealing; None leaves it out.
        num_chains: Chains of forward annealing, and the most that are used of the given ones.
        num_temperatures: Temperatures of either.
        max_enumerated: Most units to enumerate.
        seed: Seed of the annealing.

    Returns:
        The estimate, with both directions of annealing.

    Warns:
        AnnealingDisagreementWarning: If forward and reverse differ by more than 0.1 nats.
    """
    if num_enumerated_units(prior) <= max_enumerated:
        return PriorLogPartition(exact_log_partition(prior), None)
    forward = annealed_log_partition(
        prior, num_chains=num_chains, num_temperatures=num_temperatures, seed=seed
    )
    reverse = None
    if chains is not None:
        start = chains[:num_chains]
        reverse = annealed_log_partition(prior, start=start, num_temperatures=num_temperatures, seed=seed)
    estimate = PriorLogPartition(forward, reverse)
    if estimate.gap is not None and abs(estimate.gap) > AGREEMENT:
        warnings.warn(
            f"reverse annealing gives log Z {estimate.gap:+.3f} nats from forward annealing: the chains may not know "
            "all modes. Anneal over more temperatures, and report likelihoods with both values.",
            AnnealingDisagreementWarning,
            stacklevel=2,
        )
    return estimate
