"""Writing a matplotlib figure to a file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path
from discrete_vae.runs.atomic import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without what changes from one call to the next, the same table gives the same file.
_METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
}
_NOTE_FIELDS = {".png": "Description", ".pdf": "Subject", ".svg": "Description"}
_note: ContextVar[str | None] = ContextVar("_note", default=None)


@contextmanager
def noting(text: str | None) -> Iterator[None]:
    """Let the pictures that are saved inside the block carry a note in their metadata; None adds nothing."""
    token = _note.set(text)
    try:
        yield
    finally:
        _note.reset(token)


def check_picture_path(path: str | Path) -> Path:
    """Return the path if a picture can be written there.

    Args:
        path: A file name that ends in .png, .pdf or .svg, in a folder that exists; ``~`` is the home directory.

    Raises:
        InvalidInputError: If it has another ending, or its folder does not exist.
    """
    file = user_path("path", path)
    if file.suffix.lower() not in _METADATA:
        raise InvalidInputError(
            "path",
            f"must end in one of {', '.join(_METADATA)}",
            repr(str(path)),
            f"Did you mean {Path(path).with_suffix('.png')}?",
        )
    if not file.parent.is_dir():
        raise InvalidInputError(
            "path", "must lie in a folder that exists", repr(str(path)), "Make the folder first."
        )
    return file


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure so that the file is either the old one or the new one, never a part.

    Args:
        figure: The figure; its own dots per inch are used.
        path: As in `check_picture_path`.

    Raises:
        InvalidInputError: If `check_picture_path` refuses the path, or it cannot be written.
    """
    file = check_picture_path(path)
    suffix = file.suffix.lower()
    content = io.BytesIO()
    note = _note.get()
    metadata = _METADATA[suffix] | ({} if note is None else {_NOTE_FIELDS[suffix]: note})
    figure.savefig(content, format=suffix[1:], dpi=figure.dpi, metadata=metadata)
    try:
        write_bytes(file, content.getvalue())
    except OSError as error:
        received = f"{path} ({error.strerror})"
        raise InvalidInputError(
            "path", "must be a file that can be written", received, "Give another path."
        ) from None
