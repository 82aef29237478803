"""A sweep: the runs of a table or a figure are trained, evaluated and recorded one after the other.

What is done is skipped, what was stopped goes on. A run is done once its record is there with the config that is asked
for. A released run under the name of a planned one counts as trained, and as refitted if its release says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from discrete_vae import load_run, train
from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.data.splits import DataSplits, subset_indices, warn_of_other_data
from discrete_vae.errors import DiscreteVAEError, InvalidInputError, NonFiniteLossError, naming
from discrete_vae.inference.evaluate_run import RunEvaluation, evaluate_run, num_modes
from discrete_vae.interop.hub import refit_steps
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.runs.load import LoadedRun
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.results import evaluation_store
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.system import in_words
from discrete_vae.training.refit import RunRefit
from discrete_vae.training.run import check_experiment, training_threads
from discrete_vae.training.step import KEY
from reproduction.budget import with_length, with_minutes
from reproduction.records import (
    DataOfRun,
    Estimate,
    PlannedRun,
    RunRecord,
    StoredRun,
    read_record,
    thin_history,
    write_record,
)

_WORTH_SAYING = 5.0  # seconds


class FailedRunError(DiscreteVAEError):
    """A run of a table or a figure has failed; those before it are recorded."""


class StoppedError(Exception):
    """The user has asked to stop; what is done is saved."""


@dataclass(frozen=True)
class Places:
    """Folders and device."""

    runs: Path  # folder of the runs' folders
    out: Path  # folder of records, tables and pictures
    data_dir: str | None = None  # folder of the data sets; None is the user's
    device: torch.device | str = "cpu"


class Sweep:
    """The runs of a table or a figure."""

    def __init__(
        self,
        planned: Sequence[PlannedRun],  # in the order in which they are made
        places: Places,
        *,
        # asked before each step of training and between examples of an evaluation
        stop: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = print,  # takes the lines about how far it is
        # whether a run's record is not enough, and its folder must be there
        needs_model: Callable[[PlannedRun, Sweep], bool] = lambda planned, sweep: False,
        # whether a run whose loss is not finite counts as done, without a record, so that others go on
        may_diverge: bool = False,
    ) -> None:
        self.planned, self.places, self.say = tuple(planned), places, say
        self.stored: dict[PlannedRun, StoredRun] = {}  # with their records, once the sweep is complete
        self._stop, self._needs_model, self._may_diverge = stop, needs_model, may_diverge
        self._num_steps: dict[PlannedRun, int] = {}
        self._data: tuple[object, DataSplits] | None = None

    @property
    def records(self) -> Path:
        """The folder of the records."""
        return self.places.out / "runs"

    def folder(self, planned: PlannedRun) -> RunDirectory:
        """The folder of a run."""
        return RunDirectory(self.places.runs / planned.name)

    def of(self, planned: Sequence[PlannedRun]) -> list[StoredRun]:
        """Some of the runs with their records."""
        return [self.stored[each] for each in planned]

    def check(self) -> None:
        """Stop between two parts of longer work if the user asked to."""
        if self._stop():
            raise StoppedError

    def complete(self) -> None:
        """Train, evaluate and record what is missing."""
        missing = [planned for planned in self.planned if not self._is_done(planned)]
        self._check(missing)
        for planned in missing:
            self.say(self._announcement(planned))
            try:
                with _naming_run(planned):
                    self._train(planned)
                    self._evaluate(planned)
            except FailedRunError as error:
                if not self._may_diverge or not isinstance(error.__cause__, NonFiniteLossError):
                    raise
                self.say(f"{error} The others go on.")
                self.records.mkdir(parents=True, exist_ok=True)
                diverged = {"error": str(error), "config": _trained_as(planned)}
                write_json(self._divergence_path(planned), diverged)
        found = {planned: read_record(self.records, planned) for planned in self.planned}
        self.stored = {planned: stored for planned, stored in found.items() if stored is not None}

    def extend(self, planned: Sequence[PlannedRun], **judged: Any) -> None:
        """Complete more runs, such as those that follow from the first ones; `needs_model`, `may_diverge` as before."""
        more = Sweep(planned, self.places, stop=self._stop, say=self.say, **judged)
        more.complete()
        self.stored |= more.stored

    def find(self, planned: Sequence[PlannedRun]) -> bool:
        """Read the records of more runs if all of them are done; trains nothing."""
        found = {each: read_record(self.records, each) for each in planned}
        known = {each: stored for each, stored in found.items() if stored is not None}
        if is_complete := all(each in known or self._has_diverged(each) for each in planned):
            self.stored |= known
        return is_complete

    # What is there.

    def _divergence_path(self, planned: PlannedRun) -> Path:
        return self.records / f"{planned.name}.diverged.json"

    def _has_diverged(self, planned: PlannedRun) -> bool:
        path = self._divergence_path(planned)
        if not self._may_diverge or not path.exists():
            return False
        repair = "Move the file away to have the run made anew."
        return read_json(path, repair=repair).get("config") == _trained_as(planned)

    def _is_done(self, planned: PlannedRun) -> bool:
        if self._has_diverged(planned):
            return True
        stored = read_record(self.records, planned)
        if stored is None or not self._needs_model(planned, self):
            return stored is not None
        folder = self.folder(planned)
        return (
            self._config_of(planned) is not None
            and _is_trained(folder, stored.record.num_steps)
            and stored.record.is_of(_best(folder))
        )

    def _config_of(self, planned: PlannedRun) -> ExperimentConfig | None:
        """The config in a run's folder, checked to be that of the run; None if the folder holds none yet."""
        folder = self.folder(planned)
        if not folder.config_path.exists():
            return None
        config = folder.read_experiment()
        repair = f"Move {folder.path} away to have the run made anew, or give another --runs."
        planned.check_same(config, str(folder.config_path), repair)
        return config

    def _check(self, missing: Sequence[PlannedRun]) -> None:
        """Find what is wrong with records, folders, settings and data before the first step of the first run."""
        for planned in missing:
            with _naming_run(planned):
                self._check_record(planned)
        # data set by data set, of which one at a time is read
        for planned in sorted(missing, key=lambda each: str(each.config.data)):
            with _naming_run(planned):
                config = self._config_of(planned)
                num_steps = check_experiment(config or planned.config, self.dataset(planned))
                if config is not None or planned.budget is None:
                    self._num_steps[planned] = num_steps

    def _check_record(self, planned: PlannedRun) -> None:
        """Check that the record of a run that is not done leaves room for another."""
        config, path = self._config_of(planned), self.records / f"{planned.name}.json"
        repair = f"Move the files {planned.name}.* away, or give another --out, to have the run made anew."
        if read_record(self.records, planned) is not None:
            rule = f"must have the trained run of {path}, whose model is needed here"
            received = "no run" if config is None else "a run that is not trained to its end, or another one"
            folder = str(self.folder(planned).path)
            raise InvalidInputError(folder, rule, received, f"Copy it there. {repair}")
        if config is None and path.exists():
            rule = "must be evaluated as its size asks now, or its run must be there"
            raise InvalidInputError(str(path), rule, "another evaluation", repair)

    def dataset(self, planned: PlannedRun) -> DataSplits:
        """The data of a run; those of the last one are kept."""
        config = planned.config.data
        if self._data is None or self._data[0] != config:
            self._data = None  # before the next one is read
            self._data = config, instantiate(config, data_dir=self.places.data_dir)
        return self._data[1]

    # How far it is.

    def status(self) -> pd.DataFrame:
        """Steps and times of the runs, NaN where they are not known.

        Returns:
            A row per run, by its name: `steps` that a checkpoint has, `num_steps` of the whole run, `budget` in
            minutes, and `step_seconds` and `evaluation_seconds` as far as they are measured; a run without the latter
            is not recorded.
        """
        return pd.DataFrame([self._status_of(each) for each in self.planned], [p.name for p in self.planned])

    def _status_of(self, planned: PlannedRun) -> dict[str, float]:
        stored, folder = read_record(self.records, planned), self.folder(planned)
        if stored is not None:
            steps = num_steps = logged = stored.record.num_steps
            seconds, evaluation_seconds = stored.record.seconds, stored.record.evaluation_seconds
        else:
            num_steps, evaluation_seconds = self._num_steps.get(planned, math.nan), math.nan
            steps = num_steps if _is_trained(folder, num_steps) else _steps_done(folder)
            seconds, logged = _log_length(folder)
            if self._has_diverged(planned):  # nothing is left to do
                num_steps, evaluation_seconds = steps, 0.0
        return {
            "steps": steps,
            "num_steps": num_steps,
            "budget": math.nan if planned.budget is None else planned.budget,
            "step_seconds": seconds / logged if logged else math.nan,
            "evaluation_seconds": evaluation_seconds,
        }

    def _announcement(self, planned: PlannedRun) -> str:
        """One line about the next run and the time that all of them take."""
        status, number = self.status(), self.planned.index(planned)
        here = status.iloc[number]
        if here.steps == here.num_steps:
            words = f"trained, {here.num_steps:.0f} steps; to be evaluated"
        elif math.isnan(here.num_steps):
            words = "its steps are timed first"
        else:
            words = f"{here.steps:.0f} of {here.num_steps:.0f} steps"
        left = seconds_left(status)
        if math.isnan(left):
            words += "; how long all take is not measured yet"
        elif left > _WORTH_SAYING:
            words += f"; about {in_words(left)} left for all {len(status)}"
        return f"run {number + 1} of {len(status)}: {planned}: {words}"

    # What is missing.

    def _train(self, planned: PlannedRun) -> None:
        folder, dataset = self.folder(planned), self.dataset(planned)
        config = self._config_of(planned)
        with training_threads(config or planned.config, folder.read_environment()):
            if config is None:
                config = self._with_budget(planned, dataset)
            num_steps = check_experiment(config, dataset)
            if not _is_trained(folder, num_steps):
                result = train(config, dataset, folder.path, device=self.places.device, stop=self._stop)
                if result.step < num_steps:
                    raise StoppedError
        self._num_steps[planned] = num_steps

    def _with_budget(self, planned: PlannedRun, dataset: DataSplits) -> ExperimentConfig:
        """The config of a new run, whose length a budget sets by the record of another, or by a timing of its steps."""
        config, minutes = planned.config, planned.budget
        if minutes is None:
            return config
        like = None if planned.like is None else read_record(self.records, planned.like)
        if like is not None:
            found = like.record
            num_steps = found.num_steps
            if found.budget_minutes != minutes:
                num_steps = int(60 * minutes * num_steps / found.seconds)
            validations = max(1, round(num_steps / found.config.training.validate_every))
            config = with_length(config, dataset, num_steps, validations=validations)
        else:
            validations, device = check_experiment(config, dataset), self.places.device
            validations //= config.training.validate_every
            with naming("--budget"):
                config = with_minutes(config, dataset, minutes, validations=validations, device=device)
        num_steps = check_experiment(config, dataset)
        self.say(f"{num_steps} steps take {minutes:g} minutes here: {config.training.num_epochs} epochs")
        return config

    def _evaluate(self, planned: PlannedRun) -> None:
        """Refit the best checkpoint of a run if planned, evaluate it as its size asks, and record the result."""
        self.check()
        dataset, folder = self.dataset(planned), self.folder(planned)
        warn_of_other_data(folder, dataset)
        evaluated, config = self._refit(planned), planned.config.evaluation
        loaded = load_run(evaluated, device=torch.device(self.places.device))
        indices = subset_indices(len(dataset.test), config.num_examples)
        total = num_modes(loaded.model, config) * len(indices)
        with TrainingProgress(0, total, what="evaluating", transient=True) as shown:

            def report(done: int, mean: float) -> None:
                self.check()
                shown.advance(done, f"{mean:.2f} nats")

            parts = evaluated.evaluation_parts_path
            found = evaluate_run(loaded, dataset, config, indices, parts_folder=parts, report=report)
        evaluation_store(evaluated).add(loaded.named | found.fields)
        examples = found.result.log_likelihood.examples
        assert examples is not None
        write_record(
            self.records,
            planned,
            _record(planned, folder, loaded, found, dataset, self._num_steps[planned]),
            history=thin_history(folder.metrics().read()),
            examples=pd.Series(examples.value.numpy(), examples.index.numpy()),
        )
        if found.parts is not None:
            found.parts.discard()

    def _refit(self, planned: PlannedRun) -> RunDirectory:
        """The run to evaluate: the run itself, or the one with its posterior fitted anew, a folder beside it."""
        folder = self.folder(planned)
        if (done := refit_steps(folder)) == planned.refit_steps:
            return folder
        if done:
            rule = f"must be refitted by {planned.refit_steps} steps, or not be refitted yet"
            repair = "Put the run itself there, or a release of it."
            raise InvalidInputError(str(folder.path), rule, f"a refit of {done} steps", repair)
        loaded = load_run(folder, device=torch.device(self.places.device))
        out = folder.path.with_name(f"{folder.path.name}-refit")
        refit = RunRefit(folder, loaded, self.dataset(planned), out, num_steps=planned.refit_steps)
        with TrainingProgress(0, planned.refit_steps, what="fitting the posterior", transient=True) as shown:

            def report(done: int, loss: float) -> None:
                self.check()
                shown.advance(done, f"{loss:.2f} nats")

            refit.run(report)
        return RunDirectory(refit.folder)


