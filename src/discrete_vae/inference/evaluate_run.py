"""The evaluation of a trained run, and its log Z, with what is kept between processes."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.config import EvaluationConfig
from discrete_vae.data.splits import DataSplits, subset_indices, training_subset
from discrete_vae.distributed import check_same, compute_on_rank_zero, digest
from discrete_vae.errors import LogPartitionWarning
from discrete_vae.evaluation.evaluate import (
    PART_SIZE,
    ExampleLogLikelihoods,
    IndependentFeatures,
    MeanElbo,
    MeanLogLikelihood,
    evaluate_elbo,
    evaluate_log_likelihood,
    independent_features,
    join_log_likelihoods,
    positive_weights,
)
from discrete_vae.log_partition.estimate import (
    AnnealingDisagreementWarning,
    CheckedLogPartition,
    estimate_log_partition,
)
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import DTYPES, eval_mode, precision_for, precision_of_products
from discrete_vae.records import ShowsTable
from discrete_vae.runs.io import read_regular, sha256_bytes, to_json, write_bytes
from discrete_vae.runs.load import LoadedRun
from discrete_vae.runs.results import evaluation_store, log_partition_store
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.sparse import Examples

Report: TypeAlias = Callable[[int, float], None]
_ELBO_DRAWS = 20
_STILL_RISING = 0.1  # nats by the last doubling of the samples


class UnevenWeightsWarning(UserWarning):
    """Few importance samples carry the log-likelihood, which is too low; the message has the numbers and the remedy."""


@dataclass(frozen=True)
class Evaluation(ShowsTable):
    """One evaluation; all values in nats per example.

    The standard errors of log_likelihood and elbo are over examples, given log Z. The error of log Z shifts both as a
    whole and stands beside them, in their log_partition_std_error.
    """

    log_likelihood: MeanLogLikelihood  # importance-weighted estimate, zeta sampled: the model as trained
    # in the limit zeta = z (`DiscreteVAE.discretized`); None where smoothing has none, or the config leaves it out
    log_likelihood_limit: MeanLogLikelihood | None
    elbo: MeanElbo
    log_partition: CheckedLogPartition
    seconds: float  # that it took
    # log-likelihood of independent features, fitted to the training examples, on the same ones; None without those
    independent_features: IndependentFeatures | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values for evaluation.json; what one draw cannot give is None."""
        values = asdict(self)
        for name in ("log_likelihood", "log_likelihood_limit", "elbo", "independent_features"):
            part = values[name] or {}
            part.pop("examples", None)
            part |= {key: None for key, value in part.items() if value != value}  # of NaN
            if part.get("effective_examples") is None:
                part.pop("effective_examples", None)
        values["log_partition"]["gap"] = self.log_partition.gap
        return values

    def columns(self) -> dict[str, np.ndarray]:
        """A row per example: index, log_likelihood, std_error, ess; those of the limit with limit_ before them.

        log_likelihood and std_error are in nats. `statistics.fmean` of log_likelihood is the value of the whole, with
        weights that of weight, another column.
        """
        columns: dict[str, np.ndarray] = {}
        for prefix, estimate in (("", self.log_likelihood), ("limit_", self.log_likelihood_limit)):
            rows = None if estimate is None else estimate.examples
            if rows is not None:
                columns.setdefault("index", rows.index.numpy())
                columns[f"{prefix}log_likelihood"] = rows.value.numpy()
                columns[f"{prefix}std_error"] = rows.std_error.numpy()
                columns[f"{prefix}ess"] = rows.ess.numpy()
                if rows.weight is not None:
                    columns.setdefault("weight", rows.weight.numpy())
        return columns


def num_modes(model: DiscreteVAE, config: EvaluationConfig) -> int:
    """Modes that an evaluation takes all examples through: 2 with the sharp limit, else 1."""
    return 1 if model.smoothing.sharp_limit() is None or not config.sharp_limit else 2


