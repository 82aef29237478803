"""dvae train, validate and list."""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discrete_vae.cli.options import (
    Outcome,
    accept_changed_config_option,
    choose_device,
    completion,
    data_dir_option,
    device_option,
    further_data_dir,
    json_option,
    loud_stream,
    note,
    one_of,
    option,
    print_rows,
    say_while_torch_loads,
    seed,
    together,
    verb,
    whole_number,
    width,
    worth,
    wrapped,
)
from discrete_vae.config import ColumnConfig, ExperimentConfig, FileDataConfig
from discrete_vae.config.overrides import (
    Override,
    Slot,
    apply_overrides,
    read_value,
    settings_of,
    slots,
    words_of,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.registry import FIGURES
from discrete_vae.presets import EXPERIMENTS, Size, first_difference, load_experiment, run_name
from discrete_vae.records import some, with_error
from discrete_vae.runs.io import pretrained_names, read_json, shipped_folder
from discrete_vae.system import computing_on, in_words

if TYPE_CHECKING:
    import torch

    from discrete_vae.data.schema import TableSchema
    from discrete_vae.data.splits import DataSplits
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.run import ParameterRow


# The experiment of dvae train and dvae validate.


EXPLAINED = "EXPERIMENT is one of the names that dvae list experiments prints."
EPILOG = (
    "Settings: every value of the experiment has an option, its dotted name. --training.num-epochs 50 sets a value; "
    "--model.smoothing spike-slab exchanges a component and keeps the rest; --model.posterior.hidden 200 200 gives a "
    "list. --settings prints all of them."
)
_ERROR = "validation_elbo_std_error"  # in the log
TYPED = {"path": "--data", "FileDataConfig.path": "--data"}


@dataclass(frozen=True)
class ExperimentArguments:
    """The words of the command line that name an experiment; None stands for what was not given."""

    experiment: str | None
    data: str | None
    size: Size | None
    seed: int | None
    data_dir: Path | None
    overrides: list[Override]


def resolve(arguments: ExperimentArguments) -> tuple[ExperimentConfig, Callable[[], DataSplits]]:
    """The config that is asked for, and what gives its data; a file of the user's is read once."""
    if (arguments.experiment is None) == (arguments.data is None):
        received = "neither" if arguments.data is None else "both"
        repair = "For example: dvae train digits, or dvae train --data FILE.npy."
        raise InvalidInputError("EXPERIMENT", "or --data FILE must be given", received, repair)
    size, data_dir = arguments.size or "short", arguments.data_dir
    seed: list[Override] = [] if arguments.seed is None else [("seed", [str(arguments.seed)])]
    overrides = seed + arguments.overrides
    if arguments.experiment is not None:
        config = apply_overrides(load_experiment(arguments.experiment, size), overrides)

        def load() -> DataSplits:
            from discrete_vae.data.splits import load_data  # needs torch

            return load_data(config, data_dir)

        return config, load
    say_while_torch_loads(f"Reading {arguments.data}")
    from discrete_vae.own_data import read_own_experiment  # needs torch

    assert arguments.data is not None
    config, dataset = read_own_experiment(arguments.data, overrides, size=size, data_dir=data_dir)
    return config, lambda: dataset


_OPTIONS = together(
    click.argument(
        "experiment",
        required=False,
        metavar="EXPERIMENT | --data FILE",
        shell_complete=completion("", lambda: EXPERIMENTS),
    ),
    option(
        "--data FILE", "your own table (.csv, .tsv, .parquet, ...) or array (.npy, .npz, .mtx, .h5ad, ...)"
    ),
    option(
        "--size smoke|short|cpu|paper",
        "how long: a minute; minutes to an hour on two cores (default); an hour or two; as published",
    ),
    option("--seed S", "seed of the initial weights and of all random numbers; default: 0", seed),
    option("--settings", "print every setting with its value and its meaning, and exit"),
    data_dir_option,
)


def takes_experiment(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Give a verb the options that name an experiment, as its first argument; --settings is done here."""

    @wraps(function)
    def run(settings: bool, **given: Any) -> Outcome:
        names = ExperimentArguments.__dataclass_fields__
        arguments = ExperimentArguments(**{name: given.pop(name) for name in names})
        if settings:
            print_settings(resolve(arguments)[0])
            return 0
        return function(arguments, **given)

    return _OPTIONS(run)


@verb("train", EXPLAINED, takes_settings=True, divides=True, epilog=EPILOG, typed=TYPED)
@takes_experiment
@option("--run-dir DIR", "new folder for the results; default: runs/NAME-SIZE-SETTINGS")
@option("--resume", "continue the run in --run-dir from its last checkpoint")
@option(
    "--profile N",
    "record every operation of N steps in profile.json, for ui.perfetto.dev, and print where the time goes",
    whole_number(at_most=1000),
)
@option("--logger tensorboard", "also write the metrics for TensorBoard", one_of("tensorboard"))
@device_option
@accept_changed_config_option
def run_train(
    arguments: ExperimentArguments,
    run_dir: str | None,
    resume: bool,
    profile: int | None,
    logger: str | None,
    device: str,
    accept_changed_config: bool,
) -> int:
    """Train, or resume."""
    from discrete_vae.cli import stop_on_signals

    if accept_changed_config and not resume:
        repair = "Leave it out: a new run writes its own config.json."
        raise InvalidInputError("--accept-changed-config", "must go with --resume", "no --resume", repair)
    asked = None if resume else resolve(arguments)
    folder = _run_dir(arguments) if run_dir is None else run_dir
    if asked is None:
        say_while_torch_loads(f"Continuing the run {folder}")
    else:
        say_while_torch_loads(f"Training {asked[0].name}, size {asked[0].size}; results go to {folder}")

    from discrete_vae.data.splits import load_data
    from discrete_vae.distributed import compute_on_rank_zero, rank, world_size
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.logging import StepTrace, TensorBoardLogger
    from discrete_vae.training.loop import run_steps
    from discrete_vae.training.run import prepared_run, training_threads, validation_baseline
    from discrete_vae.training.step import choose_precision

    where = choose_device(device)
    if profile is not None and world_size() > 1:
        repair = "Profile a run of one process."
        raise InvalidInputError("--profile", "must not be given with several processes", profile, repair)
    if asked is None:
        from discrete_vae.cli.trained import open_run

        run = open_run(folder)
        config = _resumed_config(run, arguments, accept_changed_config)
        dataset, begun = load_data(config, arguments.data_dir), run.read_environment()
    else:
        config, load = asked
        run = RunDirectory(compute_on_rank_zero(lambda: RunDirectory.check_new(folder)))
        dataset, begun = load(), {}
    events = None if logger is None else TensorBoardLogger(run.tensorboard_path)
    with (
        stop_on_signals() as stop,
        training_threads(config, begun),
        prepared_run(config, dataset, run, device=where) as (run, num_steps),
    ):
        done = max(run.checkpoints().steps(), default=0)
        if rank() == 0:
            if resume and done == 0:
                note("No checkpoint was saved yet: the run starts from the beginning.")
            if done < num_steps:
                before = begun.get("device", {}).get("type", where.type)
                if before != where.type:
                    how = "equal up to rounding, not bit for bit"
                    note(f"The run began on {before} and continues on {where}: {how}.")
                for line in [*_headline(config, dataset, run, done, num_steps), computing_on(where)]:
                    note(line)
                if profile is not None:
                    precision = choose_precision(config, device=where, begun=begun)
                    note(f"Matrix products of the networks in {precision.name}: {precision.reason}.")
        try:
            result = run_steps(
                config,
                dataset,
                run,
                device=where,
                stop=stop,
                accept_changed_config=accept_changed_config,
                trace=None if profile is None else StepTrace(run.profile_path, profile),
                logger=events,
            )
        except KeyboardInterrupt:  # the other processes, if there are any, are not waited for
            raise click.exceptions.Exit(_interrupted(run, stop.status, arguments.data_dir)) from None
    if rank() > 0:
        return 0 if result.step == result.num_steps else stop.status
    if result.step < result.num_steps:
        return _interrupted(run, stop.status, arguments.data_dir)
    if done >= result.num_steps:
        print(f"{run.path} has finished its {done} steps; nothing is left to do.")
    else:
        ended = f", of at most {num_steps}: the validation bound stopped rising" * (result.step < num_steps)
        print(f"Trained {result.step - done} steps in {in_words(result.seconds)}{ended}.")
    assert result.best_elbo is not None  # the last step validates, and a checkpoint of it names its best
    baseline = validation_baseline(config, dataset)
    assert baseline.examples is not None
    lines = [line for line in run.metrics().read() if line["step"] == result.best_step]
    error = next((line[_ERROR] for line in lines if _ERROR in line), math.nan)
    best = with_error(result.best_elbo, error, 2)
    print(f"Best checkpoint: step {result.best_step}, validation ELBO {best} nats.")
    print(f"Independent columns: {with_error(baseline.value, baseline.std_error, 2)} nats (validation).")
    if result.best_step == 0:
        kept = (
            "No checkpoint is clearly better than independent columns, so the model of independent columns is kept as "
            "the best one. Its codes carry no information about a row. Either the columns are independent, or there "
            "are too few rows to show that they are not."
        )
        print(wrapped(kept))
    else:
        elbos = result.best_elbos
        error = baseline.examples.std_error_of_gain(None if elbos is None else elbos.value)
        error = math.hypot(error, result.best_log_partition_std_error)
        count = baseline.effective_examples or baseline.num_examples
        found = worth(result.best_elbo, baseline.value, error, count, "validation data")
        print(wrapped(f"{found} The ELBO is a lower bound: dvae evaluate gives the log-likelihood."))
    run.checkpoints().verify("best")
    print(f"Next: dvae evaluate {run.quoted}{further_data_dir(arguments.data_dir)}")
    return 0


def _headline(
    config: ExperimentConfig, dataset: DataSplits, run: RunDirectory, done: int, num_steps: int
) -> Iterator[str]:
    """Lines about data, steps, folder, and how values are read."""
    from discrete_vae.data.splits import effective_number, summarize, training_subset
    from discrete_vae.sparse import SparseRows  # needs torch

    num_examples, model = config.training.num_examples, config.model
    chosen = training_subset(dataset, config.training)
    count = f"{len(dataset.train)}" if num_examples is None else f"{num_examples} of {len(dataset.train)}"
    what = f"{dataset.name}: {count} training examples of {dataset.num_features} features"
    start = f"from step {done} to {num_steps}" if done else f"{num_steps} steps"
    yield f"{what}; {start} ({config.training.num_epochs} epochs); results go to {run.path}"
    if "train" in dataset.weights:
        number = effective_number(chosen.weights["train"])
        yield f"Examples are weighted: those to train on count as {number:.1f}."
    if model.num_classes:
        yield _known_labels(chosen, config)
    if num_examples is not None:
        takes_all = "--training.num-examples none takes all of them"
        yield f"A fixed random choice of the examples is used; {takes_all}."
    if dataset.dynamic:
        says = "Values between 0 and 1 are read as probabilities: each step draws new bits with them."
        own = config.data.kind == "file"
        yield f"{says} For measurements that are none: --model.likelihood gaussian." if own else says
    if dataset.schema is not None:
        yield from _kinds_of_columns(dataset.schema)
    if model.condition:
        names = ", ".join(column.name for column in model.condition)
        yield f"The model is one of p(x | {names}); c is read as {_kinds_of_condition(model.condition)}."
    train, *others = dataset.summaries.values()
    values = sum(others, train)
    seen = train if num_examples is None else summarize(chosen.train)
    if values.num_missing:
        share = f"{100 * values.num_missing / values.num_values:.1f} %"
        are = "is" if values.num_missing == 1 else "are"
        where = "" if seen.num_missing else ", none of them in the examples to train on"
        which = f"{values.num_missing:,} of the {values.num_values:,} values ({share}) {are} missing{where}"
        yield f"{which}: the model reads which are there, and learns from these."
        sees_all = isinstance(chosen.train, SparseRows) or not seen.num_missing
        gaps = None if sees_all else chosen.train[:].isnan()
        if gaps is not None and (empty := int(gaps.all(0).sum())):
            yield (
                f"{empty} of {dataset.num_features} features {'has' if empty == 1 else 'have'} no value in the "
                "examples to train on: what the model says of such a feature is made up."
            )
        if gaps is not None and (empty := int(gaps.all(1).sum())):
            yield f"{empty} of the examples to train on {'has' if empty == 1 else 'have'} no value: empty lines, say."
    if getattr(model.likelihood, "exposure", "none") == "total":
        yield (
            "Counts are read given the total of their row, so all log-likelihoods are of how totals divide: "
            "--model.likelihood.exposure none reads them as they are."
        )
    if model.likelihood.kind == "gaussian":
        yield from _unusual_features(dataset, config)


def _known_labels(dataset: DataSplits, config: ExperimentConfig) -> str:
    """A sentence about the classes of a model and the examples to train on whose label is known."""
    import numpy as np

    model, count = config.model, len(dataset.train)
    labels = model.label_numbers(dataset.labels.get("train"), count)
    assert labels is not None
    counts = np.bincount(labels[labels >= 0], minlength=model.num_classes)
    shown = some([f"{number} {name}" for name, number in zip(model.classes, counts, strict=True)], 10)
    never = "" if counts.all() else "; a class without an example is not learned"
    return f"Labels of {counts.sum()} of {count} examples are known: {shown}{never}."


def _kinds_of_columns(schema: TableSchema) -> Iterator[str]:
    """Sentences about the kinds as which the columns of a table are read."""
    counts = Counter(column.kind for column in schema.columns)
    yield f"Columns: {', '.join(f'{count} {kind}' for kind, count in counts.items())}."
    left_out = [each for each in schema.readings if each.config is None and each.why != "you say so"]
    for reading in left_out[:_SHOWN_COLUMNS]:
        yield f"Column {reading.name!r} is left out: {reading.why}."
    if len(left_out) > _SHOWN_COLUMNS:
        yield f"{len(left_out) - _SHOWN_COLUMNS} more columns are left out."
    if any(reading.hint for reading in schema.readings):
        yield "Some kinds are guesses: dvae validate shows them, --data.kinds NAME=KIND,... changes them."


def _kinds_of_condition(columns: Sequence[ColumnConfig]) -> str:
    """How a model reads the columns of its condition, some of them, and what changes that."""
    read = [":".join([f"{each.name}={each.kind}", *filter(None, [each.addition])]) for each in columns]
    return f"{some(read, 10)} (--data.kinds NAME=KIND,... changes it)"


_SHOWN_COLUMNS = 3


def _unusual_features(dataset: DataSplits, config: ExperimentConfig) -> Iterator[str]:
    """Sentences about real features that are constant in the examples to train on, or are read on another scale."""
    from discrete_vae.data.splits import training_subset
    from discrete_vae.likelihoods.scaling import Standardizer, long_tails

    def told(found: torch.Tensor, fact: str) -> str:
        places, names = found.nonzero()[:, 0].tolist(), dataset.description.columns
        first = f" ({some([names[place] for place in places], 3)})" if names else ""
        return f"{len(places)} of {dataset.num_features} features {fact}{first}"

    standardizer = Standardizer((dataset.num_features,))
    standardizer.fit_(train := training_subset(dataset, config.training).train)
    constant = standardizer.constant
    if constant.any():
        fact = f"{'has' if constant.sum() == 1 else 'have'} one value in all examples to train on"
        yield f"{told(constant, fact)}: such a feature adds nothing to any likelihood."
    if getattr(config.model.likelihood, "shorten_tails", False):
        yield (
            f"{told(long_tails(train), 'have long tails')} and are read on a scale of asinh, as if their "
            "logarithms were taken: --model.likelihood.shorten-tails false leaves them."
        )


def _interrupted(run: RunDirectory, status: int, data_dir: Path | None) -> int:
    """Say which step is saved and how to go on; returns the exit status."""
    steps = run.checkpoints().steps()
    kept = f"step {steps[-1]} is saved" if steps else "no checkpoint was saved yet"
    go_on = f"dvae train --resume --run-dir {shlex.quote(str(run.path))}{further_data_dir(data_dir)}"
    with suppress(OSError):  # Ctrl-C may have ended who reads it
        print(f"\nInterrupted; {kept}. Continue: {go_on}", file=loud_stream())
    return status


def _run_dir(arguments: ExperimentArguments) -> str:
    if arguments.data is None and arguments.experiment is None:  # without --resume refused before
        repair = "Name the folder: dvae train --resume --run-dir DIR."
        raise InvalidInputError("--run-dir", "or EXPERIMENT must be given with --resume", "neither", repair)
    name = arguments.experiment if arguments.data is None else Path(arguments.data).stem
    base = f"{name}-{arguments.size or 'short'}"
    return f"runs/{run_name(base, arguments.seed, arguments.overrides)}"


def _resumed_config(
    run: RunDirectory, arguments: ExperimentArguments, accept_changed_config: bool
) -> ExperimentConfig:
    """The config of the run to go on with, which the command line must not contradict."""
    from discrete_vae.runs.run_directory import check_config

    stored = run.read_experiment()
    given = {"name": arguments.experiment, "size": arguments.size, "seed": arguments.seed}
    given = {name: value for name, value in given.items() if value is not None}
    # behind the columns that the user ignores training has put those that it left out itself
    ignored = getattr(stored.data, "ignored_columns", ())
    overrides = [
        (name, [*ignored] if name == "data.ignored-columns" and ignored[: len(words)] == (*words,) else words)
        for name, words in arguments.overrides
    ]
    asked = apply_overrides(stored, overrides).model_copy(update=given)
    if arguments.data is not None:
        file = FileDataConfig(path=Path(arguments.data)).path
        of_run = stored.data.path if isinstance(stored.data, FileDataConfig) else stored.data.kind
        if file != of_run:
            raise _other("--data", of_run, file, "If the file has moved, give its folder as --data-dir. ")
    if asked != stored:
        raise _other(*first_difference(stored, asked))
    if not accept_changed_config:  # else training warns of it
        check_config(run, run.checkpoints().newest(), accept=False)
    return stored


def _other(option: str, before: object, after: object, also: str = "") -> InvalidInputError:
    repair = f"{also}Leave it out, or start a new run in another --run-dir."
    return InvalidInputError(option, f"must be the resumed run's {before}", after, repair)


@verb("validate", EXPLAINED, takes_settings=True, epilog=EPILOG, typed=TYPED)
@takes_experiment
@device_option
@json_option
def run_validate(arguments: ExperimentArguments, device: str) -> Outcome:
    """Print the resolved experiment, its shapes, parameter counts, memory and pace."""
    from discrete_vae.training.run import TIMED_STEPS, describe_experiment, training_threads

    config, load = resolve(arguments)
    where, dataset = choose_device(device), load()
    with training_threads(config, {}):
        found = describe_experiment(config, dataset, device=where)
        note(computing_on(where))
    training, about = config.training, dataset.description
    sizes = " / ".join(str(len(part)) for part in (dataset.train, dataset.valid, dataset.test))
    print(f"Experiment {config.name}, size {config.size}, seed {config.seed}")
    parts = f"{sizes} examples (train / valid / test)"
    _print("Data", f"{dataset.name}: {parts} of {dataset.num_features} features")
    _print("", f"{about.version}; {about.values}")
    if found.num_examples != (len(dataset.train), len(dataset.valid)):
        _print("", "of which training sees {} and validation {}".format(*found.num_examples))
    if config.model.condition:
        _print("Condition", _kinds_of_condition(config.model.condition))
    columns = None if dataset.schema is None else [str(reading) for reading in dataset.schema.readings]
    if columns is not None:
        print("\nColumns: what each is read as, and why; --data.kinds NAME=KIND,... changes it")
        for column in columns:
            print(wrapped(column, "  ", indent=6))
        print()
    steps = f"{_counted(found.num_steps, 'step')} in {_counted(training.num_epochs, 'epoch')}"
    _print("Training", f"{steps}, batches of {training.batch_size}, {_counted(found.num_chains, 'chain')}")
    units = f"{found.num_units} binary units in {_counted(found.num_groups, 'group')}"
    layers = f"{_counted(found.num_layers, 'continuous layer')} of {found.units_per_layer} units"
    _print("Latents", f"{units}; {layers}; the decoder reads {found.decoder_size} values")
    _print_parameters(found.parameters)
    peak = ""
    if found.peak_bytes is not None:
        of = f"on {where}" if where.type == "cuda" else "of this process, with its libraries,"
        peak = f"; peak {of} after {TIMED_STEPS} steps {found.peak_bytes / 2**20:,.0f} MiB"
    print()
    weights, data = (f"{count / 2**20:,.0f} MiB" for count in (found.weight_bytes, found.data_bytes))
    _print("Memory", f"{weights} for weights, gradients and Adam; {data} of data{peak}")
    epoch = found.seconds_per_step * found.steps_per_epoch
    step, whole = f"{1000 * found.seconds_per_step:,.0f} ms", in_words(epoch * training.num_epochs)
    best = f"without validation (best of {TIMED_STEPS} steps here)"
    _print("Time", f"{step} per step, {in_words(epoch)} per epoch, {whole} in all {best}")
    print("The experiment can be trained; nothing was written.")
    asked = {"config": config.model_dump(mode="json"), "data": about.version, "columns": columns}
    return asked | asdict(found)


def _print(name: str, text: str) -> None:
    print(wrapped(text, f"{name:10} "))


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _print_parameters(rows: Sequence[ParameterRow]) -> None:
    """A line per network, by part; names leave out their part's."""
    print("\nParameters")
    names = {row: row.name.removeprefix(f"{row.part}.") for row in rows}
    longest = max(map(len, names.values()))
    room = min(max(len(row.shape) for row in rows), max(20, width() - longest - 20))
    for part, members in groupby(rows, key=lambda row: row.part):
        of_part = list(members)
        print(f"  {part:{longest + room + 4}} {sum(row.count for row in of_part):>13,}")
        for row in of_part:
            first, *others = textwrap.wrap(row.shape, room)
            print(f"    {names[row]:{longest}}  {first:{room}} {row.count:>13,}")
            for line in others:
                print(" " * (longest + 8) + line)
    print(f"  {'total':{longest + room + 4}} {sum(row.count for row in rows):>13,}")


# dvae list, and dvae train EXPERIMENT --settings.


_MEANING = 59  # column of the meanings where the terminal leaves room for them, else they go below
_MIN_ROOM = 50
_LISTS = {
    "experiments": "Experiments: dvae train NAME",
    "data": "Data sets of these experiments; your own: dvae train --data FILE",
    "components": "Components: dvae train NAME --OPTION COMPONENT; see dvae list components",
    "models": "Trained models: dvae sample --pretrained NAME",
    "figures": "Figures of a run: dvae figure NAME RUN",
}


@verb("list", f"KIND is one of {', '.join(_LISTS)}; without it, all are listed.")
@click.argument("kind", required=False, shell_complete=completion("", lambda: _LISTS))
@json_option
def run_list(kind: str | None) -> Outcome:
    """Print experiments, data sets, components, trained models and figures."""
    if kind is not None:
        one_of(*_LISTS)("KIND", kind)
    members = {
        path: {name: _about(each) for name, each in slot.members.items()} for path, slot in slots().items()
    }
    found: dict[str, dict[str, Any]] = {
        "experiments": {name: experiment.about for name, experiment in EXPERIMENTS.items()},
        "data": members.pop("data"),
        "components": members,
        "models": {
            name: read_json(shipped_folder(name) / "evaluation.json")["log_likelihood"]
            for name in pretrained_names()
        },
        "figures": {name: figure.about for name, figure in FIGURES.items()},
    }
    for name in _LISTS if kind is None else [kind]:
        print("\n" * (kind is None and name != "experiments") + _LISTS[name])
        for group, rows in (members if name == kind == "components" else {"": found[name]}).items():
            if group:
                print(f"\n--{group}")
            print_rows({each: _in_one_line(about, short=kind is None) for each, about in rows.items()})
    return found if kind is None else {kind: found[kind]}


def _in_one_line(about: Any, *, short: bool) -> str:
    """What is known of an entry of a list."""
    if isinstance(about, str):
        return about.partition(";")[0].rstrip(".") if short else about
    if "value" in about:
        return f"test log-likelihood {with_error(about['value'], about['std_error'], 2)} nats"
    return ", ".join(about)  # the members of a component


def print_settings(config: ExperimentConfig) -> None:
    """Print every setting of an experiment with its present value."""
    print(f"Settings of {config.name}, size {config.size}: option, value, meaning.")
    for _, entries in groupby(settings_of(config), key=lambda entry: entry.path.partition(".")[0]):
        print()
        for entry in entries:
            value = read_value(config, entry.path)
            if not isinstance(entry, Slot):
                _print_setting(entry.path, " ".join(words_of(value)), entry.field.description)
            elif entry.path != "data":  # --data takes a file
                present = "none" if value is None else value.kind
                others = [name for name in entry.members if name != present]
                words = _about(value and type(value)) + (f" Or: {', '.join(others)}." if others else "")
                _print_setting(entry.path, present, words)


def _print_setting(path: str, value: str, meaning: str | None) -> None:
    option = f"  --{path:34} {value:18} "
    if width() >= _MEANING + _MIN_ROOM:
        print(wrapped(meaning or "", option, indent=_MEANING))
    else:
        print(option.rstrip())
        if meaning:
            print(wrapped(meaning, " " * 6))


_LABELS = re.compile(r" \((?:paper )?(?:section|appendix|eqs?\.)[^)]*\)")  # of the paper's LaTeX


def _about(described: Any) -> str:
    """The first line of the docstring of an experiment or a component; None is no component."""
    text = "Leaves the component out." if described is None else described.__doc__ or ""  # none under -OO
    return _LABELS.sub("", text.strip().partition("\n")[0])