def seconds_left(status: pd.DataFrame) -> float:
    """Time that the runs of a sweep still take, from the steps and evaluations that are measured; NaN if none is.

    A run whose steps are not measured counts with its budget, else with the mean of the others.
    """
    left, speed = status.num_steps - status.steps, status.step_seconds
    training = (left * speed).fillna(60 * status.budget).fillna(left * speed.mean()).where(left != 0, 0.0)
    evaluation = 0.0 if status.evaluation_seconds.isna().all() else status.evaluation_seconds.mean()
    return float((training + evaluation)[status.evaluation_seconds.isna()].sum(skipna=False))


@contextmanager
def _naming_run(planned: PlannedRun) -> Iterator[None]:
    """Let errors name the run that they are of; the library's but `InvalidInputError` become a `FailedRunError`."""
    try:
        with naming(str(planned)):
            yield
    except InvalidInputError:
        raise
    except DiscreteVAEError as error:
        raise FailedRunError(f"{planned}: {error}") from error


def _steps_done(folder: RunDirectory) -> int:
    """Steps that a checkpoint of a run has."""
    return max(folder.checkpoints().steps(), default=0)


def _is_trained(folder: RunDirectory, num_steps: float) -> bool:
    """Whether a run has all of its steps; a released one has, though its one checkpoint may be of an earlier step."""
    return folder.release_path.exists() or _steps_done(folder) >= num_steps


