"""A file that the user names for a result: arrays and tables, by its ending."""

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

# Columns of numbers in a file, as .csv or .npz.


_ENDINGS = (".csv", ".npz")


def check_columns_path(argument: str, path: str | Path, *, others: Sequence[Path] = ()) -> Path:
    """Return the path of a file of columns if it can be written.

    Args:
        argument: Name of the argument, for messages.
        path: Where it is to be; ``~`` is the home directory.
        others: Files that are read, or written besides, none of which it may replace.

    Raises:
        InvalidInputError: If it has another ending than .csv and .npz, is one of the others, or cannot be written.
    """
    return OutputFile(path, argument=argument, endings=_ENDINGS, others=others).path


def write_columns(path: str | Path, columns: Mapping[str, np.ndarray], *, argument: str = "path") -> Path:
    """Write columns of equal length; numbers in a .csv have all of their digits.

    Args:
        path: As in `check_columns_path`; folders that do not exist are made.
        columns: (row,) arrays by name.
        argument: Name of the argument that gave the path, for messages.

    Returns:
        The path.

    Raises:
        InvalidInputError: If the file cannot be written.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_columns(f"{folder}/a.csv", {"step": np.arange(2), "elbo": np.array([-9.5, -9])})
        ...     print(path.read_text())
        step,elbo
        0,-9.5
        1,-9.0
    """
    return OutputFile(path, argument=argument, endings=_ENDINGS).write(columns)


# A file that the user names for a result: for arrays .npz, .npy, .csv or .parquet, by its ending.


ENDINGS = (".npz", ".npy", ".csv", ".parquet")
_BLOCK = 4096  # rows of a table that are text at the same time


class OutputFile:
    """Where a result goes, checked before the work that it takes.

    A file is there whole or not at all. Folders that do not exist are made when it is written. A link stays, and the
    file that it leads to is replaced. A pipe or a device is written through.

    Args:
        path: The file; ``~`` is the home directory. A pipe or a device whose name has none of them takes .csv, or the
            first where that is none.
        argument: What messages call it.
        endings: Those that it may have.
        others: Files that are read, or written besides, none of which it may replace.

    Attributes:
        path: The file.

    Raises:
        InvalidInputError: If it has another ending, is one of the others, cannot be written, or needs a library that is
            not installed.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = OutputFile(f"{folder}/a.csv").write(
        ...         {"bits": np.array([[0, 1], [1, 1]])}, columns={"bit 0": [0, 1], "bit 1": [1, 1]}
        ...     )
        ...     print(path.read_text())
        bit 0,bit 1
        0,1
        1,1
    """

    def __init__(
        self,
        path: str | Path,
        *,
        argument: str = "--out",
        endings: Sequence[str] = ENDINGS,
        others: Sequence[Path] = (),
    ) -> None:
        self.path = user_path(argument, path)
        self._repair = f"Free space, check permissions, or give another {argument}."
        self._ending = self.path.suffix.lower()
        if self._ending not in endings and is_stream(self.path):
            self._ending = ".csv" if ".csv" in endings else endings[0]
        if self.ending not in endings:
            one_of = "one of " * (len(endings) > 1)
            rule, repair = (
                f"must end in {one_of}{', '.join(endings)}",
                f"Did you mean {self._meant(endings[0])}?",
            )
            raise InvalidInputError(argument, rule, repr(str(path)), repair)
        check_replaces_none(self.path, others, argument=argument)
        if self.ending == ".parquet":
            _pyarrow(argument, self.path)
        check_writable(self.path, repair=self._repair)

    @property
    def ending(self) -> str:
        """Its ending, in small letters."""
        return self._ending

    def write(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        array: np.ndarray | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write what the ending has room for.

        Args:
            arrays: What a .npz file holds.
            array: What a .npy file holds; None is the one array that there is, or the columns side by side.
            columns: What a table (.csv, .parquet) holds, (row,) arrays of one length; None takes arrays.

        Returns:
            The path.

        Raises:
            InvalidInputError: If the file cannot be written.
        """
        table = {name: np.asarray(column) for name, column in (columns or arrays).items()}
        fill = {
            ".npz": lambda file: np.savez(file, allow_pickle=False, **arrays),
            ".npy": lambda file: np.save(file, _single(array, arrays, table), allow_pickle=False),
            ".csv": lambda file: _fill_csv(file, table),
            ".parquet": lambda file: _fill_parquet(file, table),
        }[self.ending]
        return self._write(fill)

    def write_text(self, text: str) -> Path:
        """Write text as it is, in UTF-8.

        Args:
            text: The whole file.

        Returns:
            The path.

        Raises:
            InvalidInputError: If the file cannot be written.
        """
        return self.write_bytes(text.encode())

    def write_bytes(self, content: bytes) -> Path:
        """Write bytes as they are.

        Args:
            content: The whole file.

        Returns:
            The path.

        Raises:
            InvalidInputError: If the file cannot be written.
        """
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


def _single(
    array: np.ndarray | None, arrays: Mapping[str, np.ndarray], table: Mapping[str, np.ndarray]
) -> np.ndarray:
    if array is not None:
        return array
    return next(iter(arrays.values())) if len(arrays) == 1 else np.stack(list(table.values()), axis=-1)


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


def _pyarrow(argument: str, path: Path) -> None:
    """Check that the library is there."""
    try:
        importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        repair = "Install it: pip install 'discrete-vae[tables]'; or write a .csv file."
        received = f"{str(path)!r}, and it is not installed"
        raise InvalidInputError(argument, "needs pyarrow for a .parquet file", received, repair) from None
