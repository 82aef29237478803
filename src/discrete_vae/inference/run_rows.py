"""The examples that a run's model is to be used on: its own test part, or a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from discrete_vae.config import DataConfig, FileDataConfig, instantiate
from discrete_vae.data.chosen import chosen_test_examples
from discrete_vae.data.label_file import labels_of_part, read_label_file
from discrete_vae.data.rows import Rows, read_rows, rows_of_part
from discrete_vae.data.table import NoFeatures
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.load import LoadedRun
from discrete_vae.training.run import warn_of_other_data

_LABEL_REPAIR = "Give one label per example, in their order."


def rows_of_run(
    run: RunDirectory,
    loaded: LoadedRun,
    data: str | Path | None = None,
    *,
    part: str | None = None,
    label_column: str | None = None,
    num_examples: int | None = None,
    at_most: bool = False,
    missing: bool | None = None,
    data_dir: str | Path | None = None,
    argument: str = "--data",
    labels: str | Path | None = None,
    labels_argument: str = "--labels",
) -> Rows:
    """Read examples as the run's training read its own.

    Args:
        run: The run.
        loaded: What `discrete_vae.load_run` made of it.
        data: A file; None takes the run's own data.
        part: "train", "valid" or "test" of the run's own data, or of a .npz file that has parts; None is test.
        label_column: The column of a table that holds labels; None is that of the run's data, if a file has it.
        num_examples: A fixed random choice of so many; None takes all.
        at_most: Whether fewer will do where there are fewer.
        missing: Whether values may be missing; None is what the model says.
        data_dir: Folder of the published data sets.
        argument: What messages call the file.
        labels: A file of their labels in place of those that they have, see `read_label_file`: one per row of the file,
            or per example of the part; where the run's own file was cut into parts, one per row of it will do too.
        labels_argument: What messages call that file.

    Raises:
        InvalidInputError: If they cannot be read, or the model cannot read them; if there are fewer than asked for; if
            there are more or fewer labels.

    Warns:
        UserWarning: If the run's own data are not those that it was trained on.
    """
    of_run = loaded.config.data
    given = None if labels is None else read_label_file(labels, argument=labels_argument)
    if data is None:
        if label_column is not None:
            repair = "Leave it out: the run's config names that of its own data."
            raise InvalidInputError("label_column", f"needs {argument}", repr(label_column)[:80], repair)
        try:
            dataset = instantiate(of_run, data_dir=data_dir)
        except InvalidInputError as error:
            repair = f"{error.repair} Or give examples of your own: {argument} FILE."
            raise InvalidInputError(error.argument, error.rule, error.received, repair) from None
        warn_of_other_data(run, dataset)
        rows = rows_of_part(dataset, part or "test")
        if given is not None:
            given = labels_of_part(given, dataset, of_run, part or "test", argument=labels_argument)
    else:
        rows = read_rows(
            data,
            loaded.config.model,
            part=part,
            columns=known_columns(run),
            without=_no_features(of_run, label_column),
            binarization_seed=getattr(of_run, "binarization_seed", 0),
            missing=missing,
            argument=argument,
        )
        if given is not None and len(given) != len(rows):
            rule, repair = f"must be as many as the {len(rows)} examples of {rows.name}", _LABEL_REPAIR
            raise InvalidInputError(labels_argument, rule, len(given), repair)
    if given is not None:
        rows = replace(rows, labels=given)
    if num_examples is None or (at_most and num_examples > len(rows)):
        return rows
    return rows.chosen(chosen_test_examples(len(rows), num_examples, argument="num_examples"))


def _no_features(of_run: DataConfig, label_column: str | None) -> NoFeatures:
    """Columns of a file that are no features: those of the run's own, where the file has them too."""
    known = of_run if isinstance(of_run, FileDataConfig) else None
    of_known = () if known is None else known.ignored_columns
    label = label_column if label_column is not None or known is None else known.label_column
    optional = {*of_known, *([] if label is None else [label])} - {label_column}
    return NoFeatures(label, of_known, frozenset(name for name in optional if name is not None))


def known_columns(run: RunDirectory) -> tuple[str, ...]:
    """Names of the features that a run was trained on; none where they have none, or nothing is kept of them."""
    names = run.read_environment().get("data", {}).get("columns") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        rule, repair = "must hold names as data.columns", "Restore it from a copy."
        raise InvalidInputError(str(run.environment_path), rule, f"{names!r}"[:80], repair)
    return tuple(names)
