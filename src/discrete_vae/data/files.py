"""A user's file as arrays: NumPy arrays, tables, sparse matrices and sequences, each read by its ending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from discrete_vae.config import ColumnConfig, FileDataConfig
from discrete_vae.config.columns import RawColumn, raw_column
from discrete_vae.data.arrays import check_is_file, read_npy, read_npz, shown_key
from discrete_vae.data.schema import TableSchema, check_kinds, infer_columns, infer_kind, read_kinds
from discrete_vae.data.tables import (
    READERS,
    ColumnRoles,
    Table,
    TextFormat,
    label_words,
    read_table,
    shown_names,
    table_ending,
)
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.sparse import SparseRows

WHOLE = "whole"
"""Key of examples that are not divided into parts yet."""

FASTA = (".fasta", ".fa", ".faa", ".fna")
"""Endings of files of aligned sequences."""

_EXAMPLES = {"train": ("train", "x_train"), "valid": ("valid", "x_valid"), "test": ("test", "x_test")}
_LABELS, _WEIGHTS, _CONDITIONS = (
    {WHOLE: names}
    | {part: tuple(key for n in names for key in (f"{n}_{part}", f"{part}_{n}")) for part in _EXAMPLES}
    for names in (("y", "labels"), ("weights",), ("condition",))
)
_SHAPES = {2: "(example, feature)", 3: "(example, height, width)", 4: "(example, channel, height, width)"}
_HDF5 = (".h5", ".hdf5")
_PACKED = (".mtx", *FASTA)  # that may be packed, .gz
_ENDINGS = (".npy", ".npz", *READERS, ".mtx", *_HDF5, ".h5ad", *FASTA)
_CHANNELS = (1, 3, 4)  # gray, or red, green and blue, or these and alpha


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """Arrays of a file, by part ("train", "valid", "test"), or one for all under `WHOLE`."""

    examples: dict[str, np.ndarray | SparseRows]  # (example, ...)
    names: dict[str, str]  # what messages call these arrays
    labels: dict[str, np.ndarray] = field(default_factory=dict)  # (example, ...), for keys of examples
    columns: tuple[str, ...] = ()  # names of the features; empty where they have none
    # how a table's columns became numbers; None for values as they stand in the file
    schema: TableSchema | None = None
    # what messages call them, and weights of the examples, (example,), for keys of examples
    weights: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)
    # c of p(x | c), (example, column) float64, for all keys of examples; empty without one
    conditions: Mapping[str, np.ndarray] = field(default_factory=dict)
    condition_schema: TableSchema | None = None  # how its columns became numbers

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of an example, the same in all arrays: (feature,), or (channel, row, column)."""
        first = next(iter(self.examples.values()))
        for part, values in self.examples.items():
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
            raise InvalidInputError(self.names[part], rule, f"shape {received}", "Reshape or fill the array.")
        shape = first.shape[1:]
        return (1, *shape) if len(shape) == 2 else shape


