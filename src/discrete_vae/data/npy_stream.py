"""One array in NumPy's format, read from a stream of known length: nothing but a whole and sound one passes."""

from __future__ import annotations

import math
import warnings
from typing import IO

import numpy as np

from discrete_vae.memory import check_memory

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_CHUNK = 1 << 24


class DamageError(Exception):
    """The content breaks the format; the message says how."""


class ObjectsError(Exception):
    """The array holds Python objects, which are never unpickled."""


def read_array(file: IO[bytes], size: int, name: str) -> np.ndarray:
    """Read the array that a stream holds.

    numpy.load takes a header whose length was changed, and starts the data elsewhere; here the header must end where
    the format says, and the data must fill the rest of the stream exactly.

    Args:
        file: The stream, at its start.
        size: Its length in bytes.
        name: What messages about memory call it.

    Returns:
        The array; writable.

    Raises:
        DamageError: If the header or the length breaks the format, or a boolean is neither 0 nor 1.
        ObjectsError: If it holds Python objects.
        InvalidInputError: If it does not fit the memory.
        Exception: Whatever NumPy and zipfile raise on damage that they find themselves.
    """
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:  # the third is for records with names beyond latin1
        raise DamageError(f"version {version[0]}.{version[1]} of the format")
    with warnings.catch_warnings():  # Python's own, about the spelling of a damaged header
        warnings.simplefilter("ignore")
        shape, fortran_order, dtype = _HEADERS[version](file)
    start = file.tell()
    if dtype.hasobject:
        raise ObjectsError
    if any(type(length) is not int for length in shape) or dtype.itemsize == 0:
        raise DamageError(f"shape {shape} of {dtype}")
    file.seek(start - 1)
    if file.read(1) != b"\n":
        raise DamageError("a header that does not end with a line end")
    count = math.prod(shape) * dtype.itemsize
    if start + count != size:
        raise DamageError(f"{size - start} bytes of data, where the header announces {count}")
    check_memory(name, count, "Use a smaller array, or a machine with more memory.")
    content = np.empty(count, np.uint8)
    view = content.data
    for first in range(0, count, _CHUNK):
        part = view[first : first + _CHUNK]
        if file.readinto(part) != len(part):  # pyright: ignore[reportAttributeAccessIssue]
            raise DamageError("an end too soon")
    if file.read(1):  # a member of an archive compares its checksum here
        raise DamageError("more bytes than it should have")
    if dtype.kind == "b" and count and content.max() > 1:
        raise DamageError(f"a boolean stored as {content.max()}")
    return content.view(dtype).reshape(shape, order="F" if fortran_order else "C")
