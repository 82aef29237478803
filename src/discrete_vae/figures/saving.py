"""Writing a matplotlib figure to a file."""

from __future__ import annotations

import io
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
            "path", f"must end in one of {', '.join(_METADATA)}", repr(str(path)), "Add .png to it."
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
        InvalidInputError: If the path breaks its rule or cannot be written.
    """
    file = check_picture_path(path)
    suffix = file.suffix.lower()
    content = io.BytesIO()
    figure.savefig(content, format=suffix[1:], dpi=figure.dpi, metadata=_METADATA[suffix])
    try:
        write_bytes(file, content.getvalue())
    except OSError as error:
        received = f"{path} ({error.strerror})"
        raise InvalidInputError(
            "path", "must be a file that can be written", received, "Give another path."
        ) from None
