"""What the verbs for a trained run share: how it is named and loaded, and where rows come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from discrete_vae.cli.options import (
    accept_changed_config_option,
    data_dir_option,
    device_option,
    one_of,
    option,
    seed,
    together,
    whole_number,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import check_replaces_none
from discrete_vae.system import user_path

if TYPE_CHECKING:
    import numpy as np
    import torch

    from discrete_vae.data.rows import Rows
    from discrete_vae.load import LoadedRun
    from discrete_vae.runs.output import OutputFile
    from discrete_vae.runs.results import ResultFile, ResultStore
    from discrete_vae.runs.run_directory import RunDirectory


# What the verbs for a trained run share: how it is named and loaded, and what is said of its config.


def checkpoint(name: str, word: str) -> int | Literal["best", "last"]:
    """Read a checkpoint's name: best, last or a step.

    Raises:
        InvalidInputError: If it is none of them.
    """
    if word == "best" or word == "last":  # noqa: PLR1714, RUF100 (a set would hide the type)
        return word
    if not re.fullmatch(r"[0-9]{1,18}", word):
        raise InvalidInputError(name, "must be best, last or a step", repr(word)[:80], "Use best.")
    return int(word)


EXPLAINED = "RUN is the folder of a run, as dvae train names it; --pretrained NAME takes its place."
OPTIONS = together(
    option("--pretrained NAME", "a model that comes with the library, in place of RUN; dvae list names them"),
    option(
        "--checkpoint best|last|STEP",
        "which checkpoint; default: best, by the validation bound",
        checkpoint,
        default="best",
    ),
    option("--seed S", "seed of the noise; default: 0", seed),
    device_option,
    accept_changed_config_option,
)


def open_run(word: str, others: Sequence[str] = ()) -> RunDirectory:
    """Open the folder of a run; for a word that is none, say which run may have been meant.

    Args:
        word: The folder.
        others: What else may have been meant, if no run was.

    Raises:
        InvalidInputError: If there is no such folder, or it holds no run.
    """
    from discrete_vae.runs.run_directory import RunDirectory  # here, since it imports torch

    if Path(word).expanduser().exists():
        return RunDirectory.open(word)
    folder = Path(word).parent if Path(word).parent != Path() else Path("runs")
    runs = sorted(path.parent.name for path in folder.glob("*/config.json")) if folder.is_dir() else []
    name = Path(word).name
    found = [run for run in runs if run.startswith(name)] or get_close_matches(name, runs, n=3)
    meant = [str(folder / run) for run in found[:3]] or list(others)
    if meant:
        repair = f"Did you mean {' or '.join(meant)}?"
    else:
        repair = "Check the path; dvae train prints it in its last line."
    raise InvalidInputError("run_dir", "must be an existing folder", word, repair)


@dataclass(frozen=True)
class AskedRun:
    """The run that the command line names.

    Attributes:
        directory: Its folder.
        checkpoint: A step, "best" or "last".
        device: Where to compute.
        accept_changed_config: Whether a config.json that has changed since training is a warning, not an error.
        pretrained: Its name, if it is a model that comes with the library, into whose folder nothing may be written.
    """

    directory: RunDirectory
    checkpoint: int | Literal["best", "last"]
    device: torch.device
    accept_changed_config: bool
    pretrained: str | None = None

    @property
    def name(self) -> str:
        """What output calls it."""
        return self.pretrained or str(self.directory.path)

    @property
    def words(self) -> str:
        """What names it on the command line."""
        return str(self.directory.path) if self.pretrained is None else f"--pretrained {self.pretrained}"

    @property
    def sources(self) -> list[Path]:
        """The files that the run rests on, which no result may replace: its record, and the user's file of data.

        Raises:
            InvalidInputError: If the run's config cannot be read.
        """
        from discrete_vae.config import FileDataConfig

        data, run = self.directory.read_experiment().data, self.directory
        record = [run.config_path, run.environment_path, run.metrics_path, run.best_path]
        record += [run.refit_path, run.release_path]
        return [*record, data.path] if isinstance(data, FileDataConfig) else record

    def place(self, path: Path) -> Path:
        """Where a result goes if the user names no place.

        Args:
            path: In the folder of a run, where a link of that name is removed: what it leads to is not the run's; that
                of a model that comes with the library goes here, as NAME-FILE.
        """
        if self.pretrained is None and path.is_symlink():
            path.unlink()
        return path if self.pretrained is None else Path(f"{self.pretrained}-{path.name}")

    def results(
        self, out: str | None, kept: Callable[[RunDirectory], ResultStore]
    ) -> ResultStore | ResultFile:
        """Where results go: to the file that the user names, else to the others that the run keeps.

        Args:
            out: The file.
            kept: Gives those of a run.

        Raises:
            InvalidInputError: If no file is named for a model that comes with the library, or it is no place for one.
        """
        from discrete_vae.runs.results import ResultFile  # here, since it imports torch

        if out is not None:
            check_replaces_none(user_path("--out", out), self.sources, argument="--out")
            return ResultFile(out, argument="--out")
        if self.pretrained is not None:
            rule, repair = "must be given with --pretrained", f"Add --out {self.pretrained}.json."
            raise InvalidInputError("--out", rule, "nothing", repair)
        return kept(self.directory)

    def load(self) -> LoadedRun:
        """Load the checkpoint.

        Raises:
            InvalidInputError: If it cannot be loaded.
        """
        from discrete_vae.load import load_run

        changed = self.accept_changed_config
        return load_run(self.directory, self.checkpoint, device=self.device, accept_changed_config=changed)


def takes_run(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options that name a trained run, as its first argument `asked`, and --seed."""
    named = ("pretrained", "checkpoint", "device", "accept_changed_config")

    @wraps(function)
    def run(run: str | None, **given: Any) -> int:
        if run is None and given["pretrained"] is None:
            see = f"See {click.get_current_context().command_path} --help."
            raise InvalidInputError("RUN", "must be given", "nothing", see)
        words = [] if run is None else [run]
        (asked,) = ask_runs(words, **{name: given.pop(name) for name in named})
        return function(asked, **given)

    return click.argument("run", required=False)(OPTIONS(run))


