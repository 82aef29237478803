"""Where the results of a run are kept, and what counts as the fullest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path
from discrete_vae.runs.checkpoint_files import result_sums
from discrete_vae.runs.checkpoint_record import read_record
from discrete_vae.runs.json_files import EvaluationSchema, LogPartitionSchema, Schema, json_text
from discrete_vae.runs.kept_results import Fields, KeptResults, digest
from discrete_vae.runs.output_file import OutputFile
from discrete_vae.runs.run_directory import RunDirectory

CHECKPOINT_SUM = "checkpoint_sha256"
"""The entry of a result that holds the SHA-256 of its checkpoint's tensors."""


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
    trained_on, of_best = run.read_environment().get("data", {}).get("sha256"), _of_best(run)

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
            of_best(fields),
            found["num_examples"],
            found["num_samples"],
            fields["step"],
        )

    return _kept(run, "evaluation", EvaluationSchema, name, fullness)


def kept_log_partitions(run: RunDirectory) -> KeptResults:
    """The estimates of log Z of a run's prior.

    log_partition.json holds the fullest: with the config of training before others, of the checkpoint that is the best
    now before others, then with most repeats, then with the smallest standard error asked for, then of the newest
    checkpoint.
    """
    of_best = _of_best(run)

    def name(fields: Fields) -> str:
        config = dict(fields.get("config") or {})  # earlier versions kept none
        parts = {
            "step": fields["step"],
            "repeats": len(fields["estimates"]),
            "std-error": config.pop("std_error", "unknown"),
            "seed": config.pop("seed", "unknown"),
        }
        return _file_name(parts, config | _change(fields))

    def fullness(fields: Fields) -> tuple[Any, ...]:
        asked = (fields.get("config") or {}).get("std_error") or float("inf")
        return not _change(fields), of_best(fields), len(fields["estimates"]), -asked, fields["step"]

    return _kept(run, "log_partition", LogPartitionSchema, name, fullness)


def is_of(fields: Fields, step: int, sums: tuple[str, ...]) -> bool:
    """Whether a result is of a checkpoint as it is, not of one that an earlier training left at the same step.

    Args:
        fields: The result; those of earlier versions name no sum, and their step has to do.
        step: The checkpoint's step.
        sums: What its results may name as its SHA-256.
    """
    named = fields.get(CHECKPOINT_SUM)
    return fields["step"] == step and (named is None or named in sums)


def which(fields: Fields, step: int) -> str:
    """How messages name the checkpoint of a result that is not of the one at a step."""
    return f"step {fields['step']}" if fields["step"] != step else f"other weights of step {step}"


def _kept(
    run: RunDirectory,
    what: str,
    schema: type[Schema],
    name: Callable[[Fields], str],
    fullness: Callable[[Fields], tuple[Any, ...]],
) -> KeptResults:
    return KeptResults(run.path / f"{what}.json", run.path / f"{what}s", schema, name=name, fullness=fullness)


def _change(fields: Fields) -> dict[str, Any]:
    """What a result says of a config.json that is not the one of training."""
    return {name: value for name, value in fields.items() if name == "changed_config"}


def _of_best(run: RunDirectory) -> Callable[[Fields], bool]:
    """Whether a result is of the best checkpoint."""
    store = run.checkpoints()
    try:
        best = store.best()
        if best is None:
            return lambda fields: False
        step, sums = best["step"], result_sums(*read_record(store.folder(best["step"]), best["step"]))
    except InvalidInputError:  # reported where the best checkpoint is asked for; another one may be evaluated
        return lambda fields: False
    return lambda fields: is_of(fields, step, sums)


def _file_name(parts: Fields, rest: Fields) -> str:
    return "-".join([*(f"{key}-{value}" for key, value in parts.items()), digest(rest)])
