"""Columns of numbers in a file, as .csv or .npz."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path
from discrete_vae.runs.atomic import write_bytes
from discrete_vae.runs.writable import check_writable, unwritable

_ENDINGS = (".csv", ".npz")
_REPAIR = "Free space, check permissions, or give another {}."


def check_columns_path(argument: str, path: str | Path) -> Path:
    """Return the path of a file of columns if it can be written.

    Args:
        argument: Name of the argument, for messages.
        path: Where it is to be; ``~`` is the home directory.

    Raises:
        InvalidInputError: If it has another ending than .csv and .npz, or cannot be written.
    """
    file = user_path(argument, path)
    if file.suffix.lower() not in _ENDINGS:
        rule = f"must end in one of {', '.join(_ENDINGS)}"
        raise InvalidInputError(argument, rule, repr(str(path)), "Add .csv to it.")
    check_writable(file, repair=_REPAIR.format(argument))
    return file


def write_columns(path: str | Path, columns: Mapping[str, np.ndarray], *, argument: str = "path") -> Path:
    """Write columns of equal length; numbers in a .csv have all of their digits.

    Args:
        path: As in `check_columns_path`; folders that do not exist are made.
        columns: (row,) arrays by name.
        argument: Name of the argument that gave the path, for messages.

    Returns:
        The path.

    Raises:
        InvalidInputError: If the file cannot be written.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_columns(f"{folder}/a.csv", {"step": np.arange(2), "elbo": np.array([-9.5, -9])})
        ...     print(path.read_text())
        step,elbo
        0,-9.5
        1,-9.0
    """
    file = check_columns_path(argument, path)
    content = io.BytesIO()
    if file.suffix.lower() == ".npz":
        np.savez(content, allow_pickle=False, **columns)
    else:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
        content.write(table.getvalue().encode())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, content.getvalue())
    except OSError as error:
        raise unwritable(file, error, _REPAIR.format(argument)) from None
    return file
