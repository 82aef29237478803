"""The columns of a table: as a file has them, and the kinds as which a model reads them."""

from __future__ import annotations

import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from discrete_vae.checks import ABOVE_MINUS_ONE, COUNTS, FINITE, POSITIVE, Domain, categories
from discrete_vae.config.base import ComponentConfig
from discrete_vae.errors import InvalidInputError

_LARGEST = 2**53  # below which each whole number is a float64 of its own
_BOOLEANS = ("False", "True")
_NUMERAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_TOO_FINE = ("ns", "ps", "fs", "as")  # units of time that Python has no object for


@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column of a file: a number, a word or nothing in each row."""

    name: str
    numbers: np.ndarray  # (row,) float64; NaN where there is a word or nothing
    codes: np.ndarray | None = None  # (row,) place in `words`, -1 where there is no word; None without words
    words: tuple[str, ...] = ()  # the different ones, in the order of the file or in the one that it declares
    declared: bool = False  # whether the file says that these are all the values there are
    ordered: bool = False  # whether it says that they have an order
    spelled: Mapping[float, str] = field(default_factory=dict)  # numbers written with zeros before them
    lines: np.ndarray | None = None  # (row,) numbers of the rows' lines; None where the file is no text

    def where(self, row: int) -> str:
        """The place of a row, for messages."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    @property
    def missing(self) -> np.ndarray:
        """Mask of the rows without a value."""
        missing = np.isnan(self.numbers)
        return missing if self.codes is None else missing & (self.codes < 0)

    @property
    def share_missing(self) -> float:
        """Share of the rows without a value; 1 without rows."""
        return float(self.missing.mean()) if len(self.numbers) else 1.0

    @property
    def num_values(self) -> int:
        """Number of different values, words that the file declares and lacks among them."""
        return len(self.values() if self.words else np.unique(self.numbers[~np.isnan(self.numbers)]))

    def values(self) -> tuple[str, ...]:
        """The different values: numbers in ascending order, then words."""
        numbers = np.unique(self.numbers[~np.isnan(self.numbers)]).tolist()
        words = (self.spelled.get(number, word_of(number)) for number in numbers)
        return tuple(dict.fromkeys([*words, *self.words]))


def raw_column(name: str, values: Any) -> RawColumn:
    """A column of a table in memory: numbers, booleans and words, (row,), or a pandas column, categories included."""
    categories = getattr(getattr(values, "dtype", None), "categories", None)
    if categories is not None:  # of pandas
        codes = np.asarray(values.cat.codes if hasattr(values, "cat") else values.codes, np.int64)
        words, ordered = tuple(_word(each) for each in categories), bool(values.dtype.ordered)
        return RawColumn(name, np.full(len(codes), np.nan), codes, words, declared=True, ordered=ordered)
    array = np.asarray(values)
    if array.dtype.kind == "b":
        codes = array.astype(np.int64)
        return RawColumn(name, np.full(len(codes), np.nan), codes, _BOOLEANS, declared=True)
    if array.dtype.kind in "uif":
        return RawColumn(name, array.astype(np.float64))
    if isinstance(values, np.ndarray) and array.dtype.kind in "mM":
        unit = np.datetime_data(array.dtype)[0]
        values = array.astype(f"{array.dtype.kind}8[us]") if unit in _TOO_FINE else array
    cells = np.asarray(values, object)
    if cells.ndim != 1 or any(isinstance(cell, list | tuple | dict | set | np.ndarray) for cell in cells):
        rule, repair = "must hold one number or word in each row", "Leave the column out."
        raise InvalidInputError(f"column {name!r}", rule, "several in a row", repair)
    numbers, codes = np.full(len(cells), np.nan), np.full(len(cells), -1)
    places: dict[str, int] = {}
    for row, cell in enumerate(cells):
        if _is_numeric(cell):
            try:
                numbers[row] = float(cell)
            except OverflowError:
                rule, repair = "must hold numbers that float64 has", "Leave it out, or make it a word."
                raise InvalidInputError(f"column {name!r}", rule, f"one in row {row + 1}", repair) from None
        elif not (cell is None or str(cell).strip() in ("<NA>", "NaT", "") or cell != cell):
            codes[row] = places.setdefault(_word(cell), len(places))
    has_word = codes >= 0
    are_flags = bool(places) and all(isinstance(cell, bool | np.bool_) for cell in cells[has_word])
    if are_flags and np.isnan(numbers).all():
        codes[has_word] = cells[has_word].astype(bool)  # 0 or 1, as in a column of booleans without gaps
        return RawColumn(name, numbers, codes, _BOOLEANS, declared=True)
    return RawColumn(name, numbers, codes if places else None, tuple(places))


