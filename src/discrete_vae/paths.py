"""Paths as users write them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from discrete_vae.errors import InvalidInputError


def user_path(argument: str, path: str | os.PathLike[str]) -> Path:
    """Return a path with ``~`` replaced by the home directory.

    Args:
        argument: Name of the argument, for messages.
        path: The path.

    Raises:
        InvalidInputError: If it is no path, empty, holds a zero byte, or names a user who has no home directory.

    Examples:
        >>> user_path("run_dir", "runs/a").as_posix()
        'runs/a'
        >>> user_path("run_dir", "~no-such-user/a")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: run_dir must name a user with a home directory after ~; received
        '~no-such-user/a'. Write the path out, or ./~ for a folder of that name.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        repair = "Give the name of a file or folder."
        raise InvalidInputError(argument, "must be a path", f"{path!r}"[:80], repair)
    if not text or "\0" in text:
        raise InvalidInputError(
            argument, "must be a path", repr(text), "Name a file or folder; is a variable of the shell unset?"
        )
    try:
        return Path(text).expanduser()
    except RuntimeError:
        repair = "Write the path out, or ./~ for a folder of that name."
        raise InvalidInputError(
            argument, "must name a user with a home directory after ~", repr(text), repair
        ) from None


def without_links(argument: str, path: Path) -> Path:
    """Return the path that a link leads to, as any other path is returned unchanged; it need not be there.

    Args:
        argument: Name of the argument, for messages.
        path: The path.

    Raises:
        InvalidInputError: If its links lead around in a circle.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            rule, repair = "must lead to a file or folder", "Remove the links."
            raise InvalidInputError(argument, rule, f"{path}, a loop of links", repair) from None
    if not path.is_symlink() and path.name not in ("", ".."):
        return path
    place = Path(os.path.realpath(path))
    return (
        path if path.exists() and not place.exists() else place
    )  # a pipe, /dev/stdout say, has no other name


def unicode_path(argument: str, path: str | os.PathLike[str]) -> Path:
    r"""Return a path that must be text: config.json has to hold it, or safetensors to open files below it.

    Args:
        argument: Name of the argument, for messages.
        path: The path.

    Raises:
        InvalidInputError: As `user_path`, and if it is no text in UTF-8.

    Examples:
        >>> unicode_path("run_dir", "runs/\udcff")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: run_dir must be text in UTF-8; received 'runs/\udcff'. Rename the file or
        its folder.
    """
    found = user_path(argument, path)
    try:
        str(found).encode()
    except UnicodeEncodeError:
        received, repair = ascii(str(path)), "Rename the file or its folder."
        raise InvalidInputError(argument, "must be text in UTF-8", received, repair) from None
    return found
