"""Everything that is reported about a trained model on test data."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from discrete_vae.config import EvaluationConfig
from discrete_vae.distributed import compute_on_rank_zero
from discrete_vae.evaluation.elbo import MeanElbo, evaluate_elbo
from discrete_vae.evaluation.independent_features import IndependentFeatures, independent_features
from discrete_vae.evaluation.kept_parts import KeptParts
from discrete_vae.evaluation.log_likelihood import (
    PART_SIZE,
    MeanLogLikelihood,
    evaluate_log_likelihood,
    join_log_likelihoods,
)
from discrete_vae.log_partition.estimate import CheckedLogPartition, estimate_log_partition
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.precision import DTYPES, precision_for, precision_of_products
from discrete_vae.records import ShowsTable

_ELBO_DRAWS = 20
_STILL_RISING = 0.1  # nats by the last doubling of the samples
_KEPT_EXAMPLES = PART_SIZE  # a part of an evaluation that is kept: a minute or less


class UnevenWeightsWarning(UserWarning):
    """Few importance samples carry the log-likelihood, which is too low; the message has the numbers and the remedy."""


@dataclass(frozen=True)
class Evaluation(ShowsTable):
    """One evaluation; all values in nats per example.

    The standard errors of log_likelihood and elbo are over examples, given log Z. The error of log Z shifts both as a
    whole and stands beside them, in their log_partition_std_error.

    Attributes:
        log_likelihood: Importance-weighted estimate, zeta sampled: the model as trained.
        log_likelihood_limit: The same in the limit zeta = z (`DiscreteVAE.discretized`); None where smoothing has none.
        elbo: The bound and its parts.
        log_partition: log Z with the method and the error of its estimate.
        seconds: Time it took.
        independent_features: What independent features, fitted to the training examples, reach on the same examples;
            None without those.
    """

    log_likelihood: MeanLogLikelihood
    log_likelihood_limit: MeanLogLikelihood | None
    elbo: MeanElbo
    log_partition: CheckedLogPartition
    seconds: float
    independent_features: IndependentFeatures | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values for evaluation.json; what one draw cannot give is None."""
        limit = self.log_likelihood_limit
        plain = replace(
            self,
            log_likelihood=replace(self.log_likelihood, examples=None),
            log_likelihood_limit=None if limit is None else replace(limit, examples=None),
        )
        values = asdict(plain)
        for name in ("log_likelihood", "log_likelihood_limit", "elbo", "independent_features"):
            part = values[name] or {}
            part |= {name: None for name, v in part.items() if isinstance(v, float) and math.isnan(v)}
            part.pop("examples", None)
        values["log_partition"]["gap"] = self.log_partition.gap
        return values

    def columns(self) -> dict[str, np.ndarray]:
        """A row per example: index, log_likelihood, std_error, ess; those of the limit with limit_ before them.

        log_likelihood and std_error are in nats. `statistics.fmean` of log_likelihood is the value of the whole.
        """
        columns: dict[str, np.ndarray] = {}
        for prefix, estimate in (("", self.log_likelihood), ("limit_", self.log_likelihood_limit)):
            rows = None if estimate is None else estimate.examples
            if rows is not None:
                columns.setdefault("index", rows.index.numpy())
                columns[f"{prefix}log_likelihood"] = rows.value.numpy()
                columns[f"{prefix}std_error"] = rows.std_error.numpy()
                columns[f"{prefix}ess"] = rows.ess.numpy()
        return columns


