"""Tables in text and Parquet files.

A reader turns a file into blocks of columns, `_table` turns the columns into an array.
"""

from __future__ import annotations

import csv
import importlib
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from discrete_vae.data.arrays import check_is_file
from discrete_vae.errors import InvalidInputError, text_of_cell


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
        """
        known, ignored = set(columns), set(self.ignored)
        for name in (self.label, *self.ignored):
            if name is not None and name not in known and name not in self.optional:
                argument = "label_column" if name == self.label else "ignored_columns"
                repair = f"Its columns are {shown_names(columns)}."
                raise InvalidInputError(argument, f"must name columns of {path}", repr(name)[:80], repair)
        features = [place for place, name in enumerate(columns) if name != self.label and name not in ignored]
        return columns.index(self.label) if self.label in known else None, features


def shown_names(columns: Sequence[str], most: int = 5) -> str:
    """The first few names for messages.

    Examples:
        >>> shown_names(["a", "b", "c"], 2), shown_names([])
        ("'a', 'b', ...", 'nothing')
    """
    shown = ", ".join(repr(name[:40]) for name in columns[:most]) or "nothing"
    return shown + ", ..." * (len(columns) > most)


# A file into columns.


_SEPARATORS = ",;\t"
_BLOCK_ROWS = 128  # whose text is in memory at the same time
_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name


@dataclass(frozen=True, eq=False)
class _Block:
    """Consecutive examples of a table.

    Attributes:
        names: Names of all columns.
        columns: The cells of each: text, or an array.
        lines: Numbers of the examples' lines, where cells are text.
    """

    names: tuple[str, ...]
    columns: Sequence[Sequence[str] | np.ndarray]
    lines: Sequence[int] = ()


def _csv_blocks(path: Path) -> Iterator[_Block]:
    """Read a text file: a header, then a line per example.

    The csv module reads it, since pandas fills short lines up, renames columns of one name and takes "1"5 for 15
    without a word.
    """
    with _open_text(path, str(path)) as file:
        separator, header, num_lines = _read_header(file)
        if all(map(_is_number, header)):
            rule, repair = "must start with a line that names the columns", "Add such a line."
            raise InvalidInputError(str(path), rule, shown_names(header), repair)
        names = _check_names(path, header)
        reader = csv.reader(file, delimiter=separator, strict=True)
        rows: list[list[str]] = []
        lines: list[int] = []
        for cells in filter(None, reader):  # blank lines aside
            line = reader.line_num + num_lines
            if len(cells) != len(names):
                rule = f"must have as many cells as line 1, {len(names)} ({shown_names(names, 2)})"
                repair = "Complete the line, quote cells that hold the separator, or remove what is above the header."
                raise InvalidInputError(f"{path}, line {line},", rule, str(len(cells)), repair)
            rows.append(cells)
            lines.append(line)
            if len(rows) == _BLOCK_ROWS:
                yield _Block(names, list(zip(*rows, strict=True)), lines)
                rows, lines = [], []
        yield _Block(names, list(zip(*rows, strict=True)) or [()] * len(names), lines)


def _parquet_blocks(path: Path) -> Iterator[_Block]:
    """Read a Parquet file; an index without a name that pandas wrote is left out."""
    check_is_file(path)
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        repair = "Install it: pip install 'discrete-vae[tables]'; or save the table as CSV."
        raise InvalidInputError(str(path), "needs pyarrow to be read", "no such library", repair) from None
    try:
        # one thread: for many columns the library's threads take longer to start than to read
        table = parquet.read_table(path, page_checksum_verification=True, use_threads=False)
        named = zip(map(str, table.column_names), table.columns, strict=True)
        found = [(name, column.to_numpy()) for name, column in named if not _INDEX.fullmatch(name)]
    except Exception as error:  # the library raises many kinds on damage
        received = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
        repair = "The file is damaged or of another format: copy or write it again."
        raise InvalidInputError(str(path), "must be a readable Parquet file", received, repair) from None
    yield _Block(_check_names(path, [name for name, _ in found]), [column for _, column in found])


READERS: Mapping[str, Callable[[Path], Iterator[_Block]]] = {".csv": _csv_blocks, ".parquet": _parquet_blocks}
"""The reader of each ending."""


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


def _read_header(lines: Iterator[str]) -> tuple[str, list[str], int]:
    r"""Read the separator of cells, the names of the columns, and how many lines these take; later lines are left.

    Examples:
        >>> _read_header(iter(['"width, mm";"a\n', 'b"\n', "1;2"]))
        (';', ['width, mm', 'a\nb'], 2)
    """
    first = next(lines, "")
    unquoted = re.sub(r'"[^"]*("|$)', "", first)
    separator = max(_SEPARATORS, key=unquoted.count)
    reader = csv.reader(chain([first], lines), delimiter=separator)
    return separator, [text_of_cell(name.strip()) for name in next(reader, [])], reader.line_num


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _check_names(path: Path, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns if each has a name of its own."""
    if "" in columns:
        repair = "Name it; if it is an index, leave it out (pandas: index=False)."
        received = f"none for column {columns.index('') + 1}"
        raise InvalidInputError(str(path), "must have a name for every column", received, repair)
    name, count = Counter(columns).most_common(1)[0] if columns else ("", 1)
    if count > 1:
        received = f"{name[:40]!r} more than once"
        raise InvalidInputError(str(path), "must have different names of columns", received, "Rename one.")
    return tuple(columns)


