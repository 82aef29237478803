"""Tables in text and Parquet files, as columns of numbers and words; and files with some cells replaced."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from discrete_vae.config.columns import RawColumn, is_number, raw_column
from discrete_vae.data.arrays import check_is_file, library, reading_errors
from discrete_vae.distributed import rank
from discrete_vae.errors import InvalidInputError, spreadsheet_cell, text_of_cell


@dataclass(frozen=True, eq=False)
class Table:
    """The named columns of a file."""

    columns: tuple[RawColumn, ...]  # the features
    labels: np.ndarray | None  # (example,) numbers or words; None where no column was named as theirs
    num_rows: int  # examples
    besides: Mapping[str, RawColumn] = field(default_factory=dict)  # columns that are no features, by name

    @classmethod
    def of(cls, columns: Sequence[RawColumn], roles: ColumnRoles, labels: Any, num_rows: int) -> Self:
        """The table of columns that are read, of which some are no features."""
        besides = {column.name: column for column in columns if column.name in roles.besides}
        features = tuple(column for column in columns if column.name not in besides)
        return cls(features, labels, num_rows, besides)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(column.name for column in self.columns)

    def numbers(self, name: str) -> np.ndarray:
        """Values, (example, column) float64: true and false are 1 and 0, NaN is missing; messages call it `name`."""
        columns = [_numbers(name, column) for column in self.columns]
        return np.stack(columns, axis=1) if columns else np.empty((self.num_rows, 0))


_TRUTH = {"true": 1.0, "false": 0.0}
_NO_FEATURE = (
    "If the value is missing, leave the cell empty, or say so: --data.missing-values. A column of words is read where "
    "no --model.likelihood is given; --data.ignored-columns leaves it out, --data.label-column keeps it as labels."
)


def _numbers(name: str, column: RawColumn) -> np.ndarray:
    """Values of a column, (example,) float64."""
    if column.codes is None:
        return column.numbers
    values = np.array([*(_TRUTH.get(word.lower(), -1.0) for word in column.words), -1.0])[column.codes]
    wrong = np.flatnonzero((column.codes >= 0) & (values < 0))
    if len(wrong):
        row = int(wrong[0])
        word = column.words[int(column.codes[row])]
        repair = _NO_FEATURE
        if word.count(",") == 1 and word.replace(",", "").lstrip("+-").isdigit():
            repair = "Decimals with a comma are read by --data.decimal ',', groups of digits by --data.thousands ','."
        received = f"{word[:40]!r} in {column.where(row)}"
        raise InvalidInputError(f"{name}, column {column.name!r},", "must hold numbers", received, repair)
    return np.where(column.codes >= 0, values, column.numbers)


@dataclass(frozen=True)
class ColumnRoles:
    """Columns of a table that are no features."""

    label: str | None = None  # the column that holds labels, numbers or words; None means none does
    ignored: tuple[str, ...] = ()  # columns that are not read, names or dates for example
    optional: frozenset[str] = frozenset()  # those of them that a file may lack
    besides: tuple[str, ...] = ()  # columns that are read beside the features: weights of the examples, say
    label_units: bool = False  # whether labels are classes of the model, see `label_words`

    def argument(self, name: str) -> str:
        """What messages call the setting that names a label or an ignored column."""
        if name != self.label:
            return "ignored_columns"
        return "label_units" if self.label_units else "label_column"

    def places(self, path: Path, columns: tuple[str, ...]) -> tuple[int | None, list[int]]:
        """The place of the labels' column, None without one, and those of the others that are read of all columns."""
        known, unread = set(columns), {self.label, *self.ignored} - {*self.besides}
        for name in (self.label, *self.besides, *self.ignored):
            if name is not None and name not in known and name not in self.optional:
                repair = f"Its columns are {shown_names(columns)}."
                if name in self.besides:  # of a later file, too, where no setting names it
                    rule, received = "must have the conditions and weights that are read", f"no {name!r}"[:80]
                    raise InvalidInputError(str(path), rule, received, repair)
                rule = f"must name columns of {path}"
                raise InvalidInputError(self.argument(name), rule, repr(name)[:80], repair)
        places = [place for place, name in enumerate(columns) if name not in unread]
        return columns.index(self.label) if self.label in known else None, places


