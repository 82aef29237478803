"""A table of numbers with names of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discrete_vae.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Table:
    """What a file with named columns holds.

    Attributes:
        columns: Their names.
        values: (example, column) float64; NaN marks missing values.
    """

    columns: tuple[str, ...]
    values: np.ndarray


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


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
