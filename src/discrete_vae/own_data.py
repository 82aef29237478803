"""The experiment for a file of one's own, with what only the data can tell."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from discrete_vae.config import ExperimentConfig, FileDataConfig, GaussianLikelihoodConfig, instantiate
from discrete_vae.data.rows import binarized
from discrete_vae.data.splits import DataSplits, likelihood_for
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.scaling import long_tails
from discrete_vae.overrides import Override, apply_overrides, override_fields
from discrete_vae.presets import SIZES, own_data
from discrete_vae.system import unicode_path

_FEWEST_COUNTED = 20  # rows below which a feature may count them by chance


def own_experiment(
    path: str | Path,
    *,
    likelihood: str = "bernoulli",
    size: str = "short",
    label_column: str | None = None,
    ignored_columns: Sequence[str] = (),
    data_dir: str | Path | None = None,
) -> ExperimentConfig:
    """The experiment that `dvae train --data FILE` runs.

    The data tell the event shape, the number of categories, whether values are missing, and for Bernoulli whether they
    are probabilities of bits.

    Args:
        path: The file, see `discrete_vae.data.rows.load_file`.
        likelihood: How values are read: "bernoulli", "gaussian", "categorical" or "negative-binomial".
        size: "smoke", "short", "cpu" or "paper".
        label_column: The column of a table that holds labels and is no feature; None means none does.
        ignored_columns: Columns of a table that are not read.
        data_dir: Not read, but refused if it does not exist.

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
    columns = {"label_column": label_column, "ignored_columns": tuple(ignored_columns)}
    file = FileDataConfig(path=Path(unicode_path("path", path)), **columns)
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
        overrides: Settings as `discrete_vae.overrides.split_overrides` gives them; those of the data say how the file
            is read, that of the likelihood how its values are, and the others change the experiment.
        size: "smoke", "short", "cpu" or "paper".
        data_dir: Not read, but refused if it does not exist.
    """
    fields = {"data": FileDataConfig(path=Path(path)).model_dump()}
    override_fields(fields, [entry for entry in overrides if entry[0].startswith("data.")])
    kinds = [values[0] for name, values in overrides if name == "model.likelihood" and len(values) == 1]
    likelihood = kinds[-1] if kinds else "bernoulli"
    return _read(
        FileDataConfig(**fields["data"]), overrides, likelihood=likelihood, size=size, data_dir=data_dir
    )


def _read(
    file: FileDataConfig,
    overrides: Sequence[Override],
    *,
    likelihood: str,
    size: str,
    data_dir: str | Path | None,
) -> tuple[ExperimentConfig, DataSplits]:
    dataset: DataSplits = instantiate(file, data_dir=data_dir)
    _warn_of_index(dataset)
    config = own_experiment_of(dataset, file.path, likelihood=likelihood, size=size)
    assert isinstance(config.data, FileDataConfig)
    data = file.model_copy(update={"binarize": file.binarize or config.data.binarize})
    config = apply_overrides(config.model_copy(update={"data": data}), overrides)
    assert isinstance(config.data, FileDataConfig)
    # whether values are probabilities of bits only they have told, after they were read
    if config.data.binarize and not file.binarize:
        dataset = binarized(dataset, seed=file.binarization_seed)
    return config, dataset


def own_experiment_of(dataset: DataSplits, path: Path, *, likelihood: str, size: str) -> ExperimentConfig:
    """`own_experiment` for a file that has been read."""
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
    parts = [dataset.train, dataset.valid, dataset.test]
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
