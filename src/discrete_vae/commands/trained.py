"""What the verbs for a trained run share: how it is named and loaded, and what is said of its config."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from discrete_vae.commands.options import accept_changed_config_option, device_option, option, seed, together
from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path
from discrete_vae.runs.writable import check_replaces_none

if TYPE_CHECKING:
    import torch

    from discrete_vae.runs.kept_results import KeptResults
    from discrete_vae.runs.results import ResultFile
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.load import LoadedRun


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
        self, out: str | None, kept: Callable[[RunDirectory], KeptResults]
    ) -> KeptResults | ResultFile:
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
        from discrete_vae.training.load import load_run

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
    from discrete_vae.commands.device import choose_device

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
    from discrete_vae.runs.shipped import pretrained_names  # here, as the rest of runs

    return [f"--pretrained {word}"] if word in pretrained_names() else []


def _shipped(name: str) -> RunDirectory:
    from discrete_vae.runs.run_directory import RunDirectory  # here, since it imports torch
    from discrete_vae.runs.shipped import shipped_folder

    return RunDirectory.open(shipped_folder(name, argument="--pretrained"))


def keep(results: KeptResults | ResultFile, loaded: LoadedRun, fields: dict[str, Any]) -> None:
    """Add a result of a loaded run, with what is to be known of the run, and say where it is.

    Raises:
        InvalidInputError: If it cannot be written.
    """
    change = loaded.changed_config
    about = {} if change is None else {"changed_config": asdict(change)}
    paths = results.add(loaded.named | fields | about)
    for path in paths:
        print(f"Written to {path}")
    fullest = getattr(results, "fullest_path", None)
    if fullest is not None and fullest not in paths:
        print(f"{fullest} keeps a fuller one")
