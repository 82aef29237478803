"""The user's own data, and examples that a trained model is to be used on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import BINARY, UNIT_INTERVAL
from discrete_vae.config import (
    ColumnConfig,
    DataConfig,
    ExperimentConfig,
    FileDataConfig,
    ModelConfig,
    TableLikelihoodConfig,
    instantiate,
)
from discrete_vae.config.columns import RawColumn
from discrete_vae.data.arrays import as_float32, check_is_file, read_npy, read_npz, shown_key, shown_keys
from discrete_vae.data.schema import TableSchema, check_kinds, infer_columns, infer_kind, read_kinds
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
from discrete_vae.data.tables import (
    READERS,
    ColumnRoles,
    Table,
    TextFormat,
    label_words,
    read_label_column,
    read_table,
    shown_names,
    table_ending,
)
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.records import ShowsShapes
from discrete_vae.runs.io import sha256_file
from discrete_vae.sparse import Examples, SparseRows, select
from discrete_vae.system import allocating, check_data_dir, check_memory, user_path

_REPAIR = "Give fewer examples or features, or use a machine with more memory."

WHOLE = "whole"
"""Key of examples that are not divided into parts yet."""

_EXAMPLES = {"train": ("train", "x_train"), "valid": ("valid", "x_valid"), "test": ("test", "x_test")}
_LABELS = {part: (f"y_{part}", f"{part}_labels") for part in _EXAMPLES} | {WHOLE: ("y", "labels")}
_SHAPES = {2: "(example, feature)", 3: "(example, height, width)", 4: "(example, channel, height, width)"}
_FASTA = (".fasta", ".fa", ".faa", ".fna")
_HDF5 = (".h5", ".hdf5")
_PACKED = (".mtx", *_FASTA)  # that may be packed, .gz
_ENDINGS = (".npy", ".npz", *READERS, ".mtx", *_HDF5, ".h5ad", *_FASTA)
_CHANNELS = (1, 3)  # gray, or red, green and blue


# Reading of a user's file, of whatever format.


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """Arrays of a file, by part ("train", "valid", "test"), or one for all under `WHOLE`.

    Attributes:
        examples: (example, ...).
        names: What messages call these arrays.
        labels: (example, ...), for keys of examples.
        columns: Names of the features; empty where they have none.
        schema: How a table's columns became numbers; None for values as they stand in the file.
        besides: Columns of a table that are no features, by name.
        condition: c of p(x | c), (example, column) float64, and how its columns became numbers; None without one.
    """

    examples: dict[str, np.ndarray | SparseRows]
    names: dict[str, str]
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    schema: TableSchema | None = None
    besides: Mapping[str, RawColumn] = field(default_factory=dict)
    condition: tuple[np.ndarray, TableSchema] | None = None

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of an example, the same in all arrays: (feature,), or (channel, row, column)."""
        first = next(iter(self.examples.values()))
        for part, values in self.examples.items():
            name = self.names[part]
            received = values.shape
            if values.ndim not in _SHAPES:
                rule = f"must be {' or '.join(_SHAPES.values())}"
            elif values.size == 0:
                rule = "must hold at least one example and feature"
            elif values.shape[1:] != first.shape[1:]:
                rule = f"must have examples of shape {first.shape[1:]}, as {next(iter(self.examples))!r} has"
                received = values.shape[1:]
            else:
                continue
            raise InvalidInputError(name, rule, f"shape {received}", "Reshape or fill the array.")
        shape = first.shape[1:]
        return (1, *shape) if len(shape) == 2 else shape