def _is_numeric(cell: Any) -> bool:
    return isinstance(cell, float | int | np.number | Decimal) and not isinstance(cell, bool)


def _word(cell: Any) -> str:
    """A word as a file has it: 1 and 1.0 are the same, as pandas makes floats of the categories beside a gap."""
    return word_of(float(cell)) if _is_numeric(cell) and abs(cell) < _LARGEST else str(cell).strip()


def word_of(value: float) -> str:
    """A number as the shortest text that gives it back.

    Examples:
        >>> word_of(3.0), word_of(0.1)
        ('3', '0.1')
    """
    return str(int(value)) if float(value).is_integer() and abs(value) < _LARGEST else repr(float(value))


def is_number(word: str) -> bool:
    """Whether a word is a number as Python writes one."""
    try:
        float(word)
    except ValueError:
        return False
    return True


class BaseColumnConfig(ComponentConfig):
    """A column of a table: its name, and what its values are.

    A kind of column is a subclass and a row of the union `ColumnConfig`; its target is the likelihood of such columns.
    """

    name: str = Field(default="", description="The column's name in the file.")
    shared: ClassVar[tuple[str, ...]] = ()
    """Fields in which the columns of a group are alike: keywords of their likelihood."""

    @classmethod
    @abstractmethod
    def of(cls, column: RawColumn, words: str = "") -> Self:
        """The config for a column with at least one value, and for what the user adds to the kind, such as a scale.

        Raises:
            InvalidInputError: If the column's values are not of this kind; names it.
        """

    @property
    def domain(self) -> Domain:
        """The values that the model reads."""
        return FINITE

    @property
    def addition(self) -> str:
        """What stands behind the kind's name where a schema is printed, words as `of` takes them; "" for nothing."""
        return ""

    @property
    def group(self) -> Hashable:
        """What columns that are computed at once have in common."""
        kind = self.kind  # pyright: ignore[reportAttributeAccessIssue]
        return (kind, *(getattr(self, name) for name in self.shared))

    @classmethod
    def keywords(cls, columns: Sequence[Any]) -> dict[str, Any]:
        """Keywords of the likelihood of columns of one group."""
        return {name: getattr(columns[0], name) for name in cls.shared}

    def build(self, columns: Sequence[Any]) -> Any:
        """The likelihood of columns of this one's group."""
        return resolve_name(self.target)((len(columns),), **self.keywords(columns))

    @abstractmethod
    def encode(self, column: RawColumn) -> np.ndarray:
        """Values as the model reads them, (row,) float64, NaN where there is none.

        Raises:
            InvalidInputError: If a value is not of this kind; names the column and the value.
        """

    @abstractmethod
    def decode(self, values: np.ndarray) -> np.ndarray:
        """Values as a file has them, (row,), numbers, or words and codes with None for NaN; the reverse of `encode`."""

    def _refuse(self, rule: str, received: object, repair: str) -> InvalidInputError:
        return InvalidInputError(f"column {self.name!r}", rule, received, repair)


class _NumberColumnConfig(BaseColumnConfig):
    """A column of numbers."""

    repair: ClassVar[str] = ""
    """Advice about values that do not belong to it; empty for that of its domain."""

    def encode(self, column: RawColumn) -> np.ndarray:
        if column.codes is not None and (column.codes >= 0).any():
            word = column.words[int(column.codes.max())]
            repair = "Leave missing values out, or read it as a category."
            raise self._refuse("must hold numbers", repr(word[:40]), repair)
        if np.isinf(column.numbers).any():
            raise self._refuse("must hold finite numbers", "infinity", "Leave the cell empty.")
        seen, domain = np.flatnonzero(~np.isnan(column.numbers)), self.domain
        wrong = seen[~domain.contains(column.numbers[seen])]
        if len(wrong):
            received = f"{word_of(float(column.numbers[wrong[0]]))} in {column.where(int(wrong[0]))}"
            raise self._refuse(domain.rule, received, self.repair or domain.repair)
        return column.numbers

    def decode(self, values: np.ndarray) -> np.ndarray:
        return _integers(values)