def evaluate_model(
    model: DiscreteVAE,
    x: Tensor,
    config: EvaluationConfig,
    *,
    condition: Tensor | None = None,
    # (chain, unit), states of the prior in the modes that are known; None leaves out what needs them
    chains: Tensor | None = None,
    train: Examples | None = None,  # for the baseline of independent features; None leaves it out
    indices: Sequence[int] | None = None,
    weights: np.ndarray | None = None,  # (example,), above 0, of the means; None counts all examples alike
    train_weights: np.ndarray | None = None,
    # gets the number of examples done, those of a second mode after the first, and the running mean
    report: Report | None = None,
    parts: KeptParts | None = None,  # not under torchrun; None keeps nothing
) -> Evaluation:
    """Estimate log Z, the log-likelihood and the ELBO; for runs see `evaluate_run`.

    Examples x, condition and indices are those of `evaluate_log_likelihood`.

    Warns:
        UnevenWeightsWarning: If few importance samples carry the log-likelihood.
        LogPartitionWarning: If bridge sampling did not reach the standard error, or its chains do not mix.
        AnnealingDisagreementWarning: If annealing differs from it by more than 0.1 nats and four standard errors.
    """
    start = time.monotonic()
    estimate = partial(_estimate_log_partition, model, config, chains, config.seed)
    log_partition = compute_on_rank_zero(estimate if parts is None else lambda: parts.log_partition(estimate))
    of_z = {"log_partition": log_partition.value, "log_partition_std_error": log_partition.std_error}
    settings: dict[str, Any] = of_z | {"seed": config.seed}
    dtype = DTYPES[precision_for(model, config.precision, model.prior.bias.device, rows=config.num_samples)]
    keys = range(len(x)) if indices is None else indices
    c = model.check_condition(condition, len(x))

    def of_rows(of_model: DiscreteVAE, rows: slice, report: Report | None) -> MeanLogLikelihood:
        sizes = {"num_samples": config.num_samples, "max_memory": config.max_memory}
        of_each = {"condition": None if c is None else c[rows], "indices": keys[rows]}
        with eval_mode(of_model, copied=dtype != torch.float32) as twin, precision_of_products(twin, dtype):
            return evaluate_log_likelihood(twin, x[rows], report=report, **of_each, **sizes, **settings)

    def likelihood(of_model: DiscreteVAE, name: str, report: Report | None) -> MeanLogLikelihood:
        if parts is None:
            whole = of_rows(of_model, slice(None), report)
        else:
            found: list[MeanLogLikelihood] = []
            for first in range(0, len(x), PART_SIZE):  # a minute or less, each
                rows = slice(first, first + PART_SIZE)
                compute = partial(of_rows, of_model, rows, _shifted(report, found))
                found.append(parts.log_likelihood(f"{name}-{first}", compute))
            whole = join_log_likelihoods(found)
        return whole if given is None else whole.weighted(given)

    given = positive_weights(weights, len(x))
    trained = likelihood(model, "trained", report)
    _check_weights(trained)
    limit = None
    if num_modes(model, config) == 2:
        after = report and (lambda done, mean: report(len(x) + done, mean))
        limit = likelihood(model.discretized(), "limit", after)
    with eval_mode(model, copied=dtype != torch.float32) as twin, precision_of_products(twin, dtype):
        elbo = evaluate_elbo(twin, x, condition=c, num_samples=_ELBO_DRAWS, weights=given, **settings)
    of_both = {"train_weights": train_weights, "weights": given}
    baseline = None if train is None else independent_features(model.likelihood, train, x, **of_both)
    return Evaluation(trained, limit, elbo, log_partition, time.monotonic() - start, baseline)


def _estimate_log_partition(
    model: DiscreteVAE, config: EvaluationConfig, chains: Tensor | None, seed: int
) -> CheckedLogPartition:
    return estimate_log_partition(
        model.prior,
        chains=chains,
        std_error=config.log_partition_std_error,
        max_sweeps=config.max_tempered_sweeps,
        num_chains=config.num_annealed_chains,
        num_temperatures=config.num_temperatures,
        seed=seed,
    )


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
            f"the last doubling of the importance samples raised the log-likelihood by {found.doubling_gain:.2f} nats: "
            "the estimate is conservative, still too low by about as much or more, and its Monte-Carlo error is "
            f"understated (median effective number of samples {found.median_ess:.1f} of {found.num_samples}). For a "
            f"closer value give more samples (--num-samples {4 * found.num_samples}).",
            UnevenWeightsWarning,
            stacklevel=3,
        )


