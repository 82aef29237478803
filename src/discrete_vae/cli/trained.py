"""A trained run on the command line, the examples that it is used on, and the files of results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from discrete_vae.cli.options import (
    accept_changed_config_option,
    choose_device,
    data_dir_option,
    device_option,
    one_of,
    option,
    say_device,
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
    from matplotlib.figure import Figure

    from discrete_vae.data.rows import Rows
    from discrete_vae.data.splits import DataSplits
    from discrete_vae.load import LoadedRun
    from discrete_vae.runs.output import OutputFile
    from discrete_vae.runs.results import ResultFile, ResultStore
    from discrete_vae.runs.run_directory import RunDirectory

_Result = TypeVar("_Result")

# Options that name a trained run.


EXPLAINED = "RUN is the folder of a run, as dvae train names it; --pretrained NAME takes its place."


def _checkpoint(name: str, word: str) -> int | Literal["best", "last"]:
    """Read a checkpoint's name: best, last or a step."""
    if word == "best" or word == "last":  # noqa: PLR1714, RUF100 (a set would hide the type)
        return word
    if not re.fullmatch(r"[0-9]{1,18}", word):
        raise InvalidInputError(name, "must be best, last or a step", repr(word)[:80], "Use best.")
    return int(word)


RUN_OPTIONS = together(
    option("--pretrained NAME", "a model that comes with the library, in place of RUN; dvae list names them"),
    option(
        "--checkpoint best|last|STEP",
        "which checkpoint; default: best, by the validation bound",
        _checkpoint,
        default="best",
    ),
    option("--seed S", "seed of the noise; default: 0", seed),
    device_option,
    accept_changed_config_option,
)