def evaluate_model(
    model: DiscreteVAE,
    x: Tensor,
    config: EvaluationConfig,
    *,
    chains: Tensor | None = None,
    train: Tensor | None = None,
    indices: Sequence[int] | None = None,
    report: Callable[[int, float], None] | None = None,
    parts: KeptParts | None = None,
) -> Evaluation:
    """Estimate log Z, the log-likelihood and the ELBO.

    Under torchrun the examples are divided among the processes, and every process has the whole result.

    Args:
        model: The model.
        x: (example, feature) or in the event's shape, draws of the likelihood; NaN marks missing values.
        config: Numbers of samples, chains and temperatures, and the seed.
        chains: (chain, unit), states of the prior in the modes that are known; None leaves out what needs them.
        train: Training examples, for what independent features reach; None leaves it out.
        indices: Numbers of the examples in their data set, which key the noise; None means from 0.
        report: Called with the number of examples done and the running mean log-likelihood, in each mode from anew.
        parts: Where parts that are finished are kept, and found by an evaluation that goes on after one was killed; not
            under torchrun. None keeps nothing.

    Returns:
        The estimates with their standard errors.

    Raises:
        InvalidInputError: If `DiscreteVAE.log_likelihood` refuses x.

    Warns:
        UnevenWeightsWarning: If few importance samples carry the log-likelihood.
        LogPartitionWarning: If bridge sampling did not reach the standard error, or its chains do not mix.
        AnnealingDisagreementWarning: If annealing differs from it by more than 0.1 nats and four standard errors.
    """
    start = time.monotonic()

    def estimate() -> CheckedLogPartition:
        return estimate_log_partition(
            model.prior,
            chains=chains,
            std_error=config.log_partition_std_error,
            max_sweeps=config.max_tempered_sweeps,
            num_chains=config.num_annealed_chains,
            num_temperatures=config.num_temperatures,
            seed=config.seed,
        )

    log_partition = compute_on_rank_zero(estimate if parts is None else lambda: parts.log_partition(estimate))
    log_z = log_partition.best.value

    dtype = DTYPES[precision_for(model, config.precision, model.prior.bias.device, rows=config.num_samples)]

    keys = range(len(x)) if indices is None else indices

    def of_rows(
        of_model: DiscreteVAE, rows: slice, told: Callable[[int, float], None] | None
    ) -> MeanLogLikelihood:
        with precision_of_products(of_model, dtype):
            return evaluate_log_likelihood(
                of_model,
                x[rows],
                log_partition=log_z,
                log_partition_std_error=log_partition.best.std_error,
                num_samples=config.num_samples,
                max_memory=config.max_memory,
                seed=config.seed,
                indices=keys[rows],
                report=told,
            )

    def likelihood(of_model: DiscreteVAE, name: str = "limit") -> MeanLogLikelihood:
        if parts is None:
            return of_rows(of_model, slice(None), report)
        found: list[MeanLogLikelihood] = []
        for first in range(0, len(x), _KEPT_EXAMPLES):
            rows = slice(first, first + _KEPT_EXAMPLES)
            compute = partial(of_rows, of_model, rows, _shifted(report, found))
            found.append(parts.log_likelihood(f"{name}-{first}", compute))
        return join_log_likelihoods(found)

    trained = likelihood(model, "trained")
    _look_at_weights(trained)
    limit = None if model.smoothing.sharp_limit() is None else likelihood(model.discretized())
    with precision_of_products(model, dtype):
        elbo = evaluate_elbo(
            model,
            x,
            log_partition=log_z,
            log_partition_std_error=log_partition.best.std_error,
            num_samples=_ELBO_DRAWS,
            seed=config.seed,
        )
    baseline = None if train is None else independent_features(model.likelihood, train, x)
    return Evaluation(trained, limit, elbo, log_partition, time.monotonic() - start, baseline)


def _shifted(
    report: Callable[[int, float], None] | None, found: Sequence[MeanLogLikelihood]
) -> Callable[[int, float], None] | None:
    """A report that counts the examples of the parts before in."""
    if report is None:
        return None
    before = sum(part.num_examples for part in found)
    total = math.fsum(part.value * part.num_examples for part in found)
    return lambda done, mean: report(before + done, (total + done * mean) / (before + done))


def _look_at_weights(found: MeanLogLikelihood) -> None:
    if found.doubling_gain > _STILL_RISING:
        warnings.warn(
            f"the last doubling of the importance samples raised the log-likelihood by {found.doubling_gain:.2f} nats. "
            "Nothing is wrong with the model: the estimate is conservative, still too low by about as much or more, "
            f"and its Monte-Carlo error is understated (median effective number of samples {found.median_ess:.1f} of "
            f"{found.num_samples}). For a closer value give more samples (--num-samples {4 * found.num_samples}).",
            UnevenWeightsWarning,
            stacklevel=3,
        )
