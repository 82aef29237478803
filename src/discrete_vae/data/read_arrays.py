"""NumPy files read without unpickling, with their faults reported in the house's form."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from discrete_vae.errors import InvalidInputError

# What NumPy, zipfile and zlib raise on files that are cut short, altered or something else altogether.
_FAULTS = (ValueError, OSError, EOFError, KeyError, MemoryError, SyntaxError, NotImplementedError)
_MORE_FAULTS = (zipfile.BadZipFile, zlib.error)


def read_npy(path: Path) -> np.ndarray:
    """Read the array of a .npy file.

    Args:
        path: The file.

    Raises:
        InvalidInputError: If the file is missing, cut short, altered, of another format, or holds Python
            objects.
    """
    _check_is_file(path)
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise _unreadable(path, "another format", "Write it with numpy.save.")
    try:
        return np.load(path, allow_pickle=False)
    except (*_FAULTS, *_MORE_FAULTS) as error:
        raise _fault(str(path), error) from None


def read_npz(path: Path, keys: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Read arrays of a .npz file.

    Args:
        path: The file.
        keys: Which arrays; those that the file lacks are left out. None reads all.

    Returns:
        The arrays by key, in the order of the file.

    Raises:
        InvalidInputError: If the file is missing, cut short, altered, of another format, or an array that is
            read holds Python objects.
    """
    _check_is_file(path)
    if not zipfile.is_zipfile(path):
        raise _unreadable(
            path,
            "another format, or a file that was cut short",
            "Copy it again, or write it with numpy.savez.",
        )
    arrays: dict[str, np.ndarray] = {}
    name = str(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            for key in archive.files:
                if keys is None or key in keys:
                    name = f"{path}, array {key!r},"
                    array = archive[key]
                    if not isinstance(array, np.ndarray):  # members of a plain zip come back as bytes
                        raise ValueError("a member that is no array")
                    arrays[key] = array
    except (*_FAULTS, *_MORE_FAULTS) as error:
        raise _fault(name, error) from None
    return arrays


def _check_is_file(path: Path) -> None:
    if not path.exists():
        raise InvalidInputError(str(path), "must exist", "no such file", "Check the path.")
    if not path.is_file():
        raise InvalidInputError(str(path), "must be a file", "a folder", "Give the file itself.")


def _fault(name: str, error: BaseException) -> InvalidInputError:
    if "allow_pickle" in str(error):
        repair = "Convert it with .astype to numbers and save it again; objects are never unpickled."
        return InvalidInputError(name, "must hold numbers", "Python objects", repair)
    return _unreadable(
        name, f"{type(error).__name__}: {error}", "The file is damaged or cut short: copy it again."
    )


def _unreadable(name: object, received: str, repair: str) -> InvalidInputError:
    return InvalidInputError(str(name), "must be a readable NumPy file", received, repair)
