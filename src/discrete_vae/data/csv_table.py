"""Tables in text files: a header, then a line per example."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from discrete_vae.data.read_arrays import check_is_file
from discrete_vae.data.table import (
    NO_FEATURE_REPAIR,
    NoFeatures,
    Table,
    check_columns,
    read_labels,
    shown_names,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.shown import text_of_cell

MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})
"""Cells that mean a missing value, in any case."""

_TRUTH = {"true": 1.0, "false": 0.0}

_SEPARATORS = ",;\t"


def read_csv(path: Path, without: NoFeatures | None = None) -> Table:
    r"""Read a table of numbers.

    The first line names the columns. Cells are separated by commas, semicolons or tabs, whichever is most frequent in
    that line; decimals have a point. Empty cells and the words na, n/a, #n/a, <na>, nan, null and none, in any case,
    are missing values, true and false, in any case, are 1 and 0. Blank lines are skipped. The apostrophe that the verbs
    put before a name or a label that a spreadsheet would compute, see `discrete_vae.shown`, is taken away.

    Args:
        path: The file, in UTF-8.
        without: Which columns are no features; None means all are.

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
            return _read(path, iter(_separated(file)), without or NoFeatures())
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


def read_header(lines: Iterator[str]) -> tuple[str, list[str], int]:
    r"""What separates cells, the names of the columns, and how many lines these take; later lines are left.

    Args:
        lines: Of the file, in their order.

    Examples:
        >>> read_header(iter(['"width, mm";"a\n', 'b"\n', "1;2"]))
        (';', ['width, mm', 'a\nb'], 2)
    """
    first = next(lines, "")
    unquoted = re.sub(r'"[^"]*("|$)', "", first)
    separator = max(_SEPARATORS, key=unquoted.count)
    reader = csv.reader(chain([first], lines), delimiter=separator)
    return separator, [text_of_cell(name.strip()) for name in next(reader, [])], reader.line_num


def _separated(file: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line that is not blank."""
    separator, header, num_lines = read_header(file)
    yield 1, header
    reader = csv.reader(file, delimiter=separator, strict=True)
    for cells in reader:
        if cells:
            yield reader.line_num + num_lines, cells


def _read(path: Path, lines: Iterator[tuple[int, list[str]]], without: NoFeatures) -> Table:
    _, header = next(lines)
    if all(map(_is_number, header)):
        rule, repair = "must start with a line that names the columns", "Add such a line; examples follow it."
        raise InvalidInputError(str(path), rule, shown_names(header), repair)
    named = check_columns(path, tuple(header))
    label, places = without.places(path, named)
    columns = tuple(named[place] for place in places)
    values, labels, count = array("d"), [], 0
    for number, cells in lines:
        if len(cells) != len(named):
            rule = f"must have as many cells as line 1, {len(named)} ({shown_names(named, 2)})"
            repair = "Complete the line, quote cells that hold the separator, or remove what stands above the names of "
            repair += "the columns."
            raise InvalidInputError(f"{path}, line {number},", rule, str(len(cells)), repair)
        if label is not None:
            labels.append(text_of_cell(cells[label].strip()))
        if len(places) < len(named):
            cells = [cells[place] for place in places]
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
    if word.lower() in _TRUTH:
        return _TRUTH[word.lower()]
    try:
        if "_" not in word:
            return float(word)
    except ValueError:
        pass
    repair = NO_FEATURE_REPAIR
    if word.count(",") == 1 and word.replace(",", "").lstrip("+-").isdigit():
        repair = "Write decimals with a point."
    rule = "must hold numbers"
    raise InvalidInputError(f"{path}, column {column!r},", rule, f"{word[:40]!r} in line {line}", repair)


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
