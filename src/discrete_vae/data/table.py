"""A table of numbers with names of its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discrete_vae.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Table:
    """What a file with named columns holds.

    Attributes:
        columns: Their names, without that of the labels.
        values: (example, column) float64; NaN marks missing values.
        labels: (example,) numbers or words; None where no column was named as theirs.
    """

    columns: tuple[str, ...]
    values: np.ndarray
    labels: np.ndarray | None = None


def check_columns(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns if each has a name of its own, which is not a number.

    Args:
        path: The file, for messages.
        columns: The names.

    Raises:
        InvalidInputError: If a name is empty or given twice, all of them are numbers, or there is none.

    Examples:
        >>> check_columns(Path("x.csv"), ("1.5", "2"))
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: x.csv must start with a line that names the columns; received '1.5', '2'.
        Add such a line; examples follow it.
    """
    shown = ", ".join(repr(name[:40]) for name in columns[:5]) or "nothing"
    if all(_is_number(name) for name in columns):
        rule = "must start with a line that names the columns"
        raise InvalidInputError(str(path), rule, shown, "Add such a line; examples follow it.")
    if "" in columns:
        repair = "Name it; if it is an index, leave it out (pandas: index=False)."
        received = f"none for column {columns.index('') + 1}"
        raise InvalidInputError(str(path), "must have a name for every column", received, repair)
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        received = f"{twice[:40]!r} more than once"
        raise InvalidInputError(str(path), "must have different names of columns", received, "Rename one.")
    return columns


def label_index(
    path: Path, columns: tuple[str, ...], label_column: str | None, *, needed: bool = True
) -> int | None:
    """The place of the labels' column; None without one.

    Raises:
        InvalidInputError: If there is no column of that name although it is needed.

    Examples:
        >>> label_index(Path("x.csv"), ("width", "kind"), "kind")
        1
    """
    if label_column is None or label_column in columns:
        return None if label_column is None else columns.index(label_column)
    if not needed:
        return None
    shown = ", ".join(repr(name[:40]) for name in columns[:5]) + ", ..." * (len(columns) > 5)
    rule = f"must be the name of a column of {path}"
    raise InvalidInputError("label_column", rule, repr(label_column)[:80], f"Its columns are {shown}.")


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


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
