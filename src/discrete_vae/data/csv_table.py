"""Tables in text files: a header, then a line per example."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from discrete_vae.data.read_arrays import check_is_file
from discrete_vae.data.table import Table, check_columns, label_index, read_labels
from discrete_vae.errors import InvalidInputError

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""Cells that mean a missing value, in any case."""

_SEPARATORS = ",;\t"


def read_csv(path: Path, *, label_column: str | None = None, label_needed: bool = True) -> Table:
    r"""Read a table of numbers.

    The first line names the columns. Cells are separated by commas, semicolons or tabs, whichever is most frequent in
    that line; decimals have a point. Empty cells and the words na, n/a, nan, null and none, in any case, are missing
    values. Blank lines are skipped.

    Args:
        path: The file, in UTF-8.
        label_column: The column that holds labels, numbers or words, and is no feature; None means none does.
        label_needed: Whether a file without that column is refused.

    Raises:
        InvalidInputError: If the file is missing or no such table, or has no such column; names the line and the
            column.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "x.csv")
        ...     _ = path.write_text("width,height\n1.5,2\n,3\n")
        ...     read_csv(path)
        Table(columns=('width', 'height'), values=array([[1.5, 2. ],
               [nan, 3. ]]), labels=None)
    """
    check_is_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read(path, iter(_separated(file)), label_column, label_needed)
    except UnicodeDecodeError:
        repair = "Save it as CSV in UTF-8."
        raise InvalidInputError(str(path), "must be text in UTF-8", "other bytes", repair) from None
    except csv.Error as error:
        repair = "Save it as CSV with a line per example."
        raise InvalidInputError(str(path), "must be a readable CSV file", str(error), repair) from None
    except OSError as error:
        repair = "Check its permissions and the disk."
        received = error.strerror or str(error)
        raise InvalidInputError(str(path), "must be a readable CSV file", received, repair) from None


def separator_of(header: str) -> str:
    """What separates cells: whichever of comma, semicolon and tab is most frequent in the first line."""
    return max(_SEPARATORS, key=header.count)


def _separated(file: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line that is not blank."""
    first = next(file, "")
    separator = separator_of(first)
    yield 1, next(csv.reader([first], delimiter=separator), [])
    reader = csv.reader(file, delimiter=separator, strict=True)
    for cells in reader:
        if cells:
            yield reader.line_num + 1, cells


def _read(
    path: Path, lines: Iterator[tuple[int, list[str]]], label_column: str | None, label_needed: bool
) -> Table:
    _, header = next(lines)
    named = check_columns(path, tuple(name.strip() for name in header))
    label = label_index(path, named, label_column, needed=label_needed)
    columns = tuple(name for name in named if name != label_column)
    values, labels, count = array("d"), [], 0
    for number, cells in lines:
        if len(cells) != len(named):
            rule = f"must have {len(named)} cells, as the header has"
            repair = "Complete the line, or quote cells that hold the separator."
            raise InvalidInputError(f"{path}, line {number},", rule, str(len(cells)), repair)
        if label is not None:
            labels.append(cells.pop(label))
        try:
            values.extend(map(float, cells))
        except ValueError:
            del values[count * len(columns) :]
            values.extend(_number(path, number, *cell) for cell in zip(columns, cells, strict=True))
        else:
            if any("_" in cell for cell in cells):  # Python reads 1_000 as a number
                values[count * len(columns) :] = array(
                    "d", (_number(path, number, *cell) for cell in zip(columns, cells, strict=True))
                )
        count += 1
    found = np.frombuffer(values, np.float64).reshape(count, len(columns))
    return Table(columns, found, None if label is None else read_labels(labels))


def _number(path: Path, line: int, column: str, cell: str) -> float:
    word = cell.strip()
    if word.lower() in MISSING_WORDS:
        return float("nan")
    try:
        if "_" not in word:
            return float(word)
    except ValueError:
        pass
    repair = "Leave the column out, name it as that of labels, or give each of its words a number from 0."
    if word.count(",") == 1 and word.replace(",", "").lstrip("+-").isdigit():
        repair = "Write decimals with a point."
    rule = "must hold numbers"
    raise InvalidInputError(f"{path}, column {column!r},", rule, f"{word[:40]!r} in line {line}", repair)