class RealColumnConfig(_NumberColumnConfig):
    """Real values, with a learned scale."""

    target = "discrete_vae.likelihoods.table:RealLikelihood"
    shared, repair = ("scale",), "That is for log1p: train with real:asinh, or leave the value out."
    kind: Literal["real"] = "real"
    scale: Literal["plain", "log1p", "asinh"] = Field(
        default="plain", description="Scale on which the values have a Gaussian law."
    )
    whole: bool = Field(
        default=False, description="Whether the file has whole numbers, which are rounded to."
    )

    @classmethod
    def of(cls, column: RawColumn, words: str = "") -> Self:
        config = cls(name=column.name, scale=words or "plain")  # pyright: ignore[reportArgumentType]
        values = config.encode(column)
        whole = bool((values[~np.isnan(values)] % 1 == 0).all())
        return config.model_copy(update={"whole": whole})

    @property
    def domain(self) -> Domain:
        return ABOVE_MINUS_ONE if self.scale == "log1p" else FINITE

    @property
    def addition(self) -> str:
        return "" if self.scale == "plain" else self.scale

    def decode(self, values: np.ndarray) -> np.ndarray:
        return _integers(np.maximum(np.round(values), np.ceil(self.domain.low))) if self.whole else values


def _integers(values: np.ndarray) -> np.ndarray:
    """Values as integers, where all are whole."""
    are_whole = bool((np.abs(values) < _LARGEST).all() and (values % 1 == 0).all())
    return values.astype(np.int64) if are_whole else values


ZeroInflated = Annotated[
    bool, Field(description="Add zeros, with a probability of each entry that the decoder gives.")
]
Exposure = Annotated[
    Literal["none", "total"],
    Field(
        description="What the means are in proportion to: nothing, or the total of the row's counts, which is then "
        "taken as given, so that the latents do not tell how much of a row was counted. In a table of several kinds "
        "it is the total of all columns that say so and are alike in zero_inflated."
    ),
]


class CountColumnConfig(_NumberColumnConfig):
    """Counts, with a learned dispersion.

    The words "zero-inflated", "total" and, as the last, "exposure:COLUMN" set the fields; colons stand between them.
    """

    target = "discrete_vae.likelihoods.counts:NegativeBinomialLikelihood"
    shared, repair = ("zero_inflated", "exposure"), "Read it as real."
    kind: Literal["count"] = "count"
    zero_inflated: ZeroInflated = False
    exposure: Exposure = "none"
    exposure_column: str | None = Field(
        default=None,
        description="Name of the column, of kind exposure, that the means are in proportion to; none means none.",
    )

    @property
    def domain(self) -> Domain:
        return COUNTS

    @classmethod
    def of(cls, column: RawColumn, words: str = "") -> Self:
        given, exposure = words.split(":") if words else [], None
        if "exposure" in given:
            place = given.index("exposure")
            given, exposure = given[:place], ":".join(given[place + 1 :])
        total, inflated = "total" if "total" in given else "none", "zero-inflated" in given
        config = cls(name=column.name, zero_inflated=inflated, exposure=total, exposure_column=exposure)
        unknown = [word for word in given if word not in ("zero-inflated", "total")]
        if unknown:
            repair = "For example count:total:zero-inflated, or count:zero-inflated:exposure:days."
            rule = "of counts may be zero-inflated, and have the exposure total or exposure:COLUMN"
            raise config._refuse(rule, repr(unknown[0])[:80], repair)
        if exposure is not None and ("total" in given or exposure in ("", column.name)):
            raise config._refuse("must have one other column as its exposure", repr(words)[:80], "Name one.")
        config.encode(column)
        return config

    @property
    def addition(self) -> str:
        words = ["total"] * (self.exposure == "total") + ["zero-inflated"] * self.zero_inflated
        words += [] if self.exposure_column is None else [f"exposure:{self.exposure_column}"]
        return ":".join(words)

    @property
    def group(self) -> Hashable:
        return self.kind, self.zero_inflated, self.exposure, self.exposure_column


