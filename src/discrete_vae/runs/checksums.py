"""SHA-256 of files: safetensors loads a flipped bit without a word, so the sum stands beside each file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from discrete_vae.runs.regular_files import open_regular


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, read in pieces.

    Args:
        path: The file.

    Returns:
        64 hexadecimal digits.

    Raises:
        OSError: If it cannot be read or is no regular file.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "empty")
        ...     path.touch()
        ...     sha256_file(path)
        'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_bytes(content: bytes) -> str:
    """SHA-256 of bytes.

    Examples:
        >>> sha256_bytes(b"")[:16]
        'e3b0c44298fc1c14'
    """
    return hashlib.sha256(content).hexdigest()
