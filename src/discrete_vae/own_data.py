"""The experiment for a file of one's own, with what only the data can tell."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from discrete_vae.config import ExperimentConfig, FileDataConfig, GaussianLikelihoodConfig, instantiate
from discrete_vae.data.rows import check_kind
from discrete_vae.data.splits import DataSplits
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.scaling import long_tails
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
    path = Path(unicode_path("path", path))
    file = FileDataConfig(path=path, label_column=label_column, ignored_columns=tuple(ignored_columns))
    dataset: DataSplits = instantiate(file, data_dir=data_dir)
    warn_of_index(dataset)
    config = own_experiment_of(dataset, file.path, likelihood=likelihood, size=size)
    data = file.model_copy(update={"binarize": getattr(config.data, "binarize", False)})
    return config.model_copy(update={"data": data})


def own_experiment_of(dataset: DataSplits, path: Path, *, likelihood: str, size: str) -> ExperimentConfig:
    """`own_experiment` for a file that has been read.

    Args:
        dataset: What was read.
        path: The file.
        likelihood: How values are read.
        size: "smoke", "short", "cpu" or "paper".

    Raises:
        InvalidInputError: If the values cannot be read by this likelihood.
    """
    config = check_kind(likelihood, dataset)
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


def warn_of_index(dataset: DataSplits) -> None:
    """Warn of the first column of a table whose values are successive whole numbers, in whatever order they stand.

    Warns:
        UserWarning: If there is one: it is an index, and no feature.
    """
    parts = [dataset.train, dataset.valid, dataset.test]
    count = sum(len(part) for part in parts)
    for place, name in enumerate(dataset.description.columns if count > _FEWEST_COUNTED else ()):
        column = torch.cat([part[:, place] for part in parts])
        # of NaN no span is this one
        if column.max() - column.min() == count - 1 and bool((column.sort().values.diff() == 1).all()):
            warnings.warn(
                f"column {name!r} of {dataset.description.source} counts the rows, and is read as a feature; to leave "
                f"it out: --data.ignored-columns {name}",
                stacklevel=3,
            )
            return
