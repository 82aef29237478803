"""The kinds of a table's columns, inferred from their values or named by the user, and the way to numbers and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.config import (
    BinaryColumnConfig,
    CategoryColumnConfig,
    ColumnConfig,
    ConstantColumnConfig,
    CountColumnConfig,
    OrdinalColumnConfig,
    RealColumnConfig,
    members,
)
from discrete_vae.config.columns import RawColumn
from discrete_vae.data.arrays import as_float32
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.scaling import long_tails

FEW = 10
"""Whole numbers of at most so many different values are ranks, unless the user says otherwise."""
MOST_WORDS = 256
"""Different words beyond which a column holds names, keys or free text."""
_NAMES = 0.5  # share of the rows with different words from which they are names
_MOST_ODD = 0.1  # share of words in a column of numbers up to which they are slips, or stand for gaps


@dataclass(frozen=True)
class ColumnReading:
    """How a column is read, and why.

    Attributes:
        name: The column.
        config: Its kind; None where it is left out.
        why: The reason.
        hint: What else its kind may be; "" where the values leave no doubt.
        num_values: Different values.
        missing: Share of rows without a value.
    """

    name: str
    config: ColumnConfig | None
    why: str
    hint: str
    num_values: int
    missing: float

    def __str__(self) -> str:
        kind = "left out" if self.config is None else self.config.kind
        if isinstance(self.config, RealColumnConfig) and self.config.scale != "plain":
            kind += f":{self.config.scale}"
        gaps = f", {self.missing:.1%} missing" if self.missing else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.name}: {kind} ({self.num_values} values{gaps}): {self.why}{hint}"


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

    @property
    def columns(self) -> tuple[ColumnConfig, ...]:
        """The columns of `discrete_vae.config.TableLikelihoodConfig`."""
        return tuple(reading.config for reading in self.readings if reading.config is not None)

    def __str__(self) -> str:
        return "\n".join(map(str, self.readings))

    def encode(self, table: Mapping[str, Any]) -> Tensor:
        """Values as the model reads them, (row, column) float32, NaN where there is none.

        Args:
            table: As for `infer_schema`, its columns in any order; others than those of the schema are not looked at.

        Raises:
            InvalidInputError: If a column is missing, or holds a value that is not of its kind; names it.
        """
        given = dict(_items(table))
        for column in self.columns:
            if column.name not in given:
                received, repair = (
                    f"none of the name {column.name[:40]!r}",
                    "Add it, or rename the one that holds it.",
                )
                raise InvalidInputError("table", "must have the columns of the schema", received, repair)
        encoded = [column.encode(raw_column(column.name, given[column.name])) for column in self.columns]
        names = [column.name for column in self.columns]
        return torch.from_numpy(as_float32("table", np.stack(encoded, 1), names))

    def decode(self, x: Tensor) -> dict[str, np.ndarray]:
        """Columns as the table has them, (row,) each: numbers, or words, None where x is NaN.

        Args:
            x: (row, column), as `encode` gives it or a likelihood's `sample` or `mode`.
        """
        values = x.detach().cpu().double().numpy()
        if values.ndim != 2 or values.shape[1] != len(self.columns):
            rule = f"must have shape (row, {len(self.columns)} columns)"
            raise InvalidInputError("x", rule, f"shape {tuple(x.shape)}", "Give rows of the model.")
        return {column.name: column.decode(values[:, place]) for place, column in enumerate(self.columns)}


def infer_schema(table: Mapping[str, Any], kinds: Mapping[str, str] | None = None) -> TableSchema:
    """Infer the kind of each column of a table.

    The first rule that fits is taken:

    1. A kind that the user names.
    2. No value: left out. One value: constant. Two values, numbers or words: binary.
    3. Words: category, or ordinal where a pandas column declares an order. More than 256 different words, or more than
       10 of which there is one for every second row: left out, as names or keys.
    4. Numbers with decimals or below 0: real, on a scale of asinh where tails are long.
    5. Whole numbers of at most 10 different values: ordinal.
    6. Whole numbers among which is 0: count. Other whole numbers: real.

    Rules 5 and 6 are guesses, which the schema says when it is printed.

    Args:
        table: Columns by name, (row,) each: arrays, lists, or a pandas DataFrame. None, NaN and pandas' NA are missing.
        kinds: Kinds of some columns by name: "binary", "real", "count", "category" or "ordinal"; "real:log1p" and
            "real:asinh" give the scale, "ordinal:low<middle<high" the order, "ignore" leaves the column out.

    Raises:
        InvalidInputError: If a column's values are not of the kind that the user names, or numbers are mixed with a few
            words; names the column.
    """
    given, kinds = dict(_items(table)), dict(kinds or {})
    for name in kinds:
        if name not in given:
            shown = ", ".join(map(repr, [*given][:5]))
            raise InvalidInputError(
                "kinds", "must name columns of the table", repr(name)[:80], f"It has {shown}."
            )
    readings = [infer_kind(raw_column(name, values), kinds.get(name)) for name, values in given.items()]
    if not any(reading.config for reading in readings):
        raise InvalidInputError("table", "must have a column with values", "none", "Name the kinds of some.")
    return TableSchema(tuple(readings))


def _items(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    items = getattr(table, "items", None)
    if items is None or not hasattr(table, "keys"):
        repair = "Give a dictionary of columns by name, or a pandas DataFrame."
        raise InvalidInputError("table", "must have named columns", f"a {type(table).__name__}", repair)
    sizes = {}
    for name, values in items():
        sizes[name] = np.shape(values)
        if len(sizes[name]) != 1 or sizes[name] != next(iter(sizes.values())):
            rule, repair = "must have one value for each row", "Give columns of one length."
            raise InvalidInputError(f"column {name!r}", rule, f"shape {sizes[name]}", repair)
        yield str(name), values


def raw_column(name: str, values: Any) -> RawColumn:
    """A column of a table in memory: numbers, words and gaps apart.

    Args:
        name: Its name.
        values: (row,) numbers, booleans, words, or all of these; or a pandas column, categories included.
    """
    categories = getattr(getattr(values, "dtype", None), "categories", None)
    if categories is not None:  # of pandas
        codes = np.asarray(values.cat.codes if hasattr(values, "cat") else values.codes, np.int64)
        words = tuple(_word(each) for each in categories)
        ordered = bool(values.dtype.ordered)
        return RawColumn(name, np.full(len(codes), np.nan), codes, words, declared=True, ordered=ordered)
    array = np.asarray(values)
    if array.dtype.kind == "b":
        codes = array.astype(np.int64)
        return RawColumn(name, np.full(len(codes), np.nan), codes, ("False", "True"), declared=True)
    if array.dtype.kind in "uif":
        return RawColumn(name, array.astype(np.float64))
    cells = np.asarray(values, object)
    numbers, codes = np.full(len(cells), np.nan), np.full(len(cells), -1)
    places: dict[str, int] = {}
    for row, cell in enumerate(cells):
        if isinstance(cell, float | int | np.number) and not isinstance(cell, bool):
            numbers[row] = float(cell)
        elif not _is_gap(cell):
            codes[row] = places.setdefault(_word(cell), len(places))
    return RawColumn(name, numbers, codes if places else None, tuple(places))


def _is_gap(cell: Any) -> bool:
    return cell is None or str(cell) in ("<NA>", "NaT", "") or cell != cell


def _word(cell: Any) -> str:
    return str(cell).strip()


def infer_kind(column: RawColumn, wanted: str | None = None) -> ColumnReading:
    """The kind of one column, by the rules of `infer_schema`."""
    counts = column.counts()
    missing = float(column.missing.mean()) if len(column.numbers) else 1.0

    def reading(config: ColumnConfig | None, why: str, hint: str = "") -> ColumnReading:
        return ColumnReading(column.name, config, why, hint, len(counts), missing)

    if wanted == "ignore":
        return reading(None, "you say so")
    if not counts:
        return reading(None, "no value")
    if wanted is not None:
        return reading(_named(column, wanted), "you say so")
    if len(counts) == 1:
        return reading(ConstantColumnConfig.of(column), "one value")
    if len(counts) == 2:
        return reading(BinaryColumnConfig.of(column), "two values")
    if column.words:
        return _of_words(column, counts, reading)
    return _of_numbers(column, len(counts), reading)


def _named(column: RawColumn, wanted: str) -> ColumnConfig:
    kind, _, words = wanted.partition(":")
    kinds: dict[str, Any] = {config.model_fields["kind"].default: config for config in members(ColumnConfig)}
    if kind not in kinds:
        repair = f"Choose one of {', '.join(kinds)} and ignore."
        raise InvalidInputError(f"kind of column {column.name!r}", "must be known", repr(wanted)[:80], repair)
    return kinds[kind].of(column, words)


_Reading = Callable[..., ColumnReading]


def _of_words(column: RawColumn, counts: Mapping[str, int], reading: _Reading) -> ColumnReading:
    num_numbers = int((~np.isnan(column.numbers)).sum())
    num_words = len(column.numbers) - num_numbers - int(column.missing.sum())
    if num_words < _MOST_ODD * num_numbers:
        shown = ", ".join(repr(word[:20]) for word in column.words[:3])
        repair = "Give None for missing values; or say that it is a category."
        rule = "must hold numbers or words, not numbers and a few words"
        raise InvalidInputError(f"column {column.name!r}", rule, shown, repair)
    if not column.declared:
        different, num_rows = len(counts), num_numbers + num_words
        if different > MOST_WORDS or (different > FEW and different > _NAMES * num_rows):
            return reading(None, "nearly every row has a word of its own", "category reads it")
    if column.ordered:
        return reading(OrdinalColumnConfig.of(column), "values in a declared order")
    return reading(CategoryColumnConfig.of(column), "words")


def _of_numbers(column: RawColumn, num_values: int, reading: _Reading) -> ColumnReading:
    values = column.numbers[~np.isnan(column.numbers)]
    if (values % 1 != 0).any() or (values < 0).any():
        hint = "few of them: ordinal or category if they are codes" if num_values <= FEW else ""
        return reading(_real(column), "numbers with decimals or below 0", hint)
    if num_values <= FEW:
        why = "whole numbers of few different values"
        return reading(
            OrdinalColumnConfig.of(column), why, "a guess: category if they are codes, count if it counts"
        )
    if (values == 0).any():
        return reading(CountColumnConfig.of(column), "whole numbers from 0", "a guess: real if it measures")
    return reading(_real(column), "whole numbers above 0", "a guess: count if it counts")


def _real(column: RawColumn) -> RealColumnConfig:
    config = RealColumnConfig.of(column)
    is_long = long_tails(torch.from_numpy(column.numbers[:, None])).any()
    return config.model_copy(update={"scale": "asinh"}) if bool(is_long) else config