def ask_runs(
    words: Sequence[str], pretrained: str | None, checkpoint: Any, device: str, accept_changed_config: bool
) -> tuple[AskedRun, ...]:
    """The runs that words name, or the model that comes with the library, with what `OPTIONS` say of them.

    Raises:
        InvalidInputError: If the device is not there, a word names no run, or both are given.
    """
    from discrete_vae.cli.options import choose_device

    if pretrained is not None and words:
        received, repair = f"it beside {words[0]!r}"[:80], "Leave one of them out."
        raise InvalidInputError("--pretrained", "must stand in place of RUN", received, repair)
    where = choose_device(device)
    if pretrained is not None:
        return (AskedRun(_shipped(pretrained), checkpoint, where, accept_changed_config, pretrained),)
    opened = [open_run(word, _meant_shipped(word)) for word in words]
    return tuple(AskedRun(run, checkpoint, where, accept_changed_config) for run in opened)


def _meant_shipped(word: str) -> list[str]:
    """The option that names a model that comes with the library, if the word is its name."""
    from discrete_vae.runs.hub import pretrained_names  # here, as the rest of runs

    return [f"--pretrained {word}"] if word in pretrained_names() else []


def _shipped(name: str) -> RunDirectory:
    from discrete_vae.runs.hub import shipped_folder
    from discrete_vae.runs.run_directory import RunDirectory  # here, since it imports torch

    return RunDirectory.open(shipped_folder(name, argument="--pretrained"))


def keep(results: ResultStore | ResultFile, loaded: LoadedRun, fields: dict[str, Any]) -> None:
    """Add a result of a loaded run, with what is to be known of the run, and say where it is.

    Raises:
        InvalidInputError: If it cannot be written.
    """
    change = loaded.changed_config
    about = {} if change is None else {"changed_config": asdict(change)}
    paths = results.add(loaded.named | fields | about)
    for path in paths:
        print(f"Written to {path}")
    complete = getattr(results, "most_complete_path", None)
    if complete is not None and complete not in paths:
        print(f"{complete} keeps a fuller one")


# What the verbs share that take examples through a trained model: where these come from, and where results
# go.


ROW_OPTIONS = together(
    option(
        "--data FILE",
        "examples to read, a .npy, .npz, .csv or .parquet file as for training; default: the run's own test part",
    ),
    option(
        "--part train|valid|test",
        "which part of the run's own data, or of a .npz file that has parts; default: test",
        one_of("train", "valid", "test"),
    ),
    option(
        "--label-column NAME",
        "column of the file that holds labels and is no feature; default: the run's, if the file has it",
    ),
    option("--num-examples N", "a fixed random choice of N examples; default: all", whole_number()),
    data_dir_option,
)


