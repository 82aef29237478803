"""One process at a time trains in a run's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from discrete_vae.errors import InvalidInputError


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a folder against other writers; the system lets go of it however the process ends.

    Where the file system or the system knows no such locks, nothing is held.

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
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            received = f"{folder}, which another process is training in"
            repair = "Wait for it or stop it, or give another --run-dir."
            raise InvalidInputError("run_dir", "must not be in use", received, repair) from None
        except OSError:  # some network file systems
            pass
        yield
    finally:
        os.close(descriptor)