@dataclass(frozen=True)
class TableReading:
    """How a file is read whose ending does not tell all.

    Attributes:
        roles: Columns that are no features.
        form: How its text is written.
        columns: Kinds of the features, which are found by their names; None leaves them to `kinds`.
        kinds: Kinds of some by name, the others are inferred; None reads a table of numbers as it stands.
        condition: Names of the columns of c of p(x | c), or their kinds where a model has these.
        layer: Layer of a .h5ad file that holds the values; None is X.
        alphabet: Alphabet of a FASTA file, see `discrete_vae.data.sequences.read_fasta`.
    """

    roles: ColumnRoles = field(default_factory=ColumnRoles)
    form: TextFormat = field(default_factory=TextFormat)
    columns: tuple[ColumnConfig, ...] | None = None
    kinds: Mapping[str, str] | None = None
    layer: str | None = None
    alphabet: str | None = None
    condition: tuple[str | ColumnConfig, ...] = ()

    @classmethod
    def of(
        cls,
        config: FileDataConfig,
        columns: Sequence[ColumnConfig] | None = None,
        condition: Sequence[ColumnConfig] = (),
    ) -> Self:
        """The reading that a config asks for."""
        ending = _ending(config.path)
        for setting, value, endings in (
            ("layer", config.layer, (".h5ad",)),
            ("alphabet", config.alphabet, _FASTA),
            ("weight_column", config.weight_column, (*READERS, ".h5ad")),
            ("label_units", config.label_units, (*READERS, ".h5ad", ".npz", *_HDF5)),
            ("condition", config.condition or None, (*READERS, ".h5ad")),
        ):
            if value is not None and ending not in endings:
                rule = f"needs a {' or '.join(endings[:4])} file"
                raise InvalidInputError(setting, rule, str(config.path), "Leave it out.")
        weights = () if config.weight_column is None else (config.weight_column,)
        besides, units = (*config.condition, *weights), config.label_units
        for setting, names in (
            ("label_column", (config.label_column,)),
            ("condition", config.condition),
            ("weight_column", weights),
            ("ignored_columns", config.ignored_columns),
        ):
            if units is not None and (units in names or (setting == "label_column" and names != (None,))):
                rule, repair = (
                    f"must be left out, or name another column than {setting}",
                    "Leave one of them out.",
                )
                raise InvalidInputError("label_units", rule, repr(units)[:80], repair)
        label = config.label_column if units is None else units
        return cls(
            ColumnRoles(label, config.ignored_columns, besides=besides, label_units=units is not None),
            TextFormat(
                config.delimiter, config.decimal, config.thousands, config.encoding, config.missing_values
            ),
            None if columns is None else tuple(columns),
            None if config.kinds is None else read_kinds(config.kinds),
            config.layer,
            config.alphabet,
            tuple(condition) or config.condition,
        )


def _channels_first(found: OwnArrays) -> OwnArrays:
    """Bring channels before height and width in images whose last axis alone can be that of channels, 1 or 3."""
    moved = {
        part: np.moveaxis(values, -1, 1)
        for part, values in found.examples.items()
        if isinstance(values, np.ndarray)
        and values.ndim == 4
        and values.shape[3] in _CHANNELS
        and values.shape[1] not in _CHANNELS
    }
    return replace(found, examples=moved) if len(moved) == len(found.examples) else found


def read_own_arrays(file: Path, reading: TableReading | None = None) -> OwnArrays:
    """Read a file of arrays or a table, by its ending."""
    reading = reading or TableReading()
    found = _channels_first(_read_own_arrays(file, reading))
    return with_label_words(found, reading) if reading.roles.label_units else found


def with_label_words(found: OwnArrays, reading: TableReading) -> OwnArrays:
    """The same with labels as `label_words` makes them of the labels of a file."""
    for key, labels in found.labels.items():
        if labels.ndim != 1 or labels.dtype.kind not in "biufU":
            rule, repair = "must be one number or word for each example", "Give an array of one axis."
            received = f"shape {labels.shape} of {labels.dtype} for {found.names[key].rstrip(',')}"
            raise InvalidInputError("label_units", rule, received, repair)
    words = {key: label_words(labels, reading.form) for key, labels in found.labels.items()}
    return replace(found, labels=words)


