"""What a user's file holds: examples in one piece or by part, their labels, and the names of their features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from discrete_vae.data.csv_table import read_csv
from discrete_vae.data.parquet_table import read_parquet
from discrete_vae.data.read_arrays import check_is_file, read_npy, read_npz, shown_key, shown_keys
from discrete_vae.data.table import NoFeatures, Table
from discrete_vae.errors import InvalidInputError

WHOLE = "whole"
"""Key of examples that are not divided into parts yet."""

_NAMES = {"train": ("train", "x_train"), "valid": ("valid", "x_valid"), "test": ("test", "x_test")}
_LABELS = {part: (f"y_{part}", f"{part}_labels") for part in _NAMES}
_WHOLE_LABELS = ("y", "labels")
_SHAPES = {2: "(example, feature)", 3: "(example, height, width)", 4: "(example, channel, height, width)"}
_PARTITIONS = ({"train", "valid", "test"}, {"train", "test"})


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """Arrays of a file, by part ("train", "valid", "test"), or one for all under `WHOLE`.

    Attributes:
        examples: (example, ...).
        names: What messages call these arrays.
        labels: (example, ...), for keys of examples.
        columns: Names of the features; empty where they have none.
    """

    examples: dict[str, np.ndarray]
    names: dict[str, str]
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of an example, the same in all arrays: (feature,), or (channel, row, column).

        Raises:
            InvalidInputError: If an array has no such shape, is empty, or has another one than the first.
        """
        first = next(iter(self.examples.values()))
        for part, values in self.examples.items():
            name = self.names[part]
            if values.ndim not in _SHAPES:
                *others, last = _SHAPES.values()
                rule = f"must be {', '.join(others)} or {last}"
                raise InvalidInputError(name, rule, f"shape {values.shape}", "Reshape the array.")
            if values.size == 0:
                rule = "must hold at least one example and feature"
                raise InvalidInputError(name, rule, f"shape {values.shape}", "Fill it.")
            if values.shape[1:] != first.shape[1:]:
                rule = f"must have examples of shape {first.shape[1:]}, as {next(iter(self.examples))!r} has"
                repair = "Give all parts the same features."
                raise InvalidInputError(name, rule, f"shape {values.shape[1:]}", repair)
        shape = first.shape[1:]
        return (1, *shape) if len(shape) == 2 else shape


def read_own_arrays(file: Path, without: NoFeatures | None = None) -> OwnArrays:
    """Read a .npy, .npz, .csv or .parquet file.

    Args:
        file: The file.
        without: Which columns of a table are no features; None means all are.

    Raises:
        InvalidInputError: If the file has another ending, cannot be read, holds other arrays than it may, or has no
            such column.
    """
    if file.suffix.lower() not in _ENDINGS:
        check_is_file(file)
        repair = "Save the array with numpy.save, or the table as CSV."
        if file.suffix.lower() in _TEXTS:
            repair = f"A table in text is read by the name {file.with_suffix('.csv').name}."
        rule = f"must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        raise InvalidInputError(str(file), rule, repr(file.suffix), repair)
    if file.suffix.lower() in _TABLES:
        table = _TABLES[file.suffix.lower()](file, without)
        labels = {} if table.labels is None else {WHOLE: table.labels}
        return OwnArrays({WHOLE: table.values}, {WHOLE: str(file)}, labels, table.columns)
    without = without or NoFeatures()
    named = {"label_column": [without.label], "ignored_columns": list(without.ignored)}
    for argument, names in named.items():
        if any(name is not None and name not in without.optional for name in names):
            rule = f"needs a {' or '.join(_TABLES)} file"
            repair = "Leave it out; a .npz file has labels as y or y_train."
            raise InvalidInputError(argument, rule, str(file), repair)
    return _ARRAYS[file.suffix.lower()](file)


def _read_npy(file: Path) -> OwnArrays:
    return OwnArrays({WHOLE: read_npy(file)}, {WHOLE: str(file)})


def _read_npz(file: Path) -> OwnArrays:
    arrays = read_npz(file)
    keys = {part: next((key for key in names if key in arrays), None) for part, names in _NAMES.items()}
    of_part = {part: key for part, key in keys.items() if key is not None}
    if set(of_part) in _PARTITIONS:
        labels = _LABELS
    else:
        whole = [key for key in arrays if key not in _WHOLE_LABELS] if len(arrays) > 1 else list(arrays)
        of_part, labels = {WHOLE: whole[0]} if len(whole) == 1 else {}, {WHOLE: _WHOLE_LABELS}
    found = {part: key for part in of_part for key in labels[part] if key in arrays and key != of_part[part]}
    if not of_part or {*of_part.values(), *found.values()} != set(arrays):
        rule = "must hold train, valid and test, or train and test, or one array, and besides only labels"
        repair = "Call labels y_train, y_valid and y_test, or y; rename the other arrays, or save one of them alone."
        raise InvalidInputError(str(file), rule, shown_keys(arrays), repair)
    named = {part: f"{file}, array {shown_key(key)}," for part, key in of_part.items()}
    for part, key in found.items():
        _check_labels(f"{file}, array {shown_key(key)},", arrays[key], arrays[of_part[part]])
    return OwnArrays(
        {part: arrays[key] for part, key in of_part.items()},
        named,
        {part: arrays[key] for part, key in found.items()},
    )


def _check_labels(name: str, labels: np.ndarray, examples: np.ndarray) -> None:
    if labels.ndim == 0 or examples.ndim == 0 or len(labels) != len(examples):
        count = len(examples) if examples.ndim else 0
        received = f"shape {labels.shape}"
        raise InvalidInputError(
            name, f"must hold a label for each of the {count} examples", received, "Give one each."
        )


_ARRAYS: Mapping[str, Callable[[Path], OwnArrays]] = {".npy": _read_npy, ".npz": _read_npz}
_TABLES: Mapping[str, Callable[..., Table]] = {".csv": read_csv, ".parquet": read_parquet}
_ENDINGS = (*_ARRAYS, *_TABLES)
_TEXTS = (".tsv", ".tab", ".txt", ".dat")
