"""Repeated estimates of log Z: does the stated error hold?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.checks import check_positive_int
from discrete_vae.noise import key_to_seed

_STREAM = 0x726570


@dataclass(frozen=True)
class RepeatedLogPartition:
    """Independent estimates of one log Z.

    Source: Rolfe 2017, section log-partition-function (repeats of one model, a histogram of them).

    Attributes:
        estimates: The estimates.
    """

    estimates: tuple[LogPartition, ...]

    @property
    def mean(self) -> float:
        """Mean of the values, nats."""
        return sum(estimate.value for estimate in self.estimates) / len(self.estimates)

    @property
    def std(self) -> float:
        """Standard deviation of the values, nats; NaN for one estimate."""
        if len(self.estimates) < 2:
            return math.nan
        squares = sum((estimate.value - self.mean) ** 2 for estimate in self.estimates)
        return math.sqrt(squares / (len(self.estimates) - 1))

    @property
    def rms_std_error(self) -> float:
        """Root mean square of the standard errors of the estimates, nats: what `std` should be."""
        return math.sqrt(sum(e.std_error**2 for e in self.estimates) / len(self.estimates))


def repeat_log_partition(
    estimate: Callable[[int], LogPartition],
    repeats: int,
    *,
    done: Sequence[LogPartition] = (),
    seed: int = 0,
    report: Callable[[int, LogPartition], None] | None = None,
) -> RepeatedLogPartition:
    """Estimate log Z several times with unrelated seeds, tuning included.

    Args:
        estimate: Takes a seed.
        repeats: Number of estimates.
        done: The first of them, where an earlier call was stopped; they are not made again.
        seed: Integer from 0 to 2^64 - 1.
        report: Called after each that is made with its number, from 1.

    Raises:
        InvalidInputError: If repeats is not a positive integer.

    Examples:
        >>> from discrete_vae import RBM, exact_log_partition
        >>> repeat_log_partition(lambda seed: exact_log_partition(RBM(1, 1)), 3).std
        0.0
    """
    check_positive_int("repeats", repeats)
    found = list(done[:repeats])
    for number in range(len(found) + 1, repeats + 1):
        found.append(estimate(key_to_seed(seed, _STREAM, number)))
        if report is not None:
            report(number, found[-1])
    return RepeatedLogPartition(tuple(found))
