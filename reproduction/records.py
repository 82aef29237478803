"""Planned runs, the records of those that are trained and evaluated, and estimates made of records.

A record is NAME.json; beside it are NAME.csv with the course of training and NAME.npz with the log-likelihood of each
test example. The .json is written last: with it a run is recorded. Tables are made of records alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from discrete_vae.config import ExperimentConfig
from discrete_vae.config.base import Record
from discrete_vae.config.overrides import Override, apply_overrides
from discrete_vae.errors import InvalidInputError
from discrete_vae.presets import first_difference, run_name
from discrete_vae.runs.io import write_stream, write_text
from reproduction.budget import with_epochs
from reproduction.sizes import REFIT_STEPS, Size, load_sized

Changes = tuple[tuple[str, tuple[str, ...]], ...]
"""Settings and their values, as options have them."""


# Planned runs.


class Scale(NamedTuple):
    """Settings that only make a run smaller or larger than its experiment, and what names of runs call them."""

    name: str
    settings: Changes


@dataclass(frozen=True)
class PlannedRun:
    """A run that a table or a figure needs; `plan_run` makes one."""

    experiment: str
    size: Size
    seed: int = 0
    changes: Changes = ()  # settings that differ from the experiment's
    budget: float | None = None  # minutes of training that set its length; None is the experiment's length
    scale: Scale | None = None  # what makes it smaller or larger besides
    refit_steps: int = 0  # by which the posterior is fitted anew before the evaluation
    # a run by whose record a budget sets the length: equal budgets mean equal steps, others equal speed, and
    # validations as far apart; without one, or its record, the steps are timed before the first
    like: PlannedRun | None = field(default=None, compare=False)

    @cached_property
    def name(self) -> str:
        """Name of its folder and its record; equal for equal runs, whichever table they are for."""
        base = f"{self.experiment}-{self.size}"
        if self.scale is not None:
            base += f"-{self.scale.name}"
        if self.budget is not None:
            base += f"-{self.budget:g}-minutes"
        return run_name(base, self.seed, _overrides(self.changes))

    @property
    def overrides(self) -> list[Override]:
        """Every setting that differs from the experiment's, with its values."""
        return _overrides(self.changes if self.scale is None else (*self.scale.settings, *self.changes))

    @cached_property
    def config(self) -> ExperimentConfig:
        """The experiment, with the length that it has without a budget."""
        base = load_sized(self.experiment, self.size)
        return apply_overrides(base, [("seed", [str(self.seed)]), *self.overrides])

    def check_same(self, config: ExperimentConfig, source: str, repair: str) -> None:
        """Check that a config is that of this run; how it is evaluated, and a length set by a budget, do not matter.

        The error names the file that it is from, ``source``, and the first setting that differs.
        """
        expected, settings = self.config, config.training
        if self.budget is not None:
            expected = with_epochs(expected, settings.num_epochs, settings.validate_every, settings.log_every)
        config = config.model_copy(update={"evaluation": expected.evaluation})
        if config != expected:
            option, found, planned = first_difference(config, expected)
            rule = f"must be that of {self}, with {option} {planned}"
            raise InvalidInputError(source, rule, f"{option} {found}", repair)

    def __str__(self) -> str:
        words = [self.experiment, self.size, *([] if self.scale is None else [self.scale.name])]
        words += [f"seed {self.seed}"]
        words += [f"{path.rpartition('.')[2]} {' '.join(values)}" for path, values in self.changes]
        return ", ".join(words if self.budget is None else [*words, f"{self.budget:g} minutes"])


def plan_run(
    experiment: str,
    size: Size,
    *,
    seed: int = 0,
    changes: Mapping[str, Sequence[object]] | None = None,
    budget: float | None = None,
    scale: Scale | None = None,
) -> PlannedRun:
    """A run; changes that change nothing are left out, so that equal runs are equal.

    Changes are values by setting, such as {"training.num-sweeps": [10]}, and count before those of the scale.

    Examples:
        >>> plan_run("mnist-static", "cpu", changes={"model.prior": ["factorial"]}).name
        'mnist-static-cpu-prior-factorial-seed-0'
        >>> plan_run("mnist-static", "cpu", changes={"model.prior.num-left": [64]}, budget=90).name
        'mnist-static-cpu-90-minutes-seed-0'
    """
    whole = PlannedRun(experiment, size, seed, as_changes(changes or {}), budget, scale)
    kept = whole.changes
    for change in whole.changes:
        fewer = tuple(other for other in kept if other != change)
        if PlannedRun(experiment, size, seed, fewer, budget, scale).config == whole.config:
            kept = fewer
    refit_steps = REFIT_STEPS.get(experiment, 0) if size == "large" else 0
    return PlannedRun(experiment, size, seed, kept, budget, scale, refit_steps)


def as_changes(settings: Mapping[str, Sequence[object]]) -> Changes:
    """Settings and their values as options have them."""
    return tuple((path, tuple(map(str, values))) for path, values in settings.items())