@dataclass(eq=False)
class TrainedRun:
    """The run that the command line names.

    Attributes:
        directory: Its folder.
        checkpoint: A step, "best" or "last".
        device: Where to compute.
        accept_changed_config: Whether a config.json that has changed since training is a warning, not an error.
        pretrained: Its name, if it is a model that comes with the library, into whose folder nothing may be written.
        given_seed: The seed, if one was given.
        row_options: Values of the options of `takes_rows`, by the keywords of `rows_of_run`.
    """

    directory: RunDirectory
    checkpoint: int | Literal["best", "last"]
    device: torch.device
    accept_changed_config: bool
    pretrained: str | None = None
    given_seed: int | None = None
    row_options: dict[str, Any] = field(default_factory=dict)
    _is_device_said: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """Its name in what is printed."""
        return self.pretrained or str(self.directory.path)

    @property
    def seed(self) -> int:
        """The seed of the noise."""
        return self.given_seed or 0

    @property
    def words(self) -> str:
        """The words that name it on the command line."""
        return str(self.directory.path) if self.pretrained is None else f"--pretrained {self.pretrained}"

    @property
    def title(self) -> str:
        """The run and its checkpoint, for the first line that a verb prints."""
        return f"{self.name}, checkpoint of step {self.loaded.step}"

    @property
    def sources(self) -> list[Path]:
        """The files that the run rests on, which no result may replace: its record, and the user's file of data."""
        from discrete_vae.config import FileDataConfig

        data, run = self.directory.read_experiment().data, self.directory
        record = [run.config_path, run.environment_path, run.metrics_path, run.best_path]
        record += [run.refit_path, run.release_path]
        return [*record, data.path] if isinstance(data, FileDataConfig) else record

    @cached_property
    def loaded(self) -> LoadedRun:
        """The model of the checkpoint, with its chains."""
        from discrete_vae.load import load_run

        changed = self.accept_changed_config
        return load_run(self.directory, self.checkpoint, device=self.device, accept_changed_config=changed)

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) of the picture of an example; None for a row of a table."""
        from discrete_vae.data.splits import picture_shape

        return picture_shape(self.loaded.model.event_shape)

    @property
    def is_first_process(self) -> bool:
        """False in those processes of torchrun that print and write nothing."""
        from discrete_vae.distributed import rank

        return rank() == 0

    def dataset(self, data_dir: str | None) -> DataSplits:
        """The run's own data; warns if they are not those that it was trained on."""
        from discrete_vae.config import instantiate
        from discrete_vae.training.run import warn_of_other_data

        dataset = instantiate(self.loaded.config.data, data_dir=data_dir)
        warn_of_other_data(self.directory, dataset)
        return dataset

    def rows(self, **more: Any) -> Rows:
        """Read the examples; for other keywords see `discrete_vae.inference.rows.rows_of_run`."""
        from discrete_vae.inference.rows import rows_of_run

        return rows_of_run(self.directory, self.loaded, **self.row_options | more)

    def headline(self, rows: Rows) -> str:
        """The run, its checkpoint and the examples, for the first line that a verb prints."""
        what = f"{self.title}; {rows.name.rstrip(',')}: {len(rows)} examples"
        if rows.binarized:
            what += "\nValues between 0 and 1 are read as probabilities: bits were drawn with them, once."
        return what

    def compute(self, function: Callable[..., _Result], rows: Rows, what: str, **settings: Any) -> _Result:
        """Apply a function of `discrete_vae.inference` to examples, with a bar; `x` takes the place of their values.

        Args:
            function: Takes the model, x, the numbers of the examples, what reports progress, and the settings.
            rows: The examples.
            what: What is done with them, for the bar.
            settings: Further keywords.
        """
        x = settings.pop("x", rows.x)
        with self.progress(len(rows), what) as report:
            return function(self.loaded.model, x, numbers=rows.index, report=report, **settings)

    @contextmanager
    def progress(self, total: int, what: str) -> Iterator[Callable[..., None]]:
        """A bar on a terminal, elsewhere a line that says how long it takes; of the first process of torchrun alone.

        Args:
            total: Examples.
            what: What is done with them.

        Yields:
            What is called with the number of examples done, and a few words to stand beside it. The first call says
            where it computes: by then all that is wrong has been found.
        """
        from discrete_vae.training.logging import TrainingProgress

        if not self.is_first_process:
            yield lambda done, status=None: None
            return
        with TrainingProgress(0, total, what=what, unit="examples", transient=True) as shown:

            def report(done: int, status: str | None = None) -> None:
                self.say_device()
                shown.advance(done, status)

            yield report

    def say_device(self) -> None:
        """Say once where it computes."""
        if not self._is_device_said:
            say_device(self.device)
        self._is_device_said = True

    # Where results go, checked before the work that they take.

    def place(self, path: Path) -> Path:
        """The place of a result for which the user names none.

        Args:
            path: In the folder of a run, where a link of that name is removed: what it leads to is not the run's; that
                of a model that comes with the library goes here, as NAME-FILE.
        """
        if self.pretrained is None and path.is_symlink():
            path.unlink()
        return path if self.pretrained is None else Path(f"{self.pretrained}-{path.name}")

    def figure_path(self, name: str) -> Path:
        """The place of a picture for which the user names none."""
        return self.place(self.directory.figures_path / name)

    def results(
        self, out: str | None, kept: Callable[[RunDirectory], ResultStore]
    ) -> ResultStore | ResultFile:
        """The file that the user names, else the results that the run keeps.

        Args:
            out: The file.
            kept: Gives those of a run.
        """
        from discrete_vae.runs.results import ResultFile  # here, since it imports torch

        if out is not None:
            check_replaces_none(user_path("--out", out), self.sources, argument="--out")
            return ResultFile(out, argument="--out")
        if self.pretrained is not None:
            rule, repair = "must be given with --pretrained", f"Add --out {self.pretrained}.json."
            raise InvalidInputError("--out", rule, "nothing", repair)
        return kept(self.directory)

    def keep(self, results: ResultStore | ResultFile, fields: dict[str, Any]) -> None:
        """Add a result, with what is to be known of the run, and say where it is."""
        change = self.loaded.changed_config
        about = {} if change is None else {"changed_config": asdict(change)}
        paths = results.add(self.loaded.named | fields | about)
        for path in paths:
            say_written(path)
        most_complete = getattr(results, "most_complete_path", None)
        if most_complete is not None and most_complete not in paths:
            print(f"{most_complete} keeps a more complete one")

    def output(
        self,
        out: str | None,
        others: Mapping[str, str | None] | None = None,
        *,
        argument: str = "--out",
        endings: Sequence[str] | None = None,
    ) -> OutputFile | None:
        """A file for arrays or tables; None where none is named.

        Args:
            out: The file.
            others: Files that the verb reads or writes besides --data, by option; none of them may be replaced.
            argument: What messages call it.
            endings: Those that it may have; None takes all of `OutputFile`.
        """
        from discrete_vae.distributed import compute_on_rank_zero
        from discrete_vae.runs.output import ENDINGS, OutputFile

        if out is None:
            return None
        named = {"--data": self.row_options.get("data"), **(others or {})}
        paths = self.sources + [user_path(name, word) for name, word in named.items() if word is not None]
        rules: dict[str, Any] = {"argument": argument, "endings": endings or ENDINGS, "others": paths}
        return compute_on_rank_zero(lambda: OutputFile(out, **rules))

    def save_picture(self, figure: Figure, path: Path, what: str = "Picture:") -> None:
        """Write a picture and say where it is."""
        from discrete_vae.figures.style import save_figure

        print(f"{what} {save_figure(figure, path, note=self.loaded.note)}")


