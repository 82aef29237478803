"""What is kept of a finished and evaluated run: enough to make every table again without the run."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from discrete_vae.config import ExperimentConfig
from discrete_vae.config.base import Record
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import read_regular, write_stream, write_text
from discrete_vae.runs.output import write_columns
from reproduction.planned_run import PlannedRun

_COURSE = {"step", "seconds", "elbo", "validation_elbo"}  # what tables read
_DAMAGED = (OSError, EOFError, ValueError, KeyError, AttributeError, RuntimeError)  # what numpy makes of it


class Estimate(Record):
    """A mean in nats with its standard error; None where one example or one draw gives none."""

    value: float
    std_error: float | None


class DataOfRun(Record):
    """Where the data came from."""

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
    log_partition_checks: tuple[Estimate, ...] | None = Field(
        default=None,
        description="log Z by annealing, forward and then in reverse; none where it is exact, None if not kept.",
    )

    @property
    def total_std_error(self) -> float:
        """Standard error of log_likelihood with that of log Z, in quadrature; NaN where there is none."""
        if self.log_likelihood.std_error is None:
            return float("nan")
        return float(np.hypot(self.log_likelihood.std_error, self.log_partition.std_error or 0.0))

    def is_of(self, best: Mapping[str, Any] | None) -> bool:
        """Whether the best checkpoint of a run, as its folder names it, is the one that was evaluated."""
        found = best or {}
        return (found.get("step"), found.get("validation_elbo")) == (self.step, self.validation_elbo)


@dataclass(frozen=True)
class StoredRun:
    """A record with the files beside it.

    Attributes:
        planned: The run.
        record: Its record.
        path: Of the record.
    """

    planned: PlannedRun
    record: RunRecord
    path: Path

    @property
    def examples_path(self) -> Path:
        """The file with the log-likelihood of each test example."""
        return self.path.with_suffix(".npz")

    @property
    def course_path(self) -> Path:
        """The file with the course of training."""
        return self.path.with_suffix(".csv")

    @cached_property
    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the test examples, (example,), and their log-likelihoods, (example,), nats.

        Raises:
            InvalidInputError: If the file is missing or damaged.
        """
        try:
            with self.examples_path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                index, value = arrays["index"], arrays["log_likelihood"].astype(np.float64)
        except (*_DAMAGED, zipfile.BadZipFile, zlib.error) as error:
            rule, repair = "must hold log-likelihoods of examples", _repair(self.planned)
            raise InvalidInputError(str(self.examples_path), rule, str(error)[:80], repair) from None
        if index.shape != value.shape or len(index) != self.record.num_examples:
            rule = f"must hold the {self.record.num_examples} examples of its record"
            raise InvalidInputError(str(self.examples_path), rule, str(index.shape), _repair(self.planned))
        return index, value

    @cached_property
    def course(self) -> dict[str, np.ndarray]:
        """Columns of `thinned_course`, (row,) each, NaN where a step has no value.

        Raises:
            InvalidInputError: If the file is missing or damaged.
        """
        try:
            head, *rows = self.course_path.read_text(encoding="utf-8").splitlines()
            values = np.array([row.split(",") for row in rows], np.float64)
            columns = dict(zip(head.split(","), values.T, strict=True))
            if missing := _COURSE - columns.keys():
                raise ValueError(f"no column {min(missing)}")
            return columns
        except (OSError, ValueError) as error:
            rule, repair = "must hold the course of training", _repair(self.planned)
            raise InvalidInputError(str(self.course_path), rule, str(error)[:80], repair) from None


class RecordStore:
    """The records of runs in a folder: NAME.json, NAME.csv with the course of training, NAME.npz with examples.

    The .json is written last: with it a run is recorded.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, planned: PlannedRun) -> Path:
        """The record of a run."""
        return self.folder / f"{planned.name}.json"

    def read(self, planned: PlannedRun) -> StoredRun | None:
        """The record of a run; None without one, or where it was evaluated otherwise.

        Raises:
            InvalidInputError: If it is damaged, or that of another run.
        """
        path = self.path(planned)
        if not path.exists():
            return None
        try:
            text = read_regular(path).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            received = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise InvalidInputError(
                str(path), "must be readable", received, "Restore it from a copy."
            ) from None
        record = RunRecord.from_json(text, source=str(path))
        planned.check_same(record.config, str(path), _repair(planned))
        if record.config.evaluation != planned.config.evaluation:
            return None
        return StoredRun(planned, record, path)

    def write(
        self,
        planned: PlannedRun,
        record: RunRecord,
        *,
        course: dict[str, np.ndarray],
        index: np.ndarray,
        log_likelihood: np.ndarray,
    ) -> StoredRun:
        """Write a record and what lies beside it.

        Args:
            planned: The run.
            record: Its record.
            course: The course of training, columns of one length.
            index: Numbers of the test examples, (example,).
            log_likelihood: Of each, (example,), nats; kept in float32.

        Raises:
            OSError: If a file cannot be written.
        """
        stored = StoredRun(planned, record, self.path(planned))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_columns(stored.course_path, course, argument="--out")
        arrays = {"index": index.astype(np.int32), "log_likelihood": log_likelihood.astype(np.float32)}
        write_stream(
            stored.examples_path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays)
        )
        write_text(stored.path, record.model_dump_json(indent=2) + "\n")
        return stored


def _repair(planned: PlannedRun) -> str:
    return f"Move the files {planned.name}.* away to have the run made anew, or give another --out."