# Columns into an array.


MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})
"""Cells that mean a missing value, in any case."""

_TRUTH = {"true": 1.0, "false": 0.0}
_NO_FEATURE = (
    "If the value is missing, leave the cell empty. A column of words: train with --data.ignored-columns to leave it "
    "unread, with --data.label-column to keep it as labels, or give each of its words a number from 0."
)


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
    return _table(path, _csv_blocks(path), roles or ColumnRoles())


def read_table(path: Path, roles: ColumnRoles | None = None) -> Table:
    """Read a table by the reader of its ending, one of `READERS`; errors as of `read_csv`."""
    return _table(path, READERS[path.suffix.lower()](path), roles or ColumnRoles())


def _table(path: Path, blocks: Iterator[_Block], roles: ColumnRoles) -> Table:
    columns: tuple[str, ...] = ()
    values, labels = [], []
    for block in blocks:
        label, places = roles.places(path, block.names)
        columns = tuple(block.names[place] for place in places)
        numbers = [_numbers(path, block, place) for place in places]
        values.append(np.stack(numbers, axis=1) if numbers else np.empty((0, 0)))
        labels += [] if label is None else [block.columns[label]]
    return Table(columns, np.concatenate(values), _labels(labels) if labels else None)


def _numbers(path: Path, block: _Block, place: int) -> np.ndarray:
    """Values of a column, (example,) float64."""
    cells = block.columns[place]
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind in "buif":
            return cells.astype(np.float64)
        number = _number_of_value
    else:
        number = _number_of_text
        try:
            if "_" not in "".join(cells):  # Python reads 1_000 as a number
                return np.fromiter(map(float, cells), np.float64, len(cells))  # most columns, at once
        except ValueError:
            pass
    numbers = [number(cell) for cell in cells]
    if None not in numbers:
        return np.array(numbers, np.float64)
    row = numbers.index(None)
    received, repair = repr(cells[row])[:40], _NO_FEATURE
    if block.lines:
        word = str(cells[row]).strip()
        received = f"{word[:40]!r} in line {block.lines[row]}"
        if word.count(",") == 1 and word.replace(",", "").lstrip("+-").isdigit():
            repair = "Write decimals with a point."
    argument = f"{path}, column {block.names[place]!r},"
    raise InvalidInputError(argument, "must hold numbers", received, repair)


def _number_of_text(cell: str) -> float | None:
    word = cell.strip().lower()
    if word in MISSING_WORDS:
        return float("nan")
    if word in _TRUTH:
        return _TRUTH[word]
    return float(word) if "_" not in word and _is_number(word) else None


def _number_of_value(value: object) -> float | None:
    """A boolean or number of a column with gaps."""
    if value is None:
        return float("nan")
    return (
        float(value) if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating) else None
    )


def _labels(blocks: Sequence[Sequence[str] | np.ndarray]) -> np.ndarray:
    """Labels from the cells of their column."""
    first = blocks[0]
    if not isinstance(first, np.ndarray):
        return read_labels([text_of_cell(cell.strip()) for cell in chain.from_iterable(blocks)])
    if first.dtype.kind in "bui":
        return first
    gaps = ("None", "nan", "<NA>", "NaT")
    return read_labels(
        ["" if not isinstance(each, str) and str(each) in gaps else str(each) for each in first]
    )


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
        repair = "Write one label per line below the name of their column."
        raise InvalidInputError(argument, "must hold labels", f"none in {path}", repair)
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
    r"""The text of a table that `read_csv` reads, with new words in some cells; line ends stay.

    Args:
        path: The file.
        columns: Names of the columns that the arrays speak of, in their order; others stay as they are.
        replaced: (row, column) bool, which cells.
        words: (row, column) text, what they hold then.

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
    separator, names, _ = _read_header(io.StringIO(text, newline=""))
    place_of = {name: place for place, name in enumerate(columns)}
    places = [place_of.get(name) for name in names]
    pieces = [_MARK] if text != whole else []
    row = -2  # the header, row -1, comes first
    fits = len(set(names) & place_of.keys()) == len(place_of)
    for cells in _records(text, separator):
        is_blank = len(cells) == 1 and not cells[0][0]
        row += not is_blank
        if is_blank or row < 0:
            pieces += chain.from_iterable(cells)
            continue
        fits = fits and row < len(replaced) and len(cells) == len(places)
        if not fits:
            break
        for place, (cell, end) in zip(places, cells, strict=True):
            new = place is not None and replaced[row, place]
            pieces += [str(words[row, place]) if new else cell, end]
    if not fits or row + 1 != len(replaced):
        rule = "must be as it was when it was read"
        raise InvalidInputError(str(path), rule, "other rows or columns", "Run it again.")
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
