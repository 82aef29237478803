"""A table that grows in a file, so that what was stopped goes on."""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_type_hints

import numpy as np

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.columns import write_columns


class Row(Protocol):
    """A dataclass of strings, whole numbers and numbers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> Hashable:
        """What tells it from others: the settings, not the result."""
        ...


R = TypeVar("R", bound=Row)


class KeptRows(Generic[R]):
    """Rows of a table, in a .csv file from the first one on.

    Attributes:
        rows: Those that are there, by key.

    Args:
        kind: The record of a row.
        path: The file; rows that it has are read. None keeps nothing.

    Raises:
        InvalidInputError: If the file holds another table, or a damaged one.
    """

    def __init__(self, kind: type[R], path: Path | None) -> None:
        self._kind, self._path = kind, path
        found = [] if path is None or not path.exists() else _read(kind, path)
        self.rows = {row.key: row for row in found}

    def add(self, rows: Iterable[R]) -> None:
        """Add rows, and write the file anew.

        Raises:
            InvalidInputError: If it cannot be written; the rows that it had are still there.
        """
        self.rows |= {row.key: row for row in rows}
        if self._path is not None:
            write_columns(self._path, columns_of(list(self.rows.values())), argument="--out")


def columns_of(rows: Sequence[Any]) -> dict[str, np.ndarray]:
    """The columns of records of one kind, at least one."""
    names = [field.name for field in fields(rows[0])]
    return dict(zip(names, map(np.array, zip(*map(astuple, rows), strict=True)), strict=True))


def _read(kind: type[R], path: Path) -> list[R]:
    types = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    repair = "Move it away, or give another --out."
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file, restkey="more"))
        if any(list(line) != names for line in lines):
            raise InvalidInputError(str(path), "must hold the table of this figure", "other columns", repair)
        return [kind(**{name: types[name](line[name]) for name in names}) for line in lines]
    except (OSError, ValueError, TypeError, csv.Error) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            str(path), "must hold the table of this figure", str(error)[:80], repair
        ) from None
