"""The gzipped IDX format of MNIST."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from discrete_vae.errors import InvalidInputError

_UNSIGNED_BYTES = 0x08


def read_idx(path: Path) -> np.ndarray:
    """Read an array of unsigned bytes from a gzipped IDX file.

    The content starts with two zero bytes, the code of the type, the number of axes and each axis' length as
    a big-endian 32-bit integer.

    Source: LeCun, Cortes, Burges, The MNIST database of handwritten digits, section "file formats".

    Args:
        path: The file.

    Returns:
        uint8 array of the stated shape.

    Raises:
        InvalidInputError: If the content is not of that form.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels.gz")
        ...     _ = path.write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1])))
        ...     read_idx(path)
        array([7, 2, 1], dtype=uint8)
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise _fault(path, str(error)) from None
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise _fault(path, f"a header of {content[:4]!r}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise _fault(path, "a header that was cut short")
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if values.size != np.prod(shape, dtype=np.int64):
        raise _fault(path, f"{values.size} values for the shape {shape}")
    return values.reshape(shape)


def _fault(path: Path, received: str) -> InvalidInputError:
    return InvalidInputError(str(path), "must be a gzipped IDX file of bytes", received, "Download it again.")
