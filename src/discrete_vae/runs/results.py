"""Results: files of arrays, tables or text that the user names, and those that a run keeps, one per settings."""

from __future__ import annotations

import csv
import importlib
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from discrete_vae.errors import InvalidInputError, spreadsheet_cell
from discrete_vae.runs.checkpoints import CHECKPOINT_SUM, read_record
from discrete_vae.runs.io import (
    EvaluationSchema,
    LogPartitionSchema,
    Schema,
    check_replaces_none,
    check_writable,
    is_stream,
    read_json,
    sha256_fields,
    to_json,
    write_json,
    write_stream,
    write_through,
    writing,
)
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.system import optional_library, user_path

ENDINGS = (".npz", ".npy", ".csv", ".parquet")

_BLOCK = 4096  # rows of a table that are text at the same time


class OutputFile:
    """The file of a result, checked before the work that it takes, and there whole or not at all.

    Folders that do not exist are made when it is written. A link stays, and the file that it leads to is replaced. A
    pipe or a device is written through; without an ending it takes .csv, or the first where that is none.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        argument: str = "--out",  # that messages name
        endings: Sequence[str] = ENDINGS,
        others: Sequence[Path] = (),  # that are read, or written besides, none of which it may replace
    ) -> None:
        self.path = user_path(argument, path)
        self.ending = self.path.suffix.lower()
        self._repair = f"Free space, check permissions, or give another {argument}."
        if self.ending not in endings and is_stream(self.path):
            self.ending = ".csv" if ".csv" in endings else endings[0]
        if self.ending not in endings:
            rule = f"must end in {'one of ' * (len(endings) > 1)}{', '.join(endings)}"
            repair = f"Did you mean {self._meant(endings[0])}?"
            raise InvalidInputError(argument, rule, repr(str(path)), repair)
        check_replaces_none(self.path, others, argument=argument)
        if self.ending == ".parquet":
            repair = "Install it: pip install 'discrete-vae[tables]'; or write a .csv file."
            optional_library("pyarrow.parquet", argument, repair, rule="needs pyarrow for a .parquet file")
        check_writable(self.path, repair=self._repair)

    def write(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        array: np.ndarray | None = None,
        columns: Mapping[str, Any] | None = None,
        delimiter: str = ",",
        decimal: str = ".",
        encoding: str = "utf-8",
    ) -> Path:
        """Write what the ending has room for, a table in text in a format; returns the path.

        A .npz file holds the arrays, a .npy file the array, else the one that there is, or the columns side by side. A
        table (.csv, .parquet) holds the columns, (row,) arrays of one length, else the arrays.
        """
        table = {name: np.asarray(column) for name, column in (columns or arrays).items()}
        single: Any = array
        if array is None and self.ending == ".npy":
            single = next(iter(arrays.values())) if len(arrays) == 1 else np.stack([*table.values()], axis=-1)
        fill = {
            ".npz": lambda file: np.savez(file, allow_pickle=False, **arrays),
            ".npy": lambda file: np.save(file, single, allow_pickle=False),
            ".csv": lambda file: _fill_csv(file, table, delimiter, decimal, encoding),
            ".parquet": lambda file: _fill_parquet(file, table),
        }[self.ending]
        return self._write(fill)

    def write_bytes(self, content: bytes) -> Path:
        """Write bytes as they are; returns the path."""
        return self._write(lambda file: file.write(content))

    def _meant(self, ending: str) -> Path:
        """The path with an ending that is allowed, in place of one that looks like another kind of file."""
        if not self.path.name or self.path.name == "..":
            return self.path / f"file{ending}"
        is_kind = re.fullmatch(r"\.[A-Za-z]{1,8}", self.path.suffix)
        return self.path.with_suffix(ending) if is_kind else self.path.with_name(self.path.name + ending)

    def _write(self, fill: Callable[[IO[bytes]], object]) -> Path:
        with writing(self.path, self._repair):
            if is_stream(self.path):
                content = io.BytesIO()  # in a pipe nothing can be sought
                fill(content)
                write_through(self.path, content.getvalue())
            else:
                place = Path(os.path.realpath(self.path))
                place.parent.mkdir(parents=True, exist_ok=True)
                write_stream(place, fill)
        return self.path


class _Lines(io.TextIOWrapper):
    """Rows of the csv module, which puts a cell with an end of line in quotes where its own lines end so."""

    def write(self, row: str) -> int:
        return super().write(row.removesuffix("\r\n") + "\n")


def _fill_csv(
    file: IO[bytes], table: Mapping[str, np.ndarray], delimiter: str, decimal: str, encoding: str
) -> None:
    text = _Lines(file, encoding=encoding, newline="")
    writer = csv.writer(text, lineterminator="\r\n", delimiter=delimiter)
    writer.writerow(map(spreadsheet_cell, table))
    length = max((len(column) for column in table.values()), default=0)
    for first in range(0, length, _BLOCK):
        rows = slice(first, first + _BLOCK)
        writer.writerows(zip(*(_printed(column[rows], decimal) for column in table.values()), strict=True))
    text.detach()


def _printed(column: np.ndarray, decimal: str) -> list[Any]:
    """Values as a table shows them: all digits that their type has, and no more; text that is not computed."""
    narrow = column.dtype.kind == "f" and column.dtype.itemsize < 8
    cells = [float(word) for word in column.astype(np.str_)] if narrow else column.tolist()
    if column.dtype.kind in "UO":
        cells = [spreadsheet_cell(each) if isinstance(each, str) else each for each in cells]
    if decimal == ".":
        return cells
    return [str(each).replace(".", decimal) if isinstance(each, float) else each for each in cells]


def _fill_parquet(file: IO[bytes], table: Mapping[str, np.ndarray]) -> None:
    pyarrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(pyarrow.table(dict(table)), file)


# Results of a run: one file per settings, none of which replaces another, and a copy of the most complete one.

Fields = Mapping[str, Any]


class ResultStore:
    """A folder with one result per settings, and beside it a copy of the most complete, of equals the one kept last.

    The same settings give the same name, so repeating a computation replaces its own file and no other. A result is
    kept with the SHA-256 of its own values, and refused when they are others; those of earlier versions have none.
    `name` makes the name of a result's file, without its ending, of the settings in it. Results are compared by
    `completeness`; the greatest is copied.
    """

    def __init__(
        self,
        most_complete_path: Path,
        folder: Path,
        schema: type[Schema],
        *,
        name: Callable[[Fields], str],
        completeness: Callable[[Fields], tuple[Any, ...]],
    ) -> None:
        self.most_complete_path, self.folder = most_complete_path, folder
        self._schema, self._name, self._completeness = schema, name, completeness

    def check(self) -> None:
        """Check, before the work, that a result can be added and those that are there are undamaged."""
        repair = "Free space or check permissions, or write elsewhere: --out FILE.json."
        for path in (self.most_complete_path, self.folder / "result.json"):
            check_writable(path, repair=repair)
        self._read()

    def add(self, fields: Fields) -> list[Path]:
        """Keep a result; returns its own file and, where it is the most complete, the copy."""
        fields = {**fields, "sha256": _sum_of(fields)}
        path, found = self._path_of(fields), self._read()
        latest = found.pop(self.most_complete_path, None)
        if latest is not None:
            own = self._path_of(latest)
            if own != path and own not in found:  # what an earlier version left has no file of its own yet
                _write(own, latest)
            found = {own: latest} | found  # before its equals
        found.pop(path, None)
        _write(path, fields)
        complete, best = None, max([fields, *found.values()], key=self._completeness)
        while complete is not best:  # as another process may have added one meanwhile
            complete = best
            _write(self.most_complete_path, complete)
            best = max([complete, *self._read().values()], key=self._completeness)
        return [path, self.most_complete_path] if complete is fields else [path]

    def most_complete(self) -> dict[str, Any] | None:
        """The most complete result; None if there is none."""
        path = self.most_complete_path
        return _read_result(path, self._schema) if path.exists() else None

    def of_checkpoint(self, step: int, sums: tuple[str, ...]) -> tuple[Path, dict[str, Any]] | None:
        """The most complete result of a checkpoint as it is, with its file; None if there is none."""
        found = [each for each in self._read().items() if is_of(each[1], step, sums)]
        return max(found, key=lambda each: self._completeness(each[1]), default=None)

    def _path_of(self, fields: Fields) -> Path:
        return self.folder / f"{self._name(fields)}.json"

    def _read(self) -> dict[Path, dict[str, Any]]:
        paths = [self.most_complete_path] if self.most_complete_path.exists() else []  # before its equals
        paths += sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        return {path: _read_result(path, self._schema) for path in paths}


def _read_result(path: Path, schema: type[Schema]) -> dict[str, Any]:
    repair = "Move the file out of the run."
    fields = read_json(path, schema, repair)
    if fields.get("sha256") not in (None, _sum_of(fields)):
        raise InvalidInputError(str(path), "must hold what was kept", "other values", repair)
    return fields


def _sum_of(fields: Fields) -> str:
    rest = {name: value for name, value in sorted(fields.items()) if name != "sha256"}
    return sha256_fields("result", rest)


def _write(path: Path, fields: Fields) -> None:
    repair = "Free space or check permissions, or use --out FILE.json; what was printed stands."
    with writing(path, repair):
        path.parent.mkdir(exist_ok=True)
        write_json(path, fields)


def evaluation_store(run: RunDirectory) -> ResultStore:
    """The evaluations of a run.

    evaluation.json holds the most complete: with the data and the config of training before others, of the checkpoint
    that is the best now before others, then with most examples, then with most samples, then with the sharp limit, then
    of the newest checkpoint.
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

    def completeness(fields: Fields) -> tuple[Any, ...]:
        found = fields["log_likelihood"]
        # evaluations of earlier versions do not say which data they are of
        as_trained = fields.get("data_sha256", trained_on) == trained_on and not _change(fields)
        counts = found["num_examples"], found["num_samples"], fields.get("log_likelihood_limit") is not None
        return as_trained, of_best(fields), *counts, fields["step"]

    path, folder = run.evaluation_path, run.path / "evaluations"
    return ResultStore(path, folder, EvaluationSchema, name=name, completeness=completeness)


