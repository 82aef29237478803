"""Pictures and their tables in files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from discrete_vae.runs.columns import write_columns
from discrete_vae.runs.output_file import OutputFile
from discrete_vae.shown import printable

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


def picture_file(path: str | Path, *, argument: str = "path") -> OutputFile:
    """The file of a picture, if one can be written there.

    Args:
        path: A file name that ends in .png, .pdf or .svg; ``~`` is the home directory. Folders that do not exist are
            made when the picture is written.
        argument: What messages call it.

    Raises:
        InvalidInputError: If it has another ending, or cannot be written.
    """
    return OutputFile(path, argument=argument, endings=tuple(_METADATA))


def save_figure(figure: Figure, path: str | Path, *, note: str | None = None) -> Path:
    """Write a figure so that the file is either the old one or the new one, never a part.

    Args:
        figure: The figure, any of matplotlib's; its own dots per inch are used.
        path: As in `picture_file`.
        note: What the file's metadata say of it.

    Returns:
        The path.

    Raises:
        InvalidInputError: If `picture_file` refuses the path, or it cannot be written.
    """
    import matplotlib  # here, since it takes a while

    file = picture_file(path)
    suffix = file.ending
    content = io.BytesIO()
    metadata = _METADATA[suffix] | (
        {} if note is None else {_NOTE_FIELDS[suffix]: printable(note, keep="\n")}
    )
    with matplotlib.rc_context({"svg.hashsalt": _SALT}):
        figure.savefig(content, format=suffix[1:], dpi=figure.dpi, metadata=metadata)
    return file.write_bytes(content.getvalue())


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
