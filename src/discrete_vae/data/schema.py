"""The kinds of a table's columns, inferred from their values or named by the user, and the way to numbers and back."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from discrete_vae.config import ColumnConfig, ExposureColumnConfig
from discrete_vae.config.base import by_kind
from discrete_vae.config.columns import RawColumn, raw_column
from discrete_vae.data.arrays import as_float32, check_is_file
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.scaling import long_tails
from discrete_vae.system import user_path

FEW = 10
"""Whole numbers of at most so many different values are ranks, unless the user says otherwise."""
MOST_WORDS = 256
"""Different words beyond which a column holds names, keys or free text."""
_NAMES = 0.5  # share of the rows with different words from which they are names
_REPEATS = 10  # of a value on average, from which few values are codes or ranks though they have decimals
_FEWEST_COUNTED = 20  # rows up to which a column may count them by chance
_DATES = re.compile(  # 2024-01-05 10:00, 5.1.2024, 10:00:00
    r"\d{4}([./-])\d\d\1\d\d([ T].*)?|\d{1,2}([./-])\d{1,2}\3(\d\d){1,2}( .*)?|\d{1,2}:\d\d(:\d\d)?"
)
# 1,5 or 1,000 or 1.000.000 or 1 234,5
_GROUPED = re.compile(r"[+-]?(\d+([.,']\d+)+|\d{1,3}([ \u00a0\u202f]\d{3})+([.,]\d+)?)")
_SIGNED = re.compile(r"(?=.*[%€$£])[€$£]? ?[+-]?[\d.,' ]*\d ?[%€$£]?")  # 12.5% or $1,002
_GAP_MARKS = frozenset(
    {"?", "-", "--", ".", "*", "none", "unknown", "missing", "n.a.", "#value!", "#ref!", "#div/0!"}
)
_INDEX = re.compile(r"Unnamed: \d+|index|level_\d+")  # of pandas
_MOST_MARKS = 3  # different words that may be marks in a column of numbers
_MOST_ODD = 0.1  # share of words in a column of numbers up to which they are slips, or stand for gaps


@dataclass(frozen=True)
class ColumnReading:
    """How a column is read, and why."""

    name: str
    config: ColumnConfig | None  # its kind; None where it is left out
    why: str  # the reason
    hint: str  # what else its kind may be; "" where the values leave no doubt
    num_values: int  # different values
    missing: float  # share of rows without a value

    def __str__(self) -> str:
        kind = "left out" if self.config is None else self.config.kind
        if self.config is not None and self.config.addition:
            kind += f":{self.config.addition}"
        gaps = f", {self.missing:.1%} missing" if self.missing else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.name}: {kind} ({self.num_values} value{'s' * (self.num_values != 1)}{gaps}): {self.why}{hint}"


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table that a model reads, and how they become numbers.

    Attributes:
        readings: How each column is read; printing the schema prints a line for each.

    Examples:
        >>> table = {"age": [31, 45, 28, 60], "sex": ["f", "m", None, "f"], "pain": [0.5, 2.5, 1.5, 3.5]}
        >>> schema = infer_schema(table, {"age": "real"})
        >>> print(schema)
        age: real (4 values): you say so
        sex: binary (2 values, 25.0% missing): two values
        pain: real (4 values): numbers with decimals or below 0; few of them: ordinal or category if they are codes
        >>> schema.encode(table)
        tensor([[31.0000,  0.0000,  0.5000],
                [45.0000,  1.0000,  2.5000],
                [28.0000,     nan,  1.5000],
                [60.0000,  0.0000,  3.5000]])
        >>> schema.decode(schema.encode(table))["sex"]
        array(['f', 'm', None, 'f'], dtype=object)
    """

    readings: tuple[ColumnReading, ...]

    @classmethod
    def of(cls, columns: Sequence[ColumnConfig], found: Sequence[RawColumn] = ()) -> Self:
        """The schema of a model that is trained; of each of its columns as found in a file, where that is given."""
        counted = [(raw.num_values, raw.share_missing) for raw in found]
        pairs = zip(columns, counted or [(0, 0.0)] * len(columns), strict=True)
        return cls(tuple(ColumnReading(each.name, each, "as trained", "", *counts) for each, counts in pairs))

    @property
    def columns(self) -> tuple[ColumnConfig, ...]:
        """The columns of `discrete_vae.config.TableLikelihoodConfig`."""
        return tuple(reading.config for reading in self.readings if reading.config is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(column.name for column in self.columns)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the columns that are not read."""
        return tuple(reading.name for reading in self.readings if reading.config is None)

    def __str__(self) -> str:
        return "\n".join(map(str, self.readings))

    def encode(self, table: Mapping[str, Any], *, fitted: bool = False) -> Tensor:
        """Values as the model reads them, (row, column) float32, NaN where there is none.

        Args:
            table: As for `infer_schema`, its columns in any order; others than those of the schema are not looked at.
            fitted: Whether a model has been fitted to other rows. If not, the rows must differ by more than float32
                rounds.

        Raises:
            InvalidInputError: If a column is missing, or holds a value that is not of its kind; names it.
        """
        given = dict(_items(table, self.names))
        for column in self.columns:
            if column.name not in given:
                rule = "must have the columns of the schema"
                repair = "Add it, or rename the one that holds it."
                raise InvalidInputError("table", rule, f"none of the name {column.name[:40]!r}", repair)
        encoded = [column.encode(raw_column(column.name, given[column.name])) for column in self.columns]
        return torch.from_numpy(as_float32("table", np.stack(encoded, 1), self.names, fitted=fitted))

    def decode(self, x: Tensor | np.ndarray) -> dict[str, np.ndarray]:
        """Columns as the table has them, (row,) each: numbers or words; where x is NaN it is NaN or None.

        x is (row, column), as `encode` gives it or a likelihood's `sample` or `mode`.
        """
        values = x.detach().cpu().numpy() if isinstance(x, Tensor) else x
        if values.ndim != 2 or values.shape[1] != len(self.columns):
            rule = f"must have shape (row, {len(self.columns)} columns)"
            raise InvalidInputError("x", rule, f"shape {tuple(x.shape)}", "Give rows of the model.")
        return {column.name: column.decode(values[:, place]) for place, column in enumerate(self.columns)}


def infer_schema(table: Mapping[str, Any], kinds: Mapping[str, str] | None = None) -> TableSchema:
    """Infer the kind of each column of a table.

    The first rule that fits is taken:

    1. A kind that the user names.
    2. No value: left out. One value: constant. Two values, numbers or words: binary.
    3. Whole numbers that count more than 20 rows, gaps aside, or differ under a name of pandas' indices: left out.
    4. Dates or times: left out. Other words: category, or ordinal where a pandas column declares an order. More than
       256 different words, or more than 10 of which there is one for every second row: left out, as names or keys.
    5. Numbers with decimals or below 0: real, on a scale of asinh where tails are long. But of at most 10 different
       values, each there ten times on average, they are ordinal if their steps are even, else category: a density
       of real numbers would grow without bound around each value.
    6. Whole numbers of at most 10 different values: ordinal.
    7. Whole numbers among which is 0: count. Other whole numbers: real, on a scale as in rule 5.

    Those of few values, and rule 7, are guesses, which the schema says when it is printed.

    Args:
        table: Columns by name, (row,) each: arrays, lists, or a pandas DataFrame. None, NaN and pandas' NA are missing.
        kinds: Kinds of some columns by name: "binary", "real", "count", "category" or "ordinal"; "real:log1p" and
            "real:asinh" give the scale, "count:total" the exposure, "count:zero-inflated" adds zeros,
            "count:total:zero-inflated" does both, "count:exposure:days" has the column "days" as its exposure, which is
            then read as such and no variable, "ordinal:low<middle<high" gives the order, "ignore" leaves the column
            out.

    Raises:
        InvalidInputError: If a column's values are not of the kind that the user names, or numbers are mixed with a few
            words; names the column.
    """
    return infer_columns([raw_column(name, values) for name, values in _items(table)], kinds or {})


def infer_columns(columns: Sequence[RawColumn], kinds: Mapping[str, str]) -> TableSchema:
    """`infer_schema` for the columns of a file."""
    raw = {column.name: column for column in columns}
    check_kinds(kinds, [*raw])
    found = {name: infer_kind(column, kinds.get(name)) for name, column in raw.items()}
    pairs = [(getattr(each.config, "exposure_column", None), each.name) for each in found.values()]
    of_counts = {exposure: name for exposure, name in pairs if exposure is not None}
    check_kinds(of_counts, [*raw], "exposure")
    for name, kind in kinds.items():
        if (kind == "exposure") != (name in of_counts):
            rule = "must be exposure if counts name it as theirs, and else another"
            raise InvalidInputError(f"kind of column {name!r}", rule, repr(kind)[:80], "Correct it.")
    for exposure, name in of_counts.items():
        config, why = ExposureColumnConfig.of(raw[exposure]), f"exposure of {name!r}"
        found[exposure] = replace(found[exposure], config=config, why=why, hint="")
    if not any(reading.config for reading in found.values()):
        raise InvalidInputError("table", "must have a column with values", "none", "Name the kinds of some.")
    return TableSchema(tuple(found.values()))


def _items(table: Mapping[str, Any], names: Sequence[str] | None = None) -> Iterator[tuple[str, Any]]:
    items = getattr(table, "items", None)
    if items is None or not hasattr(table, "keys"):
        repair = "Give a dictionary of columns by name, or a pandas DataFrame."
        raise InvalidInputError("table", "must have named columns", f"a {type(table).__name__}", repair)
    sizes = {}
    for name, values in items():
        word = str(name)
        if names is not None and word not in names:
            continue
        if word in sizes:
            rule = "must have different names of columns"
            raise InvalidInputError("table", rule, repr(name), "Rename one.")
        try:
            sizes[word] = np.shape(values)
        except ValueError:  # lists of different lengths
            sizes[word] = (-1, -1)
        if len(sizes[word]) != 1 or sizes[word] != next(iter(sizes.values())):
            rule, repair = "must have one value for each row", "Give columns of one length."
            raise InvalidInputError(f"column {name!r}", rule, f"shape {sizes[word]}", repair)
        if sizes[word] == (0,):
            raise InvalidInputError("table", "must have at least one row", "none", "Add rows.")
        yield word, values


def check_kinds(kinds: Mapping[str, str], names: Sequence[str], argument: str = "kinds") -> None:
    """Check that words are given for columns that there are."""
    if not isinstance(kinds, Mapping):
        rule, repair = "must be a dictionary of words by column", "Give one such as {'age': 'real'}."
        raise InvalidInputError(argument, rule, repr(kinds)[:80], repair)
    for name in kinds:
        if name not in names:
            there = f"There are {', '.join(map(repr, names[:5]))}."
            repair = there if names else "Leave it out: no column has a name."
            raise InvalidInputError(argument, "must name columns", repr(name)[:80], repair)


def read_pairs(argument: str, text: str) -> dict[str, str]:
    """Words by column, of "age=31,sex=f"; a column is named once. A comma without = behind it belongs to the word.

    Examples:
        >>> read_pairs("--condition", "energy=0.5, town=Bath, UK")
        {'energy': '0.5', 'town': 'Bath, UK'}
    """
    found: dict[str, str] = {}
    for pair in re.split(",(?=[^,]*=)", text) if text else []:
        name, equals, word = pair.rpartition("=")
        if not equals or name.strip() in found:
            rule, repair = "must be pairs COLUMN=WORD, each column once", "Put commas between them."
            raise InvalidInputError(argument, rule, repr(pair)[:80], repair)
        found[name.strip()] = word.strip()
    return found


def read_kinds(text: str) -> dict[str, str]:
    """Kinds by column, from the setting ``data.kinds``.

    It is "auto" for none, "age=real,sex=category", or the path of a .toml file with a line age = "real" for each.

    Examples:
        >>> read_kinds("age=real:log1p, pain=ordinal:low<high")
        {'age': 'real:log1p', 'pain': 'ordinal:low<high'}
    """
    if text.strip() in ("", "auto"):
        return {}
    if text.endswith(".toml"):
        path = user_path("kinds", text)
        check_is_file(path)
        try:
            kinds = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInputError("kinds", "must name a readable TOML file", error, "Correct it.") from None
        nested = kinds.get("kinds")  # or a column of that name
        kinds = nested if isinstance(nested, dict) else kinds
    else:
        kinds = read_pairs("kinds", text)
    for name, kind in kinds.items():
        if not isinstance(kind, str):
            received = f"{name} = {kind!r}"[:80]
            raise InvalidInputError("kinds", "must be words", received, 'Write age = "real".')
    return kinds


def infer_kind(column: RawColumn, wanted: str | None = None) -> ColumnReading:
    """The kind of one column, by the rules of `infer_schema`."""
    kind, why, *hint = _judged(column, wanted)
    config, kinds = None, by_kind(ColumnConfig)
    if kind is not None:
        name, _, words = kind.partition(":")
        if name not in kinds:
            rule, repair = "must be known", f"Choose one of {', '.join(kinds)} and ignore."
            raise InvalidInputError(f"kind of column {column.name!r}", rule, repr(kind)[:80], repair)
        try:
            config = kinds[name].of(column, words)
        except InvalidInputError as error:
            if error.argument.startswith("column "):
                raise
            argument = f"column {column.name!r}, read as {name},"
            raise InvalidInputError(argument, error.rule, error.received, "Choose another kind.") from None
    return ColumnReading(column.name, config, why, "".join(hint), column.num_values, column.share_missing)


_Judged = tuple[str | None, str] | tuple[str | None, str, str]  # a kind, why, and what else it may be


def _judged(column: RawColumn, wanted: str | None) -> _Judged:
    if wanted == "ignore":
        return None, "you say so"
    if column.missing.all():
        return None, "no value"
    if wanted is not None:
        return wanted, "you say so"
    different = column.num_values
    if different == 1:
        return "constant", "one value"
    if different == 2:
        return "binary", "two values"
    return _of_words(column, different) if column.words else _of_numbers(column, different)


def _of_words(column: RawColumn, different: int) -> _Judged:
    def most(form: re.Pattern[str]) -> list[str]:
        """The words of a form, if most are: fewer may be words among words, such as versions."""
        found = [] if column.declared else [word for word in column.words if form.fullmatch(word)]
        return found if 2 * len(found) > len(column.words) else []

    num_numbers = int((~np.isnan(column.numbers)).sum())
    num_words = len(column.numbers) - num_numbers - int(column.missing.sum())
    if num_words > num_numbers and most(_DATES):
        return None, "dates or times", "category reads it"
    if grouped := most(_GROUPED):
        mark = next(letter for letter in grouped[0] if letter in ".,'" or letter.isspace())
        mark = " " if mark.isspace() else mark
        is_comma = mark == "." or (mark == " " and any("," in word for word in grouped))
        groups = f'--data.thousands "{mark}"' + " --data.decimal ','" * is_comma
        repair = (
            f"Decimals with a comma are read by --data.decimal ',', groups of digits by {groups}; if they are words: "
            f"{_option(column, 'category')}."
        )
        rule = "must hold numbers whose points and commas are said"
        raise InvalidInputError(f"column {column.name!r}", rule, repr(grouped[0][:20]), repair)
    if signed := most(_SIGNED):
        repair = f"Remove % and $, say; if they are words: {_option(column, 'category')}."
        rule = "must hold numbers without signs of percent or currency"
        raise InvalidInputError(f"column {column.name!r}", rule, repr(signed[0][:20]), repair)
    marks = [word for word in column.words if word.lower() in _GAP_MARKS]
    are_odd = num_words < _MOST_ODD * num_numbers or len(marks) == len(column.words)
    # one mark among many numbers, however often, is no word either
    are_odd |= len(column.words) <= _MOST_MARKS and num_words < num_numbers and different > 2 * FEW
    if not column.declared and num_numbers and are_odd:
        shown = ", ".join(repr(word[:20]) for word in column.words[:3])
        repair = (
            "If they mean missing values: --data.missing-values=WORD, in Python None in their place; if all are codes: "
            f"{_option(column, 'category')}."
        )
        rule = "must hold numbers or words, not numbers and a few words"
        raise InvalidInputError(f"column {column.name!r}", rule, shown, repair)
    if not column.declared:
        num_rows = num_numbers + num_words
        if different > MOST_WORDS or (different > FEW and different > _NAMES * num_rows):
            return None, "nearly every row has a word of its own", "category reads it"
    if column.ordered:
        return "ordinal", "values in a declared order"
    is_guess = marks and not column.declared
    hint = f"a guess: --data.missing-values={shlex.quote(marks[0])} if that is none" if is_guess else ""
    return "category", "words", hint


def _option(column: RawColumn, kind: str) -> str:
    """The option that reads a column as of a kind."""
    return f"--data.kinds {shlex.quote(f'{column.name}={kind}')}"


def _of_numbers(column: RawColumn, num_values: int) -> _Judged:
    values = column.numbers[~np.isnan(column.numbers)]
    if np.isinf(values).any():
        return "real", "numbers"  # which refuses them
    if (values % 1 != 0).any() or (values < 0).any():
        if num_values <= FEW and _REPEATS * num_values <= len(values):
            steps = np.diff(np.unique(values))
            kind = "ordinal" if np.allclose(steps, steps[0]) else "category"
            hint = "a guess: real if it measures, ordinal if it ranks"
            return kind, "numbers of few different values", hint
        hint = "few of them: ordinal or category if they are codes" if num_values <= FEW else ""
        return _real(column), "numbers with decimals or below 0", hint
    if num_values == len(values) > _FEWEST_COUNTED:
        # some rows may be empty lines, and some of an index's may be in another file
        counts_rows = np.ptp(values) == num_values - 1 and 2 * num_values > len(column.numbers)
        if counts_rows or _INDEX.fullmatch(column.name):
            return None, "it counts the rows, as an index does", "real reads it"
    hint = "a guess: category if they are codes, count if it counts"
    if num_values <= FEW:
        return "ordinal", "whole numbers of few different values", hint
    if (values == 0).any():
        return "count", "whole numbers from 0", "a guess: real if it measures"
    return _real(column), "whole numbers above 0", hint


def _real(column: RawColumn) -> str:
    is_long = bool(long_tails(torch.from_numpy(column.numbers[:, None])).any())
    return "real:asinh" if is_long else "real"
