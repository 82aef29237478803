"""Tables in text and Parquet files, and what a user's file holds."""

from __future__ import annotations

import csv
import importlib
import io
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from discrete_vae.data.arrays import check_is_file
from discrete_vae.errors import InvalidInputError, text_of_cell

NO_FEATURE_REPAIR = (
    "If the value is missing, leave the cell empty. A column of words: train with --data.ignored-columns to leave it "
    "unread, with --data.label-column to keep it as labels, or give each of its words a number from 0."
)


@dataclass(frozen=True, eq=False)
class Table:
    """Values of a file with named columns.

    Attributes:
        columns: Names of the features.
        values: (example, column) float64; NaN marks missing values.
        labels: (example,) numbers or words; None where no column was named as theirs.
    """

    columns: tuple[str, ...]
    values: np.ndarray
    labels: np.ndarray | None = None


@dataclass(frozen=True)
class ColumnRoles:
    """Columns of a table that are no features.

    Attributes:
        label: The column that holds labels, numbers or words; None means none does.
        ignored: Columns that are not read, names or dates for example.
        optional: Those of them that a file may lack.
    """

    label: str | None = None
    ignored: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()

    def places(self, path: Path, columns: tuple[str, ...]) -> tuple[int | None, list[int]]:
        """The place of the labels' column, None without one, and those of the features.

        Args:
            path: The file, for messages.
            columns: The names of all its columns.

        Examples:
            >>> ColumnRoles("kind", ("id",)).places(Path("x.csv"), ("id", "width", "kind"))
            (2, [1])
        """
        known, ignored = set(columns), set(self.ignored)
        for argument, name in [
            ("label_column", self.label),
            *(("ignored_columns", name) for name in self.ignored),
        ]:
            if name is not None and name not in known and name not in self.optional:
                rule = f"must {'name columns' if argument[0] == 'i' else 'be the name of a column'} of {path}"
                raise InvalidInputError(
                    argument, rule, repr(name)[:80], f"Its columns are {shown_names(columns)}."
                )
        features = [place for place, name in enumerate(columns) if name != self.label and name not in ignored]
        return columns.index(self.label) if self.label in known else None, features