def _read_own_arrays(file: Path, reading: TableReading) -> OwnArrays:
    ending, roles = _ending(file), reading.roles
    if table_ending(file) is not None:
        return arrays_of_table(read_table(file, roles, reading.form), str(file), reading)
    if ending not in _ENDINGS:
        check_is_file(file)
        repair = "Save the array with numpy.save, or the table as CSV."
        rule = f"must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        raise InvalidInputError(str(file), rule, repr(file.suffix), repair)
    from discrete_vae.data import formats, sequences  # here, since they load SciPy, and few files need them

    if ending == ".h5ad":
        values, labels, columns, besides = formats.read_h5ad(file, roles, layer=reading.layer)
        found = {} if labels is None else {WHOLE: labels}
        condition = _condition(besides, str(file), reading)
        return OwnArrays({WHOLE: values}, {WHOLE: str(file)}, found, columns, None, besides, condition)
    for name in (roles.label, *roles.ignored):
        is_array = name == roles.label and roles.label_units and name in _LABELS[WHOLE]
        if name is not None and name not in roles.optional and not is_array:
            argument = roles.argument(name)
            repair = "Leave it out; a .npz file has labels as y or y_train."
            raise InvalidInputError(argument, "needs a table, such as a .csv file", str(file), repair)
    if ending in _HDF5:
        return _named_arrays(file, formats.read_h5(file))
    if ending == ".npz":
        arrays = read_npz(file)
        if not formats.is_sparse(arrays):
            return _named_arrays(file, arrays)
        values = formats.sparse_of(str(file), arrays)
    elif ending == ".npy":
        values = read_npy(file)
    else:
        values = (
            formats.read_matrix_market(file)
            if ending == ".mtx"
            else sequences.read_fasta(file, reading.alphabet)
        )
    return OwnArrays({WHOLE: values}, {WHOLE: str(file)})


def _ending(file: Path) -> str:
    """The ending in small letters, that before .gz where such files may be packed."""
    *before, last = ["", *(ending.lower() for ending in file.suffixes)]
    return before[-1] if last == ".gz" and before[-1] in _PACKED else last


def arrays_of_table(table: Table, name: str, reading: TableReading) -> OwnArrays:
    """The values of a table that has been read.

    Args:
        table: The table.
        name: What messages call it.
        reading: How its columns become numbers.
    """
    labels = {} if table.labels is None else {WHOLE: table.labels}
    condition = _condition(table.besides, name, reading)
    if reading.columns is not None:
        wanted = [column.name for column in reading.columns]
        found = [table.columns[place] for place in _places(name, table.names, wanted)]
        schema = TableSchema.of(reading.columns, found)
    elif reading.kinds is not None:
        check_kinds(reading.kinds, [*table.names, *table.besides])
        kinds = {column: kind for column, kind in reading.kinds.items() if column not in table.besides}
        with naming(name):
            schema = infer_columns(table.columns, kinds)
        found = [column for column in table.columns if column.name in schema.names]
    else:
        values, columns, schema = table.numbers(name), table.names, None
        return OwnArrays({WHOLE: values}, {WHOLE: name}, labels, columns, schema, table.besides, condition)
    with naming(name):
        encoded = [config.encode(column) for config, column in zip(schema.columns, found, strict=True)]
    values, columns = np.stack(encoded, 1), schema.names
    return OwnArrays({WHOLE: values}, {WHOLE: name}, labels, columns, schema, table.besides, condition)


def _condition(
    besides: Mapping[str, RawColumn], name: str, reading: TableReading
) -> tuple[np.ndarray, TableSchema] | None:
    """The columns of c, (example, column) float64, and how they became numbers."""
    if not reading.condition:
        return None
    with naming(name):
        kinds = {column: kind for column, kind in (reading.kinds or {}).items() if column in besides}
        readings = []
        for each in reading.condition:
            if isinstance(each, str):
                found = infer_kind(besides[each], kinds.get(each))
                if found.config is None or found.config.kind == "constant":
                    repair = "Leave it out, or say what it is: --data.kinds."
                    raise InvalidInputError(
                        f"column {each!r}", "must vary to be a condition", found.why, repair
                    )
                readings.append(found)
            else:
                readings += TableSchema.of([each], [besides[each.name]]).readings
        schema = TableSchema(tuple(readings))
        encoded = [column.encode(besides[column.name]) for column in schema.columns]
    return np.stack(encoded, 1), schema


