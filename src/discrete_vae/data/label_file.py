"""Labels of a run's examples from a file beside the data."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from discrete_vae.config import DataConfig, FileDataConfig
from discrete_vae.data.dataset import PARTS, DataSplits
from discrete_vae.data.from_file import shuffled_rows
from discrete_vae.data.own_arrays import WHOLE, read_own_arrays
from discrete_vae.data.read_arrays import check_is_file, read_npy
from discrete_vae.data.table import NoFeatures, read_labels
from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path
from discrete_vae.shown import text_of_cell

_WORDS = {"train": "training", "valid": "validation", "test": "test"}


def read_label_file(path: str | Path, *, argument: str = "labels") -> np.ndarray:
    r"""Read one label per example.

    Args:
        path: A .npy file with an array (example,) of numbers or words, or a .csv file with one column under its name.
        argument: What messages call it.

    Returns:
        (example,): numbers, or words; of a .csv file whole numbers where all labels are such.

    Raises:
        InvalidInputError: If the file has another ending, cannot be read, has a blank line or holds something else.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "kinds.csv")
        ...     _ = file.write_text("kind\ncat\ndog\n")
        ...     read_label_file(file)
        array(['cat', 'dog'], dtype='<U3')
    """
    file = user_path(argument, path)
    if file.suffix.lower() == ".npy":
        labels = read_npy(file)
    elif file.suffix.lower() == ".csv":
        check_is_file(file)  # a pipe would be waited for
        labels = _read_csv(file, argument)
    else:
        repair = "Save the labels with numpy.save, or as a .csv file of one column."
        raise InvalidInputError(argument, "must name a .npy or .csv file", str(file), repair)
    if labels.ndim != 1 or labels.dtype.kind not in "biufU":
        rule, repair = "must hold one number or word per example", "Give an array of one axis."
        raise InvalidInputError(argument, rule, f"shape {labels.shape} of {labels.dtype} in {file}", repair)
    return labels


def labels_of_part(
    labels: np.ndarray,
    dataset: DataSplits,
    config: DataConfig,
    part: str = "train",
    *,
    argument: str = "labels",
) -> np.ndarray:
    """The labels of a part of a data set.

    Args:
        labels: One per example of the part, in their order; or, where the data are a file that was cut into parts, one
            per row of that file.
        dataset: The data.
        config: Where they are from.
        part: "train", "valid" or "test".
        argument: What messages call the labels.

    Returns:
        (example,), in the order of the part.

    Raises:
        InvalidInputError: If there are not as many.
    """
    sizes = {name: len(getattr(dataset, name)) for name in PARTS}
    total = sum(sizes.values())
    if len(labels) == sizes[part]:
        return labels
    rule = f"must be as many as the {sizes[part]} {_WORDS[part]} examples"
    if isinstance(config, FileDataConfig):
        found = read_own_arrays(Path(config.path), NoFeatures(config.label_column, config.ignored_columns))
        if set(found.examples) == {WHOLE}:
            if len(labels) == total:
                test, valid, train = shuffled_rows(total, sizes["test"], sizes["valid"], config.split_seed)
                return labels[{"test": test, "valid": valid}.get(part, train)]
            rule += f" or the {total} rows of {config.path}"
    raise InvalidInputError(argument, rule, len(labels), "Give one label per example, in their order.")


def _read_csv(file: Path, argument: str) -> np.ndarray:
    repair = "Give a text file whose first line names the column, one label per line below."
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            reader = csv.reader(lines)
            rows = []
            for row in reader:
                if not row:
                    rule, received = (
                        "must hold a label in each line",
                        f"a blank line {reader.line_num} in {file}",
                    )
                    blank = 'Write "" for an example without a label, or remove the line.'
                    raise InvalidInputError(argument, rule, received, blank)
                rows.append(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        received = f"{file} ({getattr(error, 'strerror', None) or error})"
        raise InvalidInputError(argument, "must be a readable .csv file", received, repair) from None
    if len(rows) < 2 or any(len(row) != 1 for row in rows):
        received = f"{len(rows)} lines of {max(map(len, rows), default=0)} in {file}"
        raise InvalidInputError(argument, "must hold one column under its name", received, repair)
    return read_labels([text_of_cell(row[0].strip()) for row in rows[1:]])
