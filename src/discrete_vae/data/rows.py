"""The user's own data in parts to train on, and examples that a trained model is to be used on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import BINARY, UNIT_INTERVAL
from discrete_vae.config import ColumnConfig, DataConfig, FileDataConfig, ModelConfig, TableLikelihoodConfig
from discrete_vae.data.arrays import as_float32, check_is_file, read_npy
from discrete_vae.data.files import WHOLE, OwnArrays, TableReading, places_of_columns, read_own_arrays
from discrete_vae.data.schema import TableSchema
from discrete_vae.data.splits import (
    BIT_KEYS,
    PARTS,
    DatasetDescription,
    DataSplits,
    check_domain,
    check_weights,
    fixed_bits,
    shuffled_rows,
    summarize,
)
from discrete_vae.data.tables import read_label_column
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes
from discrete_vae.runs.io import sha256_file
from discrete_vae.sparse import Examples, SparseRows, select
from discrete_vae.system import allocating, check_data_dir, check_memory, user_path

_REPAIR = "Give fewer examples or features, or use a machine with more memory."


def load_file(
    *,
    path: str | Path,
    data_dir: str | Path | None = None,
    columns: Sequence[ColumnConfig] | None = None,
    condition_columns: Sequence[ColumnConfig] = (),
    **settings: Any,
) -> DataSplits:
    """Values of the user's file, as float32; nothing is written.

    An array (.npy, .npz) is (example, feature), (example, height, width) or (example, channel, height, width), of
    booleans, integers or real numbers; NaN marks missing values. Images with 1, 3 or 4 channels last are recognized
    where the first of their axes cannot be that of channels. A table (.csv, .tsv, .txt, these with .gz, and .parquet)
    has a named column per feature, see `discrete_vae.data.tables.read_table`. Which values a model can read is its
    likelihood's business.

    A sparse matrix (.npz of `scipy.sparse.save_npz`, .mtx, .h5ad), (example, feature), stays sparse: `DataSplits` then
    holds `SparseRows`. Files of .h5 and .hdf5 are read as .npz is, and .fasta, .fa, .faa and .fna by
    `discrete_vae.data.sequences.read_fasta`. Files of .mtx and FASTA may be packed, .gz.

    A .npz file holds ``train``, ``valid`` and ``test`` (or ``x_train`` and so on), whose order is kept, or only
    ``train`` and ``test``, or a single array, which is shuffled and cut: test first, validation next (each fraction of
    the examples, rounded down), the rest is for training. Where only the validation part is missing, it is cut from the
    shuffled training part. Beside them it may hold

    - labels, ``y_train`` or ``train_labels`` and so on, or ``y`` or ``labels``: (example, ...);
    - weights, ``weights_train`` or ``train_weights`` and so on, or ``weights``: (example,), of at least 0;
    - c of p(x | c), ``condition_train`` or ``train_condition`` and so on, or ``condition``: numbers or words,
      (example,) for one column, which is called c, or (example, column), which are called c0, c1 and so on.

    Args:
        path: The file; ``~`` is the home directory.
        data_dir: The folder of a file of that name which is no longer at its path.
        columns: The kinds of a table's columns that a model reads, see `discrete_vae.data.infer_schema`; None leaves
            them to the setting `kinds`.
        condition_columns: Likewise those of the condition.
        settings: Other fields of `discrete_vae.config.FileDataConfig`: how a table is read, and how examples are cut
            into parts. With ``binarize`` values are probabilities of bits: of the training part, if they are not all 0
            or 1, bits are drawn afresh in each step; of the validation and test parts once.

    Returns:
        A data set named after the file.

    Raises:
        InvalidInputError: If the file cannot be read, breaks a rule, or has too few examples.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/mine.npy", np.linspace(-3.0, 3.0, 60).reshape(20, 3))
        ...     mine = load_file(path=f"{folder}/mine.npy")
        >>> mine.train.shape, mine.valid.shape, mine.event_shape
        (torch.Size([16, 3]), torch.Size([2, 3]), (3,))
    """
    folder, file = check_data_dir(data_dir), user_path("path", path)
    try:
        check_is_file(file)
    except InvalidInputError as error:
        if folder is None:
            repair = "Check the path. If the file has moved, give its folder as data_dir."
            raise InvalidInputError(error.argument, error.rule, error.received, repair) from None
        file = folder / file.name
    config = FileDataConfig(path=file, **settings)
    with allocating(str(config.path), _REPAIR):
        reading = TableReading.of(config, columns, condition_columns)
        return splits_of(read_own_arrays(config.path, reading), config)


def splits_of(found: OwnArrays, config: FileDataConfig) -> DataSplits:
    """The three parts of a file that has been read."""
    file, event_shape = config.path, found.event_shape
    # a float32 copy of what is no such array, and another of all where examples are shuffled
    dense = [array for array in found.examples.values() if not isinstance(array, SparseRows)]
    needed = 4 * sum(each.size * ((each.dtype != np.float32) + (len(found.examples) < 3)) for each in dense)
    check_memory(str(file), needed, _REPAIR, what="for its values in float32")
    few = {"valid", "test"}  # parts that may be, whose own range says nothing
    arrays = {
        key: _values(found.names[key], array, found.columns, fitted=key in few)
        for key, array in found.examples.items()
    }
    if config.binarize:
        for key, values in arrays.items():
            check_domain(found.names[key], UNIT_INTERVAL, summarize(values))
    places, split = _split(found, config)
    about = (file.name, "the user's file", split, "as in the file", sha256_file(file), found.columns)
    parts: dict[str, Any] = {part: select(arrays[key], rows) for part, (key, rows) in places.items()}
    if config.sequence_weights is None:
        weights = {key: check_weights(*given, len(arrays[key])) for key, given in found.weights.items()}
    else:  # by the relatives of each in all of the file
        from discrete_vae.data.sequences import sequence_weights  # here, since few files need it

        weights = {WHOLE: sequence_weights(arrays[WHOLE][:], config.sequence_weights).numpy()}

    def of_parts(given: Mapping[str, Any]) -> dict[str, Any]:
        return {part: given[key][rows] for part, (key, rows) in places.items() if key in given}

    dataset = DataSplits(
        name=file.stem,
        **parts,
        event_shape=event_shape,
        dynamic=False,
        description=DatasetDescription(*about),
        labels=of_parts(found.labels),
        schema=found.schema,
        weights=of_parts(weights),
        conditions=of_parts({key: _condition(found, key, fitted=key in few) for key in found.conditions}),
    )
    return binarized(dataset, seed=config.binarization_seed) if config.binarize else dataset


def _condition(found: OwnArrays, key: str, *, fitted: bool = False) -> Tensor:
    """c of some examples, (example, column) float32."""
    assert found.condition_schema is not None
    name, names = f"{found.names[key]}, the condition,", found.condition_schema.names
    return torch.from_numpy(as_float32(name, found.conditions[key], names, fitted=fitted))


def _values(name: str, array: np.ndarray | SparseRows, columns: Sequence[str], *, fitted: bool) -> Examples:
    """The values as float32, sparse where they were."""
    if isinstance(array, SparseRows):
        return array
    return torch.from_numpy(as_float32(name, array, columns, fitted=fitted, copy=False))


def _split(
    found: OwnArrays, config: FileDataConfig
) -> tuple[Mapping[str, tuple[str, np.ndarray | slice]], str]:
    """Array of the file and rows of it for each part, and the split in words."""
    sizes = {key: len(array) for key, array in found.examples.items()}
    places: dict[str, tuple[str, np.ndarray | slice]] = {part: (part, slice(None)) for part in PARTS}
    words = ", as in the file"
    if set(sizes) != set(PARTS):
        key = next(iter(sizes))  # the only array, or the one for training
        total = sizes.pop(key)
        # A tenth of 30 is 3, although 30 * 0.1 in floating point may fall short of it.
        num_valid = int(total * config.valid_fraction + 1e-9)
        num_test = int(total * config.test_fraction + 1e-9) if key == WHOLE else 0
        cut = {"train": total - num_valid - num_test, "valid": num_valid}
        cut |= {"test": num_test} if key == WHOLE else {}
        if min(cut.values()) < 1:
            *others, last = cut.values()
            received = f"{total} examples, cut into {', '.join(map(str, others))} and {last}"
            repair = "Add examples, change the fractions, or save train, valid and test yourself."
            raise InvalidInputError(found.names[key], "must have examples for each part", received, repair)
        test, valid, train = shuffled_rows(total, num_test, num_valid, config.split_seed)
        places |= {"train": (key, train), "valid": (key, valid)}
        words = f" after a shuffle with seed {config.split_seed}"
        if key == WHOLE:
            places["test"] = (key, test)
        else:
            words = f", test as in the file, valid cut from train{words}"
        sizes |= cut
    return places, f"{'/'.join(str(sizes[part]) for part in PARTS)}{words}"


def binarized(dataset: DataSplits, *, seed: int) -> DataSplits:
    """Draw the bits of the validation and test parts; those of the training part are drawn afresh in each step.

    Missing values stay missing, and a part of bits stays as it is: the result is dynamic if there are bits to draw.
    """
    of_bits = {part: BINARY.holds(summarize(getattr(dataset, part))) for part in PARTS}
    train = "as in the file" if of_bits["train"] else "binarized afresh in each step"
    others = "as in the file" if of_bits["valid"] and of_bits["test"] else f"once with seed {seed}"
    probable = [part for part in ("valid", "test") if not of_bits[part]]
    drawn = {part: _bits(getattr(dataset, part)[:], seed, part) for part in probable}
    description = replace(dataset.description, values=f"train {train}, valid and test {others}")
    return replace(dataset, **drawn, dynamic=not of_bits["train"], description=description)


# Labels of a run's examples from a file beside the data.


def read_label_file(path: str | Path, *, argument: str = "labels") -> np.ndarray:
    """Read one label per example, (example,) numbers or words: an array in .npy, or a .csv file of one column."""
    file = user_path(argument, path)
    if file.suffix.lower() not in (".npy", ".csv"):
        repair = "Save the labels with numpy.save, or as a .csv file of one column."
        raise InvalidInputError(argument, "must name a .npy or .csv file", str(file), repair)
    labels = read_npy(file) if file.suffix.lower() == ".npy" else read_label_column(file, argument)
    if labels.ndim != 1 or labels.dtype.kind not in "biufU":
        rule, repair = "must hold one number or word per example", "Give an array of one axis."
        raise InvalidInputError(argument, rule, f"shape {labels.shape} of {labels.dtype} in {file}", repair)
    return labels


def labeled(labels: np.ndarray) -> np.ndarray:
    """Mask of the examples that have a label, (example,): one that is neither "" nor NaN."""
    return labels != "" if labels.dtype.kind == "U" else labels == labels


def labels_of_part(
    labels: np.ndarray,
    dataset: DataSplits,
    config: DataConfig,
    part: str = "train",
    *,
    argument: str = "labels",
) -> np.ndarray:
    """The labels of a part of a data set, (example,) in its order.

    They are given for the examples of the part, or, where the data are a file that was cut into parts, for its rows.
    """
    count = len(getattr(dataset, part))
    if len(labels) == count:
        return labels
    rule = f"must be as many as the {count} examples of the part {part!r}"
    if isinstance(config, FileDataConfig):
        found = read_own_arrays(config.path, TableReading.of(config))
        if set(found.examples) == {WHOLE}:
            total = len(found.examples[WHOLE])
            if len(labels) == total:
                rows = _split(found, config)[0][part][1]
                if WHOLE not in found.weights:
                    return labels[rows]
                weights = check_weights(*found.weights[WHOLE], total)
                return labels[rows][weights[rows] > 0]  # the others are in no part
            rule += f" or the {total} rows of {config.path}"
    raise InvalidInputError(argument, rule, len(labels), "Give one label per example, in their order.")


# Examples that a trained model is to be used on: a part of its data set, or a file that it has not seen.


@dataclass(frozen=True, eq=False, repr=False)
class Rows(ShowsShapes):
    """Examples on the CPU, which the model that they are for can read.

    Attributes:
        name: What messages call them.
        x: (row, feature) float32, `SparseRows` where they are read from a sparse matrix; NaN marks missing values.
        index: Numbers of the rows in their file or part, (row,) int64, ascending; they key the noise.
        columns: Names of the features; empty where they have none.
        labels: (row, ...); None where there are none.
        binarized: Whether x are bits that were drawn from probabilities.
        schema: How the columns of a table became numbers; None for values as they stand in a file.
        condition: c of p(x | c), (row, column) float32; None where nothing is conditioned on.
        weights: How often the population has each, (row,), of a part of the run's own data; None counts all alike.
    """

    name: str
    x: Examples
    index: np.ndarray
    columns: tuple[str, ...] = ()
    labels: np.ndarray | None = None
    binarized: bool = False
    schema: TableSchema | None = None
    condition: Tensor | None = None
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.x)

    def subset(self, places: np.ndarray) -> Rows:
        """Some of the rows, by their places, (row,) int64."""
        given = {name: getattr(self, name) for name in ("index", "labels", "condition", "weights")}
        own = {name: each[places] for name, each in given.items() if each is not None}
        return replace(self, x=select(self.x, places), **own)


def rows_of_part(dataset: DataSplits, part: str = "test") -> Rows:
    """A part of a data set, "train", "valid" or "test".

    Of probabilities to train on bits are drawn, as they are for the other parts.
    """
    if part not in PARTS:
        raise InvalidInputError("part", f"must be one of {', '.join(PARTS)}", repr(part), "Take test.")
    x, draws = getattr(dataset, part), part == "train" and dataset.dynamic
    return Rows(
        name=f"{dataset.description.source}, part {part!r},",
        x=_bits(x[:], 0) if draws else x,
        index=np.arange(len(x)),
        columns=dataset.description.columns,
        labels=dataset.labels.get(part),
        binarized=draws,
        schema=dataset.schema,
        condition=dataset.conditions.get(part),
        weights=dataset.weights.get(part),
    )


def read_rows(
    path: str | Path,
    model: ModelConfig,
    *,
    part: str | None = None,
    columns: Sequence[str] = (),
    reading: TableReading | None = None,
    binarization_seed: int = 0,
    missing: bool | None = None,
    argument: str = "path",
) -> Rows:
    """Read examples for a trained model, as training reads its own.

    Columns of a table are found by their names where the model's are known, in whatever order they stand. Where the
    likelihood takes bits, values between 0 and 1 are their probabilities, and bits are drawn once.

    Args:
        path: The file, see `discrete_vae.data.rows.load_file`.
        model: The model's config: shape of an example, likelihood, whether values may be missing.
        part: Which part of a .npz file that has parts, "train", "valid" or "test"; None is test. A file without parts
            takes None alone, and is read whole.
        columns: Names of the features that the model knows, in its order; none where it knows none.
        reading: How a file is read; its kinds of columns are the model's, where this has some.
        binarization_seed: Seed of the bits.
        missing: Whether values may be missing; None is what the model says.
        argument: What messages call the path.

    Raises:
        InvalidInputError: If the file cannot be read, has no such part, or holds examples that the model cannot read.

    Examples:
        >>> import tempfile
        >>> from discrete_vae.config import RBMConfig
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/new.npy", np.eye(3))
        ...     rows = read_rows(f"{folder}/new.npy", ModelConfig(num_features=3, prior=RBMConfig()))
        >>> rows.x.shape, rows.index
        (torch.Size([3, 3]), array([0, 1, 2]))
    """
    file, likelihood = user_path(argument, path), model.likelihood
    reading = replace(reading or TableReading(), kinds=None)
    if isinstance(likelihood, TableLikelihoodConfig):
        reading = replace(reading, columns=likelihood.columns)
    if model.condition:
        names, roles = {column.name for column in model.condition}, reading.roles
        roles = replace(roles, besides=(*names, *roles.besides), optional=roles.optional - names)
        reading = replace(reading, condition=model.condition, roles=roles)
    with allocating(str(file), _REPAIR):
        found = read_own_arrays(file, reading)
        key, shape = _part(found, part, str(file)), found.event_shape
        array, name = found.examples[key], found.names[key]
        if found.columns and columns:  # what is too much or too little is said by its name
            places = places_of_columns(str(file), found.columns, columns)
            array = array.columns(places) if isinstance(array, SparseRows) else array[:, places]
        else:
            _check_shape(name, shape, model)
            columns = columns or found.columns
        if not isinstance(array, SparseRows):  # whose batches are made dense one by one
            check_memory(str(file), 8 * array.size, _REPAIR, what="for its values in float32")
        x = _values(name, array, columns, fitted=True)
        drawn = _check_values(model, x, name, missing=model.missing if missing is None else missing)
        return Rows(
            name=name,
            x=_bits(x[:], binarization_seed) if drawn else x,
            index=np.arange(len(x)),
            columns=tuple(columns),
            labels=found.labels.get(key),
            binarized=drawn,
            schema=found.schema,
            condition=_condition(found, key, fitted=True) if key in found.conditions else None,
        )


def _part(found: OwnArrays, part: str | None, name: str) -> str:
    if WHOLE in found.examples:
        if part is None:
            return WHOLE
        rule = f"must be left out for {name}, which has no parts"
        raise InvalidInputError("part", rule, repr(part), "Leave it out: all of its rows are taken.")
    if (part := part or "test") not in found.examples:
        rule = f"must be {' or '.join(found.examples)} for {name}"
        raise InvalidInputError("part", rule, repr(part), "Take one of them.")
    return part


def _check_shape(name: str, shape: tuple[int, ...], model: ModelConfig) -> None:
    """Check that examples have the model's shape; rows of as many values are images to a model of images."""
    wanted = model.shape
    flat = len(shape) == 1 or len(wanted) == 1
    if shape == wanted or (flat and math.prod(shape) == model.num_values):
        return
    rule = f"must have examples of {model.num_values} values, as the run's have, {wanted}"
    raise InvalidInputError(name, rule, f"examples of shape {shape}", "Give rows like those of training.")


def _check_values(model: ModelConfig, x: Examples, name: str, *, missing: bool) -> bool:
    """Check that a model reads these values; returns whether they are probabilities of what it reads."""
    values, likelihood = summarize(x), model.likelihood
    check_domain(name, likelihood.domain(), values, f", which the run's {likelihood.kind} likelihood reads")
    if values.num_missing and not missing:
        rule = "must have no missing values, since the run has learned of none"
        repair = "Fill them, as dvae impute does, or train with gaps: --model.missing true."
        raise InvalidInputError(name, rule, f"{values.num_missing} of {values.num_values}", repair)
    return not likelihood.domain(exact=True).holds(values)


def _bits(x: Tensor, seed: int, part: str = "test") -> Tensor:
    """Bits drawn once from probabilities, the same for a file of the test examples alone as for a test part."""
    return torch.from_numpy(fixed_bits(x.numpy(), seed, BIT_KEYS[part]))