def _named_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> OwnArrays:
    keys = {part: key for part, names in _EXAMPLES.items() for key in reversed(names) if key in arrays}
    if set(keys) not in ({"train", "valid", "test"}, {"train", "test"}):
        whole = [key for key in arrays if len(arrays) == 1 or key not in _LABELS[WHOLE]]
        keys = {WHOLE: whole[0]} if len(whole) == 1 else {}
    labels = {
        part: name for part, key in keys.items() for name in _LABELS[part] if name in arrays and name != key
    }
    if not keys or {*keys.values(), *labels.values()} != set(arrays):
        rule = "must hold train, valid and test, or train and test, or one array, and besides only labels"
        repair = "Call labels y_train, y_valid and y_test, or y; rename the other arrays, or save one alone."
        raise InvalidInputError(str(file), rule, shown_keys(arrays), repair)
    named = {key: f"{file}, array {shown_key(key)}," for key in arrays}
    for part, name in labels.items():
        num_examples, found = arrays[keys[part]].shape[:1], arrays[name]
        if found.shape[:1] != num_examples or not num_examples:
            rule = f"must hold a label for each of the {num_examples[0] if num_examples else 0} examples"
            raise InvalidInputError(named[name], rule, f"shape {found.shape}", "Give one each.")
    return OwnArrays(
        {part: arrays[key] for part, key in keys.items()},
        {part: named[key] for part, key in keys.items()},
        {part: arrays[name] for part, name in labels.items()},
    )


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
    booleans, integers or real numbers; NaN marks missing values. Images with 1 or 3 channels last are recognized where
    the first of their axes cannot be that of channels. A table (.csv, .tsv, .txt, these with .gz, and
    .parquet) has a named column per feature, see `discrete_vae.data.tables.read_table`. Which values a model can read
    is its likelihood's business.

    A sparse matrix (.npz of `scipy.sparse.save_npz`, .mtx, .h5ad), (example, feature), stays sparse: `DataSplits` then
    holds `SparseRows`. Files of .h5 and .hdf5 are read as .npz is, and .fasta, .fa, .faa and .fna by
    `discrete_vae.data.sequences.read_fasta`. Files of .mtx and FASTA may be packed, .gz.

    A .npz file holds ``train``, ``valid`` and ``test`` (or ``x_train`` and so on), whose order is kept, or only
    ``train`` and ``test``, or a single array; beside them labels as ``y_train`` or ``train_labels`` and so on, or ``y``
    or ``labels``. A single array is shuffled and cut: test first, validation next (each fraction of the examples,
    rounded down), the rest is for training. Where only the validation part is missing, it is cut from the shuffled
    training part.

    Args:
        path: The file; ``~`` is the home directory.
        data_dir: Not read, but refused if it does not exist, as with every other data set.
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
    check_data_dir(data_dir)
    config = FileDataConfig(path=user_path("path", path), **settings)
    with allocating(str(config.path), _REPAIR):
        reading = TableReading.of(config, columns, condition_columns)
        return splits_of(read_own_arrays(config.path, reading), config)


def load_data(config: ExperimentConfig, data_dir: str | Path | None = None) -> DataSplits:
    """The data of an experiment; columns of a table are coded as its model reads them."""
    likelihood, given = config.model.likelihood, {}
    if isinstance(config.data, FileDataConfig):
        given["condition_columns"] = config.model.condition
        if isinstance(likelihood, TableLikelihoodConfig):
            given["columns"] = likelihood.columns
    return instantiate(config.data, data_dir=data_dir, **given)


def splits_of(found: OwnArrays, config: FileDataConfig) -> DataSplits:
    """The three parts of a file that has been read."""
    file, event_shape = config.path, found.event_shape
    # a float32 copy of all, and a second one where examples are shuffled
    sizes = (array.size for array in found.examples.values() if not isinstance(array, SparseRows))
    needed = 4 * sum(sizes) * (1 + (len(found.examples) < 3))
    check_memory(str(file), needed, _REPAIR, what="for its values in float32")
    arrays = {key: _values(found.names[key], array, found.columns) for key, array in found.examples.items()}
    if config.binarize:
        for key, values in arrays.items():
            check_domain(found.names[key], UNIT_INTERVAL, summarize(values))
    places, split = _split(found, config.valid_fraction, config.test_fraction, config.split_seed)
    about = (file.name, "the user's file", split, "as in the file", sha256_file(file), found.columns)
    labels = {part: found.labels[key][rows] for part, (key, rows) in places.items() if key in found.labels}
    parts: dict[str, Any] = {part: select(arrays[key], rows) for part, (key, rows) in places.items()}
    dataset = DataSplits(
        name=file.stem,
        **parts,
        event_shape=event_shape,
        dynamic=False,
        description=DatasetDescription(*about),
        labels=labels,
        schema=found.schema,
        weights=_weights(found, config.weight_column, places),
        conditions=_conditions(found, places),
    )
    return binarized(dataset, seed=config.binarization_seed) if config.binarize else dataset


