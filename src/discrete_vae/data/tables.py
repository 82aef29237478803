"""Tables in text and Parquet files, and what a user's file holds."""

from __future__ import annotations

import csv
import importlib
import io
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from discrete_vae.data.arrays import check_is_file, read_npy, read_npz, shown_key, shown_keys
from discrete_vae.errors import InvalidInputError, text_of_cell

# Tables in text files: a header, then a line per example.


MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})
"""Cells that mean a missing value, in any case."""

_TRUTH = {"true": 1.0, "false": 0.0}

_SEPARATORS = ",;\t"


def read_csv(path: Path, without: NoFeatures | None = None) -> Table:
    r"""Read a table of numbers.

    The first line names the columns. Cells are separated by commas, semicolons or tabs, whichever is most frequent in
    that line; decimals have a point. Empty cells and the words na, n/a, #n/a, <na>, nan, null and none, in any case,
    are missing values, true and false, in any case, are 1 and 0. Blank lines are skipped. The apostrophe that the verbs
    put before a name or a label that a spreadsheet would compute, see `discrete_vae.errors`, is taken away.

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

    Raises:
        InvalidInputError: If the file has changed since it was read: it has other columns, or another number of rows.

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


# Tables in Parquet files, read by pyarrow or pandas where one of them is installed.


Columns = Iterable[tuple[str, np.ndarray]]

_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name


def read_parquet(path: Path, without: NoFeatures | None = None) -> Table:
    """Read a table of numbers; nulls and NaN are missing values.

    An index without a name that pandas wrote is not read.

    Args:
        path: The file.
        without: Which columns are no features; None means all are.

    Raises:
        InvalidInputError: If there is no such column, neither pyarrow nor pandas is installed, the file cannot be
            read, or a column holds something else than numbers or booleans.
    """
    check_is_file(path)
    try:
        found = list(_reader(path)(path))
    except InvalidInputError:
        raise
    except ImportError:  # pandas alone lacks what reads the format
        raise _no_library(path, "pandas without such an engine") from None
    except Exception as error:  # the libraries raise many kinds on damage
        received = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
        repair = "The file is damaged or of another format: copy or write it again."
        raise InvalidInputError(str(path), "must be a readable Parquet file", received, repair) from None
    named = check_columns(path, tuple(name for name, _ in found))
    label, places = (without or NoFeatures()).places(path, named)
    labels = None if label is None else _labels(found[label][1])
    values = [_numbers(path, *found[place]) for place in places]
    stacked = np.stack(values, axis=1) if values else np.empty((0, 0))
    return Table(tuple(named[place] for place in places), stacked, labels)


def _reader(path: Path) -> Callable[[Path], Columns]:
    for module, read in _READERS:
        try:
            library = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        return lambda file: read(library, file)
    raise _no_library(path, "neither is installed")


def _no_library(path: Path, received: str) -> InvalidInputError:
    repair = "Install it: pip install 'discrete-vae[tables]'; or save the table as CSV."
    return InvalidInputError(
        str(path), "needs pyarrow, or pandas with an engine, to be read", received, repair
    )


def _with_pyarrow(library: Any, path: Path) -> Columns:
    # one thread: for many columns the library's threads take longer to start than to read
    table = library.read_table(path, page_checksum_verification=True, use_threads=False)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not _INDEX.fullmatch(str(name)):
            yield str(name), column.to_numpy()


def _with_pandas(library: Any, path: Path) -> Columns:
    frame = library.read_parquet(path)
    for name in frame.columns:
        yield str(name), frame[name].to_numpy()


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


_READERS: tuple[tuple[str, Callable[[Any, Path], Columns]], ...] = (
    ("pyarrow.parquet", _with_pyarrow),
    ("pandas", _with_pandas),
)


# A table of numbers with names of its columns.


NO_FEATURE_REPAIR = (
    "If the value is missing, leave the cell empty. A column of words: train with --data.ignored-columns to leave it "
    "unread, with --data.label-column to keep it as labels, or give each of its words a number from 0."
)


@dataclass(frozen=True, eq=False)
class Table:
    """What a file with named columns holds.

    Attributes:
        columns: Names of the features.
        values: (example, column) float64; NaN marks missing values.
        labels: (example,) numbers or words; None where no column was named as theirs.
    """

    columns: tuple[str, ...]
    values: np.ndarray
    labels: np.ndarray | None = None


def check_columns(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns if each has a name of its own.

    Args:
        path: The file, for messages.
        columns: The names.

    Raises:
        InvalidInputError: If a name is empty or given twice.

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


@dataclass(frozen=True)
class NoFeatures:
    """Which columns of a table are no features.

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

        Raises:
            InvalidInputError: If a column is not there although it must be, or all are left out.

        Examples:
            >>> NoFeatures("kind", ("id",)).places(Path("x.csv"), ("id", "width", "kind"))
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


def shown_names(columns: Sequence[str], most: int = 5) -> str:
    """The first few names for messages.

    Examples:
        >>> shown_names(["a", "b", "c"], 2), shown_names([])
        ("'a', 'b', ...", 'nothing')
    """
    shown = ", ".join(repr(name[:40]) for name in columns[:most]) or "nothing"
    return shown + ", ..." * (len(columns) > most)


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


# What a user's file holds: examples in one piece or by part, their labels, and the names of their features.


WHOLE = "whole"
"""Key of examples that are not divided into parts yet."""

