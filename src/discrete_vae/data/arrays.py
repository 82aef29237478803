"""NumPy files read without unpickling, their values as float32, states of a prior in them."""

from __future__ import annotations

import math
import stat
import threading
import warnings
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO

import numpy as np
import torch
from torch import Tensor

from discrete_vae.errors import DiscreteVAEError, InvalidInputError
from discrete_vae.system import allocating, check_memory, optional_library

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_BLOCK_BYTES = 1 << 24
_LOCAL_HEADER, _LOCAL_HEADER_BYTES = b"PK\x03\x04", 30
_SHOWN_LETTERS = 40


def read_npy(path: Path) -> np.ndarray:
    """Read the array of a .npy file; one that is not whole and sound is refused."""
    size = check_is_file(path)
    with reading_errors(str(path), _NUMPY), path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise _unreadable(str(path), "another format")
        file.seek(0)
        return _read_array(file, size, str(path))


def read_npz(path: Path, keys: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of a .npz file by key, in the order of the file; of some keys alone if `keys` is not None."""
    check_is_file(path)
    with reading_errors(str(path), _NUMPY):
        if not zipfile.is_zipfile(path):
            raise _unreadable(str(path), "another format, or a file that was cut short")
        arrays: dict[str, np.ndarray] = {}
        with zipfile.ZipFile(path) as archive:
            _check_directory(path, archive)
            for member in archive.infolist():
                key = member.filename.removesuffix(".npy")
                if keys is not None and key not in keys:
                    continue
                name = f"{path}, array {shown_key(key)},"
                with reading_errors(name, _NUMPY), archive.open(member) as file:
                    if key in arrays:
                        raise _unreadable(name, "a second array of that name")
                    if key == member.filename:
                        raise _unreadable(name, "a member that is no array")
                    arrays[key] = _read_array(file, member.file_size, name)
        return arrays


def _read_array(file: IO[bytes], size: int, name: str) -> np.ndarray:
    """Read the array that a stream of a known length holds.

    numpy.load takes a header whose length was changed, and starts the data elsewhere; here the header must end where
    the format says, and the data must fill the rest of the stream exactly.
    """
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:  # the third is for records with names beyond latin1
        raise _unreadable(name, f"version {version[0]}.{version[1]} of the format")
    with silenced():  # Python's own, about the spelling of a damaged header
        shape, fortran_order, dtype = _HEADERS[version](file)
    start = file.tell()
    if dtype.hasobject:
        repair = "Convert it with .astype to numbers and save it again; objects are never unpickled."
        raise InvalidInputError(name, "must hold numbers", "Python objects", repair)
    if any(type(length) is not int for length in shape) or dtype.itemsize == 0:
        raise _unreadable(name, f"shape {shape} of {dtype}")
    file.seek(start - 1)
    if file.read(1) != b"\n":
        raise _unreadable(name, "a header that does not end with a line end")
    count = math.prod(shape) * dtype.itemsize
    if start + count != size:
        raise _unreadable(name, f"{size - start} bytes of data, where the header announces {count}")
    check_memory(name, count, "Use a smaller array, or a machine with more memory.")
    content = np.empty(count, np.uint8)
    view = content.data
    for first in range(0, count, _BLOCK_BYTES):
        part = view[first : first + _BLOCK_BYTES]
        if file.readinto(part) != len(part):  # pyright: ignore[reportAttributeAccessIssue]
            raise _unreadable(name, "an end too soon")
    if file.read(1):  # a member of an archive compares its checksum here
        raise _unreadable(name, "more bytes than it should have")
    if dtype.kind == "b" and count and content.max() > 1:
        raise _unreadable(name, f"a boolean stored as {content.max()}")
    return content.view(dtype).reshape(shape, order="F" if fortran_order else "C")


def _check_directory(path: Path, archive: zipfile.ZipFile) -> None:
    """Check that the archive's directory, at its end, hides none of the members that lie before it.

    A changed byte in the directory can make one entry swallow the next ones; the members themselves are still there.
    """
    end, members = 0, sorted((each.header_offset, each.compress_size) for each in archive.infolist())
    with path.open("rb") as file:
        for start, size in [*members, (archive.start_dir, 0)]:
            if start < end:
                raise _unreadable(str(path), "members that overlap")
            file.seek(end)
            # some writers put a shorter record of sizes behind a member
            if start - end >= _LOCAL_HEADER_BYTES and _LOCAL_HEADER in file.read(start - end):
                raise _unreadable(str(path), "members that its directory does not list")
            file.seek(start)
            header = file.read(_LOCAL_HEADER_BYTES)
            lengths = sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
            end = start + _LOCAL_HEADER_BYTES + lengths + size


def check_is_file(path: Path) -> int:
    """Size of a plain file, in bytes."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInputError(str(path), "must exist", "no such file", "Check the path.") from None
    except (OSError, ValueError) as error:
        received = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(str(path), "must be a file", received, "Check the path.") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
        raise InvalidInputError(str(path), "must be a file", kind, "Give the file itself.")
    return found.st_size


@contextmanager
def reading_errors(name: str, what: str) -> Iterator[None]:
    """Report whatever goes wrong while a file is read: on damage NumPy, zipfile and other readers raise any error."""
    try:
        with allocating(name, "Use a smaller array, or a machine with more memory; or the file is damaged."):
            yield
    except DiscreteVAEError:
        raise
    except Exception as error:
        received, repair = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip("."), _DAMAGED
        if isinstance(error, OSError) and error.errno is not None:  # some decoders raise it without one
            received, repair = error.strerror or str(error), "Check its permissions and the disk."
        raise _unreadable(name, received, repair, what) from None


_silencing = threading.RLock()


@contextmanager
def silenced() -> Iterator[None]:
    """Ignore warnings within the block, which one thread enters at a time: the filters are those of all threads.

    Warnings of other threads are lost meanwhile.
    """
    with _silencing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def library(name: str, path: Path, install: str = "pip install 'discrete-vae[formats]'") -> ModuleType:
    """Import an optional library that a file needs."""
    rule = f"needs {name.partition('.')[0]} to be read"
    return optional_library(name, str(path), f"Install it: {install}.", rule=rule)


_NUMPY = "NumPy file"
_DAMAGED = "It is damaged or of another format: copy or write it again."


def _unreadable(name: str, received: str, repair: str = _DAMAGED, what: str = _NUMPY) -> InvalidInputError:
    return InvalidInputError(name, f"must be a readable {what}", received, repair)


def shown_key(key: str) -> str:
    """A key of a .npz file for messages: quoted, short, without control characters."""
    return repr(key if len(key) <= _SHOWN_LETTERS else f"{key[:_SHOWN_LETTERS]}...")


# Arrays of any real type as float32, refused where the differences of values would be lost.

_BLOCK = 1 << 22  # values that are looked at together
_RESOLUTION = 1e-3  # largest rounding error, as a share of a feature's range
_SMALLEST, _LARGEST = 1e-30, 1e30  # magnitudes of values in the wrong byte order lie beyond


def as_float32(
    name: str, array: np.ndarray, columns: Sequence[str] = (), *, fitted: bool = False, copy: bool = True
) -> np.ndarray:
    """Convert an array, (example, ...), to float32, (example, feature); messages name it and its features.

    Rounding is judged by the range of each feature, unless a model has been fitted to another range already. Without
    `copy` an array that is float32 shares its memory.
    """
    if array.dtype.kind not in "buif":
        rule, repair = "must hold booleans or real numbers", "Convert it with .astype(float)."
        raise InvalidInputError(name, rule, f"dtype {array.dtype}", repair)
    _check_byte_order(name, array)
    rows = array.reshape(len(array), -1)
    if array.dtype.itemsize < 4 or array.dtype == np.float32:
        return rows.astype(np.float32, order="C", copy=copy)
    result = np.empty(rows.shape, np.float32)
    error = np.zeros(rows.shape[1])
    low = high = rows[:1]  # as they are, since float64 rounds large integers too
    step = max(1, _BLOCK // len(error))
    for first in range(0, len(rows), step):
        block = rows[first : first + step]
        result[first : first + step] = narrow = narrowed(name, block, np.arange(len(error)), columns)
        if not fitted:
            wide = block.astype(np.float64)
            with np.errstate(invalid="ignore"):  # infinity less itself
                error = np.fmax(error, np.fmax.reduce(np.abs(narrow - wide), 0))
            low, high = np.fmin(low, np.fmin.reduce(block, 0)), np.fmax(high, np.fmax.reduce(block, 0))
    with np.errstate(invalid="ignore"):
        width = high.astype(np.float64) - low.astype(np.float64)
        lost = np.flatnonzero((high > low) & (error >= _RESOLUTION * width))
    if len(lost):
        worst = int(lost[0])
        rule = "must hold values whose differences float32 keeps"
        received = f"{_feature(worst, columns)} from {low[0, worst]} to {high[0, worst]}"
        raise InvalidInputError(name, rule, received, "Subtract an offset from this feature.")
    return result


def narrowed(name: str, values: np.ndarray, features: np.ndarray, columns: Sequence[str]) -> np.ndarray:
    """Values, (..., value), as float32, unless they are too large; their features, (value,), are for messages."""
    if values.dtype == np.float32:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.float32)
    if (lost := np.isinf(narrow) & np.isfinite(values)).any():
        place = tuple(np.argwhere(lost)[0])
        received = f"{float(values[place]):g} ({_feature(int(features[place[-1]]), columns)})"
        rule = "must hold values that float32 can hold"
        raise InvalidInputError(name, rule, received, "Scale the values.")
    return narrow


def _check_byte_order(name: str, array: np.ndarray) -> None:
    """Refuse values that are odd as they stand and plain in the other byte order: a changed letter of the header."""
    if array.dtype.itemsize == 1 or array.size == 0:
        return
    step = max(1, _BLOCK * len(array) // array.size)
    blocks = [array[first : first + step] for first in range(0, len(array), step)]
    with np.errstate(invalid="ignore"):
        if all(map(_is_plain, blocks)):
            return
        if not all(_is_plain(block.view(block.dtype.newbyteorder())) for block in blocks):
            return
    received = "values that are plain in the other byte order alone"
    repair = "The file is damaged: copy it again, or write it with numpy.save."
    raise InvalidInputError(name, "must hold values in the byte order of its header", received, repair)


def _is_plain(array: np.ndarray) -> bool:
    """Real values: of magnitudes that are met; integers: small, which in the wrong order no one is but 0."""
    if array.dtype.kind == "f":
        size, limits = np.abs(array[np.isfinite(array)]), np.finfo(array.dtype)
        least, most = max(_SMALLEST, float(limits.tiny)), min(_LARGEST, float(limits.max))
        return not bool((((size > 0) & (size < least)) | (size > most)).any())
    most = 1 if array.dtype.itemsize == 2 else 255  # 16-bit intensities may well be multiples of 256
    return -most <= int(array.min()) and int(array.max()) <= most


def _feature(index: int, columns: Sequence[str]) -> str:
    return f"column {columns[index]!r}" if columns else f"feature {index}"


def read_states(path: Path, num_units: int, *, argument: str = "path") -> Tensor:
    """Read states of binary units for chains to start at, (chain, unit) float32, from a .npy file of any numbers."""
    states = read_npy(path)
    received = f"shape {states.shape} of {states.dtype} in {path}"
    fits = states.dtype.kind in "buif" and states.ndim == 2 and states.shape[1] == num_units
    if fits and not bool(((states == 0) | (states == 1)).all()):
        fits, received = False, f"other values in {path}"
    if not fits or len(states) == 0:
        rule = f"must hold states of the prior, (chain, {num_units} units) in {{0,1}}"
        raise InvalidInputError(argument, rule, received, "Save such an array with numpy.save.")
    with allocating(argument, "Give fewer chains."):
        return torch.from_numpy(states.astype("float32"))  # whatever its width and byte order
