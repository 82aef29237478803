"""A table of numbers with names of its columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discrete_vae.errors import InvalidInputError

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