# Finished parts of an evaluation in a folder, with which one that was killed goes on.


_WARNINGS = {kind.__name__: kind for kind in (LogPartitionWarning, AnnealingDisagreementWarning)}
_ROW_TYPES = {"index": torch.int64} | dict.fromkeys(("value", "std_error", "ess"), torch.float64)


class KeptParts:
    """The parts of one evaluation: log Z, and the log-likelihoods of some examples each.

    A part holds every digit. It counts only if it has the SHA-256 of its own content and names this evaluation and
    its own place in it; any other is computed anew.
    """

    def __init__(
        self,
        folder: Path,  # of the parts of evaluations, those of each in a folder of its own; made when needed
        key: str,  # all that the digits of this evaluation depend on, in words
    ) -> None:
        self._folder, self._key = folder / sha256_bytes(key.encode())[:16], key
        self._warned = False
        self.seconds = 0.0  # that it took to compute what was found there

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

    def _part(self, name: str, compute: Callable[[], dict[str, Any]], read: Callable[..., Any]) -> Any:
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
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes(path, sha256_bytes(content).encode() + b"\n" + content)
        except OSError as error:  # the evaluation goes on without
            if not self._warned:
                text = f"if this is killed it begins anew, as {self._folder} keeps nothing: {error}"
                warnings.warn(text, stacklevel=3)
            self._warned = True
        return read(fields)


def _log_partition(fields: dict[str, Any]) -> tuple[CheckedLogPartition, list[tuple[str, str]]]:
    form = TypeAdapter(tuple[CheckedLogPartition, list[tuple[str, str]]])
    return form.validate_python((fields["found"], fields["said"]))


def _log_likelihood(fields: dict[str, Any]) -> MeanLogLikelihood:
    rows = {name: torch.tensor(fields["rows"][name], dtype=dtype) for name, dtype in _ROW_TYPES.items()}
    found = TypeAdapter(dict[str, float | None]).validate_python(fields["found"])
    counts = {name: int(fields["found"][name]) for name in ("num_examples", "num_samples")}
    if {row.shape for row in rows.values()} != {(counts["num_examples"],)}:
        raise ValueError("rows of another number than examples")
    return MeanLogLikelihood(**{**found, **counts, "examples": ExampleLogLikelihoods(**rows)})  # pyright: ignore


# The evaluation of a run.


@dataclass(frozen=True)
class RunEvaluation:
    """An evaluation with what it is of.

    Attributes:
        result: The estimates.
        config: The config, with what "auto" was here.
        fields: Plain values of all of it, as a run keeps them.
        parts: What it kept on its way, to be discarded when the result is kept.
    """

    result: Evaluation
    config: EvaluationConfig
    fields: dict[str, Any]
    parts: KeptParts | None = None


