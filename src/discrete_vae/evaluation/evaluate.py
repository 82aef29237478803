"""The evaluation of a trained model on test data, and of its prior."""

from __future__ import annotations

import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.checks import check_examples, check_number, check_positive_int, check_tensor
from discrete_vae.config import EvaluationConfig
from discrete_vae.distributed import all_reduce_shards, compute_on_rank_zero, shard_indices
from discrete_vae.evaluation.diagnostics import ChainHealth, chain_health
from discrete_vae.evaluation.log_likelihood import (
    PART_SIZE,
    ExampleLogLikelihoods,
    MeanLogLikelihood,
    evaluate_log_likelihood,
    join_log_likelihoods,
    standard_error,
)
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.log_partition.bridge import LogPartitionWarning, bennett_log_partition
from discrete_vae.log_partition.estimate import (
    AnnealingDisagreementWarning,
    CheckedLogPartition,
    estimate_log_partition,
)
from discrete_vae.log_partition.exact import MAX_ENUMERATED_UNITS, quick_exact_log_partition
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.evaluation_mode import eval_mode
from discrete_vae.nets.precision import DTYPES, precision_for, precision_of_products
from discrete_vae.records import ShowsTable
from discrete_vae.rng import key_to_seed, keyed_generator
from discrete_vae.runs.io import read_regular, sha256_bytes, write_bytes
from discrete_vae.samplers.gibbs import Sampler

Report = Callable[[int, float], None]
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
        independent_features: Log-likelihood of independent features, fitted to the training examples, on the same ones;
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
            part |= {
                key: None for key, value in part.items() if isinstance(value, float) and math.isnan(value)
            }
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
                for name in ("value", "std_error", "ess"):
                    column = "log_likelihood" if name == "value" else name
                    columns[f"{prefix}{column}"] = getattr(rows, name).numpy()
        return columns