class ExposureColumnConfig(_NumberColumnConfig):
    """How long or how much was counted in a row, in any unit: given to columns of counts, and no variable itself."""

    target = "discrete_vae.likelihoods.table:ExposureLikelihood"
    kind: Literal["exposure"] = "exposure"

    @classmethod
    def of(cls, column: RawColumn, words: str = "") -> Self:
        config = cls(name=column.name)
        if words:
            raise config._refuse("of kind exposure takes no more words", repr(words)[:80], "Leave them out.")
        config.encode(column)
        return config

    @property
    def domain(self) -> Domain:
        return POSITIVE

    def encode(self, column: RawColumn) -> np.ndarray:
        values = super().encode(column)
        gaps = np.flatnonzero(np.isnan(values))
        if len(gaps):
            rule, place = "must hold a number above 0 in each row, an exposure", column.where(int(gaps[0]))
            raise self._refuse(rule, f"nothing in {place}", POSITIVE.repair)
        return values


_IS: dict[str, Callable[[str], object]] = {
    "words": lambda value: True,
    "numbers": is_number,
    "booleans": _BOOLEANS.__contains__,
}
"""Whether a value is one of what a column holds."""


class _ValuesColumnConfig(BaseColumnConfig):
    """A column of a few different values, each with its code 0, 1, ...; values are words or numbers."""

    values: tuple[str, ...] = Field(
        default=("0", "1"), min_length=2, description="The values, as the file has them."
    )
    holds: Literal["words", "numbers", "booleans"] = Field(
        default="words", description="What the values are in the file, and come back as."
    )

    @model_validator(mode="after")
    def _check_holds(self) -> Self:
        wrong = next((value for value in self.values if not _IS[self.holds](value)), None)
        if wrong is not None:
            rule = f"must be words, or each value one of the {self.holds}"
            repair = "Give words: the values then come back as they are written."
            raise InvalidInputError("holds", rule, repr(wrong[:40]), repair)
        if len({*self.values}) < len(self.values):
            raise InvalidInputError("values", "must differ", ", ".join(self.values)[:80], "Give each once.")
        return self

    @property
    def domain(self) -> Domain:
        return categories(len(self.values))

    @classmethod
    def of(cls, column: RawColumn, words: str = "") -> Self:
        if words:
            values = tuple(word.strip() for word in words.split("<"))
        else:
            values = column.words if column.declared else in_order(column.values())
        largest = float(np.nanmax(np.abs(column.numbers), initial=0.0))
        if largest >= _LARGEST:
            rule = f"must hold numbers below {_LARGEST:,} to be read as words"
            repair = "Put a letter before them, or leave the column out."
            raise InvalidInputError(f"column {column.name!r}", rule, f"{largest:.0f}", repair)
        booleans = column.declared and column.words == _BOOLEANS
        are_numbers = column.codes is None and not column.spelled
        holds = "numbers" if are_numbers else "booleans" if booleans else "words"
        holds = holds if all(map(_IS[holds], values)) else "words"  # of words that the file lacks
        config = cls(name=column.name, values=values, holds=holds)
        config.encode(column)
        return config

    def encode(self, column: RawColumn) -> np.ndarray:
        place = {value: float(code) for code, value in enumerate(self.values)}
        # a file in text has the word 01 of another file as a number
        numerals = filter(_NUMERAL.fullmatch, self.values)
        place = {word_of(float(word)): place[word] for word in numerals} | place
        # programs write the same truth in several ways
        are_truth = tuple(value.lower() for value in self.values) in (("0", "1"), ("false", "true"))
        truth = {"0": 0.0, "false": 0.0, "1": 1.0, "true": 1.0} if are_truth else {}

        def code_of(word: str) -> float:
            return place.get(word, truth.get(word.lower(), -1.0))

        numbers, rows = np.unique(column.numbers, return_inverse=True)
        known = [np.nan if np.isnan(number) else code_of(word_of(number)) for number in numbers]
        result = np.array(known, np.float64)[rows].reshape(len(column.numbers))
        if column.codes is not None:
            codes = np.array([*map(code_of, column.words), 0.0])[column.codes]
            result = np.where(column.codes >= 0, codes, result)
        unknown = np.flatnonzero(result < 0)
        if len(unknown):
            row = int(unknown[0])
            code = -1 if column.codes is None else int(column.codes[row])
            word = word_of(column.numbers[row]) if code < 0 else column.words[code]
            rule = f"must hold {', '.join(self.values[:10])}{', ...' * (len(self.values) > 10)}"
            other = "; the kinds real and count take any number" * (self.holds == "numbers")
            repair = f"Correct it, leave the value out, or train on rows that hold it{other}."
            self._meet(rule, f"{word[:40]!r} in {column.where(row)}", repair)
        return np.maximum(result, 0)

    def _meet(self, rule: str, received: str, repair: str) -> None:
        """Meet a value that is none of the column's."""
        raise self._refuse(rule, received, repair)

    def decode(self, values: np.ndarray) -> np.ndarray:
        codes = np.rint(np.nan_to_num(values)).clip(0, len(self.values) - 1).astype(int)
        found = self._typed_values()[codes]
        if np.isnan(values).any():
            found = found.astype(object)
            found[np.isnan(values)] = None
        return found

    def _typed_values(self) -> np.ndarray:
        """The values as the file has them: words as objects, whole numbers as int64."""
        if self.holds == "words":
            return np.array(self.values, object)
        if self.holds == "booleans":
            return np.array([value == "True" for value in self.values])
        return _integers(np.array([float(value) for value in self.values]))