def _weights(
    found: OwnArrays, name: str | None, places: Mapping[str, tuple[str, np.ndarray | slice]]
) -> dict[str, np.ndarray]:
    """The weights of each part's examples, from the column of that name."""
    if name is None:
        return {}
    column = found.besides[name]
    weights = check_weights(f"{found.names[WHOLE]}, column {name!r},", column.numbers, len(column.numbers))
    return {part: weights[rows] for part, (_, rows) in places.items()}


def _conditions(found: OwnArrays, places: Mapping[str, tuple[str, np.ndarray | slice]]) -> dict[str, Tensor]:
    """c of each part's examples."""
    if found.condition is None:
        return {}
    values, schema = found.condition
    c = torch.from_numpy(as_float32(f"{found.names[WHOLE]}, the condition,", values, schema.names))
    return {part: c[rows] for part, (_, rows) in places.items()}


def _values(name: str, array: np.ndarray | SparseRows, columns: Sequence[str]) -> Examples:
    """The values as float32, sparse where they were."""
    if isinstance(array, SparseRows):
        return array
    return torch.from_numpy(as_float32(name, array, columns))


def _split(
    found: OwnArrays, valid_fraction: float, test_fraction: float, seed: int
) -> tuple[dict[str, tuple[str, np.ndarray | slice]], str]:
    """Array of the file and rows of it for each part, and the split in words."""
    sizes = {key: len(array) for key, array in found.examples.items()}
    places: dict[str, tuple[str, np.ndarray | slice]] = {part: (part, slice(None)) for part in PARTS}
    words = ", as in the file"
    if set(sizes) != set(PARTS):
        key = next(iter(sizes))  # the only array, or the one for training
        total = sizes.pop(key)
        # A tenth of 30 is 3, although 30 * 0.1 in floating point may fall short of it.
        num_valid = int(total * valid_fraction + 1e-9)
        num_test = int(total * test_fraction + 1e-9) if key == WHOLE else 0
        cut = {"train": total - num_valid - num_test, "valid": num_valid}
        cut |= {"test": num_test} if key == WHOLE else {}
        if min(cut.values()) < 1:
            *others, last = cut.values()
            received = f"{total} examples, cut into {', '.join(map(str, others))} and {last}"
            repair = "Add examples, change the fractions, or save train, valid and test yourself."
            raise InvalidInputError(found.names[key], "must have examples for each part", received, repair)
        test, valid, train = shuffled_rows(total, num_test, num_valid, seed)
        places |= {"train": (key, train), "valid": (key, valid)}
        words = f" after a shuffle with seed {seed}"
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
    return replace(
        dataset,
        **{part: _drawn(dataset, part, seed) for part in ("valid", "test") if not of_bits[part]},
        dynamic=not of_bits["train"],
        description=replace(dataset.description, values=f"train {train}, valid and test {others}"),
    )


def _drawn(dataset: DataSplits, part: str, seed: int) -> Tensor:
    return torch.from_numpy(fixed_bits(getattr(dataset, part)[:].numpy(), seed, BIT_KEYS[part]))


# Labels of a run's examples from a file beside the data.


