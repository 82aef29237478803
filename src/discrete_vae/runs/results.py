"""Where the results of a run are kept, and what counts as the fullest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path
from discrete_vae.runs.json_files import json_text
from discrete_vae.runs.kept_results import Fields, KeptResults, digest
from discrete_vae.runs.output_file import OutputFile
from discrete_vae.runs.run_directory import RunDirectory


class ResultFile:
    """One JSON file that the user named; the run's folder is not touched.

    Args:
        path: The file, which ends in .json.
        argument: What messages call it.
    """

    def __init__(self, path: str | Path, *, argument: str = "path") -> None:
        self._path, self._argument = user_path(argument, path), argument

    def check(self) -> None:
        """Check that the file can be written.

        Raises:
            InvalidInputError: If it has another ending or cannot be written.
        """
        self._file()

    def add(self, fields: Fields) -> list[Path]:
        """Write the result, in place of what the file holds.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        return [self._file().write_text(json_text(self._path.name, fields))]

    def _file(self) -> OutputFile:
        return OutputFile(self._path, argument=self._argument, endings=(".json",))


def kept_evaluations(run: RunDirectory) -> KeptResults:
    """The evaluations of a run.

    evaluation.json holds the fullest: with the data and the config of training before others, of the checkpoint that is
    the best now before others, then with most examples, then with most samples, then of the newest checkpoint.
    """
    trained_on, best = run.read_environment().get("data", {}).get("sha256"), _best_step(run)

    def name(fields: Fields) -> str:
        config = dict(fields["config"])
        parts = {
            "step": fields["step"],
            "samples": config.pop("num_samples"),
            "examples": config.pop("num_examples") or "all",
            "seed": config.pop("seed"),
        }
        rest = {"data": fields["data"], "sha256": fields.get("data_sha256"), "config": config}
        return _file_name(parts, rest | _change(fields))

    def fullness(fields: Fields) -> tuple[Any, ...]:
        found = fields["log_likelihood"]
        # evaluations of earlier versions do not say which data they are of
        of_run = fields.get("data_sha256", trained_on) == trained_on
        return (
            of_run and not _change(fields),
            fields["step"] == best,
            found["num_examples"],
            found["num_samples"],
            fields["step"],
        )

    return _kept(run, "evaluation", name, fullness)


def kept_log_partitions(run: RunDirectory) -> KeptResults:
    """The estimates of log Z of a run's prior.

    log_partition.json holds the fullest: with the config of training before others, of the checkpoint that is the best
    now before others, then with most repeats, then with the smallest standard error asked for, then of the newest
    checkpoint.
    """
    best = _best_step(run)

    def name(fields: Fields) -> str:
        config = dict(fields.get("config", {}))  # earlier versions kept none
        parts = {
            "step": fields["step"],
            "repeats": len(fields["estimates"]),
            "std-error": config.pop("std_error", "unknown"),
            "seed": config.pop("seed", "unknown"),
        }
        return _file_name(parts, config | _change(fields))

    def fullness(fields: Fields) -> tuple[Any, ...]:
        asked = fields.get("config", {}).get("std_error", float("inf"))
        return not _change(fields), fields["step"] == best, len(fields["estimates"]), -asked, fields["step"]

    return _kept(run, "log_partition", name, fullness)


def _kept(
    run: RunDirectory,
    what: str,
    name: Callable[[Fields], str],
    fullness: Callable[[Fields], tuple[Any, ...]],
) -> KeptResults:
    return KeptResults(run.path / f"{what}.json", run.path / f"{what}s", name=name, fullness=fullness)


def _change(fields: Fields) -> dict[str, Any]:
    """What a result says of a config.json that is not the one of training."""
    return {name: value for name, value in fields.items() if name == "changed_config"}


def _best_step(run: RunDirectory) -> int | None:
    try:
        best = run.checkpoints().best()
    except InvalidInputError:  # reported where the best checkpoint is asked for; another one may be evaluated
        return None
    return None if best is None else best["step"]


def _file_name(parts: Fields, rest: Fields) -> str:
    return "-".join([*(f"{key}-{value}" for key, value in parts.items()), digest(rest)])