def in_order(words: Sequence[str]) -> tuple[str, ...]:
    """Words that are all numbers in the order of these, else in alphabetical order."""
    return tuple(sorted(words, key=float if all(map(is_number, words)) else None))


class BinaryColumnConfig(_ValuesColumnConfig):
    """One of two values."""

    target = "discrete_vae.likelihoods.base:BernoulliLikelihood"
    kind: Literal["binary"] = "binary"
    values: tuple[str, str] = Field(default=("0", "1"), description="The two values, as the file has them.")


class _CodesColumnConfig(_ValuesColumnConfig):
    @classmethod
    def keywords(cls, columns: Sequence[Any]) -> dict[str, Any]:
        return {"num_categories": tuple(len(column.values) for column in columns)}


class CategoryColumnConfig(_CodesColumnConfig):
    """One of several values without an order."""

    target = "discrete_vae.likelihoods.families:CategoricalLikelihood"
    kind: Literal["category"] = "category"

    @property
    def group(self) -> Hashable:
        """Columns of similar numbers of values: a slice has as many logits for each as the largest."""
        return self.kind, (len(self.values) - 1).bit_length()


class OrdinalColumnConfig(_CodesColumnConfig):
    """One of several values in order, the lowest first."""

    target = "discrete_vae.likelihoods.table:OrdinalLikelihood"
    kind: Literal["ordinal"] = "ordinal"
    values: tuple[str, ...] = Field(
        default=("0", "1", "2"),
        min_length=3,
        description="The values as the file has them, the lowest first.",
    )


class ConstantColumnConfig(_ValuesColumnConfig):
    """One value: it adds nothing to the likelihood, and comes back as it is."""

    target = "discrete_vae.likelihoods.table:ConstantLikelihood"
    kind: Literal["constant"] = "constant"
    values: tuple[str] = Field(default=("0",), description="The value, as the file has it.")

    @classmethod
    def of(cls, column: RawColumn, words: str = "") -> Self:
        if words:
            raise InvalidInputError("kind", "must be constant alone", repr(words[:40]), "Leave the word out.")
        return super().of(column)

    def _meet(self, rule: str, received: str, repair: str) -> None:
        met = f"column {self.name!r} {rule} as in training, received {received}"
        warnings.warn(f"{met}: such values count for nothing", stacklevel=3)


ColumnConfig = Annotated[
    BinaryColumnConfig
    | RealColumnConfig
    | CountColumnConfig
    | ExposureColumnConfig
    | CategoryColumnConfig
    | OrdinalColumnConfig
    | ConstantColumnConfig,
    Field(discriminator="kind", description="Kind of a column."),
]