def _overrides(changes: Changes) -> list[Override]:
    return [(path, list(values)) for path, values in changes]


# Records.


class Estimate(Record):
    """A mean in nats with its standard error; None where one example or one draw gives none."""

    value: float
    std_error: float | None


class DataOfRun(Record):
    """Origin of the data."""

    name: str
    source: str
    version: str
    sha256: str | None


class RunRecord(Record):
    """One run; all values in nats per test example, errors over test examples given log Z."""

    experiment: str
    size: str
    seed: int
    settings: tuple[str, ...] = Field(description="What was set beyond the experiment's, as options.")
    budget_minutes: float | None = Field(
        description="Minutes that set the run's length; None is its experiment's."
    )
    log_likelihood: Estimate
    log_likelihood_limit: float | None = Field(description="In the limit zeta = z; None where there is none.")
    log_partition: Estimate
    elbo: float
    num_samples: int
    num_examples: int
    epochs: int
    seconds: float = Field(description="Of training.")
    device: str
    commit: str | None
    log_likelihood_limit_std_error: float | None
    elbo_std_error: float | None
    monte_carlo_std_error: float = Field(description="Of log_likelihood, from its importance samples alone.")
    median_ess: float
    doubling_gain: float = Field(description="What the last doubling of the importance samples brought.")
    step: int = Field(description="Of the checkpoint that was evaluated, the best one.")
    num_steps: int
    validation_elbo: float | None
    evaluation_seconds: float
    evaluation_precision: str
    precision: str = Field(description="Of the networks' products in training.")
    num_weights: int
    machine: str = Field(description="Processor, its vector instructions, number of cores.")
    threads: int | None
    modified: bool | None = Field(description="Whether the checkout differed from the commit.")
    version: str
    data: DataOfRun
    config: ExperimentConfig
    refit_steps: int = Field(
        default=0, description="By which the posterior was fitted anew before the evaluation."
    )
    log_partition_checks: tuple[Estimate, ...] | None = Field(
        default=None,
        description="log Z by annealing, forward and then in reverse; none where it is exact, None if not kept.",
    )

    def is_of(self, best: Mapping[str, Any] | None) -> bool:
        """Compare the best checkpoint of a run, as its folder names it, with the one that was evaluated."""
        found = best or {}
        return (found.get("step"), found.get("validation_elbo")) == (self.step, self.validation_elbo)


@dataclass(frozen=True)
class StoredRun:
    """A record with the files beside it."""

    planned: PlannedRun
    record: RunRecord
    path: Path  # of the record

    @cached_property
    def examples(self) -> pd.Series:
        """Log-likelihood of each test example by its number, nats."""
        path, count = self.path.with_suffix(".npz"), self.record.num_examples
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                found = pd.Series(arrays["log_likelihood"].astype(np.float64), arrays["index"])
            if len(found) != count:
                raise ValueError(f"{len(found)} examples")
        except Exception as error:  # whatever numpy makes of a damaged file
            rule = f"must hold the log-likelihoods of the {count} examples of its record"
            raise InvalidInputError(str(path), rule, str(error)[:80], _repair(self.planned)) from None
        return found

    @cached_property
    def history(self) -> pd.DataFrame:
        """Rows of `thin_history`."""
        path = self.path.with_suffix(".csv")
        try:
            found = pd.read_csv(path, dtype=np.float64)
            return found.astype(dict.fromkeys(("step", "seconds", "elbo", "validation_elbo"), np.float64))
        except (OSError, ValueError, KeyError) as error:
            rule, repair = "must hold the course of training", _repair(self.planned)
            raise InvalidInputError(str(path), rule, str(error)[:80], repair) from None


def read_record(folder: Path, planned: PlannedRun) -> StoredRun | None:
    """Read the record of a run; None without one, or where it was refitted or evaluated otherwise."""
    path = folder / f"{planned.name}.json"
    if not path.exists():
        return None
    record = RunRecord.from_json(path.read_text(encoding="utf-8", errors="replace"), source=str(path))
    planned.check_same(record.config, str(path), _repair(planned))
    wanted = planned.config.evaluation, planned.refit_steps
    is_same = (record.config.evaluation, record.refit_steps) == wanted
    return StoredRun(planned, record, path) if is_same else None


