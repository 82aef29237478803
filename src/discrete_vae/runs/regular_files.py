"""Reading files of a run: regular ones alone, so that a pipe is refused instead of waited for."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Args:
        path: The file; links are followed.

    Raises:
        OSError: If it is missing, not permitted, or a folder, a pipe or a device.

    Examples:
        >>> open_regular(Path("/dev/null"))
        Traceback (most recent call last):
        OSError: [Errno 22] not a regular file: '/dev/null'
    """
    # Opening a pipe waits for its writer unless told not to; Windows has no such flag and no such pipes.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """Read a regular file.

    Raises:
        OSError: See `open_regular`.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a").write_bytes(b"12")
        ...     read_regular(Path(folder, "a"))
        b'12'
    """
    with open_regular(path) as file:
        return file.read()