def evaluate_model(
    model: DiscreteVAE,
    x: Tensor,
    config: EvaluationConfig,
    *,
    chains: Tensor | None = None,
    train: Tensor | None = None,
    indices: Sequence[int] | None = None,
    report: Report | None = None,
    parts: KeptParts | None = None,
) -> Evaluation:
    """Estimate log Z, the log-likelihood and the ELBO.

    Under torchrun the examples are divided among the processes, and every process has the whole result.

    Args:
        model: The model.
        x: (example, feature) or in the event's shape, draws of the likelihood; NaN marks missing values.
        config: Numbers of samples, chains and temperatures, and the seed.
        chains: (chain, unit), states of the prior in the modes that are known; None leaves out what needs them.
        train: Training examples, for the baseline of independent features; None leaves it out.
        indices: Numbers of the examples in their data set, which key the noise; None means from 0.
        report: Called with the number of examples done and the running mean log-likelihood, in each mode from anew.
        parts: Store of finished parts, in which an evaluation that goes on after one was killed finds them; not under
            torchrun. None keeps nothing.

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
    settings = {
        "log_partition": log_partition.value,
        "log_partition_std_error": log_partition.std_error,
        "seed": config.seed,
    }
    dtype = DTYPES[precision_for(model, config.precision, model.prior.bias.device, rows=config.num_samples)]
    keys = range(len(x)) if indices is None else indices

    def of_rows(of_model: DiscreteVAE, rows: slice, report: Report | None) -> MeanLogLikelihood:
        sizes = {"num_samples": config.num_samples, "max_memory": config.max_memory}
        with precision_of_products(of_model, dtype):
            return evaluate_log_likelihood(
                of_model, x[rows], indices=keys[rows], report=report, **sizes, **settings
            )

    def likelihood(of_model: DiscreteVAE, name: str) -> MeanLogLikelihood:
        if parts is None:
            return of_rows(of_model, slice(None), report)
        found: list[MeanLogLikelihood] = []
        for first in range(0, len(x), _KEPT_EXAMPLES):
            rows = slice(first, first + _KEPT_EXAMPLES)
            compute = partial(of_rows, of_model, rows, _shifted(report, found))
            found.append(parts.log_likelihood(f"{name}-{first}", compute))
        return join_log_likelihoods(found)

    trained = likelihood(model, "trained")
    _check_weights(trained)
    limit = None if model.smoothing.sharp_limit() is None else likelihood(model.discretized(), "limit")
    with precision_of_products(model, dtype):
        elbo = evaluate_elbo(model, x, num_samples=_ELBO_DRAWS, **settings)
    baseline = None if train is None else independent_features(model.likelihood, train, x)
    return Evaluation(trained, limit, elbo, log_partition, time.monotonic() - start, baseline)


def _shifted(report: Report | None, found: Sequence[MeanLogLikelihood]) -> Report | None:
    """A report that counts the examples of the parts before in."""
    if report is None:
        return None
    before = sum(part.num_examples for part in found)
    total = math.fsum(part.value * part.num_examples for part in found)
    return lambda done, mean: report(before + done, (total + done * mean) / (before + done))


def _check_weights(found: MeanLogLikelihood) -> None:
    if found.doubling_gain > _STILL_RISING:
        warnings.warn(
            f"the last doubling of the importance samples raised the log-likelihood by {found.doubling_gain:.2f} nats. "
            "Nothing is wrong with the model: the estimate is conservative, still too low by about as much or more, "
            f"and its Monte-Carlo error is understated (median effective number of samples {found.median_ess:.1f} of "
            f"{found.num_samples}). For a closer value give more samples (--num-samples {4 * found.num_samples}).",
            UnevenWeightsWarning,
            stacklevel=3,
        )


# The ELBO over a data set.


_BATCH_SIZE = 500
_ELBO_STREAM = 0x656C626F


@dataclass(frozen=True)
class MeanElbo(ShowsTable):
    """Means over examples, in nats.

    Attributes:
        elbo: Mean ELBO.
        elbo_std_error: Its standard error over examples, given log Z.
        reconstruction: Mean log p(x | zeta).
        kl_discrete: Mean KL of the binary latents.
        kl_continuous: Mean KL of the Gaussian layers.
        num_examples: Examples.
        num_samples: Draws per example.
        log_partition_std_error: Standard error of log Z, which shifts elbo as a whole: -1 nat for each nat.
    """

    elbo: float
    elbo_std_error: float
    reconstruction: float
    kl_discrete: float
    kl_continuous: float
    num_examples: int
    num_samples: int
    log_partition_std_error: float = 0.0

    @property
    def total_std_error(self) -> float:
        """Standard error of elbo with that of log Z, in quadrature."""
        return math.hypot(self.elbo_std_error, self.log_partition_std_error)


@torch.no_grad()
def evaluate_elbo(
    model: DiscreteVAE,
    x: Tensor,
    *,
    log_partition: float,
    log_partition_std_error: float = 0.0,
    num_samples: int = 1,
    num_importance_samples: int = 1,
    seed: int = 0,
) -> MeanElbo:
    """Average the ELBO over examples, with the networks' running statistics; or the bound above it.

    Under torchrun the examples are divided among the processes, and every process has the whole result.

    Args:
        model: The model.
        x: (example, feature) or in the event's shape, in the likelihood's domain; NaN marks missing values.
        log_partition: log Z of the prior, nats.
        log_partition_std_error: Its standard error, nats.
        num_samples: Draws of the posterior per example.
        num_importance_samples: As in `DiscreteVAE.elbo`; with more than 1 it is a bound between the ELBO and
            log p(x).
        seed: Seed of the noise; the same seed gives the same noise to every model.

    Returns:
        The estimate; its error comes from the spread over examples, which contains that over draws.
    """
    check_examples("x", x)
    check_positive_int("num_samples", num_samples)
    parts = torch.zeros(len(x), 3, dtype=torch.float64)
    with eval_mode(model) as model:
        for draw in range(num_samples):
            for block in shard_indices(math.ceil(len(x) / _BATCH_SIZE)):
                first = block * _BATCH_SIZE
                rows = slice(first, first + _BATCH_SIZE)
                generator = keyed_generator(seed, _ELBO_STREAM, draw, first, device=x.device)
                elbo = model.elbo(
                    x[rows],
                    log_partition=log_partition,
                    num_importance_samples=num_importance_samples,
                    generator=generator,
                )
                terms = torch.stack([elbo.reconstruction, elbo.kl_discrete, elbo.kl_continuous], -1)
                parts[rows] += terms.double().cpu() / num_samples
    parts = all_reduce_shards(parts)
    value = parts[:, 0] - parts[:, 1] - parts[:, 2]
    return MeanElbo(
        elbo=float(value.mean()),
        elbo_std_error=float(standard_error(value)),
        reconstruction=float(parts[:, 0].mean()),
        kl_discrete=float(parts[:, 1].mean()),
        kl_continuous=float(parts[:, 2].mean()),
        num_examples=len(value),
        num_samples=num_samples,
        log_partition_std_error=log_partition_std_error,
    )


# Independent features: the log-likelihood that a model has to beat.


_ROWS = 4096  # rows in double precision at a time


@dataclass(frozen=True)
class IndependentFeatures(ShowsTable):
    """Mean log-likelihood of examples whose features are independent, in nats.

    Attributes:
        value: Mean over examples.
        std_error: Its standard error over examples; NaN for one example.
        num_examples: Examples.
    """

    value: float
    std_error: float
    num_examples: int


@torch.no_grad()
def independent_features(likelihood: Likelihood, train: Tensor, x: Tensor) -> IndependentFeatures:
    """Log-likelihood of the observed values if features are independent, each with the law that fits the training data.

    The law is the likelihood's own with the same parameters for every example, `Likelihood.fit_marginals_`: for bits
    their means, for real values mean and variance, for counts mean and dispersion, for codes their frequencies; missing
    values count nowhere. A model that stays below has learned less than that.

    Args:
        likelihood: The kind of law; it stays as it is.
        train: Training examples, (example, feature) or in the event's shape.
        x: Examples to score, likewise.

    Examples:
        >>> from discrete_vae.likelihoods.families import BernoulliLikelihood
        >>> coin = BernoulliLikelihood((1,))
        >>> found = independent_features(coin, torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [0.0], [1.0]]))
        >>> round(found.value, 3), found.std_error
        (-0.693, 0.0)
    """
    law = deepcopy(likelihood).cpu().double()
    parameters = law.fit_marginals_(_examples("train", train, law)).double()
    parts = []
    for rows in _examples("x", x, law).split(_ROWS):
        observed = law.observed_mask(law.check(rows))
        parts.append(
            law.log_prob(parameters.expand(len(rows), *law.parameter_shape), rows.double(), observed)
        )
    value = torch.cat(parts)
    return IndependentFeatures(float(value.mean()), float(standard_error(value)), len(value))


def _examples(name: str, x: Tensor, law: Likelihood) -> Tensor:
    """Flat or not, in the event's shape, on the CPU."""
    return check_tensor(name, x.flatten(1), ("example", law.num_features)).cpu().reshape(-1, *law.event_shape)


