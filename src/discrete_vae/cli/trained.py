"""A trained run on the command line, the examples that it is used on, and the files of results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from discrete_vae.cli.options import (
    Outcome,
    accept_changed_config_option,
    choose_device,
    completion,
    data_dir_option,
    device_option,
    note,
    option,
    seed,
    together,
    whole_number,
    wrapped,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import pretrained_names, shipped_folder
from discrete_vae.system import computing_on, user_path

if TYPE_CHECKING:
    import numpy as np
    import torch
    from matplotlib.figure import Figure

    from discrete_vae.data.rows import Rows
    from discrete_vae.data.schema import TableSchema
    from discrete_vae.data.splits import DataSplits
    from discrete_vae.data.tables import TextFormat
    from discrete_vae.runs.load import LoadedRun
    from discrete_vae.runs.results import OutputFile, ResultFile, ResultStore
    from discrete_vae.runs.run_directory import RunDirectory

_Result = TypeVar("_Result")

# Options that name a trained run.


EXPLAINED = "RUN is the folder of a run, which dvae train prints; or use --pretrained NAME."


def _checkpoint(name: str, word: str) -> int | Literal["best", "last"]:
    if word == "best" or word == "last":  # noqa: PLR1714, RUF100 (a set would hide the type)
        return word
    if not re.fullmatch(r"[0-9]{1,18}", word):
        raise InvalidInputError(name, "must be best, last or a step", repr(word)[:80], "Use best.")
    return int(word)


RUN_OPTIONS = together(
    option(
        "--pretrained NAME", "a model that comes with the library, instead of RUN", names=pretrained_names
    ),
    option(
        "--checkpoint best|last|STEP",
        "the checkpoint to use; default: best, by the validation bound",
        _checkpoint,
        default="best",
    ),
    option("--seed S", "seed of the random numbers; default: 0 (evaluate: evaluation.seed of the run)", seed),
    device_option,
    accept_changed_config_option,
)


@dataclass(eq=False)
class TrainedRun:
    """The run that the command line names."""

    directory: RunDirectory
    device: torch.device
    checkpoint: int | Literal["best", "last"]
    accept_changed_config: bool
    given_seed: int | None
    pretrained: str | None  # a model that comes with the library, into whose folder nothing may be written
    row_options: dict[str, Any] = field(default_factory=dict)  # of `takes_rows`, by keywords of `rows_of_run`
    out: str | None = None  # the file of --out, for verbs of `takes_rows`
    picture: str | None = None  # that of --picture, for these
    _is_device_said: bool = False

    @property
    def seed(self) -> int:
        """The seed of the noise."""
        return self.given_seed or 0

    @property
    def title(self) -> str:
        """The run and its checkpoint, for the first line that a verb prints."""
        return f"{self.pretrained or self.directory.path}, checkpoint of step {self.loaded.step}"

    @property
    def sources(self) -> list[Path]:
        """The files that the run rests on, which no result may replace: its record, and the user's file of data."""
        from discrete_vae.config import FileDataConfig

        data, run = self.directory.read_experiment().data, self.directory
        of_user = [data.path] if isinstance(data, FileDataConfig) else []
        record = [run.config_path, run.environment_path, run.metrics_path, run.best_path]
        return [*record, run.refit_path, run.release_path, *of_user]

    @cached_property
    def loaded(self) -> LoadedRun:
        """The model of the checkpoint, with its chains."""
        from discrete_vae.runs.load import load_run

        changed = self.accept_changed_config
        return load_run(self.directory, self.checkpoint, device=self.device, accept_changed_config=changed)

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) of the picture of an example; None for a row of a table."""
        from discrete_vae.data.splits import picture_shape

        return picture_shape(self.loaded.model.event_shape)

    @property
    def schema(self) -> TableSchema | None:
        """How columns of a table became numbers; None for a model of values as they stand in a file."""
        from discrete_vae.config import TableLikelihoodConfig
        from discrete_vae.data.schema import TableSchema

        likelihood = self.loaded.config.model.likelihood
        return TableSchema.of(likelihood.columns) if isinstance(likelihood, TableLikelihoodConfig) else None

    def condition(self, word: str | None) -> torch.Tensor | None:
        """c of p(x | c), (1, column), from "energy=0.5,batch=A"; None where nothing is conditioned on.

        Columns that it does not name are missing.
        """
        from discrete_vae.data.schema import TableSchema, check_kinds, read_pairs
        from discrete_vae.data.tables import TextFormat

        columns = self.loaded.config.model.condition
        if not columns:
            if word is not None:
                rule, repair = "needs a model with a condition", "Train one with --data.condition NAME."
                raise InvalidInputError("--condition", rule, repr(word)[:80], repair)
            return None
        given = read_pairs("--condition", word or "")
        check_kinds(given, [column.name for column in columns], argument="--condition")
        cells: dict[str, list[Any]] = {column.name: [None] for column in columns}
        for name, cell in given.items():
            numbers = (form.number(cell) for form in (self.text_format, TextFormat()))
            cells[name] = [next((number for number in numbers if number is not None), cell)]
        return TableSchema.of(columns).encode(cells)

    @property
    def text_format(self) -> TextFormat:
        """How tables of the run are written."""
        from discrete_vae.config import FileDataConfig
        from discrete_vae.data.files import TableReading

        data = self.loaded.config.data
        return TableReading.of(data).form if isinstance(data, FileDataConfig) else TableReading().form

    @property
    def alphabet(self) -> str | None:
        """The letters of a run's sequences, or their name; None for a run of other examples."""
        return getattr(self.loaded.config.data, "alphabet", None)

    @property
    def sequence_endings(self) -> tuple[str, ...]:
        """Endings of files for examples that are sequences; none for a run of others."""
        from discrete_vae.data.files import FASTA

        return FASTA if self.alphabet is not None else ()

    def write_sequences(self, output: OutputFile, codes: np.ndarray, names: Iterable[object]) -> None:
        """Write examples that are sequences in FASTA, and say where they are."""
        from discrete_vae.data.sequences import to_fasta

        assert self.alphabet is not None
        say_written(output.write_bytes(to_fasta(codes, self.alphabet, names).encode()))

    @property
    def is_first_process(self) -> bool:
        """False in those processes of torchrun that print and write nothing."""
        from discrete_vae.distributed import rank

        return rank() == 0

    def dataset(self, data_dir: Path | None) -> DataSplits:
        """The run's own data; warns if they are not those that it was trained on."""
        from discrete_vae.data.splits import load_run_data

        return load_run_data(self.directory, self.loaded.config, data_dir)

    def rows(self, **more: Any) -> Rows:
        """Read the examples; for other keywords see `discrete_vae.inference.rows.rows_of_run`."""
        from discrete_vae.inference.rows import rows_of_run

        return rows_of_run(self.directory, self.loaded, **self.row_options | more)

    def headline(self, rows: Rows) -> str:
        """The run, its checkpoint and the examples, for the first line that a verb prints."""
        lines = [self.title, wrapped(f"{rows.name.rstrip(',')}: {len(rows)} examples")]
        if rows.binarized:
            said = "Values between 0 and 1 are read as probabilities: bits were drawn with them, once."
            lines.append(wrapped(said))
        return "\n".join(lines)

    def compute(self, function: Callable[..., _Result], rows: Rows, what: str, **settings: Any) -> _Result:
        """Apply a function of `discrete_vae.inference` to examples, with a bar; `x` takes the place of their values."""
        x = settings.pop("x", rows.x)
        if rows.condition is not None:
            settings["condition"] = rows.condition
        with self.progress(len(rows), what) as report:
            return function(self.loaded.model, x, numbers=rows.index, report=report, **settings)

    @contextmanager
    def progress(self, total: int, what: str) -> Iterator[Callable[..., None]]:
        """A bar on a terminal, elsewhere a line that says how long it takes; of the first process of torchrun alone.

        It is a function of the number of examples done, and a few words to stand beside it. Its first call says where
        it computes: by then all that is wrong has been found.
        """
        from discrete_vae.runs.progress import TrainingProgress

        if not self.is_first_process:
            yield lambda done, status=None: None
            return
        with TrainingProgress(0, total, what=what, transient=True) as shown:

            def report(done: int, status: str | None = None) -> None:
                self.say_device()
                shown.advance(done, status)

            yield report

    def say_device(self) -> None:
        """Say once on standard error where the first process computes."""
        if not self._is_device_said and self.is_first_process:
            note(computing_on(self.device))
        self._is_device_said = True

    # Where results go, checked before the work that they take.

    def place(self, path: Path) -> Path:
        """The place of a result for which the user names none: in the run's folder, or NAME-FILE here.

        A link of that name is removed: what it leads to is not the run's.
        """
        if self.pretrained is not None:
            return Path(f"{self.pretrained}-{path.name}")
        if path.is_symlink():
            path.unlink()
        return path

    def figure_path(self, name: str) -> Path:
        """The place of a picture for which the user names none."""
        return self.place(self.directory.figures_path / name)

    def results(
        self, out: str | None, kept: Callable[[RunDirectory], ResultStore]
    ) -> ResultStore | ResultFile:
        """The file that the user names, else the results that the run keeps; checked before the work."""
        from discrete_vae.distributed import compute_on_rank_zero  # here, since it imports torch
        from discrete_vae.runs.results import ResultFile

        if out is not None:
            return compute_on_rank_zero(lambda: ResultFile(out, endings=(".json",), others=self.sources))
        if self.pretrained is not None:
            rule, repair = "must be given with --pretrained", f"Add --out {self.pretrained}.json."
            raise InvalidInputError("--out", rule, "nothing", repair)
        store = kept(self.directory)
        compute_on_rank_zero(store.check)
        return store

    def keep(self, results: ResultStore | ResultFile, fields: dict[str, Any]) -> dict[str, Any]:
        """Add a result, with what is to be known of the run, and print where it is; returns all of it."""
        change = self.loaded.changed_config
        kept = self.loaded.named | fields | ({} if change is None else {"changed_config": asdict(change)})
        paths = results.add(kept)
        for path in paths:
            say_written(path)
        most_complete = getattr(results, "most_complete_path", None)
        if most_complete is not None and most_complete not in paths:
            print(f"{most_complete} keeps a more complete one")
        return kept

    def output(
        self,
        out: str | None,
        others: Mapping[str, str | None] | None = None,
        *,
        argument: str = "--out",
        endings: Sequence[str] | None = None,
    ) -> OutputFile | None:
        """A file for arrays or tables, which replaces none of the `others` by option; None where none is named."""
        from discrete_vae.distributed import compute_on_rank_zero
        from discrete_vae.runs.results import ENDINGS, OutputFile

        if out is None:
            return None
        named = {"--data": self.row_options.get("data"), **(others or {})}
        paths = self.sources + [user_path(name, word) for name, word in named.items() if word is not None]
        allowed = endings or ENDINGS
        return compute_on_rank_zero(lambda: OutputFile(out, argument=argument, endings=allowed, others=paths))

    def outputs(
        self, others: Mapping[str, str | None] | None = None, *, more: Sequence[str] = ()
    ) -> tuple[OutputFile | None, Path | None]:
        """The files of --out and --picture; see `output`. --out may have other endings, too, such as `ANNOTATED`."""
        from discrete_vae.runs.results import ENDINGS

        output = self.output(self.out, others, endings=(*ENDINGS, *more))
        if output is not None and output.ending == ANNOTATED:
            data, choice = self.row_options["data"], self.row_options["num_examples"]
            if data is None or Path(data).suffix.lower() != ANNOTATED or choice is not None:
                rule = f"needs --data of a {ANNOTATED} file, all of whose rows are taken, to write a {ANNOTATED} file"
                received = repr(data) if choice is None else f"--num-examples {choice}"
                raise InvalidInputError("--out", rule, received, "Write a .npz file.")
        return output, self.picture_path()

    def picture_path(self) -> Path | None:
        """The file of --picture, which can be written; None for none."""
        from discrete_vae.distributed import compute_on_rank_zero
        from discrete_vae.figures.style import picture_file

        place = self.picture
        if place is None:
            return None
        return compute_on_rank_zero(lambda: picture_file(place, argument="--picture").path)

    def save_picture(self, figure: Figure, path: Path, what: str = "Picture:") -> None:
        """Write a picture and say where it is."""
        from discrete_vae.figures.style import save_figure

        print(f"{what} {save_figure(figure, path, note=self.loaded.note)}")