@dataclass(frozen=True)
class TableReading:
    """How a file is read whose ending does not tell all."""

    roles: ColumnRoles = field(default_factory=ColumnRoles)
    form: TextFormat = field(default_factory=TextFormat)
    # kinds of the features, which are found by their names; None leaves them to `kinds`
    columns: tuple[ColumnConfig, ...] | None = None
    # kinds of some, as `read_kinds` takes them; others are inferred. None reads a table of numbers as it is
    kinds: str | None = None
    layer: str | None = None  # of a .h5ad file, which holds the values; None is X
    alphabet: str | None = None  # of a FASTA file, see `discrete_vae.data.sequences.read_fasta`
    # names of the columns of c of p(x | c), or their kinds where a model has these
    condition: tuple[str | ColumnConfig, ...] = ()
    weights: str | None = None  # name of the column of weights

    @classmethod
    def of(
        cls,
        config: FileDataConfig,
        columns: Sequence[ColumnConfig] | None = None,
        condition: Sequence[ColumnConfig] = (),
    ) -> Self:
        """The reading that a config asks for."""
        ending = table_ending(config.path) or _ending(config.path)
        in_text = tuple(each for each in READERS if each != ".parquet")
        fields, words = FileDataConfig.model_fields, ("delimiter", "decimal", "thousands", "encoding")
        written = {name: value for name in words if (value := getattr(config, name)) != fields[name].default}
        labeled = (".h5ad", ".npz", *_HDF5) if config.label_units is not None else ()
        for setting, value, endings in (
            ("missing_values", config.missing_values or None, (*READERS, *labeled)),
            *((name, value, in_text) for name, value in written.items()),
            ("layer", config.layer, (".h5ad",)),
            ("alphabet", config.alphabet, FASTA),
            ("weight_column", config.weight_column, (*READERS, ".h5ad")),
            ("label_units", config.label_units, (*READERS, ".h5ad", ".npz", *_HDF5)),
            ("condition", config.condition or None, (*READERS, ".h5ad")),
            ("sequence_weights", config.sequence_weights, FASTA),
        ):
            if value is not None and ending not in endings:
                rule = f"needs a {' or '.join(endings[:4])} file"
                raise InvalidInputError(setting, rule, str(config.path), "Leave it out.")
        weights = () if config.weight_column is None else (config.weight_column,)
        besides, units = (*config.condition, *weights), config.label_units
        clashes = {
            "label_column": config.label_column is not None,
            "condition": units in config.condition,
            "weight_column": units in weights,
            "ignored_columns": units in config.ignored_columns,
        }
        for setting in (name for name, clashes_with in clashes.items() if units is not None and clashes_with):
            other = "" if setting == "label_column" else ", or name another column"
            rule = f"must be left out beside {setting}{other}"
            raise InvalidInputError("label_units", rule, repr(units)[:80], "Leave one of them out.")
        label = config.label_column if units is None else units
        return cls(
            ColumnRoles(label, config.ignored_columns, besides=besides, label_units=units is not None),
            TextFormat(
                config.delimiter, config.decimal, config.thousands, config.encoding, config.missing_values
            ),
            None if columns is None else tuple(columns),
            None if columns is not None or condition else config.kinds,  # given columns have their kinds
            config.layer,
            config.alphabet,
            tuple(condition) or config.condition,
            config.weight_column,
        )


def _channels_first(found: OwnArrays) -> OwnArrays:
    """Bring channels before height and width in images whose last axis alone can be that of channels, 1, 3 or 4."""
    shapes = [values.shape for values in found.examples.values()]
    if not all(
        len(shape) == 4 and shape[3] in _CHANNELS and shape[1] not in (1, 3, shape[3]) for shape in shapes
    ):
        return found
    moved = {part: np.moveaxis(np.asarray(values), -1, 1) for part, values in found.examples.items()}
    return replace(found, examples=moved)


def read_own_arrays(file: Path, reading: TableReading, table: Table | None = None) -> OwnArrays:
    """Read a file of arrays, or a table where that has not been read, by its ending."""
    found = _read_own_arrays(file, reading, table)
    if found.schema is None and reading.kinds is not None:  # of a table all columns have been looked at
        schema = found.condition_schema
        check_kinds(read_kinds(reading.kinds), () if schema is None else schema.names)
    if reading.condition and not found.conditions:
        names = [each if isinstance(each, str) else each.name for each in reading.condition]
        rule = f"must hold the condition of its examples, {shown_names(names)}"
        repair = "Save it as the array condition of a .npz file, or as columns of a table."
        raise InvalidInputError(str(file), rule, "none", repair)
    found = _channels_first(found)
    if not reading.roles.label_units:
        return found
    for key, labels in found.labels.items():
        if labels.ndim != 1 or labels.dtype.kind not in "biufU":
            rule, repair = "must be one number or word for each example", "Give an array of one axis."
            received = f"shape {labels.shape} of {labels.dtype} for {found.names[key].rstrip(',')}"
            raise InvalidInputError("label_units", rule, received, repair)
    words = {key: label_words(labels, reading.form) for key, labels in found.labels.items()}
    return replace(found, labels=words)


