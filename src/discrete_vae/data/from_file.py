"""The user's own data, from an array or a table in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from discrete_vae.checks import check_number
from discrete_vae.data.binarized import binarized
from discrete_vae.data.dataset import PARTS, DatasetDescription, DataSplits
from discrete_vae.data.fixed_draws import fixed_permutation
from discrete_vae.data.float32 import as_float32
from discrete_vae.data.folder import check_data_dir
from discrete_vae.data.own_arrays import WHOLE, OwnArrays, read_own_arrays
from discrete_vae.data.table import NoFeatures
from discrete_vae.domains import UNIT_INTERVAL
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import allocating, check_memory
from discrete_vae.paths import user_path
from discrete_vae.runs.checksums import sha256_file


def load_file(
    *,
    path: str | Path,
    label_column: str | None = None,
    ignored_columns: Sequence[str] = (),
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    binarize: bool = False,
    binarization_seed: int = 0,
    data_dir: str | Path | None = None,
) -> DataSplits:
    """Values of a .npy, .npz, .csv or .parquet file, as float32; nothing is written.

    An array is (example, feature), (example, height, width) or (example, channel, height, width), of booleans, integers
    or real numbers; NaN marks missing values. A table has a named column per feature, see
    `discrete_vae.data.csv_table.read_csv`. Which values a model can read is its likelihood's business.

    A .npz file holds ``train``, ``valid`` and ``test`` (or ``x_train`` and so on), whose order is kept, or only
    ``train`` and ``test``, or a single array; beside them labels as ``y_train`` or ``train_labels`` and so on, or ``y``
    or ``labels``. A single array is shuffled and cut: test first, validation next (each fraction of the examples,
    rounded down), the rest is for training. Where only the validation part is missing, it is cut from the shuffled
    training part.

    Args:
        path: The file; ``~`` is the home directory.
        label_column: The column of a table that holds labels and is no feature; None means none does.
        ignored_columns: Columns of a table that are not read.
        valid_fraction: Share of the examples for validation, between 0 and 1, where the file has no such part.
        test_fraction: Share of the examples for testing, between 0 and 1, where the file has no such part.
        split_seed: Seed of the shuffle.
        binarize: Whether values are probabilities of bits: of the training part, if they are not all 0 or 1, bits are
            drawn afresh in each step; of the validation and test parts once.
        binarization_seed: Seed of the bits that the validation and test parts keep.
        data_dir: Not read, but refused if it does not exist, as with every other data set.

    Returns:
        A data set named after the file.

    Raises:
        InvalidInputError: If the file cannot be read or has no such columns, its arrays break a rule, there are too few
            examples, or a value is no probability although it should be.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/mine.npy", np.linspace(-3.0, 3.0, 60).reshape(20, 3))
        ...     mine = load_file(path=f"{folder}/mine.npy")
        >>> mine.train.shape, mine.valid.shape, mine.event_shape
        (torch.Size([16, 3]), torch.Size([2, 3]), (3,))
    """
    check_data_dir(data_dir)
    for setting, fraction in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        check_number(setting, fraction, above=0.0, at_most=1.0, repair="Give a share such as 0.1.")
    file = user_path("path", path)
    repair = "Give fewer examples or features, or use a machine with more memory."
    with allocating(str(file), repair):
        found = read_own_arrays(file, NoFeatures(label_column, tuple(ignored_columns)))
        # a float32 copy of all, and a second one where examples are shuffled
        needed = 4 * sum(array.size for array in found.examples.values()) * (1 + (len(found.examples) < 3))
        check_memory(str(file), needed, repair, what="for its values in float32")
        event_shape = found.event_shape
        parts = {
            part: as_float32(found.names[part], array, found.columns)
            for part, array in found.examples.items()
        }
        rows, split = _cut(
            found, {part: len(x) for part, x in parts.items()}, valid_fraction, test_fraction, split_seed
        )
        examples = {
            part: parts[of][chosen] if chosen is not None else parts[of]
            for part, (of, chosen) in rows.items()
        }
        labels = {
            part: found.labels[of][chosen] if chosen is not None else found.labels[of]
            for part, (of, chosen) in rows.items()
            if of in found.labels
        }
        if binarize:
            for name, part in zip(found.names.values(), parts.values(), strict=True):
                _check_probabilities(name, part)
        dataset = DataSplits(
            name=file.stem,
            train=torch.from_numpy(examples["train"]),
            valid=torch.from_numpy(examples["valid"]),
            test=torch.from_numpy(examples["test"]),
            event_shape=event_shape,
            dynamic=False,
            description=DatasetDescription(
                source=file.name,
                version="the user's file",
                split=split,
                values="as in the file",
                sha256=sha256_file(file),
                columns=found.columns,
            ),
            labels=labels,
        )
        return binarized(dataset, seed=binarization_seed) if binarize else dataset


def shuffled_rows(num_examples: int, num_test: int, num_valid: int, seed: int) -> list[np.ndarray]:
    """Which rows of an array that is cut are test, validation and training examples, in the order of these."""
    return np.split(fixed_permutation(num_examples, seed), [num_test, num_test + num_valid])


def _cut(
    found: OwnArrays, sizes: dict[str, int], valid_fraction: float, test_fraction: float, seed: int
) -> tuple[dict[str, tuple[str, np.ndarray | None]], str]:
    """For each part, the array that it comes from and its rows there (None: all); and how it was made, in words."""
    rows: dict[str, tuple[str, np.ndarray | None]] = {part: (part, None) for part in PARTS}
    counts = dict(sizes)
    words = "as in the file"
    if set(sizes) != set(PARTS):
        source = next(iter(sizes))  # the only array, or the one for training
        num_examples = sizes[source]
        # A tenth of 30 is 3, although 30 * 0.1 in floating point may fall short of it.
        num_valid = int(num_examples * valid_fraction + 1e-9)
        num_test = int(num_examples * test_fraction + 1e-9) if source == WHOLE else 0
        counts = {"train": num_examples - num_valid - num_test, "valid": num_valid, "test": num_test}
        wanted = counts if source == WHOLE else {part: counts[part] for part in ("train", "valid")}
        if min(wanted.values()) < 1:
            *others, last = wanted.values()
            received = f"{num_examples} examples, cut into {', '.join(map(str, others))} and {last}"
            repair = "Add examples, change the fractions, or save train, valid and test yourself."
            rule = f"must have examples for each of {'three' if source == WHOLE else 'two'} parts"
            raise InvalidInputError(found.names[source], rule, received, repair)
        test, valid, train = shuffled_rows(num_examples, num_test, num_valid, seed)
        rows |= {"train": (source, train), "valid": (source, valid)}
        words = f"after a shuffle with seed {seed}"
        if source == WHOLE:
            rows["test"] = (source, test)
        else:
            counts["test"] = sizes["test"]
            words = f"test as in the file, valid cut from train {words}"
    return rows, f"{'/'.join(str(counts[part]) for part in PARTS)}{',' * ('file' in words)} {words}"


def _check_probabilities(name: str, values: np.ndarray) -> None:
    """Check that all values that are there lie in [0, 1]."""
    outside = values[~UNIT_INTERVAL.contains(values) & ~np.isnan(values)]
    if outside.size:
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        repair = UNIT_INTERVAL.repair(high if high > 1 else low)
        raise InvalidInputError(name, UNIT_INTERVAL.rule, f"values from {low:g} to {high:g}", repair)
