"""The experiment for a file of one's own, with what only the data can tell."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from discrete_vae.checks import COUNTS
from discrete_vae.config import (
    ExperimentConfig,
    FileDataConfig,
    GaussianLikelihoodConfig,
    LikelihoodConfig,
    TableLikelihoodConfig,
)
from discrete_vae.config.overrides import Override, apply_overrides, override_fields
from discrete_vae.data.files import TableReading, arrays_of_table, read_own_arrays
from discrete_vae.data.rows import binarized, splits_of
from discrete_vae.data.splits import DataSplits, likelihood_for
from discrete_vae.data.tables import Table, read_table, table_ending
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.scaling import long_tails
from discrete_vae.presets import SIZES, own_data
from discrete_vae.system import allocating, check_data_dir, unicode_path, user_path

_COUNTED = (".h5ad", ".mtx", ".mtx.gz")  # files of cells, whose values are counts if they can be
_FEWEST_COUNTED = 20  # rows below which a feature may count them by chance


def own_experiment(
    path: str | Path,
    *,
    likelihood: str | None = None,
    size: str = "short",
    data_dir: str | Path | None = None,
    **reading: Any,
) -> ExperimentConfig:
    """The experiment that `dvae train --data FILE` runs.

    The data tell the event shape, the number of categories, whether values are missing, and for Bernoulli whether they
    are probabilities of bits.

    Args:
        path: The file, see `discrete_vae.data.rows.load_file`.
        likelihood: How values are read: "bernoulli", "gaussian", "categorical" or "negative-binomial". None reads each
            column of a table by its kind, see `discrete_vae.data.infer_schema`, unless all are bits; whole numbers of
            a .h5ad or .mtx file as counts given their total, "negative-binomial"; and arrays as bits.
        size: "smoke", "short", "cpu" or "paper".
        data_dir: Not read, but refused if it does not exist.
        reading: Fields of `discrete_vae.config.FileDataConfig` that say how a table is read: label_column, kinds and so
            on.

    Raises:
        InvalidInputError: If the file cannot be read, or its values not by this likelihood.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/mine.npy", np.linspace(-3.0, 3.0, 60).reshape(20, 3))
        ...     config = own_experiment(f"{folder}/mine.npy", likelihood="gaussian")
        >>> config.model.likelihood.kind, config.model.shape, config.model.missing
        ('gaussian', (3,), False)
    """
    if size not in SIZES:
        repair = "Leave it out for short."
        raise InvalidInputError("size", f"must be one of {', '.join(SIZES)}", f"{size!r}"[:80], repair)
    file = FileDataConfig(path=Path(unicode_path("path", path)), **reading)
    return _read(file, (), likelihood=likelihood, size=size, data_dir=data_dir)[0]


def read_own_experiment(
    path: str | Path,
    overrides: Sequence[Override] = (),
    *,
    size: str = "short",
    data_dir: str | Path | None = None,
) -> tuple[ExperimentConfig, DataSplits]:
    """Read a file once: its experiment, changed as the command line says, and its data; see `own_experiment`.

    Args:
        path: The file.
        overrides: Settings as `discrete_vae.config.overrides` splits them from words; those of the data say how the
            file is read, that of the likelihood how its values are, and the others change the experiment.
        size: "smoke", "short", "cpu" or "paper".
        data_dir: Not read, but refused if it does not exist.
    """
    fields = {"data": FileDataConfig(path=Path(path)).model_dump()}
    override_fields(fields, [entry for entry in overrides if entry[0].startswith("data.")])
    kinds = [values[0] for name, values in overrides if name == "model.likelihood" and len(values) == 1]
    likelihood = kinds[-1] if kinds else None
    return _read(
        FileDataConfig(**fields["data"]), overrides, likelihood=likelihood, size=size, data_dir=data_dir
    )


def _read(
    file: FileDataConfig,
    overrides: Sequence[Override],
    *,
    likelihood: str | None,
    size: str,
    data_dir: str | Path | None,
) -> tuple[ExperimentConfig, DataSplits]:
    check_data_dir(data_dir)
    path = user_path("path", file.path)
    if likelihood is not None and file.kinds is not None and table_ending(path) is not None:
        rule, repair = (
            "must be left out beside --model.likelihood, which holds for all columns",
            "Leave one out.",
        )
        raise InvalidInputError("data.kinds", rule, repr(file.kinds)[:80], repair)
    with allocating(str(path), "Give fewer examples or features, or use a machine with more memory."):
        if table_ending(path) is not None:
            reading = TableReading.of(file)
            table = read_table(path, reading.roles, reading.form)
            if likelihood is None and file.kinds is None and not _holds_bits(table):
                file = file.model_copy(update={"kinds": "auto"})
            found = arrays_of_table(table, str(path), TableReading.of(file))
        else:
            found = read_own_arrays(path, TableReading.of(file))
        dataset = splits_of(found, file.model_copy(update={"path": path}))
    _warn_of_index(dataset)
    if dataset.schema is not None:  # so that files with these columns are read as well
        left_out = [name for name in dataset.schema.left_out if name not in file.ignored_columns]
        file = file.model_copy(update={"ignored_columns": (*file.ignored_columns, *left_out)})
    if likelihood is None and path.name.lower().endswith(_COUNTED) and _holds_counts(dataset):
        likelihood, overrides = "negative-binomial", [("model.likelihood.exposure", ["total"]), *overrides]
    config = own_experiment_of(dataset, file.path, likelihood=likelihood or "bernoulli", size=size)
    if found.condition_schema is not None:
        model = config.model.model_copy(update={"condition": found.condition_schema.columns})
        config = config.model_copy(update={"model": model})
    assert isinstance(config.data, FileDataConfig)
    data = file.model_copy(update={"binarize": file.binarize or config.data.binarize})
    config = apply_overrides(config.model_copy(update={"data": data}), overrides)
    if dataset.schema is not None:  # what the values have told stands above what is typed, which they rest on
        config = config.model_copy(update={"data": data})
    assert isinstance(config.data, FileDataConfig)
    # whether values are probabilities of bits only they have told, after they were read
    if config.data.binarize and not file.binarize:
        dataset = binarized(dataset, seed=file.binarization_seed)
    return config, dataset


def _holds_counts(dataset: DataSplits) -> bool:
    """Whether values are whole numbers from 0, and not bits alone."""
    values = dataset.summaries.values()
    return all(COUNTS.holds(each) for each in values) and any(each.high > 1 for each in values)


def _holds_bits(table: Table) -> bool:
    """Whether all columns of a table are 0 and 1, with gaps or without."""
    numbers = (column.numbers for column in table.columns if column.codes is None)
    found = [bool(((values == 0) | (values == 1) | np.isnan(values)).all()) for values in numbers]
    return len(found) == len(table.columns) and all(found)


def own_experiment_of(dataset: DataSplits, path: Path, *, likelihood: str, size: str) -> ExperimentConfig:
    """`own_experiment` for a file that has been read; columns of a table that have kinds are read by these."""
    config: LikelihoodConfig
    if dataset.schema is not None:
        config = TableLikelihoodConfig(columns=dataset.schema.columns)
    else:
        config = likelihood_for(likelihood, dataset)
    if isinstance(config, GaussianLikelihoodConfig):
        config = config.model_copy(update={"shorten_tails": bool(long_tails(dataset.train).any())})
    exact = config.domain(exact=True)
    return own_data(
        path,
        event_shape=dataset.event_shape,
        num_train=len(dataset.train),
        num_valid=len(dataset.valid),
        num_test=len(dataset.test),
        size=size,
        likelihood=config,
        binarize=not all(exact.holds(values) for values in dataset.summaries.values()),
        missing=any(values.num_missing > 0 for values in dataset.summaries.values()),
    )


def _warn_of_index(dataset: DataSplits) -> None:
    """Warn of the first column of a table whose values are successive whole numbers: an index, and no feature."""
    parts = [part for part in (dataset.train, dataset.valid, dataset.test) if isinstance(part, torch.Tensor)]
    count = sum(len(part) for part in parts)
    for place, name in enumerate(dataset.description.columns if count > _FEWEST_COUNTED else ()):
        column = torch.cat([part[:, place] for part in parts])
        # of NaN no span is this one
        if column.max() - column.min() == count - 1 and bool((column.sort().values.diff() == 1).all()):
            warnings.warn(
                f"column {name!r} of {dataset.description.source} counts the rows, and is read as a feature; to leave "
                f"it out: --data.ignored-columns {name}",
                stacklevel=4,
            )
            return