# Finished parts of an evaluation in a folder, with which one that was killed goes on.


_Found = TypeVar("_Found")
_WARNINGS = {kind.__name__: kind for kind in (LogPartitionWarning, AnnealingDisagreementWarning)}
_ROW_TYPES = {"index": torch.int64} | dict.fromkeys(("value", "std_error", "ess"), torch.float64)


class KeptParts:
    """The parts of one evaluation: log Z, and the log-likelihoods of some examples each.

    A part is there whole or not at all, and holds every digit. It counts only if it has the SHA-256 of its own
    content and names this evaluation and its own place in it; any other is computed anew.

    Args:
        folder: Folder of the parts of evaluations, those of each in a folder of its own. Made when needed.
        key: All that the digits of this evaluation depend on, in words.

    Attributes:
        seconds: Time that it took to compute what was found there.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder, self._key = folder / sha256_bytes(key.encode())[:16], key
        self._warned = False
        self.seconds = 0.0

    def log_partition(self, compute: Callable[[], CheckedLogPartition]) -> CheckedLogPartition:
        """log Z, computed unless it is there; the warnings of then are given again."""

        def compute_fields() -> dict[str, Any]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = TypeAdapter(CheckedLogPartition).dump_python(compute())
            return {"found": found, "said": [(each.category.__name__, str(each.message)) for each in caught]}

        found, said = self._part("log_partition", compute_fields, _log_partition)
        for kind, text in said:
            warnings.warn(text, _WARNINGS.get(kind, UserWarning), stacklevel=3)
        return found

    def log_likelihood(self, name: str, compute: Callable[[], MeanLogLikelihood]) -> MeanLogLikelihood:
        """The log-likelihoods of a part, computed unless they are there."""

        def compute_fields() -> dict[str, Any]:
            found = compute()
            assert found.examples is not None
            rows = {name: getattr(found.examples, name).tolist() for name in _ROW_TYPES}
            return {"found": {**vars(found), "examples": None}, "rows": rows}

        return self._part(name, compute_fields, _log_likelihood)

    def discard(self) -> None:
        """Remove what is kept, when the result has it all."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # the folder around it may keep parts of another evaluation, or not be there
            self._folder.parent.rmdir()

    def _part(
        self, name: str, compute: Callable[[], dict[str, Any]], read: Callable[[dict[str, Any]], _Found]
    ) -> _Found:
        """A part, read from its plain values, which are found in the folder, or computed and kept there."""
        path, of = self._folder / f"{name}.json", f"{self._key} {name}"
        with suppress(Exception):  # whatever a missing, damaged or forged file makes its reader raise
            total, _, content = read_regular(path).partition(b"\n")
            if total.decode() == sha256_bytes(content) and (fields := json.loads(content))["of"] == of:
                found, seconds = read(fields), float(fields["seconds"])
                self.seconds += max(seconds, 0.0)
                return found
        start = time.monotonic()
        fields = compute()
        content = json.dumps({"of": of, "seconds": time.monotonic() - start, **fields}).encode()
        self._keep(path, sha256_bytes(content).encode() + b"\n" + content)
        return read(fields)

    def _keep(self, path: Path, content: bytes) -> None:
        """Write a part; where that fails the evaluation goes on without, as its result is what counts."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes(path, content)
        except OSError as error:
            if not self._warned:
                warnings.warn(
                    f"if this is killed it begins anew, as {self._folder} keeps nothing: {error}",
                    stacklevel=4,
                )
            self._warned = True


def _log_partition(fields: dict[str, Any]) -> tuple[CheckedLogPartition, list[tuple[str, str]]]:
    found = TypeAdapter(CheckedLogPartition).validate_python(fields["found"])
    return found, TypeAdapter(list[tuple[str, str]]).validate_python(fields["said"])


def _log_likelihood(fields: dict[str, Any]) -> MeanLogLikelihood:
    rows = {name: torch.tensor(fields["rows"][name], dtype=dtype) for name, dtype in _ROW_TYPES.items()}
    found = TypeAdapter(dict[str, float | None]).validate_python(fields["found"])
    counts = {name: int(fields["found"][name]) for name in ("num_examples", "num_samples")}
    if {row.shape for row in rows.values()} != {(counts["num_examples"],)}:
        raise ValueError("rows of another number than examples")
    return MeanLogLikelihood(**{**found, **counts, "examples": ExampleLogLikelihoods(**rows)})  # pyright: ignore


# The prior alone: log Z, repeated, and the health of the chains.


@dataclass(frozen=True)
class PriorEvaluation(ShowsTable):
    """Estimates of log Z and the health of the chains.

    Attributes:
        repeated: Independent estimates by bridge sampling.
        exact: The value by enumeration; None where there are too many units.
        chains: The health of the chains of training.
    """

    repeated: RepeatedLogPartition
    exact: LogPartition | None
    chains: ChainHealth

    def to_json(self) -> dict[str, Any]:
        """Plain values for log_partition.json."""
        return {
            "estimates": [asdict(found) for found in self.repeated.estimates],
            "exact": None if self.exact is None else self.exact.value,
            "chains": asdict(self.chains),
        }


def evaluate_prior(
    chains: Sampler,
    config: EvaluationConfig,
    *,
    repeats: int = 1,
    health_sweeps: int = 500,
    report: Callable[[int, LogPartition], None] | None = None,
) -> PriorEvaluation:
    """Estimate log Z of the machine that chains sample, and look at the chains.

    Args:
        chains: The chains of training, which this call advances.
        config: The standard error to go for, how many sweeps, and the seed.
        repeats: Independent estimates.
        health_sweeps: Sweeps of the chains to look at, at least 20.
        report: Called with each estimate and its number from 1, before them with the exact value and 0.

    Warns:
        LogPartitionWarning: If bridge sampling did not reach the standard error, or its chains do not mix.
    """
    prior, std_error = chains.energy, config.log_partition_std_error
    check_number("std_error", std_error, at_least=1e-6, repair="Give nats, for example 0.01.")
    start = chains.step(config.num_chain_sweeps)
    exact = quick_exact_log_partition(prior, MAX_ENUMERATED_UNITS)
    if exact is not None and report is not None:
        report(0, exact)

    def estimate(seed: int) -> LogPartition:
        return bennett_log_partition(
            prior, std_error=std_error, max_sweeps=config.max_tempered_sweeps, start=start, seed=seed
        )

    repeated = repeat_log_partition(estimate, repeats, seed=config.seed, report=report)
    return PriorEvaluation(repeated, exact, chain_health(chains, num_sweeps=health_sweeps))


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
        return fmean(estimate.value for estimate in self.estimates)

    @property
    def std(self) -> float:
        """Standard deviation of the values, nats; NaN for one estimate."""
        return stdev(each.value for each in self.estimates) if len(self.estimates) > 1 else math.nan

    @property
    def rms_std_error(self) -> float:
        """Root mean square of the standard errors of the estimates, nats: what `std` should be."""
        return math.sqrt(fmean(estimate.std_error**2 for estimate in self.estimates))


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
    """
    check_positive_int("repeats", repeats)
    found = list(done[:repeats])
    for number in range(len(found) + 1, repeats + 1):
        found.append(estimate(key_to_seed(seed, _STREAM, number)))
        if report is not None:
            report(number, found[-1])
    return RepeatedLogPartition(tuple(found))