def _trained_as(planned: PlannedRun) -> dict[str, Any]:
    return planned.config.model_dump(mode="json", exclude={"evaluation"})


def _best(folder: RunDirectory) -> dict[str, Any]:
    """Step of the best checkpoint and its validation ELBO as training logged it, before any refit."""
    step = (folder.checkpoints().best() or {}).get("step")
    of_step = [line.get("validation_elbo") for line in folder.metrics().read() if line["step"] == step]
    return {"step": step, "validation_elbo": next((elbo for elbo in of_step if elbo is not None), None)}


def _log_length(folder: RunDirectory) -> tuple[float, int]:
    """Seconds and steps that the log of a run has come to."""
    lines = folder.metrics().read()
    seconds = max((float(line.get("seconds", 0.0)) for line in lines), default=0.0)
    return seconds, max((line["step"] for line in lines), default=0)


def _record(
    planned: PlannedRun,
    folder: RunDirectory,
    loaded: LoadedRun,
    found: RunEvaluation,
    dataset: DataSplits,
    num_steps: int,
) -> RunRecord:
    result, environment, about = found.result, folder.read_environment(), dataset.description
    likelihood, limit, prior = result.log_likelihood, result.log_likelihood_limit, result.log_partition
    commit, platform = environment.get("commit") or {}, environment.get("platform") or {}
    device = environment.get("device") or {}
    config = loaded.config.model_copy(update={"evaluation": planned.config.evaluation})
    return RunRecord(
        experiment=planned.experiment,
        size=planned.size,
        seed=planned.seed,
        settings=tuple(f"--{path} {' '.join(values)}" for path, values in planned.overrides),
        budget_minutes=planned.budget,
        log_likelihood=Estimate(value=likelihood.value, std_error=_known(likelihood.std_error)),
        log_likelihood_limit=None if limit is None else limit.value,
        log_partition=Estimate(value=prior.value, std_error=prior.std_error),
        elbo=result.elbo.elbo,
        num_samples=likelihood.num_samples,
        num_examples=likelihood.num_examples,
        epochs=config.training.num_epochs,
        seconds=_log_length(folder)[0],
        device=device.get("name") or device.get("type") or "unknown",
        commit=commit.get("hash"),
        log_likelihood_limit_std_error=None if limit is None else _known(limit.std_error),
        elbo_std_error=_known(result.elbo.elbo_std_error),
        monte_carlo_std_error=likelihood.monte_carlo_std_error,
        median_ess=likelihood.median_ess,
        doubling_gain=likelihood.doubling_gain,
        step=loaded.step,
        num_steps=num_steps,
        validation_elbo=_best(folder)["validation_elbo"],
        evaluation_seconds=result.seconds,
        evaluation_precision=found.config.precision,
        precision=environment.get(KEY, "float32"),
        num_weights=sum(parameter.numel() for parameter in loaded.model.parameters()),
        machine=_machine(platform),
        threads=platform.get("torch_threads"),
        modified=commit.get("modified"),
        version=environment.get("discrete_vae", "unknown"),
        data=DataOfRun(name=dataset.name, source=about.source, version=about.version, sha256=about.sha256),
        config=config,
        refit_steps=planned.refit_steps,
        log_partition_checks=tuple(
            Estimate(value=check.value, std_error=check.std_error)
            for check in (prior.forward, prior.reverse)
            if check is not None
        ),
    )


def _machine(platform: dict[str, Any]) -> str:
    """Processor and cores; the system's name for runs of a version that did not keep the processor's."""
    words = [platform.get("processor") or platform.get("system", "unknown")]
    words += [platform["vector_instructions"]] if "vector_instructions" in platform else []
    return ", ".join([*words, f"{platform.get('cores', 'unknown')} cores"])


def _known(error: float) -> float | None:
    return None if math.isnan(error) else error
