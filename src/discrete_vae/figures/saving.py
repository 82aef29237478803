"""Pictures and their tables in files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path
from discrete_vae.runs.atomic import write_bytes
from discrete_vae.runs.columns import write_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without what changes from one call to the next, the same table gives the same file.
_METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
}
_SALT = "discrete-vae"  # of the names of an SVG's parts, which are random without one
_NOTE_FIELDS = {".png": "Description", ".pdf": "Subject", ".svg": "Description"}


class FigureTable(Protocol):
    """What a picture shows, in numbers."""

    def columns(self) -> Mapping[str, np.ndarray]:
        """The numbers as (row,) arrays of one length, by name."""
        ...


def check_picture_path(path: str | Path, *, argument: str = "path") -> Path:
    """Return the path if a picture can be written there.

    Args:
        path: A file name that ends in .png, .pdf or .svg, in a folder that exists; ``~`` is the home directory.
        argument: What messages call it.

    Raises:
        InvalidInputError: If it has another ending, or its folder does not exist.
    """
    file = user_path(argument, path)
    if file.suffix.lower() not in _METADATA:
        raise InvalidInputError(
            argument,
            f"must end in one of {', '.join(_METADATA)}",
            repr(str(path)),
            f"Did you mean {file.with_suffix('.png') if file.name else file / 'picture.png'}?",
        )
    if not file.parent.is_dir():
        rule, repair = "must lie in a folder that exists", "Make the folder first."
        raise InvalidInputError(argument, rule, repr(str(path)), repair)
    return file


def save_figure(figure: Figure, path: str | Path, *, note: str | None = None) -> Path:
    """Write a figure so that the file is either the old one or the new one, never a part.

    Args:
        figure: The figure, any of matplotlib's; its own dots per inch are used.
        path: A file name that ends in .png, .pdf or .svg, in a folder that exists; ``~`` is the home directory.
        note: What the file's metadata say of it.

    Returns:
        The path.

    Raises:
        InvalidInputError: If `check_picture_path` refuses the path, or it cannot be written.
    """
    import matplotlib  # here, since it takes a while

    file = check_picture_path(path)
    suffix = file.suffix.lower()
    content = io.BytesIO()
    metadata = _METADATA[suffix] | ({} if note is None else {_NOTE_FIELDS[suffix]: note})
    with matplotlib.rc_context({"svg.hashsalt": _SALT}):
        figure.savefig(content, format=suffix[1:], dpi=figure.dpi, metadata=metadata)
    try:
        write_bytes(file, content.getvalue())
    except OSError as error:
        received = f"{path} ({error.strerror})"
        raise InvalidInputError(
            "path", "must be a file that can be written", received, "Give another path."
        ) from None
    return file


def save_table(table: FigureTable, path: str | Path) -> Path:
    """Write the numbers that a picture shows.

    Args:
        table: The table of a figure.
        path: A file name that ends in .csv or .npz; ``~`` is the home directory.

    Returns:
        The path.

    Raises:
        InvalidInputError: If the path has another ending or cannot be written.
    """
    return write_columns(path, table.columns())
