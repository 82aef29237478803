"""NumPy files read without unpickling, with their faults reported as `InvalidInputError`."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from discrete_vae.data.npy_stream import DamageError, ObjectsError, read_array
from discrete_vae.errors import DiscreteVAEError, InvalidInputError
from discrete_vae.memory import is_allocation_failure, out_of_memory

_LOCAL_HEADER, _LOCAL_HEADER_BYTES = b"PK\x03\x04", 30
_KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}
_DAMAGED = "The file is damaged or cut short: copy it again."
_SHOWN_KEYS, _SHOWN_LETTERS = 5, 40


def read_npy(path: Path) -> np.ndarray:
    """Read the array of a .npy file.

    Args:
        path: The file.

    Raises:
        InvalidInputError: If the file is missing, cut short, altered, of another format, too large for the memory, or
            holds Python objects.
    """
    size = check_is_file(path)
    with _in_house_form(str(path)), path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise _unreadable(str(path), "another format", "Write it with numpy.save.")
        file.seek(0)
        return read_array(file, size, str(path))


def read_npz(path: Path, keys: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Read arrays of a .npz file.

    Args:
        path: The file.
        keys: Which arrays; those that the file lacks are left out. None reads all.

    Returns:
        The arrays by key, in the order of the file.

    Raises:
        InvalidInputError: If the file is missing, cut short, altered, of another format, or an array that is read
            holds Python objects or is too large for the memory.
    """
    check_is_file(path)
    with _in_house_form(str(path)):
        if not zipfile.is_zipfile(path):
            repair = "Copy it again, or write it with numpy.savez."
            raise _unreadable(str(path), "another format, or a file that was cut short", repair)
        arrays: dict[str, np.ndarray] = {}
        with zipfile.ZipFile(path) as archive:
            _check_directory(path, archive)
            for member in archive.infolist():
                key = member.filename.removesuffix(".npy")
                if keys is not None and key not in keys:
                    continue
                name = f"{path}, array {shown_key(key)},"
                with _in_house_form(name), archive.open(member) as file:
                    if key in arrays:
                        raise DamageError("a second array of that name")
                    if key == member.filename:
                        raise DamageError("a member that is no array")
                    arrays[key] = read_array(file, member.file_size, name)
        return arrays


def shown_key(key: str) -> str:
    r"""A key of a .npz file for messages: quoted, short, without control characters.

    Examples:
        >>> shown_key("a\x1b[2J"), shown_key("b" * 50)
        ("'a\\x1b[2J'", "'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb...'")
    """
    return repr(key if len(key) <= _SHOWN_LETTERS else f"{key[:_SHOWN_LETTERS]}...")


def shown_keys(keys: Iterable[str]) -> str:
    """The first few keys of a .npz file for messages, and how many more there are.

    Examples:
        >>> shown_keys("abcdefg")
        'a, b, c, d, e and 2 more'
        >>> shown_keys([])
        'none'
    """
    names = [shown_key(key)[1:-1] for key in keys]
    more = f" and {len(names) - _SHOWN_KEYS} more" if len(names) > _SHOWN_KEYS else ""
    return (", ".join(names[:_SHOWN_KEYS]) or "none") + more


def _check_directory(path: Path, archive: zipfile.ZipFile) -> None:
    """Check that the archive's directory, at its end, hides none of the members that lie before it.

    A changed byte in the directory can make one entry swallow the next ones; the members themselves are still there.
    """
    end = 0
    with path.open("rb") as file:
        for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
            _check_gap(file, end, member.header_offset)
            file.seek(member.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
            lengths = sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
            end = member.header_offset + _LOCAL_HEADER_BYTES + lengths + member.compress_size
        _check_gap(file, end, archive.start_dir)


def _check_gap(file: IO[bytes], start: int, stop: int) -> None:
    if stop < start:
        raise DamageError("members that overlap")
    if (
        stop - start >= _LOCAL_HEADER_BYTES
    ):  # less is the record of sizes that some writers put behind a member
        file.seek(start)
        if _LOCAL_HEADER in file.read(stop - start):
            raise DamageError("members that its directory does not list")


def check_is_file(path: Path) -> int:
    """Size of a plain file, in bytes.

    Raises:
        InvalidInputError: If there is none at the path.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInputError(str(path), "must exist", "no such file", "Check the path.") from None
    except (OSError, ValueError) as error:
        received = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(str(path), "must be a file", received, "Check the path.") from None
    if not stat.S_ISREG(found.st_mode):
        kind = next((word for test, word in _KINDS.items() if test(found.st_mode)), "something else")
        raise InvalidInputError(str(path), "must be a file", kind, "Give the file itself.")
    return found.st_size


@contextmanager
def _in_house_form(name: str) -> Iterator[None]:
    """Report whatever goes wrong while a file is read: on damage, the readers raise any kind of error."""
    try:
        yield
    except DiscreteVAEError:
        raise
    except ObjectsError:
        repair = "Convert it with .astype to numbers and save it again; objects are never unpickled."
        raise InvalidInputError(name, "must hold numbers", "Python objects", repair) from None
    except DamageError as error:
        raise _unreadable(name, str(error), _DAMAGED) from None
    except OSError as error:
        if error.errno is None:  # some decoders raise it without one
            raise _unreadable(name, str(error), _DAMAGED) from None
        repair = "Check its permissions and the disk."
        raise _unreadable(name, error.strerror or str(error), repair) from None
    except Exception as error:
        if is_allocation_failure(error):
            repair = "Use a smaller array, or a machine with more memory; or the file is damaged."
            raise out_of_memory(name, repair) from None
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise _unreadable(name, words[:200], _DAMAGED) from None


def _unreadable(name: str, received: str, repair: str) -> InvalidInputError:
    return InvalidInputError(name, "must be a readable NumPy file", received, repair)