def shown_names(columns: Iterable[str], most: int = 5) -> str:
    """The first few names for messages.

    Examples:
        >>> shown_names(["a", "b", "c"], 2), shown_names([])
        ("'a', 'b', ...", 'nothing')
    """
    names = list(columns)
    shown = ", ".join(repr(name[:40]) for name in names[:most]) or "nothing"
    return shown + ", ..." * (len(names) > most)


# A file into columns.


@dataclass(frozen=True)
class TextFormat:
    """How numbers and gaps are written in a table."""

    # what stands between cells; None is a comma, a semicolon, a tab or |, whichever is most frequent in the header
    delimiter: str | None = None
    decimal: str = "."  # what stands before decimals
    thousands: str = ""  # what groups the digits of a number; "" for nothing
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()  # words or numbers that mean a missing value, besides `MISSING_WORDS`

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter) != 1:
            rule, repair = "must be one character", "Leave it out to have it found."
            raise InvalidInputError("delimiter", rule, repr(self.delimiter), repair)
        if len(self.decimal) != 1 or len(self.thousands) > 1 or self.decimal == self.thousands:
            rule = "and thousands must be two different characters"
            received = f"{self.decimal!r}, {self.thousands!r}"
            raise InvalidInputError("decimal", rule, received, "Give ',' and '.', say.")
        try:
            "".encode(self.encoding)  # hex is no encoding of text
        except (LookupError, ValueError):
            rule, repair = "must be one that Python knows", "Give utf-8, latin-1 or utf-16, say."
            raise InvalidInputError("encoding", rule, repr(self.encoding), repair) from None

    @cached_property
    def gap_words(self) -> frozenset[str]:
        """Cells that mean a missing value, in lower case."""
        return MISSING_WORDS | {word.strip().lower() for word in self.missing}

    @cached_property
    def gap_numbers(self) -> tuple[float, ...]:
        """Numbers that mean a missing value."""
        found = (self.number(word.strip()) for word in self.missing)
        return tuple(number for number in found if number is not None and number == number)

    @property
    def of_output(self) -> dict[str, str]:
        """How a new table is written that is read in this format: keywords of `OutputFile.write`."""
        delimiter = self.delimiter or (";" if self.decimal == "," else ",")
        return {"delimiter": delimiter, "decimal": self.decimal, "encoding": self.encoding}

    @property
    def is_plain(self) -> bool:
        """Whether Python reads its numbers."""
        return self.decimal == "." and not self.thousands

    def number(self, word: str) -> float | None:
        """The number that a word is; None for another word.

        Examples:
            >>> TextFormat(decimal=",", thousands=".").number("1.234,5"), TextFormat().number("1,5")
            (1234.5, None)
        """
        if self.thousands == " ":
            word = re.sub("[\u00a0\u202f]", " ", word)  # which keep digits on one line
        if not self.is_plain:
            whole, comma, rest = word.partition(self.decimal)
            if self.thousands:
                first, *groups = whole.lstrip("+-").split(self.thousands)
                are_three = 1 <= len(first) <= 3 and all(len(each) == 3 for each in groups)
                if (groups and not are_three) or self.thousands in rest:
                    return None
                whole = whole.replace(self.thousands, "")
            if self.decimal != "." and ("." in whole or "." in rest):
                return None
            word = f"{whole}.{rest}" if comma else whole
        return float(word) if "_" not in word and is_number(word) else None  # Python reads 1_000 as a number


MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null"})
"""Cells that mean a missing value, in any case; so does None, as Python writes it."""

_DELIMITERS = ",;\t|"
_BLOCK_ROWS = 128  # whose text is in memory at the same time
_LARGE, _MIB = 1 << 25, 20  # bytes that take a second; binary digits of a MiB
_RAGGED = "Complete the line, quote cells that hold the separator, or remove what is above the header."
_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name
_ZEROS = re.compile("\0(0\\d+)(?=\0)")  # codes such as 01


def _float_alone(cell: str) -> tuple[float, int]:
    return float(cell), -1