def _read_own_arrays(file: Path, reading: TableReading, table: Table | None) -> OwnArrays:
    ending, roles = _ending(file), reading.roles
    if table_ending(file) is not None:
        table = read_table(file, roles, reading.form) if table is None else table
        return _arrays_of_table(table, str(file), reading)
    if ending not in _ENDINGS:
        check_is_file(file)
        repair = "Save the array with numpy.save, or the table as CSV."
        rule = f"must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        raise InvalidInputError(str(file), rule, repr(file.suffix), repair)
    from discrete_vae.data import formats, sequences  # here, since they load SciPy, and few files need them

    if ending == ".h5ad":
        values, labels, columns, besides = formats.read_h5ad(file, roles, layer=reading.layer)
        found = {} if labels is None else {WHOLE: labels}
        more = _besides(besides, str(file), reading)
        return OwnArrays({WHOLE: values}, {WHOLE: str(file)}, found, columns, None, **more)
    for name in (roles.label, *roles.ignored):
        is_array = name == roles.label and roles.label_units and name in _LABELS[WHOLE]
        if name is not None and name not in roles.optional and not is_array:
            argument = roles.argument(name)
            repair = "Leave it out; a .npz file has labels as y or y_train."
            raise InvalidInputError(argument, "needs a table, such as a .csv file", str(file), repair)
    if ending in _HDF5:
        return _named_arrays(file, formats.read_h5(file), reading)
    if ending == ".npz":
        arrays = read_npz(file)
        if not formats.is_sparse(arrays):
            return _named_arrays(file, arrays, reading)
        values = formats.sparse_of(str(file), arrays)
    elif ending == ".npy":
        values = read_npy(file)
    elif ending == ".mtx":
        values = formats.read_matrix_market(file)
    else:
        values = sequences.read_fasta(file, reading.alphabet)
    return OwnArrays({WHOLE: values}, {WHOLE: str(file)})


def _ending(file: Path) -> str:
    """The ending in small letters, that before .gz where such files may be packed."""
    *before, last = ["", *(ending.lower() for ending in file.suffixes)]
    return before[-1] if last == ".gz" and before[-1] in _PACKED else last


def _arrays_of_table(table: Table, name: str, reading: TableReading) -> OwnArrays:
    labels = {} if table.labels is None else {WHOLE: table.labels}
    more = _besides(table.besides, name, reading)
    if reading.columns is not None:
        wanted = [column.name for column in reading.columns]
        found = [table.columns[place] for place in places_of_columns(name, table.names, wanted)]
        schema = TableSchema.of(reading.columns, found)
    elif reading.kinds is not None:
        given = read_kinds(reading.kinds)
        check_kinds(given, [*table.names, *table.besides, *reading.roles.ignored])
        kinds = {column: kind for column, kind in given.items() if column in {*table.names}}
        with naming(name):
            schema = infer_columns(table.columns, kinds)
        names = {*schema.names}
        found = [column for column in table.columns if column.name in names]
    else:
        return OwnArrays({WHOLE: table.numbers(name)}, {WHOLE: name}, labels, table.names, None, **more)
    with naming(name):
        encoded = [config.encode(column) for config, column in zip(schema.columns, found, strict=True)]
    return OwnArrays({WHOLE: np.stack(encoded, 1)}, {WHOLE: name}, labels, schema.names, schema, **more)


def _besides(besides: Mapping[str, RawColumn], name: str, reading: TableReading) -> dict[str, Any]:
    """What `OwnArrays` has beside the features of a table: weights and the condition."""
    found: dict[str, Any] = {}
    if reading.weights is not None and reading.weights in besides:
        weights = f"{name}, column {reading.weights!r},", besides[reading.weights].numbers
        found["weights"] = {WHOLE: weights}
    if reading.condition:
        c, schema = _condition(besides, name, reading)
        found |= {"conditions": {WHOLE: c}, "condition_schema": schema}
    return found


def _condition(
    besides: Mapping[str, RawColumn], name: str, reading: TableReading
) -> tuple[np.ndarray, TableSchema]:
    """The columns of c, (example, column) float64, and how they became numbers."""
    with naming(name):
        kinds = {} if reading.kinds is None else read_kinds(reading.kinds)
        readings = []
        for each in reading.condition:
            if isinstance(each, str):
                found = infer_kind(besides[each], kinds.get(each))
                if found.config is None or found.config.kind == "constant":
                    rule = "must be numbers or words that vary to be a condition"
                    repair = "Leave it out, or say what it is: --data.kinds."
                    raise InvalidInputError(f"column {each!r}", rule, found.why, repair)
                readings.append(found)
            else:
                readings += TableSchema.of([each], [besides[each.name]]).readings
        schema = TableSchema(tuple(readings))
        encoded = [column.encode(besides[column.name]) for column in schema.columns]
    return np.stack(encoded, 1), schema


