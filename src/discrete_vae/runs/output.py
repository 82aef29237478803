"""A file that the user names for a result: arrays, tables or text, by its ending."""

from __future__ import annotations

import csv
import importlib
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from discrete_vae.errors import InvalidInputError, spreadsheet_cell
from discrete_vae.runs.io import (
    check_replaces_none,
    check_writable,
    is_stream,
    unwritable,
    write_stream,
    write_through,
)
from discrete_vae.system import user_path

ENDINGS = (".npz", ".npy", ".csv", ".parquet")
COLUMN_ENDINGS = (".csv", ".npz")  # those of a file of columns of numbers

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
            try:
                importlib.import_module("pyarrow.parquet")
            except ModuleNotFoundError:
                rule, received = "needs pyarrow for a .parquet file", "no such library"
                repair = "Install it: pip install 'discrete-vae[tables]'; or write a .csv file."
                raise InvalidInputError(argument, rule, received, repair) from None
        check_writable(self.path, repair=self._repair)

    def write(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        array: np.ndarray | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write what the ending has room for; returns the path.

        A .npz file holds the arrays, a .npy file the array, else the one that there is, or the columns side by side. A
        table (.csv, .parquet) holds the columns, (row,) arrays of one length, else the arrays.
        """
        table = {name: np.asarray(column) for name, column in (columns or arrays).items()}

        def single() -> np.ndarray:
            if array is not None:
                return array
            return next(iter(arrays.values())) if len(arrays) == 1 else np.stack([*table.values()], axis=-1)

        fill = {
            ".npz": lambda file: np.savez(file, allow_pickle=False, **arrays),
            ".npy": lambda file: np.save(file, single(), allow_pickle=False),
            ".csv": lambda file: _fill_csv(file, table),
            ".parquet": lambda file: _fill_parquet(file, table),
        }[self.ending]
        return self._write(fill)

    def write_text(self, text: str, encoding: str = "utf-8") -> Path:
        """Write text as it is; returns the path."""
        return self.write_bytes(text.encode(encoding))

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
        try:
            if is_stream(self.path):
                content = io.BytesIO()  # in a pipe nothing can be sought
                fill(content)
                write_through(self.path, content.getvalue())
            else:
                place = Path(os.path.realpath(self.path))
                place.parent.mkdir(parents=True, exist_ok=True)
                write_stream(place, fill)
        except OSError as error:
            raise unwritable(self.path, error, self._repair) from None
        return self.path


def write_columns(path: str | Path, columns: Mapping[str, np.ndarray], *, argument: str = "path") -> Path:
    """Write (row,) arrays by name as a .csv, with all digits of numbers, or a .npz file; returns the path."""
    return OutputFile(path, argument=argument, endings=COLUMN_ENDINGS).write(columns)


def _fill_csv(file: IO[bytes], table: Mapping[str, np.ndarray]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(spreadsheet_cell, table))
    length = max((len(column) for column in table.values()), default=0)
    for first in range(0, length, _BLOCK):
        rows = slice(first, first + _BLOCK)
        writer.writerows(zip(*(_printed(column[rows]) for column in table.values()), strict=True))
    text.detach()


def _printed(column: np.ndarray) -> list[Any]:
    """Values as a table shows them: all digits that their type has, and no more; text that is not computed."""
    if column.dtype.kind in "UO":
        return [spreadsheet_cell(each) if isinstance(each, str) else each for each in column.tolist()]
    narrow = column.dtype.kind == "f" and column.dtype.itemsize < 8
    return [float(word) for word in column.astype(np.str_)] if narrow else column.tolist()


def _fill_parquet(file: IO[bytes], table: Mapping[str, np.ndarray]) -> None:
    pyarrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(pyarrow.table(dict(table)), file)
