"""The runs of a table or a figure: trained, evaluated and recorded one after the other; what is done is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.data.splits import DataSplits
from discrete_vae.errors import DiscreteVAEError, InvalidInputError, naming
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.budget import with_minutes
from discrete_vae.training.preflight import check_experiment, training_threads
from discrete_vae.training.run import train
from reproduction.evaluated import evaluate_and_record
from reproduction.planned_run import PlannedRun
from reproduction.record import RecordStore, StoredRun
from reproduction.standing import Standing, look, run_of, where_it_stands

RECORDS = "runs"
"""The folder of the records in that of the results."""


class FailedRunError(DiscreteVAEError):
    """A run of a table or a figure has failed; those before it are recorded.

    Args:
        run: The run, in words.
        reason: Why.
    """

    def __init__(self, run: str, reason: str) -> None:
        self.run = run
        self.reason = reason
        super().__init__(run, reason)

    def __str__(self) -> str:
        return f"{self.run}: {self.reason}"


class StoppedError(Exception):
    """The user has asked to stop; what is done is saved."""


@dataclass(frozen=True)
class Places:
    """Where everything is.

    Attributes:
        runs: Folder of the runs' folders.
        out: Folder of records, tables and pictures.
        data_dir: Folder of the data sets; None is the user's.
        device: Where to compute.
    """

    runs: Path
    out: Path
    data_dir: str | None = None
    device: torch.device | str = "cpu"


class Campaign:
    """The runs of a table or a figure.

    Args:
        planned: The runs, in the order in which they are made.
        places: Where everything is.
        stop: Whether to stop; asked before each step and between examples of an evaluation.
        say: Takes the lines about how far it is.
        needs_model: Whether a run's record is not enough, and its folder must be there.
    """

    def __init__(
        self,
        planned: Sequence[PlannedRun],
        places: Places,
        *,
        stop: Callable[[], bool],
        say: Callable[[str], None],
        needs_model: Callable[[PlannedRun], bool] = lambda _: False,
    ) -> None:
        self.planned, self.places = tuple(planned), places
        self.store = RecordStore(places.out / RECORDS)
        self._stop, self._say, self._needs_model = stop, say, needs_model
        self._num_steps: dict[PlannedRun, int] = {}
        self._data: tuple[object, DataSplits] | None = None

    def folder(self, planned: PlannedRun) -> RunDirectory:
        """The folder of a run."""
        return RunDirectory(self.places.runs / planned.name)

    def complete(self) -> list[StoredRun]:
        """Train, evaluate and record what is missing.

        Returns:
            All runs, in their order.

        Raises:
            StoppedError: If the user asked to stop.
            InvalidInputError: If data are missing, or a record or a folder is damaged or another run's; names it.
            FailedRunError: If a run fails in training.
        """
        self._check_all()
        for number, planned in enumerate(self.planned):
            if self._is_done(planned):
                continue
            self._say(where_it_stands(number, self._standings()))
            with _naming_run(planned):
                self._train(planned)
                self._evaluate(planned)
        found = [self.store.read(planned) for planned in self.planned]
        return [stored for stored in found if stored is not None]

    def _is_done(self, planned: PlannedRun) -> bool:
        stored = self.store.read(planned)
        return stored is not None and (not self._needs_model(planned) or self._has_model(stored))

    def _has_model(self, stored: StoredRun) -> bool:
        """Whether a record's own run, trained to its end, is in its folder.

        Raises:
            InvalidInputError: If another run is there.
        """
        record, folder = stored.record, self.folder(stored.planned)
        if run_of(stored.planned, folder) is None:
            return False
        return look(stored.planned, folder, None, record.num_steps).is_trained and record.is_of(
            folder.checkpoints().best()
        )

    def _check_all(self) -> None:
        """Find what is wrong with records, folders, settings and data before the first step of the first run."""
        missing = [planned for planned in self.planned if not self._is_done(planned)]
        for planned in missing:
            with _naming_run(planned):
                self._check_record(planned)
        # by data set, of which one at a time is in memory
        for planned in sorted(missing, key=lambda each: str(each.config.data)):
            with _naming_run(planned):
                known = run_of(planned, self.folder(planned))
                num_steps = check_experiment(known or planned.config, self._dataset(planned.config))
                if known is not None or planned.budget is None:
                    self._num_steps[planned] = num_steps

    def _check_record(self, planned: PlannedRun) -> None:
        """Check that the record of a run that is not done leaves room for another."""
        folder, path = self.folder(planned), self.store.path(planned)
        known, recorded = run_of(planned, folder), self.store.read(planned) is not None
        repair = f"Move the files {planned.name}.* away, or give another --out, to have the run made anew."
        if recorded:
            rule = f"must have the trained run of {path}, whose model is needed here"
            received = "no run" if known is None else "a run that is not trained to its end, or another one"
            raise InvalidInputError(str(folder.path), rule, received, f"Copy it there. {repair}")
        if known is None and path.exists():
            rule = "must be evaluated as its size asks now, or its run must be there"
            raise InvalidInputError(str(path), rule, "another evaluation", repair)

    def _dataset(self, config: ExperimentConfig) -> DataSplits:
        if self._data is None or self._data[0] != config.data:
            self._data = None  # before the next one is read
            self._data = config.data, instantiate(config.data, data_dir=self.places.data_dir)
        return self._data[1]

    def _standings(self) -> list[Standing]:
        return [
            look(planned, self.folder(planned), self.store.read(planned), self._num_steps.get(planned))
            for planned in self.planned
        ]

    def _train(self, planned: PlannedRun) -> None:
        run, dataset = self.folder(planned), self._dataset(planned.config)
        begun = run.read_environment()
        config = run_of(planned, run)
        with training_threads(config or planned.config, begun):
            if config is None:
                config = self._length_set(planned, dataset)
            self._num_steps[planned] = check_experiment(config, dataset)
            if look(planned, run, None, self._num_steps[planned]).is_trained:
                return
            result = train(config, dataset, run.path, device=self.places.device, stop=self._stop)
        if result.step < result.num_steps:
            raise StoppedError

    def _length_set(self, planned: PlannedRun, dataset: DataSplits) -> ExperimentConfig:
        """The config of a new run, whose length a budget sets by a timing of its steps."""
        config, minutes = planned.config, planned.budget
        if minutes is None:
            return config
        validations = self._validations(config, dataset)
        with naming("--budget"):
            config = with_minutes(
                config, dataset, minutes, validations=validations, device=self.places.device
            )
        num_steps = check_experiment(config, dataset)
        self._say(f"{num_steps} steps take {minutes:g} minutes here: {config.training.num_epochs} epochs")
        return config

    def _validations(self, config: ExperimentConfig, dataset: DataSplits) -> int:
        return check_experiment(config, dataset) // config.training.validate_every

    def _evaluate(self, planned: PlannedRun) -> None:
        def check() -> None:
            if self._stop():
                raise StoppedError

        check()
        run = self.folder(planned)
        evaluate_and_record(
            planned,
            run,
            self._dataset(planned.config),
            self.store,
            device=torch.device(self.places.device),
            check=check,
        )


@contextmanager
def _naming_run(planned: PlannedRun) -> Iterator[None]:
    """Let errors name the run that they are of.

    Raises:
        InvalidInputError: That of the block, with the run's name.
        FailedRunError: For another error of the library.
    """
    try:
        with naming(str(planned)):
            yield
    except InvalidInputError:
        raise
    except DiscreteVAEError as error:
        raise FailedRunError(str(planned), str(error)) from error