def check_columns(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns if each has a name of its own.

    Args:
        path: The file, for messages.
        columns: The names.

    Examples:
        >>> check_columns(Path("x.csv"), ("width", "width"))
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: x.csv must have different names of columns; received 'width' more than
        once. Rename one.
    """
    if "" in columns:
        repair = "Name it; if it is an index, leave it out (pandas: index=False)."
        received = f"none for column {columns.index('') + 1}"
        raise InvalidInputError(str(path), "must have a name for every column", received, repair)
    counts = Counter(columns)
    if len(counts) < len(columns):
        twice = next(name for name, count in counts.items() if count > 1)
        received = f"{twice[:40]!r} more than once"
        raise InvalidInputError(str(path), "must have different names of columns", received, "Rename one.")
    return columns


def shown_names(columns: Sequence[str], most: int = 5) -> str:
    """The first few names for messages.

    Examples:
        >>> shown_names(["a", "b", "c"], 2), shown_names([])
        ("'a', 'b', ...", 'nothing')
    """
    shown = ", ".join(repr(name[:40]) for name in columns[:most]) or "nothing"
    return shown + ", ..." * (len(columns) > most)


# Tables in text files: a header, then a line per example. The csv module reads them, since pandas fills short lines up,
# renames columns of one name and takes "1"5 for 15 without a word.


MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})
"""Cells that mean a missing value, in any case."""

_TRUTH = {"true": 1.0, "false": 0.0}
_SEPARATORS = ",;\t"


def read_csv(path: Path, roles: ColumnRoles | None = None) -> Table:
    r"""Read a table of numbers.

    The first line names the columns. Cells are separated by commas, semicolons or tabs, whichever is most frequent in
    that line; decimals have a point. Empty cells and the words na, n/a, #n/a, <na>, nan, null and none, in any case,
    are missing values, true and false, in any case, are 1 and 0. Blank lines are skipped. The apostrophe that the verbs
    put before a name or a label that a spreadsheet would compute, see `discrete_vae.errors`, is taken away.

    Args:
        path: The file, in UTF-8.
        roles: Columns that are no features; None means all are features.

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
    roles = roles or ColumnRoles()
    with _open_text(path, str(path)) as file:
        separator, header, num_lines = read_header(file)
        if all(map(_is_number, header)):
            rule, repair = (
                "must start with a line that names the columns",
                "Add such a line; examples follow it.",
            )
            raise InvalidInputError(str(path), rule, shown_names(header), repair)
        named = check_columns(path, tuple(header))
        label, places = roles.places(path, named)
        columns = [named[place] for place in places]
        values, labels, count = array("d"), [], 0
        reader = csv.reader(file, delimiter=separator, strict=True)
        for cells in filter(None, reader):  # blank lines aside
            line = reader.line_num + num_lines
            if len(cells) != len(named):
                rule = f"must have as many cells as line 1, {len(named)} ({shown_names(named, 2)})"
                repair = (
                    "Complete the line, quote cells that hold the separator, or remove what stands above the "
                )
                repair += "names of the columns."
                raise InvalidInputError(f"{path}, line {line},", rule, str(len(cells)), repair)
            if label is not None:
                labels.append(text_of_cell(cells[label].strip()))
            values.extend(_row(path, line, columns, [cells[place] for place in places]))
            count += 1
    found = np.frombuffer(values, np.float64).reshape(count, len(columns))
    return Table(tuple(columns), found, None if label is None else read_labels(labels))


@contextmanager
def _open_text(path: Path, argument: str) -> Iterator[IO[str]]:
    """Open a table in text; faults that come up while it is read are those of the file."""
    check_is_file(path)  # a pipe would be waited for
    rule, repair = "must be a readable CSV file in UTF-8", "Save it as CSV in UTF-8, with a line per example."
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError:
        raise InvalidInputError(argument, rule, "other bytes", repair) from None
    except (csv.Error, OSError) as error:
        raise InvalidInputError(argument, rule, getattr(error, "strerror", None) or error, repair) from None


def read_header(lines: Iterator[str]) -> tuple[str, list[str], int]:
    r"""Read the separator of cells, the names of the columns, and how many lines these take; later lines are left.

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


def _row(path: Path, line: int, columns: Sequence[str], cells: list[str]) -> list[float]:
    try:
        if "_" not in "".join(cells):  # Python reads 1_000 as a number
            return list(map(float, cells))  # most lines, at once
    except ValueError:
        pass
    return [_number(path, line, *cell) for cell in zip(columns, cells, strict=True)]


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


def read_label_column(path: Path, argument: str) -> np.ndarray:
    """Read a table in text of one column, labels under its name; a blank line is no label."""
    labels: list[str] = []
    with _open_text(path, argument) as file:
        reader = csv.reader(file)
        for cells in reader:
            if len(cells) != 1:
                received = f"{len(cells) or 'nothing'} in line {reader.line_num} of {path}"
                repair = 'Write "" for an example without a label, and remove other columns.'
                raise InvalidInputError(argument, "must hold one label in each line", received, repair)
            labels.append(text_of_cell(cells[0].strip()))
    if len(labels) < 2:
        repair = "Name the column in the first line, and write one label per line below."
        raise InvalidInputError(argument, "must hold labels under the name of their column", "none", repair)
    return read_labels(labels[1:])


def read_labels(words: Sequence[str]) -> np.ndarray:
    """Labels from text: whole numbers where all words are such, else the words.

    Examples:
        >>> read_labels(["3", " 1"]), read_labels(["3", "cat"])
        (array([3, 1]), array(['3', 'cat'], dtype='<U3'))
    """
    stripped = [word.strip() for word in words]
    if all(re.fullmatch(r"[+-]?[0-9]{1,18}", word) for word in stripped):
        return np.array(stripped, np.int64)
    return np.array(stripped, np.str_)


# A table in a text file with some of its cells replaced and every other byte as it was.


_MARK = "\ufeff"  # the byte order mark that some programs put first
_CELL = r'("(?:[^"]|"")*"|[^{0}\r\n]*)({0}|\r\n|\r|\n|\Z)'


def filled_csv(path: Path, columns: Sequence[str], replaced: np.ndarray, words: np.ndarray) -> str:
    r"""The text of a table that `discrete_vae.data.tables.read_csv` reads, with new words in some cells.

    Args:
        path: The file.
        columns: Names of the columns that the arrays speak of, in their order; others stay as they are.
        replaced: (row, column) bool, which cells.
        words: (row, column) text, what they hold then.

    Returns:
        The text; its line ends are those of the file.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "x.csv")
        ...     _ = path.write_text('width;"my height"\n1.50;\n\n;2\n')
        ...     gaps = np.array([[False, True], [True, False]])
        ...     filled_csv(path, ["width", "my height"], gaps, np.array([["", "0.5"], ["7", ""]]))
        'width;"my height"\n1.50;0.5\n\n7;2\n'
    """
    with path.open(encoding="utf-8", newline="") as file:
        whole = file.read()
    text = whole.removeprefix(_MARK)
    separator, names, _ = read_header(io.StringIO(text, newline=""))
    rule, repair = "must be as it was when it was read", "Run it again."
    there, place_of = set(names), {name: place for place, name in enumerate(columns)}
    if missing := [column for column in columns if column not in there]:
        raise InvalidInputError(str(path), rule, f"no column {missing[0][:40]!r}", repair)
    places = [place_of.get(name) for name in names]
    pieces = [_MARK] if text != whole else []
    row = -2  # the header, row -1, comes first
    for cells in _records(text, separator):
        if len(cells) == 1 and not cells[0][0]:  # a blank line
            pieces.append(cells[0][1])
            continue
        row += 1
        if row < 0:
            pieces += [part for cell in cells for part in cell]
            continue
        if row >= len(replaced) or len(cells) != len(places):
            raise InvalidInputError(str(path), rule, f"other rows from row {row}", repair)
        for place, (cell, end) in zip(places, cells, strict=True):
            new = place is not None and replaced[row, place]
            pieces += [str(words[row, place]) if new else cell, end]
    if row + 1 != len(replaced):
        raise InvalidInputError(str(path), rule, f"{row + 1} rows", repair)
    return "".join(pieces)


def _records(text: str, separator: str) -> Iterator[list[tuple[str, str]]]:
    """The cells of each line, each with what ends it."""
    cells: list[tuple[str, str]] = []
    for found in re.finditer(_CELL.format(re.escape(separator)), text):
        cell, end = found.groups()
        if not end and not cell and not cells:  # behind the last line's end
            return
        cells.append((cell, end))
        if end != separator:
            yield cells
            cells = []


# Tables in Parquet files.


_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name


def read_parquet(path: Path, roles: ColumnRoles | None = None) -> Table:
    """Read a table of numbers; nulls and NaN are missing values.

    An index without a name that pandas wrote is not read.

    Args:
        path: The file.
        roles: Columns that are no features; None means all are features.
    """
    check_is_file(path)
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        repair = "Install it: pip install 'discrete-vae[tables]'; or save the table as CSV."
        raise InvalidInputError(str(path), "needs pyarrow to be read", "no such library", repair) from None
    try:
        # one thread: for many columns the library's threads take longer to start than to read
        table = parquet.read_table(path, page_checksum_verification=True, use_threads=False)
        named = zip(table.column_names, table.columns, strict=True)
        found = [(str(name), column.to_numpy()) for name, column in named if not _INDEX.fullmatch(str(name))]
    except Exception as error:  # the library raises many kinds on damage
        received = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
        repair = "The file is damaged or of another format: copy or write it again."
        raise InvalidInputError(str(path), "must be a readable Parquet file", received, repair) from None
    columns = check_columns(path, tuple(name for name, _ in found))
    label, places = (roles or ColumnRoles()).places(path, columns)
    labels = None if label is None else _labels(found[label][1])
    values = [_numbers(path, *found[place]) for place in places]
    stacked = np.stack(values, axis=1) if values else np.empty((0, 0))
    return Table(tuple(columns[place] for place in places), stacked, labels)


def _numbers(path: Path, name: str, column: np.ndarray) -> np.ndarray:
    if column.dtype.kind in "buif":
        return column.astype(np.float64)
    if column.dtype == object and all(_is_real(value) for value in column):  # booleans or numbers with gaps
        return np.array([np.nan if value is None else float(value) for value in column])
    received = next((repr(value) for value in column if not _is_real(value)), str(column.dtype))
    raise InvalidInputError(
        f"{path}, column {name!r},", "must hold numbers", received[:40], NO_FEATURE_REPAIR
    )


def _labels(column: np.ndarray) -> np.ndarray:
    if column.dtype.kind in "bui":
        return column
    return read_labels([value if isinstance(value, str) else _word(value) for value in column])


def _word(value: object) -> str:
    word = str(value)
    return "" if word in ("None", "nan", "<NA>", "NaT") else word


def _is_real(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating))