def read_label_file(path: str | Path, *, argument: str = "labels") -> np.ndarray:
    """Read one label per example, (example,) numbers or words.

    Args:
        path: A .npy file with an array (example,), or a .csv file with one column under its name, whose labels are
            numbers where all of them are whole numbers.
        argument: What messages call it.
    """
    file = user_path(argument, path)
    if file.suffix.lower() not in (".npy", ".csv"):
        repair = "Save the labels with numpy.save, or as a .csv file of one column."
        raise InvalidInputError(argument, "must name a .npy or .csv file", str(file), repair)
    labels = read_npy(file) if file.suffix.lower() == ".npy" else read_label_column(file, argument)
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
    """The labels of a part of a data set, (example,) in its order.

    Args:
        labels: One per example of the part, in their order; or, where the data are a file that was cut into parts, one
            per row of that file.
        dataset: The data.
        config: Where they are from.
        part: "train", "valid" or "test".
        argument: What messages call the labels.
    """
    sizes = {name: len(getattr(dataset, name)) for name in PARTS}
    total = sum(sizes.values())
    if len(labels) == sizes[part]:
        return labels
    rule = f"must be as many as the {sizes[part]} examples of the part {part!r}"
    if isinstance(config, FileDataConfig):
        found = read_own_arrays(Path(config.path), TableReading.of(config))
        if set(found.examples) == {WHOLE}:
            if len(labels) == total:
                test, valid, train = shuffled_rows(total, sizes["test"], sizes["valid"], config.split_seed)
                return labels[{"test": test, "valid": valid}.get(part, train)]
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
    """

    name: str
    x: Examples
    index: np.ndarray
    columns: tuple[str, ...] = ()
    labels: np.ndarray | None = None
    binarized: bool = False
    schema: TableSchema | None = None
    condition: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def subset(self, places: np.ndarray) -> Rows:
        """Some of the rows, by their places, (row,) int64."""
        labels = None if self.labels is None else self.labels[places]
        c = None if self.condition is None else self.condition[torch.from_numpy(places)]
        return replace(self, x=select(self.x, places), index=self.index[places], labels=labels, condition=c)


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
        names = {column.name for column in model.condition}
        besides = (*names, *(name for name in reading.roles.besides if name not in names))
        roles = replace(reading.roles, besides=besides, optional=reading.roles.optional - names)
        reading = replace(reading, condition=model.condition, roles=roles)
    with allocating(str(file), _REPAIR):
        found = read_own_arrays(file, reading)
        key, shape = _part(found, part, str(file)), found.event_shape
        array, name = found.examples[key], found.names[key]
        if found.columns and columns:  # what is too much or too little is said by its name
            places = _places(str(file), found.columns, columns)
            array = array.columns(places) if isinstance(array, SparseRows) else array[:, places]
        else:
            _check_shape(name, shape, model)
            columns = columns or found.columns
        check_memory(str(file), 8 * array.size, _REPAIR, what="for its values in float32")
        x = _values(name, array, columns)
        drawn = _check_values(model, x, name, missing=model.missing if missing is None else missing)
        return Rows(
            name=name,
            x=_bits(x[:], binarization_seed) if drawn else x,
            index=np.arange(len(x)),
            columns=tuple(columns),
            labels=found.labels.get(key),
            binarized=drawn,
            schema=found.schema,
            condition=None if found.condition is None else torch.from_numpy(found.condition[0]).float(),
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


def _places(name: str, found: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Places in a table of the columns that a model reads."""
    places, known = {column: place for place, column in enumerate(found)}, set(wanted)
    lacks = [column for column in wanted if column not in places]
    if lacks:
        rule = f"must have the {len(wanted)} columns that the run was trained on"
        received = f"none of the name {lacks[0][:40]!r}"
        received += f", and {len(lacks) - 1} more are missing" * (len(lacks) > 1)
        repair = f"Add or rename columns; those of the file are {shown_names(found)}."
        raise InvalidInputError(name, rule, received, repair)
    more = [column for column in found if column not in known]
    if more:
        rule = "must have no columns but those that the run was trained on"
        repair = "Leave them out; if one holds labels, name it: --label-column."
        raise InvalidInputError(name, rule, shown_names(more), repair)
    return [places[column] for column in wanted]


def _check_values(model: ModelConfig, x: Examples, name: str, *, missing: bool) -> bool:
    """Check that a model reads these values; returns whether they are probabilities of what it reads."""
    values, likelihood = summarize(x), model.likelihood
    check_domain(name, likelihood.domain(), values, f", which the run's {likelihood.kind} likelihood reads")
    if values.num_missing and not missing:
        rule = "must have no missing values, since the run has learned of none"
        repair = "Fill them, as dvae impute does, or train with gaps: --model.missing true."
        raise InvalidInputError(name, rule, f"{values.num_missing} of {values.num_values}", repair)
    return not likelihood.domain(exact=True).holds(values)


def _bits(x: Tensor, seed: int) -> Tensor:
    """Bits drawn once from probabilities, the same for a file of the test examples alone as for a test part."""
    return torch.from_numpy(fixed_bits(x.numpy(), seed, BIT_KEYS["test"]))