def log_partition_store(run: RunDirectory) -> ResultStore:
    """The estimates of log Z of a run's prior.

    log_partition.json holds the most complete: with the config of training before others, of the checkpoint that is
    the best now before others, then with most repeats, then with the smallest standard error asked for, then of the
    newest checkpoint.
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

    def completeness(fields: Fields) -> tuple[Any, ...]:
        asked = (fields.get("config") or {}).get("std_error") or float("inf")
        return not _change(fields), of_best(fields), len(fields["estimates"]), -asked, fields["step"]

    path, folder = run.path / "log_partition.json", run.path / "log_partitions"
    return ResultStore(path, folder, LogPartitionSchema, name=name, completeness=completeness)


def is_of(fields: Fields, step: int, sums: tuple[str, ...]) -> bool:
    """True for a result of a checkpoint as it is, not of one that an earlier training left at the same step."""
    named = fields.get(CHECKPOINT_SUM)  # earlier versions named no sum, and their step has to do
    return fields["step"] == step and (named is None or named in sums)


def which(fields: Fields, step: int) -> str:
    """The checkpoint of a result that is not of the one at a step, for messages."""
    return f"step {fields['step']}" if fields["step"] != step else f"other weights of step {step}"


def digest(fields: Fields) -> str:
    """Eight letters that tell settings apart which a file's name does not spell out."""
    return sha256_fields("settings", dict(sorted(fields.items())))[:8]


def _change(fields: Fields) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name == "changed_config"}


def _of_best(run: RunDirectory) -> Callable[[Fields], bool]:
    store = run.checkpoints()
    # what is damaged is reported where the best checkpoint is asked for; another may be evaluated
    with suppress(InvalidInputError):
        if best := store.best():
            step, sums = best["step"], read_record(store.folder(best["step"]), best["step"]).sums
            return lambda fields: is_of(fields, step, sums)
    return lambda fields: False


def _file_name(parts: Fields, rest: Fields) -> str:
    return "-".join([*(f"{key}-{value}" for key, value in parts.items()), digest(rest)])


class ResultFile(OutputFile):
    """One .json file that the user named for a result; the run's folder is not touched."""

    def add(self, fields: Fields) -> list[Path]:
        """Write the result, in place of what the file holds; returns the file."""
        text = to_json(self.path.name, fields, indent=2) + "\n"
        return [self.write_bytes(text.encode())]
