"""Whether a result can be written, asked before the work that it takes."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from discrete_vae.errors import InvalidInputError

_MIN_FREE = 2**20  # bytes


def is_stream(path: Path) -> bool:
    """Whether a path is no place for a file: a pipe, a device, or this process's own output, such as /dev/stdout.

    Examples:
        >>> is_stream(Path("/dev/null")), is_stream(Path("a.csv"))
        (True, False)
    """
    try:
        found = path.stat()
    except OSError:
        return False
    return (not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode)) or _own(found) is not None


def write_through(path: Path, content: bytes) -> None:
    """Write to a pipe, a device or this process's own output, behind what was printed there.

    Raises:
        OSError: If it cannot be written.
    """
    own = _own(path.stat())
    if own is not None and sys.stdout is not None:
        sys.stdout.flush()
    with open(path if own is None else os.dup(own), "wb") as stream:  # noqa: PTH123 (a descriptor too)
        stream.write(content)


def _own(found: os.stat_result) -> int | None:
    """The descriptor, of standard output or standard error, that leads to a file; None if neither does."""
    for descriptor in (1, 2):
        with suppress(OSError):  # a closed one
            if os.path.samestat(found, os.fstat(descriptor)):
                return descriptor
    return None


def check_writable(
    path: Path, *, repair: str = "Give another place, or check permissions and space."
) -> None:
    """Check that a file can be written, as far as can be known without touching anything.

    Args:
        path: The file; folders that do not exist yet would be made, and links are followed.
        repair: What the message recommends.

    Raises:
        InvalidInputError: If it cannot; names the file and the reason.

    Examples:
        >>> check_writable(Path("/dev/null/a.json"), repair="Give another --out.")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: /dev/null/a.json must be writable; received /dev/null, which is no \
folder. Give another --out.
    """
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # a loop of links is said here
        folder = (Path(os.path.realpath(path)) if path.is_symlink() else path).parent
        while not folder.exists():
            folder = folder.parent
        if is_stream(path):
            if os.access(path, os.W_OK):
                return
            reason = "what is protected from writing"
        elif not folder.is_dir():
            reason = f"{folder}, which is no folder"
        elif path.is_dir():
            reason = "a folder of that name"
        elif path.exists() and not os.access(path, os.W_OK):
            reason = "a file that is protected from writing"
        elif not os.access(folder, os.W_OK | os.X_OK):
            reason = f"{folder}, where nothing may be written"
        elif shutil.disk_usage(folder).free < _MIN_FREE:
            reason = f"{folder}, whose disk is full"
        else:
            return
    except OSError as error:
        raise unwritable(path, error, repair) from None
    raise InvalidInputError(str(path), "must be writable", reason, repair)


def check_replaces_none(path: Path, others: Iterable[Path], *, argument: str) -> None:
    """Check that a file is none of those that a command reads, or writes besides.

    Args:
        path: The file; it need not be there yet.
        others: The other files.
        argument: What messages call the file.

    Raises:
        InvalidInputError: If it is one of them, by whatever name.

    Examples:
        >>> check_replaces_none(Path("a/../x.csv"), [Path("x.csv")], argument="--out")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: --out must be another file than those that are read, written besides, \
or belong to the run; received 'a/../x.csv'. Give another name.
    """
    for other in others:
        try:
            same = path.samefile(other)
        except OSError:  # one of them is not there
            same = os.path.realpath(path) == os.path.realpath(other)
        if same:
            rule = "must be another file than those that are read, written besides, or belong to the run"
            raise InvalidInputError(argument, rule, repr(str(path)), "Give another name.")


def unwritable(path: Path, error: OSError, repair: str) -> InvalidInputError:
    """What to raise where a file could not be written."""
    return InvalidInputError(str(path), "must be writable", error.strerror or str(error), repair)
