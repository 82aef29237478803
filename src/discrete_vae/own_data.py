"""The experiment for a file of one's own, with what only the data can tell."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from discrete_vae.checks import COUNTS, UNIT_INTERVAL
from discrete_vae.config import ExperimentConfig, FileDataConfig, LikelihoodConfig, TableLikelihoodConfig
from discrete_vae.config.columns import in_order, is_number
from discrete_vae.config.overrides import Override, apply_overrides, override_fields, overrides_of
from discrete_vae.data.files import OwnArrays, TableReading, read_own_arrays
from discrete_vae.data.rows import binarized, splits_of
from discrete_vae.data.sequences import letters_of
from discrete_vae.data.splits import DataSplits, likelihood_for
from discrete_vae.data.tables import Table, read_table, table_ending
from discrete_vae.errors import InvalidInputError, not_one_of
from discrete_vae.likelihoods.scaling import long_tails
from discrete_vae.presets import SIZES, own_data
from discrete_vae.system import allocating, check_data_dir, unicode_path

_COUNTED = (".h5ad", ".mtx", ".mtx.gz")  # files of cells, whose values are counts if they can be
_FEWEST_COUNTED = 20  # rows below which a feature may count them by chance


def own_experiment(
    path: str | Path,
    *,
    likelihood: str | None = None,
    size: str = "short",
    data_dir: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    **reading: Any,
) -> ExperimentConfig:
    """The experiment that `dvae train --data FILE` runs.

    The data tell the event shape, the number of categories, whether values are missing, and for Bernoulli whether they
    are probabilities of bits.

    Args:
        path: The file, see `discrete_vae.data.rows.load_file`.
        likelihood: How values are read: "bernoulli", "gaussian", "categorical" or "negative-binomial". None reads each
            column of a table by its kind, see `discrete_vae.data.infer_schema`, unless all are bits; whole numbers of
            a .h5ad or .mtx file as "negative-binomial"; sequences as "categorical"; and arrays as bits. Counts of such
            files are given their row's total unless the settings say another exposure.
        size: "smoke", "short", "cpu" or "paper".
        data_dir: Not read, but refused if it does not exist.
        settings: Values that differ from this size's, by the names that ``dvae train --settings`` lists. Where they
            change the epochs, the steps between validations and between lines of the log change in proportion.
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
        raise not_one_of("size", SIZES, size, "Leave it out for short.")
    file = FileDataConfig(path=unicode_path("path", path), **reading)
    return _read(file, overrides_of(settings), likelihood, size, data_dir)[0]


def read_own_experiment(
    path: str | Path,
    overrides: Sequence[Override] = (),
    *,
    size: str = "short",
    data_dir: str | Path | None = None,
) -> tuple[ExperimentConfig, DataSplits]:
    """Read a file once: its experiment, changed as the command line says, and its data; see `own_experiment`.

    Overrides of the data say how the file is read, that of the likelihood how its values are, and the others change the
    experiment.
    """
    return _read(FileDataConfig(path=Path(path)), overrides, None, size, data_dir)