class _TextColumn:
    """A column of text, cell after cell, becoming numbers and words."""

    def __init__(self, name: str, form: TextFormat) -> None:
        self.name = name
        self._form = form
        self._numbers: list[np.ndarray] = []
        self._codes: list[np.ndarray | None] = []
        self._words: dict[str, int] = {}
        self._known: dict[str, tuple[float, int]] = {}  # by cell, since words and gaps come again
        self._spelled: dict[float, str] = {}

    def add(self, cells: Sequence[str]) -> None:
        """Read the cells of the next rows."""
        joined = "\0".join(["", *cells, ""])
        for cell in _ZEROS.findall(joined):
            self._spelled.setdefault(float(cell), cell)
        known, is_plain = self._known, self._form.is_plain and "_" not in joined  # as in most columns
        if is_plain:
            with suppress(ValueError):
                self._numbers.append(np.fromiter(map(float, cells), np.float64, len(cells)))
                self._codes.append(None)
                return
        try:  # numbers among gaps and words that have come before
            read_new = _float_alone if is_plain else self._read
            read = [known.get(cell) or read_new(cell) for cell in cells]
        except ValueError:
            read = [known.get(cell) or self._read(cell) for cell in cells]
        self._numbers.append(np.array([number for number, _ in read]))
        codes = np.array([code for _, code in read])
        self._codes.append(codes if (codes >= 0).any() else None)

    def _read(self, cell: str) -> tuple[float, int]:
        word = cell.strip()
        if word == "None" or word.lower() in self._form.gap_words:
            found = math.nan, -1
        elif (number := self._form.number(word)) is not None:
            return number, -1
        else:
            found = math.nan, self._words.setdefault(text_of_cell(word), len(self._words))
        self._known[cell] = found
        return found

    def column(self, lines: np.ndarray) -> RawColumn:
        """The whole column."""
        numbers = np.concatenate([np.empty(0), *self._numbers])
        for gap in self._form.gap_numbers:
            numbers[numbers == gap] = np.nan
        codes = None
        if self._words:
            parts = zip(self._numbers, self._codes, strict=True)
            codes = np.concatenate([np.full(len(n), -1) if code is None else code for n, code in parts])
        return RawColumn(self.name, numbers, codes, tuple(self._words), lines=lines, spelled=self._spelled)


def _read_text(path: Path, roles: ColumnRoles, form: TextFormat) -> Table:
    """Read a text file: a header, then a line per example.

    The csv module reads it, since pandas fills short lines up, renames columns of one name and takes "1"5 for 15
    without a word.
    """
    with _open_text(path, str(path), form.encoding) as file, _reading_bar(path, file) as report:
        delimiter, header, num_lines, later = _read_header(file, form.delimiter)
        if all(map(is_number, header)):
            rule = "must start with a line that names the columns"
            repair = "Add such a line, or a letter to these."
            raise InvalidInputError(str(path), rule, shown_names(header), repair)
        names = _check_names(path, header, roles)
        label, places = roles.places(path, names)
        read = [_TextColumn(names[place], form) for place in places]
        labels: list[str] = []
        lines: list[int] = []
        reader = csv.reader(later, delimiter=delimiter, strict=True)

        def whole_rows() -> Iterator[list[str]]:
            for cells in filter(None, reader):  # blank lines aside
                lines.append(reader.line_num + num_lines)
                if len(cells) != len(names):
                    rule = f"must have as many cells as line 1, {len(names)} ({shown_names(names, 2)})"
                    raise InvalidInputError(f"{path}, line {lines[-1]},", rule, len(cells), _RAGGED)
                yield cells

        rows = whole_rows()
        while block := list(islice(rows, _BLOCK_ROWS)):
            columns = list(zip(*block, strict=True))
            for place, column in zip(places, read, strict=True):
                column.add(columns[place])
            if label is not None:
                labels += columns[label]
            report()
    words = np.array([text_of_cell(cell.strip()) for cell in labels], np.str_)
    found = None if label is None else _labels(words, form)
    numbers = np.array(lines, np.int64)
    return Table.of([column.column(numbers) for column in read], roles, found, len(lines))


_TABLES = "pip install 'discrete-vae[tables]'; or save the table as CSV"


