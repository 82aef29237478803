"""Writes that are either complete or absent, whatever moment the process or the machine stops at."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

TEMPORARY_PREFIX = ".tmp-"
_ABANDONED_SECONDS = 24 * 3600.0  # a write takes seconds
_REPLACED = "-replaced"
_NAME = re.compile(
    rf"{re.escape(TEMPORARY_PREFIX)}(.*)-([0-9a-f]{{8}})-(\d{{1,9}})-[0-9a-f]{{16}}({_REPLACED})?", re.DOTALL
)


def is_temporary(path: Path) -> bool:
    """Whether a file or folder is what an interrupted write of this module left behind.

    Examples:
        >>> is_temporary(Path("run/.tmp-config.json-x7")), is_temporary(Path("run/config.json"))
        (True, False)
    """
    return path.name.startswith(TEMPORARY_PREFIX)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new one, never a part.

    The content goes to a temporary file of the same folder, which is synced and renamed over the target. What killed
    processes left in that folder is removed first.

    Args:
        path: The file; its folder exists.
        content: All of its bytes.

    Raises:
        OSError: If the content cannot be written; names the file. The old one, if any, is untouched.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_bytes(Path(folder, "a.bin"), b"12")
        ...     [(entry.name, entry.read_bytes()) for entry in Path(folder).iterdir()]
        [('a.bin', b'12')]
    """
    write_stream(path, lambda file: file.write(content))


def write_stream(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file as `write_bytes` does, piece by piece.

    Args:
        path: The file; its folder exists.
        fill: Writes the content to the file that it is given, which can seek.

    Raises:
        OSError: See `write_bytes`.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_stream(Path(folder, "a.bin"), lambda file: file.writelines([b"1", b"2"]))
        ...     Path(folder, "a.bin").read_bytes()
        b'12'
    """
    temporary = _temporary_beside(path)
    with naming(path):
        try:
            with temporary.open("xb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the system name a file; those of writing and syncing name none.

    Raises:
        OSError: That of the block, with the file's name.

    Examples:
        >>> with naming(Path("a.bin")):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        OSError: [Errno 28] No space left on device: 'a.bin'
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, text: str) -> None:
    r"""Write a text file in UTF-8 as `write_bytes` does.

    Raises:
        OSError: See `write_bytes`.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text(Path(folder, "a.txt"), "ζ")
        ...     Path(folder, "a.txt").read_bytes()
        b'\xce\xb6'
    """
    write_bytes(path, text.encode())


@contextmanager
def publish_directory(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Fill a temporary folder, then sync it and rename it to its final name.

    Args:
        path: The final name; its parent exists.
        replace: Whether a folder of that name gives way. On Linux the two exchange their names, so that at every
            moment one of them has it; where the system cannot, a process that is killed between two renames leaves
            neither, and `remove_temporaries` brings the old one back.

    Yields:
        The temporary folder, beside the final one. It is removed if the block raises.

    Raises:
        OSError: If something cannot be written, or if the final name is taken and may not be replaced.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with publish_directory(Path(folder, "step-1")) as temporary:
        ...         _ = (temporary / "state").write_text("1")
        ...     Path(folder, "step-1", "state").read_text()
        '1'
    """
    temporary = _temporary_beside(path)
    temporary.mkdir()
    try:
        yield temporary
        for entry in temporary.rglob("*"):
            if entry.is_file():
                _sync_file(entry)
            else:
                sync_directory(entry)
        sync_directory(temporary)
        if not (replace and path.exists()):
            temporary.rename(path)
        elif _exchange(temporary, path):
            _remove(temporary)
        else:
            aside = path.with_name(f"{temporary.name}{_REPLACED}")
            path.rename(aside)
            try:
                temporary.rename(path)
            except BaseException:
                aside.rename(path)
                raise
            _remove(aside)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(path.parent)


def remove_temporaries(folder: Path, *, of_others: bool) -> None:
    """Remove what interrupted writes left in a folder, folders below it excepted.

    A folder that was to be replaced gets its name back if nothing else has it.

    Args:
        folder: The folder; if there is none, there is nothing to remove.
        of_others: Whether other processes may be writing there. What they may still need then stays: only that
            goes whose writer, a process of this machine, has ended, or that is older than a day.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, ".tmp-step-3-x").mkdir()
        ...     remove_temporaries(Path(folder), of_others=False)
        ...     list(Path(folder).iterdir())
        []
    """
    if not folder.is_dir():
        return
    for entry in [entry for entry in folder.iterdir() if is_temporary(entry)]:
        if of_others and not _is_abandoned(entry):
            continue
        found = _NAME.fullmatch(entry.name)
        with suppress(OSError):  # that of another user, say
            if found is not None and found[4] and not os.path.lexists(folder / found[1]):
                entry.rename(folder / found[1])
            else:
                _remove(entry)


def sync_directory(folder: Path) -> None:
    """Ask the system to store a folder's entries, so that a rename survives a power cut."""
    if os.name == "nt":  # Windows cannot open folders, and stores renames by itself
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one operation; returns whether the system can."""
    at_working_directory, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # an older libc, or another system
        return False
    here = ctypes.c_int(at_working_directory)
    return rename(here, os.fsencode(first), here, os.fsencode(second), ctypes.c_uint(exchange)) == 0


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def _temporary_beside(path: Path) -> Path:
    with suppress(OSError):  # of a folder that may be written and not listed
        remove_temporaries(path.parent, of_others=True)
    # Not from `tempfile`, whose files are private: a run is as readable as the user's other files. The name says who
    # writes, since a process that lives may be about to rename it.
    return path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{_machine()}-{os.getpid()}-{secrets.token_hex(8)}")


def _is_abandoned(temporary: Path) -> bool:
    """Whether nobody can be about to use a temporary file or folder of this module."""
    found = _NAME.fullmatch(temporary.name)
    if found is None:
        return False
    if found[2] == _machine() and not _is_alive(int(found[3])):
        return True
    try:
        # A process of another machine or container cannot be asked, and a number may have been given out again.
        return time.time() - temporary.lstat().st_mtime > _ABANDONED_SECONDS
    except FileNotFoundError:
        return False


def _machine() -> str:
    """A short name of this machine or container: process ids are unique within one only."""
    return hashlib.sha256(platform.node().encode(errors="replace")).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # where signal 0 ends a process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
