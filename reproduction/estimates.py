"""Means over seeds, and differences of runs over the same test examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from discrete_vae.errors import InvalidInputError
from reproduction.record import StoredRun
from reproduction.table import Value


def mean_log_likelihood(runs: Sequence[StoredRun]) -> Value:
    """Mean over seeds; its error is over test examples and of log Z.

    All seeds are evaluated on the same examples, so their errors over examples do not average out.
    """
    records = [run.record for run in runs]
    errors = [record.log_likelihood.std_error for record in records]
    over_examples = fmean(math.nan if error is None else error for error in errors)
    of_log_z = math.hypot(*(record.log_partition.std_error or 0.0 for record in records)) / len(records)
    return Value(fmean(r.log_likelihood.value for r in records), math.hypot(over_examples, of_log_z))


def mean_limit(runs: Sequence[StoredRun]) -> float | None:
    """Mean over seeds of the log-likelihood in the limit zeta = z; None where there is none."""
    limits = [run.record.log_likelihood_limit for run in runs]
    known = [limit for limit in limits if limit is not None]
    return fmean(known) if len(known) == len(limits) else None


def spread(runs: Sequence[StoredRun]) -> float:
    """Standard deviation of the log-likelihood over seeds; NaN for one seed."""
    values = [run.record.log_likelihood.value for run in runs]
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def paired_difference(first: Sequence[StoredRun], second: Sequence[StoredRun]) -> Value:
    """Mean over seeds and test examples of log p(x) of the second runs less that of the first.

    The error is over examples and, in quadrature, over seeds, in whose spread that of log Z is contained; with one seed
    it is over examples and of log Z.

    Args:
        first: Runs, a seed each.
        second: Other runs, of the same seeds.

    Raises:
        InvalidInputError: If examples are missing, or differ.
    """
    differences = []
    for one, other in zip(first, second, strict=True):
        (index, before), (other_index, after) = one.examples, other.examples
        if not np.array_equal(index, other_index):
            rule, repair = "must be of the same test examples as the other run", "Evaluate both in one size."
            raise InvalidInputError(
                str(other.examples_path), rule, f"others than {one.examples_path}", repair
            )
        differences.append(after - before)
    values = np.array(differences)
    if len(values) > 1:
        of_runs = _error_of_mean(values.mean(1))
    else:
        of_runs = math.hypot(*(run.record.log_partition.std_error or 0.0 for run in (*first, *second)))
    return Value(float(values.mean()), math.hypot(_error_of_mean(values.mean(0)), of_runs))


def _error_of_mean(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