def _read_parquet(path: Path, roles: ColumnRoles, form: TextFormat) -> Table:
    """Read a Parquet file; an index without a name that pandas wrote is left out."""
    check_is_file(path)
    parquet = library("pyarrow.parquet", path, _TABLES)
    with reading_errors(str(path), "Parquet file"):
        # one thread: for many columns the library's threads take longer to start than to read
        table = parquet.read_table(path, page_checksum_verification=True, use_threads=False)
        named = zip(map(str, table.column_names), table.columns, strict=True)
        found = [(name, _arrow_values(path, column)) for name, column in named if not _INDEX.fullmatch(name)]
    names = _check_names(path, [name for name, _ in found], roles)
    label, places = roles.places(path, names)
    columns = [_without_gap_words(raw_column(names[place], found[place][1]), form) for place in places]
    labels = None if label is None else _labels(np.asarray(found[label][1]), form)
    return Table.of(columns, roles, labels, table.num_rows)


def _arrow_values(path: Path, column: Any) -> Any:
    """The values of a column, (row,): an array, or pandas' categories where the file declares these."""
    if not (hasattr(column.type, "dictionary") or "dictionary" in str(column.type)):
        return column.to_numpy()
    library("pandas", path, _TABLES)
    return column.to_pandas()


def _without_gap_words(column: RawColumn, form: TextFormat) -> RawColumn:
    """A column in which the user's words and numbers for a missing value are such."""
    numbers, codes = column.numbers, column.codes
    if form.gap_numbers:
        numbers = np.where(np.isin(numbers, form.gap_numbers), np.nan, numbers)
    gaps = {word.strip().lower() for word in form.missing}
    words = [word for word in column.words if word.lower() not in gaps]
    if codes is not None and len(words) < len(column.words):
        places = {word: place for place, word in enumerate(words)}
        codes = np.array([places.get(word, -1) for word in column.words] + [-1])[codes]
    return replace(column, numbers=numbers, codes=codes, words=tuple(words))


_Reader = Callable[[Path, ColumnRoles, TextFormat], Table]
TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".dat")
"""Endings of tables in text."""
READERS: Mapping[str, _Reader] = {
    **{ending + packed: _read_text for packed in ("", ".gz") for ending in TEXT_ENDINGS},
    ".parquet": _read_parquet,
}
"""The reader of each ending."""


def table_ending(path: Path) -> str | None:
    """The ending of a file that holds a table, one of `READERS`; None for another file.

    Examples:
        >>> table_ending(Path("x.CSV.gz")), table_ending(Path("x.npy"))
        ('.csv.gz', None)
    """
    endings = "".join(path.suffixes[-2:]).lower(), path.suffix.lower()
    return next((ending for ending in endings if ending in READERS), None)