def _named_arrays(file: Path, arrays: Mapping[str, np.ndarray], reading: TableReading) -> OwnArrays:
    """Examples by part, or of one array, and what is beside them by name: labels, weights and the condition."""
    keys = {part: key for part, names in _EXAMPLES.items() for key in reversed(names) if key in arrays}
    if set(keys) not in ({"train", "valid", "test"}, {"train", "test"}):
        known = {name for names in (_LABELS, _WEIGHTS, _CONDITIONS) for name in names[WHOLE]}
        whole = [key for key in arrays if key not in known]
        whole = whole or [key for key in arrays if key not in _LABELS[WHOLE]] or [*arrays]
        keys = {WHOLE: whole[0]} if len(whole) == 1 else {}
    labels, weights, conditions = (
        {part: name for part, key in keys.items() for name in names[part] if name in arrays and name != key}
        for names in (_LABELS, _WEIGHTS, _CONDITIONS)
    )
    besides = [*labels.items(), *weights.items(), *conditions.items()]
    if not keys or {*keys.values(), *(name for _, name in besides)} != set(arrays):
        rule = "must hold train, valid and test, train and test, or one array, beside labels, weights and a condition"
        repair = "Name these y, weights and condition, of a part y_train and so on; rename others, or save one alone."
        raise InvalidInputError(str(file), rule, shown_names(arrays), repair)
    named = {key: f"{file}, array {shown_key(key)}," for key in arrays}
    for part, name in besides:
        num_examples, shape = arrays[keys[part]].shape[:1] or (0,), arrays[name].shape
        if shape[:1] != num_examples:
            rule = f"must hold a row for each of the {num_examples[0]} examples"
            raise InvalidInputError(named[name], rule, f"shape {shape}", "Give one each.")
    c: dict[str, Any] = {}
    if conditions:
        if missing := keys.keys() - conditions.keys():
            rule = "must hold the condition of each part"
            repair = f"Add {' and '.join(_CONDITIONS[part][0] for part in sorted(missing))}."
            raise InvalidInputError(str(file), rule, shown_names(arrays), repair)
        of_parts = {part: (named[name], arrays[name]) for part, name in conditions.items()}
        c = _conditions_of_arrays(of_parts, str(file), reading)
    return OwnArrays(
        {part: arrays[key] for part, key in keys.items()},
        {part: named[key] for part, key in keys.items()},
        {part: arrays[name] for part, name in labels.items()},
        weights={part: (named[name], arrays[name]) for part, name in weights.items()},
        **c,
    )


def _conditions_of_arrays(
    given: Mapping[str, tuple[str, np.ndarray]], file: str, reading: TableReading
) -> dict[str, Any]:
    """What `OwnArrays` has of conditions in arrays, (example,) or (example, column): columns c, or c0, c1, ..."""
    parts = {part: array[:, None] if array.ndim == 1 else array for part, (_, array) in given.items()}
    width = next(iter(parts.values())).shape[-1]
    wanted = len(reading.condition) or width
    is_text = any(array.dtype.kind == "U" for array in parts.values())
    for part, array in parts.items():
        fits = array.ndim == 2 and array.shape[1] == wanted > 0
        if not fits or array.dtype.kind not in ("U" if is_text else "buif"):
            rule = f"must be numbers or words, (example,) or (example, {wanted} column{'s' * (wanted != 1)})"
            name, received = given[part]
            repair = "Give the same columns in each part, and those that the run was trained on."
            raise InvalidInputError(name, rule, f"shape {received.shape} of {received.dtype}", repair)
    whole = np.concatenate([*parts.values()])
    single = all(array.ndim == 1 for _, array in given.values())
    names: list[str | ColumnConfig] = ["c"] if single else [f"c{column}" for column in range(width)]
    reading = replace(reading, condition=reading.condition or tuple(names))
    keys = [each if isinstance(each, str) else each.name for each in reading.condition]
    columns = {key: raw_column(key, whole[:, place]) for place, key in enumerate(keys)}
    c, schema = _condition(columns, file, reading)
    ends = np.cumsum([len(array) for array in parts.values()])[:-1]
    return {"conditions": dict(zip(parts, np.split(c, ends), strict=True)), "condition_schema": schema}


def places_of_columns(name: str, found: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Places in a table of the columns that a model reads."""
    places, known = {column: place for place, column in enumerate(found)}, set(wanted)
    if lacks := [column for column in wanted if column not in places]:
        rule = f"must have the {len(wanted)} columns that the run was trained on"
        received = f"none of the name {lacks[0][:40]!r}"
        received += f", and {len(lacks) - 1} more are missing" * (len(lacks) > 1)
        repair = f"Add or rename columns; those of the file are {shown_names(found)}."
        raise InvalidInputError(name, rule, received, repair)
    if more := [column for column in found if column not in known]:
        rule = "must have no columns but those that the run was trained on"
        repair = "Leave them out; if one holds labels, name it: --label-column."
        raise InvalidInputError(name, rule, shown_names(more), repair)
    return [places[column] for column in wanted]
