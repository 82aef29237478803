"""Columns of numbers in a file, as .csv or .npz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from discrete_vae.runs.output_file import OutputFile

_ENDINGS = (".csv", ".npz")


def check_columns_path(argument: str, path: str | Path, *, others: Sequence[Path] = ()) -> Path:
    """Return the path of a file of columns if it can be written.

    Args:
        argument: Name of the argument, for messages.
        path: Where it is to be; ``~`` is the home directory.
        others: Files that are read, or written besides, none of which it may replace.

    Raises:
        InvalidInputError: If it has another ending than .csv and .npz, is one of the others, or cannot be written.
    """
    return OutputFile(path, argument=argument, endings=_ENDINGS, others=others).path


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
    return OutputFile(path, argument=argument, endings=_ENDINGS).write(columns)