@contextmanager
def _open_text(path: Path, argument: str, encoding: str = "utf-8") -> Iterator[IO[str]]:
    """Open a table in text, compressed or not; faults that come up while it is read are those of the file."""
    check_is_file(path)  # a pipe would be waited for
    rule = f"must be a readable table in text, in {encoding}"
    repair = "Save it as CSV in UTF-8, a line per example, or name its encoding."
    encoding = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rt", encoding=encoding, newline="") as file:
            yield file
    except UnicodeError:
        with path.open("rb") as begin:
            is_wide = begin.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        likely = "utf-16" if is_wide else "cp1252"  # of spreadsheets on Windows
        repair = f"{repair[:-1]}: --data.encoding {likely}."
        raise InvalidInputError(argument, rule, "other bytes", repair) from None
    except (csv.Error, OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(argument, rule, getattr(error, "strerror", None) or error, repair) from None


@contextmanager
def _reading_bar(path: Path, file: IO[str]) -> Iterator[Callable[[], None]]:
    """A bar that a call moves to the place in a large file where reading is; on a terminal alone."""
    size = path.stat().st_size
    if size < _LARGE or sys.stderr is None or not sys.stderr.isatty() or rank() > 0:
        yield lambda: None
        return
    from discrete_vae.runs.progress import TrainingProgress

    with TrainingProgress(0, size >> _MIB, what="reading", transient=True) as bar:
        yield lambda: bar.advance(os.lseek(file.fileno(), 0, os.SEEK_CUR) >> _MIB)


_QUOTED = re.compile(r'(?:^|(?<=[,;\t|]))"(?:[^"]|"")*"')
_OPEN = re.compile(r'(?:^|[,;\t|])"')
_LONGEST_HEADER = 100  # lines


def _read_header(
    lines: Iterator[str], delimiter: str | None = None
) -> tuple[str, list[str], int, Iterator[str]]:
    r"""Read the delimiter of cells, the names of the columns, and how many lines these take; gives the later lines.

    Examples:
        >>> _read_header(iter(['"width, mm";"a\n', 'b"\n', "1;2"]))[:3]
        (';', ['width, mm', 'a\nb'], 2)
    """
    head = [next(lines, "")]
    if delimiter is None:
        unquoted = _QUOTED.sub("", head[0])
        # a name in quotes may have line breaks; a quote inside another name is a letter
        while _OPEN.search(unquoted) and len(head) < _LONGEST_HEADER and (line := next(lines, "")):
            head.append(line)
            unquoted = _QUOTED.sub("", "".join(head))
        delimiter = max(_DELIMITERS, key=unquoted.count)
    reader = csv.reader(chain(head, lines), delimiter=delimiter)
    names = [text_of_cell(name.strip()) for name in next(reader, [])]
    return delimiter, names, reader.line_num, chain(head[reader.line_num :], lines)


def _check_names(path: Path, columns: Sequence[str], roles: ColumnRoles) -> tuple[str, ...]:
    """Return the names of columns if each that is read has a name of its own."""
    if "" in columns and "" not in roles.ignored:
        repair = "Name it, or remove it, as an index of pandas; training leaves it out by --data.ignored-columns ''."
        received = f"none for column {columns.index('') + 1}"
        raise InvalidInputError(str(path), "must have a name for every column", received, repair)
    read = Counter(name for name in columns if name not in roles.ignored)
    name, count = read.most_common(1)[0] if read else ("", 1)
    if count > 1:
        received = f"{name[:40]!r} more than once"
        raise InvalidInputError(str(path), "must have different names of columns", received, "Rename one.")
    return tuple(columns)


def read_table(path: Path, roles: ColumnRoles | None = None, form: TextFormat | None = None) -> Table:
    r"""Read a table by the reader of its ending, one of `READERS`.

    In text the first line names the columns. Empty cells, None, and the words na, n/a, #n/a, <na>, nan and null, in
    any case, are missing values. Blank lines are skipped. The apostrophe that the verbs put before a name or a word
    that a spreadsheet would compute, see `discrete_vae.errors`, is taken away. An error names the line.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "x.csv")
        ...     _ = path.write_text("width,height\n1.5,2\n,3\n")
        ...     read_table(path).numbers("x.csv")
        array([[1.5, 2. ],
               [nan, 3. ]])
    """
    return READERS[table_ending(path) or ".csv"](path, roles or ColumnRoles(), form or TextFormat())


def _labels(column: np.ndarray, form: TextFormat) -> np.ndarray:
    """Labels from the column of a file."""
    return column if column.dtype.kind in "bui" else read_labels(label_words(column, form).tolist())


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


def label_words(labels: np.ndarray, form: TextFormat) -> np.ndarray:
    """Labels, (example,) numbers or words, as words: "" for what means a missing value in a table of that format.

    Examples:
        >>> label_words(np.array([2.0, np.nan, 1.0]), TextFormat()).tolist()
        ['2', '', '1']
    """
    gaps = form.gap_words | {str(int(number)) for number in form.gap_numbers if number.is_integer()}
    words = [re.sub(r"^([+-]?\d+)\.0+$", r"\1", str(label).strip()) for label in labels.tolist()]
    is_gap = [word == "None" or word.lower() in gaps for word in words]
    return np.where(is_gap, "", np.array(words, np.str_))


# A table in a file with some of its cells replaced: of text every other byte stays, of Parquet every other value.


_MARK = "\ufeff"  # the byte order mark that some programs put first
_CELL = r'("(?:[^"]|"")*"|[^{0}\r\n]*)({0}|\r\n|\r|\n|\Z)'


def filled_text(
    path: Path,
    columns: Sequence[str],
    replaced: np.ndarray,
    words: np.ndarray,
    form: TextFormat | None = None,
) -> str:
    """The text of a table with `words` where cells are `replaced` (bool), both (row, column) in the order of `columns`.

    Other cells and the ends of lines stay. A form of None is `TextFormat`'s defaults.
    """
    form = form or TextFormat()
    with path.open(encoding=form.encoding, newline="") as file:
        whole = file.read()
    text = whole.removeprefix(_MARK)
    separator, names, *_ = _read_header(io.StringIO(text, newline=""), form.delimiter)
    place_of = {name: place for place, name in enumerate(columns)}
    places = [place_of.get(name) for name in names]
    pieces = [_MARK] if text != whole else []
    computed = {word for word in map(str, words[replaced]) if spreadsheet_cell(word) != word}
    computed = {word for word in computed if form.number(word) is None}
    if computed:  # those that the file has as they are stay so
        computed.difference_update(cell for cells in _records(text, separator) for cell, _ in cells)
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
        line: list[str] = []
        for place, (cell, end) in zip(places, cells, strict=True):
            new = place is not None and replaced[row, place]
            word = str(words[row, place]) if new else ""
            line += [_cell(word, separator, word in computed) if new else cell, end]
        pieces.append("".join(line))  # single cells would take several times the memory
    if not fits or row + 1 != len(replaced):
        rule = "must be as it was when it was read"
        raise InvalidInputError(str(path), rule, "other rows or columns", "Run it again.")
    return "".join(pieces)


def _cell(word: str, separator: str, is_computed: bool) -> str:
    """A word as a table holds it: in quotes where it has to be."""
    word = spreadsheet_cell(word) if is_computed else word
    quoted = any(each in word for each in (separator, '"', "\n", "\r"))
    return '"' + word.replace('"', '""') + '"' if quoted else word


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


def filled_parquet(path: Path, columns: Mapping[str, np.ndarray], replaced: np.ndarray) -> bytes:
    """A Parquet file with new values of columns, (row,) by name, in the cells that are `replaced`, (row, column) bool.

    Other columns stay, and so do types that have room for the values.
    """
    pyarrow, _, parquet = (library(f"pyarrow{part}", path) for part in ("", ".compute", ".parquet"))
    table = parquet.read_table(path, use_threads=False)
    if table.num_rows != len(replaced) or not columns.keys() <= set(table.column_names):
        rule = "must be as it was when it was read"
        raise InvalidInputError(str(path), rule, "other rows or columns", "Run it again.")
    metadata = dict(table.schema.metadata or {})
    of_pandas = json.loads(metadata.get(b"pandas", '{"columns": []}'))
    for (name, values), rows in zip(columns.items(), replaced.T, strict=True):
        old, place = table[name].combine_chunks(), table.column_names.index(name)
        new = _replaced(pyarrow, old, pyarrow.array(values, mask=~rows), rows)
        table = table.set_column(place, name, new)
        if new.type != old.type:  # pandas has no longer a type of its own for it
            of_pandas["columns"] = [each for each in of_pandas["columns"] if each["field_name"] != name]
    if b"pandas" in metadata:
        metadata[b"pandas"] = json.dumps(of_pandas)
    content = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata(metadata), content)
    return content.getvalue()


def _replaced(pyarrow: Any, old: Any, new: Any, rows: np.ndarray) -> Any:
    """An array of Arrow with new values in some rows, of its own type if they are the same in it."""
    kind, is_coded = old.type, pyarrow.types.is_dictionary(old.type)
    plain = kind.value_type if is_coded else kind
    try:
        cast = new.cast(plain)  # makes 0.3 true, and refuses to make 2.5 a whole number
        fits = pyarrow.types.is_floating(plain) or cast.cast(new.type).equals(new)
    except pyarrow.ArrowException:
        cast, fits = new, False
    if is_coded and fits:
        codes = pyarrow.compute.index_in(cast, old.dictionary, skip_nulls=True)
        if codes.null_count == cast.null_count:
            codes = pyarrow.compute.if_else(rows, codes.cast(kind.index_type), old.indices)
            return pyarrow.DictionaryArray.from_arrays(codes, old.dictionary, ordered=kind.ordered)
    plain = plain if fits else new.type
    return pyarrow.compute.if_else(rows, new.cast(plain), old.cast(plain))