def write_record(
    folder: Path, planned: PlannedRun, record: RunRecord, *, history: pd.DataFrame, examples: pd.Series
) -> StoredRun:
    """Write a record, and beside it rows of `thin_history` and the examples as in `StoredRun`, in float32."""
    path = folder / f"{planned.name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    table = history.to_csv(index=False, float_format="%.7g", na_rep="nan")
    write_text(path.with_suffix(".csv"), table)
    arrays = {"index": examples.index.to_numpy(np.int32), "log_likelihood": examples.to_numpy(np.float32)}
    archive = path.with_suffix(".npz")
    write_stream(archive, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    write_text(path, record.model_dump_json(indent=2) + "\n")
    return StoredRun(planned, record, path)


def _repair(planned: PlannedRun) -> str:
    return f"Move the files {planned.name}.* away to have the run made anew, or give another --out."


_QUANTITIES = (
    *("step", "epoch", "seconds", "elbo", "kl_discrete", "kl_continuous"),
    *("validation_elbo", "validation_score", "log_partition", "beta", "learning_rate"),
)


def thin_history(lines: Sequence[Mapping[str, Any]], max_rows: int = 200) -> pd.DataFrame:
    """At most so many steps, at least 2, of a run's log, the last one and validations before others.

    Lines are those of ``metrics.jsonl``, where a step may have several.

    Returns:
        Step, epoch, seconds, and the quantities that the run logged, NaN where a step has none.

    Examples:
        >>> lines = [{"step": 1, "epoch": 0.5, "elbo": -9.0}, {"step": 1, "epoch": 0.5, "validation_elbo": -8.0}]
        >>> thin_history(lines).to_dict("records")
        [{'step': 1, 'epoch': 0.5, 'elbo': -9.0, 'validation_elbo': -8.0}]
    """
    table = pd.DataFrame(lines).groupby("step", as_index=False).last()
    is_kept = pd.Series(False, table.index)
    is_kept.iloc[-1] = True
    if "validation_elbo" in table:
        is_kept |= _evenly(table.validation_elbo.notna(), max_rows // 2)
    is_kept |= _evenly(~is_kept, max_rows - is_kept.sum())
    return table.loc[is_kept, [name for name in _QUANTITIES if name in table]]


def _evenly(mask: pd.Series, count: int) -> pd.Series:
    """At most so many of the places where a mask is set, evenly, the last one included."""
    places = np.flatnonzero(mask)
    if len(places) > count:
        places = places[np.linspace(len(places) - 1, 0, count, endpoint=False).round().astype(int)]
    chosen = pd.Series(False, mask.index)
    chosen.iloc[places] = True
    return chosen


# Estimates.


class Value(NamedTuple):
    """A number, nats where nothing else is said, with its standard error; NaN where there is none."""

    value: float
    std_error: float = math.nan


def mean_log_likelihood(runs: Sequence[StoredRun]) -> Value:
    """Mean over seeds; its error is over test examples and of log Z.

    All seeds are evaluated on the same examples, so their errors over examples do not average out.
    """
    found = [run.record.log_likelihood for run in runs]
    return _mean_likelihood(runs, [each.value for each in found], [each.std_error for each in found])


def mean_limit(runs: Sequence[StoredRun]) -> Value | None:
    """The same in the limit zeta = z; None where there is none."""
    limits = [run.record.log_likelihood_limit for run in runs]
    known = [limit for limit in limits if limit is not None]
    errors = [run.record.log_likelihood_limit_std_error for run in runs]
    return _mean_likelihood(runs, known, errors) if len(known) == len(limits) else None


def _mean_likelihood(
    runs: Sequence[StoredRun], values: Sequence[float], errors: Sequence[float | None]
) -> Value:
    over_examples = fmean(math.nan if error is None else error for error in errors)
    return Value(fmean(values), math.hypot(over_examples, _error_of_log_partition(runs) / len(runs)))


def mean_elbo(runs: Sequence[StoredRun]) -> Value:
    """Mean over seeds of the ELBO; its error is over test examples and of log Z."""
    records = [run.record for run in runs]
    return _mean_likelihood(runs, [r.elbo for r in records], [r.elbo_std_error for r in records])


def spread(runs: Sequence[StoredRun]) -> float:
    """Standard deviation of the log-likelihood over seeds; NaN for one seed."""
    values = [run.record.log_likelihood.value for run in runs]
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def paired_difference(first: Sequence[StoredRun], second: Sequence[StoredRun]) -> Value:
    """Mean over seeds and test examples of log p(x) of the second runs less that of the first, of the same seeds.

    The error is over examples and, in quadrature, over seeds, in whose spread that of log Z is contained; with one seed
    it is over examples and of log Z.
    """
    differences = []
    for one, other in zip(first, second, strict=True):
        if not one.examples.index.equals(other.examples.index):
            rule, received = "must be of the same test examples as the other run", f"others than {one.path}"
            raise InvalidInputError(str(other.path), rule, received, "Evaluate both in one size.")
        differences.append(other.examples.to_numpy() - one.examples.to_numpy())
    values = np.array(differences)  # (seed, example)
    over_seeds = (
        _error_of_mean(values.mean(1)) if len(values) > 1 else _error_of_log_partition([*first, *second])
    )
    return Value(float(values.mean()), math.hypot(_error_of_mean(values.mean(0)), over_seeds))


def _error_of_mean(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def _error_of_log_partition(runs: Sequence[StoredRun]) -> float:
    """Standard error of the sum of log Z over runs."""
    return math.hypot(*(run.record.log_partition.std_error or 0.0 for run in runs))