def takes_run(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb the options of a trained run, as its first argument `run`."""

    @wraps(function)
    def call(run: str | None, **given: Any) -> int | None:
        if run is None and given["pretrained"] is None:
            see = f"See {click.get_current_context().command_path} --help."
            raise InvalidInputError("RUN", "must be given", "nothing", see)
        named = ("pretrained", "checkpoint", "device", "accept_changed_config", "seed")
        words = [] if run is None else [run]
        (trained,) = trained_runs(words, **{name: given.pop(name) for name in named})
        return function(trained, **given)

    return click.argument("run", required=False)(RUN_OPTIONS(call))


def trained_runs(
    words: Sequence[str],
    pretrained: str | None,
    checkpoint: Any,
    device: str,
    accept_changed_config: bool,
    seed: int | None,
) -> list[TrainedRun]:
    """The runs that words name, or the model that comes with the library, with what `RUN_OPTIONS` say of them."""
    if pretrained is not None and words:
        received, repair = f"it beside {words[0]!r}"[:80], "Leave one of them out."
        raise InvalidInputError("--pretrained", "must stand in place of RUN", received, repair)
    where = choose_device(device)
    from discrete_vae.runs.hub import pretrained_names, shipped_folder  # here, since it imports torch
    from discrete_vae.runs.run_directory import RunDirectory

    if pretrained is not None:
        folders = [RunDirectory.open(shipped_folder(pretrained, argument="--pretrained"))]
    else:
        shipped = pretrained_names()
        folders = [open_run(word, [f"--pretrained {word}"] if word in shipped else []) for word in words]
    return [
        TrainedRun(folder, checkpoint, where, accept_changed_config, pretrained, seed) for folder in folders
    ]


def open_run(word: str, others: Sequence[str] = ()) -> RunDirectory:
    """Open the folder of a run; for a word that is none, say which run may have been meant.

    Args:
        word: The folder.
        others: What else may have been meant, if no run was.
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


# Options that name examples, and the files that become of them.


_ROW_OPTIONS = together(
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


def takes_rows(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb a trained run with the options of examples for it, as its first argument `run`."""

    @wraps(function)
    def call(run: TrainedRun, **given: Any) -> int | None:
        named = ("data", "part", "label_column", "num_examples", "data_dir")
        run.row_options = {name: given.pop(name) for name in named}
        return function(run, **given)

    return takes_run(_ROW_OPTIONS(call))


def picture_path(word: str | None) -> Path | None:
    """The file that --picture names, which can be written; None for none."""
    from discrete_vae.figures.style import picture_file

    return None if word is None else picture_file(word, argument="--picture").path


def numbers_and_labels(rows: Rows) -> dict[str, np.ndarray]:
    """Columns that say which example a row of a result is: its number, and its label if it has one."""
    labels = {} if rows.labels is None or rows.labels.ndim != 1 else {"label": rows.labels}
    return {"index": rows.index} | labels


def feature_columns(x: np.ndarray, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """The values of examples, (row, *event), as columns with the features' names, which --data reads again."""
    return dict(zip(names, x.reshape(len(x), -1).T, strict=True)) if names else numbered("x", x, first=0)


def numbered(name: str, array: np.ndarray, *, first: int = 1) -> dict[str, np.ndarray]:
    """Columns NAME_1, NAME_2, ... of an array, (row, ...)."""
    columns = array.reshape(len(array), -1).T
    return {f"{name}_{number}": column for number, column in enumerate(columns, start=first)}


def write_rows(
    output: OutputFile | None,
    rows: Rows,
    arrays: Mapping[str, np.ndarray],
    array: np.ndarray | None = None,
    columns: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a result with a row per example, and say where it is.

    Args:
        output: The file; None is nowhere.
        rows: The examples, whose numbers and labels come first.
        arrays: What a .npz file holds.
        array: What a .npy file holds; None is all columns side by side.
        columns: What a table holds; None is the array's values alone, under the names of the features.
    """
    if output is None:
        return
    which = numbers_and_labels(rows)
    if columns is not None:
        table = which | dict(columns)
    else:
        assert array is not None
        table = feature_columns(array, rows.columns)
    say_written(output.write(which | dict(arrays), array=array, columns=table))


def say_written(path: Path) -> None:
    """Say where a result is."""
    print(f"Written to {path}")