def takes_run(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Give a verb the options of a trained run, as its first argument `run`."""

    @wraps(function)
    def call(run: str | None, **given: Any) -> Outcome:
        names = ("pretrained", "checkpoint", "seed", "device", "accept_changed_config")
        return function(trained_run(run, **{name: given.pop(name) for name in names}), **given)

    return click.argument("run", required=False, shell_complete=completion("DIR"))(RUN_OPTIONS(call))


def trained_run(
    word: str | None, pretrained: str | None, device: str, seed: int | None, **given: Any
) -> TrainedRun:
    """The run that a word names, or the model that comes with the library, with what `RUN_OPTIONS` say of it."""
    if word is None and pretrained is None:
        see = f"See {click.get_current_context().command_path} --help."
        raise InvalidInputError("RUN", "must be given", "nothing", see)
    if word is not None and pretrained is not None:
        received, repair = f"it beside {word!r}"[:80], "Leave one of them out."
        raise InvalidInputError("--pretrained", "must stand in place of RUN", received, repair)
    where = choose_device(device)
    place = str(word) if pretrained is None else shipped_folder(pretrained, argument="--pretrained")
    return TrainedRun(open_run(place), where, given_seed=seed, pretrained=pretrained, **given)


def open_run(place: str | Path) -> RunDirectory:
    """Open the folder of a run; for a word that is none, say which run or trained model may have been meant."""
    from discrete_vae.runs.run_directory import RunDirectory  # here, since it imports torch

    word = str(place)
    if user_path("run_dir", word).exists():
        return RunDirectory.open(word)
    folder = Path(word).parent if Path(word).parent != Path() else Path("runs")
    runs = sorted(path.parent.name for path in folder.glob("*/config.json")) if folder.is_dir() else []
    name = Path(word).name
    found = [run for run in runs if run.startswith(name)] or get_close_matches(name, runs, n=3)
    meant = [str(folder / run) for run in found[:3]]
    if not meant and word in pretrained_names():
        meant = [f"--pretrained {word}"]
    repair = "Check the path; dvae train prints it in its last line."
    repair = f"Did you mean {' or '.join(meant)}?" if meant else repair
    raise InvalidInputError("run_dir", "must be an existing folder", word, repair)


# Options that name examples, and the files that become of them.


ANNOTATED = ".h5ad"
"""The ending of files that codes and scores can be added to."""

_ROW_OPTIONS = together(
    option(
        "--data FILE",
        "a file of examples, in any format that training reads; default: a part of the run's data",
    ),
    option(
        "--part train|valid|test",
        "which part of the run's data or of a .npz file; default: test (generate: train)",
    ),
    option("--label-column NAME", "the column of labels; default: the run's, if the file has it"),
    option("--num-examples N", "a fixed random choice of N examples; default: all", whole_number()),
    data_dir_option,
)


def takes_rows(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Give a verb a trained run, with the options of examples and its --out and --picture, as its argument `run`."""

    @wraps(function)
    def call(run: TrainedRun, **given: Any) -> Outcome:
        named = ("data", "part", "label_column", "num_examples", "data_dir")
        run.row_options = {name: given.pop(name) for name in named}
        run.out, run.picture = given.pop("out"), given.pop("picture", None)
        return function(run, **given)

    return takes_run(_ROW_OPTIONS(call))


def feature_columns(
    x: np.ndarray, names: Sequence[str] | None, schema: TableSchema | None = None
) -> dict[str, np.ndarray]:
    """The values of examples, (row, *event), as columns with the features' names, which --data reads again.

    With a schema they have the words of the table that the model was trained on.
    """
    if schema is not None:
        return schema.decode(x)
    return dict(zip(names, x.reshape(len(x), -1).T, strict=True)) if names else numbered("x", x, first=0)


def beside_features(
    columns: Mapping[str, np.ndarray], features: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Columns and those of features; a name that a feature has, too, gets an underscore behind it."""
    found = {}
    for name, column in columns.items():
        while name in features:
            name += "_"
        found[name] = column
    return found | dict(features)


def numbered(name: str, array: np.ndarray, *, first: int = 1) -> dict[str, np.ndarray]:
    """Columns NAME_1, NAME_2, ... of an array, (row, ...)."""
    columns = array.reshape(len(array), -1).T
    return {f"{name}_{number}": column for number, column in enumerate(columns, start=first)}


def write_rows(
    run: TrainedRun,
    output: OutputFile | None,
    rows: Rows,
    arrays: Mapping[str, np.ndarray],
    array: np.ndarray | None = None,
    columns: Mapping[str, np.ndarray] | None = None,
    *,
    in_words: bool = False,
    of_rows: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a result with a row per example, under its number and label, and say where it is.

    A .npz file holds the arrays, a .npy file the array, else all columns side by side, and a table the columns, else
    the array's values under the names of the features; in the words of their table, if they are values of these. A
    .h5ad file is that of --data with the arrays `of_rows` in obsm, else with the columns in obs.
    """
    if output is None:
        return
    if output.ending == ANNOTATED:
        from discrete_vae.data.formats import with_annotations

        # a slash, as in the class NK/T, would make a group of HDF5
        named = {f"dvae_{name.replace('/', '|')}": column for name, column in (columns or {}).items()}
        obs = {} if of_rows else named
        content = with_annotations(user_path("--data", run.row_options["data"]), obsm=of_rows, obs=obs)
        say_written(output.write_bytes(content))
        return
    if output.ending in run.sequence_endings:
        assert array is not None
        run.write_sequences(output, array, rows.index)
        return
    which = {"index": rows.index}
    if rows.labels is not None and rows.labels.ndim == 1:
        which["label"] = rows.labels
    if columns is not None:
        columns = which | dict(columns)
    elif array is not None:
        columns = feature_columns(array, rows.columns, rows.schema if in_words else None)
    written = run.text_format.of_output if in_words else {}
    say_written(output.write(which | dict(arrays), array=array, columns=columns, **written))


def say_written(path: Path) -> None:
    """Say where a result is."""
    print(f"Written to {path}")