@dataclass(frozen=True)
class AskedRows:
    """The examples that the command line names.

    Attributes:
        data: A file; None is the run's own data.
        part: Which part of them.
        label_column: The column of labels.
        num_examples: How many; None is all.
        data_dir: The folder of the data sets.
        at_most: Whether fewer than num_examples will do.
        argument: What messages call the file.
    """

    data: str | None
    part: str | None
    label_column: str | None
    num_examples: int | None
    data_dir: str | None
    at_most: bool = False
    argument: str = "--data"

    def output(
        self, asked: AskedRun, out: str | None, *, argument: str = "--out", **besides: str | None
    ) -> OutputFile | None:
        """Where a result goes, checked before the work; None where it goes nowhere.

        Args:
            asked: The run.
            out: The file.
            argument: What messages call it.
            besides: Other files that the verb reads or writes, by option; none of them may be replaced.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        from discrete_vae.distributed import compute_on_rank_zero
        from discrete_vae.runs.output import OutputFile

        if out is None:
            return None
        named = {self.argument: self.data} | {
            f"--{name.replace('_', '-')}": word for name, word in besides.items()
        }
        others = asked.sources + [user_path(name, word) for name, word in named.items() if word is not None]
        return compute_on_rank_zero(lambda: OutputFile(out, argument=argument, others=others))

    def read(
        self, asked: AskedRun, loaded: LoadedRun, *, missing: bool | None = None, labels: str | None = None
    ) -> Rows:
        """Read them.

        Args:
            asked: The run.
            loaded: What was loaded of it.
            missing: Whether values may be missing; None is what the model says.
            labels: A file of their labels, in place of those that they have.

        Raises:
            InvalidInputError: If they cannot be read, or the model cannot read them.
        """
        from discrete_vae.inference.rows import rows_of_run

        return rows_of_run(
            asked.directory,
            loaded,
            self.data,
            part=self.part,
            label_column=self.label_column,
            num_examples=self.num_examples,
            at_most=self.at_most,
            missing=missing,
            data_dir=self.data_dir,
            argument=self.argument,
            labels=labels,
        )


def takes_rows(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb a trained run, as its argument `asked`, and examples for it, as its argument `rows`."""

    @wraps(function)
    def run(asked: AskedRun, **given: Any) -> int:
        named = ("data", "part", "label_column", "num_examples", "data_dir")
        source = AskedRows(**{name: given.pop(name) for name in named})
        return function(asked, source, **given)

    return takes_run(ROW_OPTIONS(run))


def headline(asked: AskedRun, loaded: LoadedRun, rows: Rows) -> str:
    """The run, its checkpoint and the examples, for the first line that a verb prints."""
    what = f"{asked.name}, checkpoint of step {loaded.step}; {rows.name.rstrip(',')}: {len(rows)} examples"
    if rows.binarized:
        what += "\nValues between 0 and 1 are read as probabilities: bits were drawn with them, once."
    return what


def identity(rows: Rows) -> dict[str, np.ndarray]:
    """What says which example a row of a result is: its number, and its label if it has one."""
    labels = {} if rows.labels is None or rows.labels.ndim != 1 else {"label": rows.labels}
    return {"index": rows.index} | labels


def feature_columns(rows: Rows, x: np.ndarray) -> dict[str, np.ndarray]:
    """The values of examples as columns with the features' names, which --data reads again.

    Args:
        rows: The examples that they belong to.
        x: (row, *event).
    """
    flat = x.reshape(len(x), -1)
    names = rows.columns or [f"x_{number}" for number in range(flat.shape[1])]
    return {name: flat[:, number] for number, name in enumerate(names)}


def write_examples(
    output: OutputFile | None, rows: Rows, x: np.ndarray, arrays: dict[str, np.ndarray]
) -> None:
    """Write what became of examples, a table with the features as columns, and say where it is.

    Args:
        output: Where it goes; None is nowhere.
        rows: The examples.
        x: What became of them, (row, *event).
        arrays: What a .npz file holds besides their numbers and labels.
    """
    if output is not None:
        say_written(output.write(identity(rows) | arrays, array=x, columns=feature_columns(rows, x)))


def say_written(path: Path) -> None:
    """Say where a result is."""
    print(f"Written to {path}")
