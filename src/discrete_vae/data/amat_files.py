"""The text format of the fixed binarization of MNIST: one row per line, digits 0 and 1 separated by spaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from discrete_vae.errors import InvalidInputError


def read_amat(path: Path) -> np.ndarray:
    r"""Read a matrix of bits from a text file.

    Args:
        path: The file.

    Returns:
        (row, column) uint8 in {0, 1}.

    Raises:
        InvalidInputError: If it holds anything but rows of zeros and ones of one length.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "bits.amat")
        ...     _ = path.write_bytes(b"0 1 1\n1 0 0\n")
        ...     read_amat(path)
        array([[0, 1, 1],
               [1, 0, 0]], dtype=uint8)
    """
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    bits = content - ord("0")  # everything below "0" wraps to 208 and more
    is_bit = bits <= 1
    ends = np.flatnonzero(content == ord("\n"))
    others = content[~is_bit]
    if not np.isin(others, np.frombuffer(b" \r\n", dtype=np.uint8)).all():
        raise _fault(path, "other characters than 0, 1, space and line end")
    if content.size > 0 and content[-1] != ord("\n"):
        ends = np.append(ends, content.size)  # the last line may lack its end
    digits = np.flatnonzero(is_bit)
    lengths = np.diff(np.searchsorted(digits, ends), prepend=0)
    if lengths.size == 0 or (lengths != lengths[0]).any() or lengths[0] == 0:
        raise _fault(path, f"lines of {sorted(set(lengths.tolist()))[:4]} digits")
    return bits[is_bit].reshape(-1, lengths[0])


def _fault(path: Path, received: str) -> InvalidInputError:
    rule = "must hold lines of zeros and ones of one length"
    return InvalidInputError(str(path), rule, received, "Download it again.")
