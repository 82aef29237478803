"""The folder of one run: which file is where, and what may be done to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import unicode_path
from discrete_vae.runs.atomic import is_temporary, remove_temporaries, write_text
from discrete_vae.runs.checkpoint_store import CheckpointStore
from discrete_vae.runs.checksums import sha256_file
from discrete_vae.runs.json_files import EnvironmentSchema, read_json
from discrete_vae.runs.lock import LOCK_NAME
from discrete_vae.runs.metrics import MetricsLog
from discrete_vae.runs.regular_files import read_regular

_FOLDERS = ("checkpoints", "evaluations", "evaluation-parts", "log_partitions", "figures", "tensorboard")


class RunDirectory:
    """The folder of one run; make one with `create` or `open`.

    Attributes:
        path: The folder.
        config_path: ``config.json``, the resolved config; its presence makes the folder a run.
        environment_path: ``environment.json``: versions, commit, seed, device.
        metrics_path: ``metrics.jsonl``, one JSON object per line.
        checkpoints_path: ``checkpoints``, which holds a folder ``step-N`` a checkpoint.
        best_path: ``best.json``, the step of the best checkpoint and what made it the best.
        evaluation_path: ``evaluation.json``, the fullest evaluation; the folder ``evaluations`` has all of them.
        evaluation_parts_path: ``evaluation-parts``, what evaluations that are not finished have done.
        figures_path: ``figures``.
        refit_path: ``refit.json``, there if the run's posterior is one that `dvae refit` fitted anew.
        release_path: ``release.json``, there if the run is one that `dvae release` made of another.
        tensorboard_path: ``tensorboard``, the events that `dvae train --logger tensorboard` writes.
        profile_path: ``profile.json``, the trace of single steps that `dvae train --profile` leaves.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = RunDirectory.create(Path(folder, "run"))
        ...     run.write_config('{"seed": 0}')
        ...     RunDirectory.open(run.path).read_config()
        '{"seed": 0}'
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.environment_path = path / "environment.json"
        self.metrics_path = path / "metrics.jsonl"
        self.checkpoints_path = path / "checkpoints"
        self.best_path = path / "best.json"
        self.evaluation_path = path / "evaluation.json"
        self.evaluation_parts_path = path / "evaluation-parts"
        self.figures_path = path / "figures"
        self.refit_path = path / "refit.json"
        self.release_path = path / "release.json"
        self.profile_path = path / "profile.json"
        self.tensorboard_path = path / "tensorboard"

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """Make the folder of a new run, with its parents; an empty folder is taken as it is.

        Args:
            path: Where; ``~`` is the home directory.

        Raises:
            InvalidInputError: If the path is a file, a folder that holds anything, or cannot be made.
        """
        folder = cls.check_new(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            received = f"{folder} ({error.strerror})"
            raise InvalidInputError(
                "run_dir", "must be a folder that can be made", received, "Give another --run-dir."
            ) from None
        return cls(folder)

    @staticmethod
    def check_new(path: str | Path, *, argument: str = "run_dir") -> Path:
        """Return the folder of a new run if it may be made; touches nothing.

        Args:
            path: Where; ``~`` is the home directory.
            argument: What messages call it.

        Raises:
            InvalidInputError: If the path is empty or a file, or a folder that holds anything.
        """
        folder = unicode_path(argument, path)
        repair = f"Give another {'--run-dir' if argument == 'run_dir' else argument}."
        if folder.exists() and not folder.is_dir():
            raise InvalidInputError(argument, "must be a folder", f"the file {folder}", repair)
        if folder.is_dir():
            entries = sorted(
                entry.name
                for entry in folder.iterdir()
                if entry.name != LOCK_NAME and not is_temporary(entry)  # which a killed process leaves
            )
            if entries:
                received = (
                    f"{folder}, which holds {', '.join(entries[:3])}{', ...' if len(entries) > 3 else ''}"
                )
                if argument == "run_dir" and (folder / "config.json").is_file():
                    repair = f"{repair[:-1]}, or continue: dvae train --resume --run-dir {folder}."
                raise InvalidInputError(argument, "must be a new or empty folder", received, repair)
        return folder

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the folder of an existing run.

        Args:
            path: Where; ``~`` is the home directory.

        Raises:
            InvalidInputError: If there is no such folder, it holds no ``config.json``, or one of its folders is a link
                out of it.
        """
        folder = unicode_path("run_dir", path)
        if not os.path.isdir(folder):  # noqa: PTH112 (False where a name is too long)
            raise InvalidInputError(
                "run_dir", "must be an existing folder", str(folder), "Check the path of the run."
            )
        run = cls(folder)
        if not run.config_path.exists():
            received = f"{folder}, which holds no {run.config_path.name}"
            repair = "Give the folder that dvae train wrote."
            raise InvalidInputError("run_dir", "must be the folder of a run", received, repair)
        _check_links(folder)
        return run

    def write_config(self, text: str) -> None:
        """Write the resolved config, as JSON text, atomically; the folder counts as a run from here on."""
        write_text(self.config_path, text)

    def read_config(self) -> str:
        """Read the JSON text of the config.

        Raises:
            InvalidInputError: If it cannot be read as text.
        """
        try:
            return read_regular(self.config_path).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            denied = isinstance(error, PermissionError)
            received = (error.strerror if isinstance(error, OSError) else None) or str(error)
            repair = "Check its permissions." if denied else "Restore the file from a copy."
            raise InvalidInputError(
                str(self.config_path), "must be a readable text file", received, repair
            ) from None

    def config_sha256(self) -> str | None:
        """SHA-256 of the bytes of ``config.json``; None if there is no such file.

        Raises:
            OSError: If it cannot be read.
        """
        return sha256_file(self.config_path) if self.config_path.exists() else None

    def read_experiment(self) -> ExperimentConfig:
        """Read the config.

        Raises:
            InvalidInputError: If the file cannot be read or holds no such config; names the file.
        """
        return ExperimentConfig.from_json(self.read_config(), source=str(self.config_path))

    def read_environment(self) -> dict[str, Any]:
        """Read what the run ran on; empty if there is no such file.

        Raises:
            InvalidInputError: If the file is damaged.
        """
        if not self.environment_path.exists():
            return {}
        repair = "Restore it from a copy; or move it elsewhere, and data are no more compared with the run's."
        return read_json(self.environment_path, EnvironmentSchema, repair=repair)

    def remove_temporaries(self) -> None:
        """Remove what killed processes left, where no other trains; one that evaluates or draws may still write."""
        remove_temporaries(self.checkpoints_path, of_others=False)
        for folder in (self.path, *self.path.iterdir()):
            if folder == self.path or not folder.is_symlink():  # what a link leads to is not the run's
                remove_temporaries(folder, of_others=True)

    def metrics(self) -> MetricsLog:
        """The log of the run's metrics."""
        return MetricsLog(self.metrics_path)

    def checkpoints(self, *, keep_last: int = 2) -> CheckpointStore:
        """The run's checkpoints.

        Args:
            keep_last: How many of the newest a save leaves; the best one always stays.
        """
        return CheckpointStore(self.checkpoints_path, self.best_path, keep_last=keep_last)


def _check_links(run: Path) -> None:
    """Refuse links through which something would be written outside of a run; linked files are replaced."""
    for folder in (run / name for name in _FOLDERS):
        for path in (folder, *folder.rglob("*")):
            if path.is_symlink() and (path.is_dir() or not path.exists()):
                target = os.path.realpath(path)
                if not Path(target).is_relative_to(os.path.realpath(run)):
                    repair = "Put what it leads to in its place, or remove it."
                    raise InvalidInputError(
                        str(path), "must not lead out of the run", f"a link to {target}", repair
                    )
