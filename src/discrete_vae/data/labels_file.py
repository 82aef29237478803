"""Labels of examples in a file of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from discrete_vae.data.read_arrays import check_is_file, read_npy
from discrete_vae.data.table import read_labels
from discrete_vae.errors import InvalidInputError


def read_label_file(path: Path, numbers: np.ndarray, *, argument: str = "path") -> np.ndarray:
    r"""Read a label per example.

    Args:
        path: A .npy file with an array (example,) of whole numbers or words, or a text file with a line that names the
            column and a label in each line behind it.
        numbers: Numbers of the examples whose labels are wanted; the last one is the greatest.
        argument: Name of the argument that gave the path, for messages.

    Returns:
        (row,), one per number.

    Raises:
        InvalidInputError: If the file cannot be read, or has too few labels.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "kinds.csv")
        ...     _ = path.write_text("kind\ncat\ndog\n")
        ...     read_label_file(path, np.array([1])).tolist()
        ['dog']
    """
    check_is_file(path)
    if path.suffix.lower() == ".npy":
        labels = read_npy(path)
    else:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            received = getattr(error, "strerror", None) or "other bytes"
            raise InvalidInputError(
                str(path), "must be readable text in UTF-8", received, "Save it as text, a label per line."
            ) from None
        labels = read_labels([line.strip().strip('"') for line in lines[1:] if line.strip()])
    if labels.ndim != 1 or labels.dtype.kind not in "buiU" or len(labels) <= numbers.max():
        rule = f"must hold a label, a whole number or a word, for each of {numbers.max() + 1} examples"
        raise InvalidInputError(
            argument, rule, f"shape {labels.shape} of {labels.dtype}", "Give one per example, in their order."
        )
    return labels[numbers]