def evaluate_run(
    loaded: LoadedRun,
    dataset: DataSplits,
    config: EvaluationConfig | None = None,
    indices: np.ndarray | None = None,
    *,
    parts_folder: Path | None = None,
    report: Callable[[int, float], None] | None = None,
) -> RunEvaluation:
    """Estimate log Z, the log-likelihood and the ELBO of a trained model on test examples, as `dvae evaluate` does.

    Under torchrun the examples are divided among the processes, and every process has the whole result.

    Args:
        loaded: The model with its chains, which this call advances.
        dataset: The run's data.
        config: Numbers of samples, chains and temperatures, and the seed; None takes those of the run's experiment.
        indices: Numbers of the test examples to take; None chooses as many as the config says.
        parts_folder: Folder of finished parts, with which an evaluation that was killed goes on; not under torchrun.
            None keeps nothing.
        report: Called with the number of examples done and the running mean log-likelihood.

    Warns:
        UserWarning: As `evaluate_model`.

    Examples:
        >>> from discrete_vae import load_dataset, load_pretrained
        >>> digits = load_pretrained("digits")
        >>> found = evaluate_run(digits, load_dataset("digits"), digits.config.evaluation, np.arange(3))
        >>> found.result.log_likelihood.num_examples
        3
    """
    config = loaded.config.evaluation if config is None else config
    if indices is None:
        indices = subset_indices(len(dataset.test), config.num_examples)
    x, device = dataset.test[indices], loaded.model.prior.bias.device
    condition = dataset.conditions.get("test")
    given = () if condition is None else (condition[indices],)
    weights = [value for value in loaded.model.state_dict().values() if isinstance(value, Tensor)]
    precision = precision_for(loaded.model, config.precision, device, rows=config.num_samples)
    config = config.model_copy(update={"precision": precision})
    data = [x, indices, *given, *dataset.weights.values()]
    check_same(config=[config], checkpoint=weights, data=data, device=[device.type])
    about = {"data": dataset.name, "data_sha256": dataset.description.sha256, "config": config.model_dump()}
    chains = loaded.chains.step(config.num_chain_sweeps)
    trained_on = training_subset(dataset, loaded.config.training)
    parts = None
    if parts_folder is not None:
        tensors = *weights, chains, x, torch.from_numpy(indices), *given
        key = about | {
            "trained": loaded.config.model_dump(mode="json", exclude={"evaluation"}),
            "tensors": digest(tensors),
            "device": device.type,
            "code": _code(),
            "torch": torch.__version__,
        }
        parts = KeptParts(parts_folder, to_json("key", key))
    result = evaluate_model(
        loaded.model,
        x.to(device),
        config,
        condition=given[0].to(device) if given else None,
        chains=chains,
        train=trained_on.train,
        indices=indices.tolist(),
        weights=dataset.weights["test"][indices] if "test" in dataset.weights else None,
        train_weights=trained_on.weights.get("train"),
        report=report,
        parts=parts,
    )
    if parts is not None:
        result = replace(result, seconds=result.seconds + parts.seconds)
    return RunEvaluation(result, config, about | result.to_json(), parts)


@cache
def _code() -> str:
    total = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()


def log_partition_of_run(run: RunDirectory, loaded: LoadedRun, *, seed: int = 0) -> LogPartition:
    """The better of the most complete that `dvae evaluate` and `dvae log-partition` kept of this prior, else a new one.

    A new one goes for the standard error of the run's evaluation, and starts from its chains, which it advances. The
    estimate's method says where it is from.
    """

    def kept_or_new() -> LogPartition:
        # with another config than that of training a kept result may be of another prior
        kept = [] if loaded.changed_config is not None else list(_kept(run, loaded))
        if kept:
            return min(kept, key=lambda each: (each.converged is False, each.std_error))
        config = loaded.config.evaluation
        chains = loaded.chains.step(config.num_chain_sweeps)
        found = _estimate_log_partition(loaded.model, config, chains, seed).best
        return replace(found, method=f"{found.method}, now")

    return compute_on_rank_zero(kept_or_new)


def _kept(run: RunDirectory, loaded: LoadedRun) -> Iterator[LogPartition]:
    """Estimates of a checkpoint's prior that the run keeps."""
    sources = evaluation_store(run), log_partition_store(run)
    for found in (kept.of_checkpoint(loaded.step, loaded.sums) for kept in sources):
        if found is None or "changed_config" in found[1]:
            continue
        path, fields = found
        method = f"kept in {path.name}"
        if fields.get("exact") is not None:  # beside estimates that are there to be compared with it
            yield LogPartition(fields["exact"], 0.0, method, 1)
            continue
        for each in fields["estimates"] if "estimates" in fields else [fields["log_partition"]["best"]]:
            numbers = each["value"], each["std_error"], method, each.get("num_samples", 0)
            yield LogPartition(*numbers, converged=each.get("converged"))