def _read(
    file: FileDataConfig, overrides: Sequence[Override], likelihood: str | None, size: str, data_dir: Any
) -> tuple[ExperimentConfig, DataSplits]:
    check_data_dir(data_dir)
    fields = {"data": file.model_dump()}
    of_data = [entry for entry in overrides if entry[0].startswith("data.")]
    override_fields(fields, of_data)
    kinds = [values[0] for name, values in overrides if name == "model.likelihood" and len(values) == 1]
    named = {name for name, _ in overrides}
    file, likelihood = FileDataConfig(**fields["data"]), kinds[-1] if kinds else likelihood
    path = file.path
    if likelihood is not None and file.kinds is not None and table_ending(path) is not None:
        rule = "must be left out beside --model.likelihood, which holds for all columns"
        raise InvalidInputError("data.kinds", rule, repr(file.kinds)[:80], "Leave one out.")
    with allocating(str(path), "Give fewer examples or features, or use a machine with more memory."):
        reading, table = TableReading.of(file), None
        if table_ending(path) is not None:
            table = read_table(path, reading.roles, reading.form)
            if likelihood is None and "data.kinds" not in named and not file.kinds and not _holds_bits(table):
                file = file.model_copy(update={"kinds": "auto"})
                reading = TableReading.of(file)
        found = read_own_arrays(path, reading, table)
        dataset = splits_of(found, file)
    _warn_of_index(dataset)
    if dataset.schema is not None:  # so that files with these columns are read as well
        left_out = [name for name in dataset.schema.left_out if name not in file.ignored_columns]
        file = file.model_copy(update={"ignored_columns": (*file.ignored_columns, *left_out)})
    of_cells, values = path.name.lower().endswith(_COUNTED), dataset.summaries.values()
    if likelihood is None and file.alphabet is not None:
        likelihood = "categorical"
    elif likelihood is None and of_cells and not all(map(UNIT_INTERVAL.holds, values)):
        likelihood = "negative-binomial"  # also of logarithms, so that what is refused is told of counts
    if (exposure := exposure_of_counts(dataset, path, likelihood)) is not None:
        overrides = [("model.likelihood.exposure", [exposure]), *overrides]
    kind = "bernoulli" if likelihood is None else likelihood
    config = own_experiment_of(dataset, file.path, likelihood=kind, size=size, alphabet=file.alphabet)
    if file.label_units is not None:
        config = with_classes(config, class_names(found, file.label_units))
    if found.condition_schema is not None:
        model = config.model.model_copy(update={"condition": found.condition_schema.columns})
        config = config.model_copy(update={"model": model})
    assert isinstance(config.data, FileDataConfig)
    if config.data.binarize and not file.binarize and "data.binarize" not in named:
        # that values are probabilities of bits only they have told, after they were read
        file = file.model_copy(update={"binarize": True})
        dataset = binarized(dataset, seed=file.binarization_seed)
    before, of_others = config.training, [entry for entry in overrides if not entry[0].startswith("data.")]
    config = apply_overrides(config.model_copy(update={"data": file}), of_others)
    if not isinstance(config.data, FileDataConfig):
        raise InvalidInputError("data", "must be the file itself", config.data.kind, "Leave the setting out.")
    if "training.num-epochs" in named:  # validations and patience keep their share of the run
        every = max(1, before.validate_every * config.training.num_epochs // before.num_epochs)
        kept = {"training.validate-every": "validate_every", "training.log-every": "log_every"}
        update = dict.fromkeys((field for name, field in kept.items() if name not in named), every)
        config = config.model_copy(update={"training": config.training.model_copy(update=update)})
    return config, dataset


def exposure_of_counts(dataset: DataSplits, path: Path, likelihood: str | None) -> str | None:
    """The exposure of a file's counts unless another is asked for, their row's total; None for other values."""
    if likelihood != "negative-binomial" or not path.name.lower().endswith(_COUNTED):
        return None
    values = dataset.summaries.values()  # whole numbers from 0, and not bits alone
    if not all(COUNTS.holds(each) for each in values) or all(each.high <= 1 for each in values):
        return None
    return "total" if dataset.num_features > 1 else "none"  # of one feature the total is the count itself


_MOST_CLASSES, _MOST_NUMBERS, _FEWEST_PER_CLASS = 100, 20, 2


def class_names(found: OwnArrays, name: str) -> tuple[str, ...]:
    """The classes that the labels of a file, words of a column, name: numbers in their order, else words in theirs.

    Labels that are no classes are refused: one alone, measurements, or names of the rows.
    """
    if not found.labels:
        repair = "Call them y, or y_train, y_valid and y_test."
        raise InvalidInputError("label_units", "must name labels of the file", repr(name)[:80], repair)
    labels = np.concatenate(list(found.labels.values()))
    words, counts = np.unique(labels[labels != ""], return_counts=True)
    repair = f"Keep it as labels that are not learned from, --data.label-column {shlex.quote(name)}, or as a feature."
    received = f"{len(words)} in {counts.sum()} rows of {name!r}"
    if len(words) < 2:
        raise InvalidInputError("label_units", "must name at least 2 different labels", received, repair)
    are_numbers = all(map(is_number, words))
    if are_numbers and (len(words) > _MOST_NUMBERS or any(float(word) % 1 for word in words)):
        rule = f"must name classes, words or at most {_MOST_NUMBERS} whole numbers"
        raise InvalidInputError("label_units", rule, received, repair)
    if len(words) > min(_MOST_CLASSES, counts.sum() / _FEWEST_PER_CLASS):
        rule = f"must name at most {_MOST_CLASSES} classes, of {_FEWEST_PER_CLASS} rows or more on average"
        raise InvalidInputError("label_units", rule, received, repair)
    return in_order(words.tolist())


def with_classes(config: ExperimentConfig, names: tuple[str, ...]) -> ExperimentConfig:
    """The same experiment with classes: each has a unit of the prior besides those that there are.

    A model of independent features has no classes, so it is not the first checkpoint.
    """
    prior = config.model.prior
    assert prior.kind == "rbm"
    prior = prior.model_copy(update={"num_left": prior.num_left + len(names)})
    of_model = {"num_classes": len(names), "class_names": names, "prior": prior}
    training = config.training.model_copy(update={"independent_start": False})
    return config.model_copy(update={"model": config.model.model_copy(update=of_model), "training": training})


def _holds_bits(table: Table) -> bool:
    """Whether all columns of a table are 0 and 1, with gaps or without; none is all gaps."""
    numbers = (each.numbers for each in table.columns if each.codes is None and not each.missing.all())
    found = [bool(((values == 0) | (values == 1) | np.isnan(values)).all()) for values in numbers]
    return len(found) == len(table.columns) and all(found)


def own_experiment_of(
    dataset: DataSplits, path: Path, *, likelihood: str, size: str, alphabet: str | None = None
) -> ExperimentConfig:
    """`own_experiment` for a file that has been read; columns of a table that have kinds are read by these."""
    if dataset.schema is not None:
        config: LikelihoodConfig = TableLikelihoodConfig(columns=dataset.schema.columns)
    else:
        config = likelihood_for(likelihood, dataset)
    if config.kind == "gaussian":
        config = config.model_copy(update={"shorten_tails": bool(long_tails(dataset.train).any())})
    if config.kind == "categorical" and alphabet is not None:
        # later files may have letters that this one lacks
        config = config.model_copy(update={"num_categories": len(letters_of(alphabet)) + 1})
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
                f"it out: --data.ignored-columns {shlex.quote(name)}",
                stacklevel=4,
            )
            return