_NAMES = {"train": ("train", "x_train"), "valid": ("valid", "x_valid"), "test": ("test", "x_test")}
_LABELS = {part: (f"y_{part}", f"{part}_labels") for part in _NAMES}
_WHOLE_LABELS = ("y", "labels")
_SHAPES = {2: "(example, feature)", 3: "(example, height, width)", 4: "(example, channel, height, width)"}
_PARTITIONS = ({"train", "valid", "test"}, {"train", "test"})


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """Arrays of a file, by part ("train", "valid", "test"), or one for all under `WHOLE`.

    Attributes:
        examples: (example, ...).
        names: What messages call these arrays.
        labels: (example, ...), for keys of examples.
        columns: Names of the features; empty where they have none.
    """

    examples: dict[str, np.ndarray]
    names: dict[str, str]
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of an example, the same in all arrays: (feature,), or (channel, row, column).

        Raises:
            InvalidInputError: If an array has no such shape, is empty, or has another one than the first.
        """
        first = next(iter(self.examples.values()))
        for part, values in self.examples.items():
            name = self.names[part]
            if values.ndim not in _SHAPES:
                *others, last = _SHAPES.values()
                rule = f"must be {', '.join(others)} or {last}"
                raise InvalidInputError(name, rule, f"shape {values.shape}", "Reshape the array.")
            if values.size == 0:
                rule = "must hold at least one example and feature"
                raise InvalidInputError(name, rule, f"shape {values.shape}", "Fill it.")
            if values.shape[1:] != first.shape[1:]:
                rule = f"must have examples of shape {first.shape[1:]}, as {next(iter(self.examples))!r} has"
                repair = "Give all parts the same features."
                raise InvalidInputError(name, rule, f"shape {values.shape[1:]}", repair)
        shape = first.shape[1:]
        return (1, *shape) if len(shape) == 2 else shape


def read_own_arrays(file: Path, without: NoFeatures | None = None) -> OwnArrays:
    """Read a .npy, .npz, .csv or .parquet file.

    Args:
        file: The file.
        without: Which columns of a table are no features; None means all are.

    Raises:
        InvalidInputError: If the file has another ending, cannot be read, holds other arrays than it may, or has no
            such column.
    """
    if file.suffix.lower() not in _ENDINGS:
        check_is_file(file)
        repair = "Save the array with numpy.save, or the table as CSV."
        if file.suffix.lower() in _TEXTS:
            repair = f"A table in text is read by the name {file.with_suffix('.csv').name}."
        rule = f"must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        raise InvalidInputError(str(file), rule, repr(file.suffix), repair)
    if file.suffix.lower() in _TABLES:
        table = _TABLES[file.suffix.lower()](file, without)
        labels = {} if table.labels is None else {WHOLE: table.labels}
        return OwnArrays({WHOLE: table.values}, {WHOLE: str(file)}, labels, table.columns)
    without = without or NoFeatures()
    named = {"label_column": [without.label], "ignored_columns": list(without.ignored)}
    for argument, names in named.items():
        if any(name is not None and name not in without.optional for name in names):
            rule = f"needs a {' or '.join(_TABLES)} file"
            repair = "Leave it out; a .npz file has labels as y or y_train."
            raise InvalidInputError(argument, rule, str(file), repair)
    return _ARRAYS[file.suffix.lower()](file)


def _read_npy(file: Path) -> OwnArrays:
    return OwnArrays({WHOLE: read_npy(file)}, {WHOLE: str(file)})


def _read_npz(file: Path) -> OwnArrays:
    arrays = read_npz(file)
    keys = {part: next((key for key in names if key in arrays), None) for part, names in _NAMES.items()}
    of_part = {part: key for part, key in keys.items() if key is not None}
    if set(of_part) in _PARTITIONS:
        labels = _LABELS
    else:
        whole = [key for key in arrays if key not in _WHOLE_LABELS] if len(arrays) > 1 else list(arrays)
        of_part, labels = {WHOLE: whole[0]} if len(whole) == 1 else {}, {WHOLE: _WHOLE_LABELS}
    found = {part: key for part in of_part for key in labels[part] if key in arrays and key != of_part[part]}
    if not of_part or {*of_part.values(), *found.values()} != set(arrays):
        rule = "must hold train, valid and test, or train and test, or one array, and besides only labels"
        repair = "Call labels y_train, y_valid and y_test, or y; rename the other arrays, or save one of them alone."
        raise InvalidInputError(str(file), rule, shown_keys(arrays), repair)
    named = {part: f"{file}, array {shown_key(key)}," for part, key in of_part.items()}
    for part, key in found.items():
        _check_labels(f"{file}, array {shown_key(key)},", arrays[key], arrays[of_part[part]])
    return OwnArrays(
        {part: arrays[key] for part, key in of_part.items()},
        named,
        {part: arrays[key] for part, key in found.items()},
    )


def _check_labels(name: str, labels: np.ndarray, examples: np.ndarray) -> None:
    if labels.ndim == 0 or examples.ndim == 0 or len(labels) != len(examples):
        count = len(examples) if examples.ndim else 0
        received = f"shape {labels.shape}"
        raise InvalidInputError(
            name, f"must hold a label for each of the {count} examples", received, "Give one each."
        )


_ARRAYS: Mapping[str, Callable[[Path], OwnArrays]] = {".npy": _read_npy, ".npz": _read_npz}
_TABLES: Mapping[str, Callable[..., Table]] = {".csv": read_csv, ".parquet": read_parquet}
_ENDINGS = (*_ARRAYS, *_TABLES)
_TEXTS = (".tsv", ".tab", ".txt", ".dat")
