"""One process at a time trains in a run's folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from discrete_vae.errors import InvalidInputError

LOCK_NAME = ".lock"
"""The file in the folder that is locked; it is there while a process trains, or was killed while it did."""


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a folder against other writers; the system lets go of it however the process ends.

    Where the file system knows no such locks, or lets nothing be written, nothing is held.

    Args:
        folder: An existing folder.

    Raises:
        InvalidInputError: If another process holds it.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, sole_writer(Path(folder)):
        ...     with sole_writer(Path(folder)):
        ...         pass
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: run_dir must not be in use; received ...
    """
    file = folder / LOCK_NAME
    lock = FileLock(file, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        received = f"{folder}, which another process is training in"
        repair = "Wait for it or stop it, or give another --run-dir."
        raise InvalidInputError("run_dir", "must not be in use", received, repair) from None
    except OSError:  # some network file systems; a folder that is read only
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):  # Windows removes it on release
                file.unlink()  # while it is held: who gets hold of a removed file looks again
            lock.release()
