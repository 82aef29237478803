"""The folder of one run: its files, its lock, its metrics, what it ran on, and runs made of it."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from discrete_vae import __version__
from discrete_vae.config import ExperimentConfig
from discrete_vae.distributed import world_size
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import some
from discrete_vae.runs.checkpoints import CheckpointRecord, CheckpointStore, write_checkpoint
from discrete_vae.runs.io import (
    FOLDERS,
    RESTORE,
    EnvironmentSchema,
    MetricsSchema,
    check_fields,
    check_writable,
    is_temporary,
    naming,
    parse_json,
    publish_directory,
    read_json,
    read_regular,
    remove_temporaries,
    sha256_file,
    to_json,
    unreadable,
    write_bytes,
    write_json,
    write_text,
    writing,
)
from discrete_vae.system import unicode_path, without_links

_FOLDERS = ("checkpoints", "evaluations", "evaluation-parts", "log_partitions", "figures", "tensorboard")


class RunDirectory:
    """The folder of one run, and the paths of what it holds; make one with `create` or `open`.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = RunDirectory.create(Path(folder, "run"))
        ...     run.write_config('{"seed": 0}')
        ...     RunDirectory.open(run.path).read_config()
        '{"seed": 0}'
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # the words of a command line that name it
        self.words = ["--pretrained", path.name] if path.parent in FOLDERS else [str(path)]
        self.quoted = shlex.join(self.words)
        self.config_path = path / "config.json"  # the resolved config; its presence makes the folder a run
        self.environment_path = path / "environment.json"  # versions, commit, seed, device
        self.metrics_path = path / "metrics.jsonl"  # one JSON object per line
        self.checkpoints_path = path / "checkpoints"  # a folder step-N per checkpoint
        self.best_path = path / "best.json"  # the step of the best one and what made it the best
        self.evaluation_path = path / "evaluation.json"  # the most complete of the folder evaluations
        self.evaluation_parts_path = path / "evaluation-parts"  # of evaluations that are not finished
        self.figures_path = path / "figures"
        self.refit_path = path / "refit.json"  # there if dvae refit fitted the posterior anew
        self.release_path = path / "release.json"  # there if dvae release made the run of another
        self.profile_path = path / "profile.json"  # the trace of single steps, by dvae train --profile
        self.tensorboard_path = path / "tensorboard"  # the events of dvae train --logger tensorboard

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """Make the folder of a new run, with its parents; an empty folder is taken, all else is refused."""
        folder = cls.check_new(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            rule, received = "must be a folder that can be made", f"{folder} ({error.strerror})"
            raise InvalidInputError("run_dir", rule, received, "Give another --run-dir.") from None
        return cls(folder)

    @staticmethod
    def check_new(path: str | Path, *, argument: str = "run_dir") -> Path:
        """Return the folder of a new run if it may be made; touches nothing."""
        folder = unicode_path(argument, path)
        repair = f"Give another {'--run-dir' if argument == 'run_dir' else argument}."
        if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112 (False: too long a name)
            raise InvalidInputError(argument, "must be a folder", f"the file {folder}", repair)
        entries = held_names(folder) - {LOCK_NAME}  # which a killed process leaves
        if entries:
            received = f"{folder}, which holds {some(sorted(entries), 3)}"
            if argument == "run_dir" and (folder / "config.json").is_file():
                repair = (
                    f"{repair[:-1]}, or continue: dvae train --resume --run-dir {shlex.quote(str(folder))}."
                )
            raise InvalidInputError(argument, "must be a new or empty folder", received, repair)
        return folder

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the folder of an existing run, ``~`` the home directory; links that lead out of it are refused."""
        folder, repair = unicode_path("run_dir", path), "Give the folder that dvae train wrote."
        if not os.path.isdir(folder):  # noqa: PTH112 (False where a name is too long)
            raise InvalidInputError("run_dir", "must be an existing folder", str(folder), repair)
        run = cls(folder)
        if not run.config_path.exists():
            received = f"{folder}, which holds no {run.config_path.name}"
            raise InvalidInputError("run_dir", "must be the folder of a run", received, repair)
        _check_links(folder)
        return run

    def write_config(self, text: str) -> None:
        """Write the resolved config, as JSON text, atomically; the folder counts as a run from here on."""
        write_text(self.config_path, text)

    def read_config(self) -> str:
        """Read the JSON text of the config."""
        try:
            return read_regular(self.config_path).decode("utf-8")
        except OSError as error:
            raise unreadable(self.config_path, error) from None
        except UnicodeDecodeError as error:
            raise InvalidInputError(str(self.config_path), "must be UTF-8", error, RESTORE) from None

    def config_sha256(self) -> str | None:
        """SHA-256 of ``config.json``; None if there is none."""
        return sha256_file(self.config_path) if self.config_path.exists() else None

    def read_experiment(self) -> ExperimentConfig:
        """Read the config."""
        return ExperimentConfig.from_json(self.read_config(), source=str(self.config_path))

    def read_environment(self) -> dict[str, Any]:
        """Read what the run ran on; empty if there is no such file."""
        if not self.environment_path.exists():
            return {}
        repair = "Restore it from a copy; or move it elsewhere, and data are no more compared with the run's."
        return read_json(self.environment_path, EnvironmentSchema, repair)

    def remove_temporaries(self) -> None:
        """Remove what killed processes left, where no other trains; one that evaluates or draws may still write."""
        remove_temporaries(self.checkpoints_path, of_others=False)
        for folder in (self.path, *self.path.iterdir()):
            if folder == self.path or not folder.is_symlink():  # what a link leads to is not the run's
                remove_temporaries(folder, of_others=True)

    def metrics(self) -> MetricsLog:
        """The log of the run's metrics."""
        return MetricsLog(self.metrics_path)

    def checkpoints(self, *, keep_last: int = 2) -> CheckpointStore:
        """The run's checkpoints; a save leaves the best one and so many of the newest."""
        return CheckpointStore(self.checkpoints_path, self.best_path, keep_last=keep_last)


def held_names(folder: Path) -> set[str]:
    """Names of what a folder holds, if there is one, but for what killed writes left."""
    if not os.path.isdir(folder):  # noqa: PTH112 (False where a name is too long)
        return set()
    return {entry.name for entry in folder.iterdir() if not is_temporary(entry)}


def _check_links(run: Path) -> None:
    """Refuse links through which something would be written outside of a run; linked files are replaced."""
    for path in (path for name in _FOLDERS for path in (run / name, *(run / name).rglob("*"))):
        target = os.path.realpath(path)
        leads_on = path.is_symlink() and (path.is_dir() or not path.exists())
        if leads_on and not Path(target).is_relative_to(os.path.realpath(run)):
            rule, repair = "must not lead out of the run", "Put what it leads to in its place."
            raise InvalidInputError(str(path), rule, f"a link to {target}", repair)


class MetricsLog:
    """A run's metrics as a file of JSON lines that survives a kill at any moment.

    A kill may tear the last line: reading ignores it, the next append removes it. Only `sync` makes the lines
    survive a power cut; call it before a checkpoint is saved.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line: finite numbers, of which ``step`` counts the steps done."""
        check_fields("record", record, MetricsSchema, "Give the step, and finite numbers.")
        line = (to_json("record", record) + "\n").encode()
        self._check_own()
        with naming(self.path), self.path.open("ab+") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a torn line
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)

    def read(self) -> list[dict[str, Any]]:
        """All complete records, in the order of the file; none if there is no file. A damaged line is an error."""
        return [self._parse(line, number) for number, line in enumerate(self._complete_lines(), start=1)]

    def drop_after(self, step: int) -> None:
        """Forget what was logged beyond a step, as a run does that continues from that step's checkpoint.

        A torn or damaged tail, which a power cut can leave, is dropped with it; a damaged line before a line that is
        kept is an error. Nothing is written if there is nothing to drop.
        """
        self._check_own()
        kept, damage = list[bytes](), None
        for number, line in enumerate(self._complete_lines(), start=1):
            try:
                record = self._parse(line, number)
            except InvalidInputError as error:
                damage = damage or error
                continue
            if record["step"] <= step:
                if damage is not None:
                    raise damage
                kept.append(line + b"\n")
        content = b"".join(kept)
        if content != self._content():
            write_bytes(self.path, content)

    def sync(self) -> None:
        """Ask the system to store the lines; does nothing if there is no file."""
        if self.path.exists():
            self._check_own()
            with naming(self.path), self.path.open("ab") as file:
                os.fsync(file.fileno())

    def _check_own(self) -> None:
        """Refuse to write through a link: the line would be in another file."""
        if self.path.is_symlink():
            repair = "Put the file that it leads to in its place."
            raise InvalidInputError(str(self.path), "must be a file of the run", "a link", repair)

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        record: Any = None
        with suppress(ValueError):
            record = parse_json(line)
        record = record if isinstance(record, dict) else {}
        repair = "Remove the line, or restore the file from a copy."
        check_fields(f"{self.path}, line {number}", record, MetricsSchema, repair)
        return record

    def _complete_lines(self) -> list[bytes]:
        return self._content().split(b"\n")[:-1]  # what follows the last line end is torn, or nothing

    def _content(self) -> bytes:
        try:
            return read_regular(self.path) if self.path.exists() else b""
        except OSError as error:
            raise unreadable(self.path, error) from None


LOCK_NAME = ".lock"
"""The file in a run's folder that is locked; there while a process trains, or was killed at it."""


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold an existing folder against other writers; the system lets go of it however the process ends.

    Where the file system knows no such locks, or lets nothing be written, nothing is held.
    """
    lock = FileLock(folder / LOCK_NAME, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        received = f"{folder}, which another process is training in"
        repair = "Wait for it or stop it, or give another --run-dir."
        raise InvalidInputError("run_dir", "must not be in use", received, repair) from None
    except OSError:  # some network file systems; a folder that is read only
        pass
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows removes it on release
                (folder / LOCK_NAME).unlink()  # while it is held: who gets hold of a removed file looks again
            lock.release()


CONFIG_SUM = "config_sha256"
"""Key of a checkpoint's plain values: of the config.json that it was trained with."""


@dataclass(frozen=True)
class ConfigChange:
    """A change of config.json that the user has accepted: after which step, and the file's SHA-256 before and since."""

    step: int
    trained: str
    now: str

    def __str__(self) -> str:
        sums = f"SHA-256 {self.trained} before, {self.now} since"
        return f"config.json was changed after step {self.step}: {sums}"


def check_config(run: RunDirectory, newest: CheckpointRecord | None, *, accept: bool) -> ConfigChange | None:
    """Compare config.json with what a run's newest checkpoint, if there is one, was trained with.

    A change is an error or, if it is accepted, a warning, and is returned; without one None is.
    """
    trained = None if newest is None else newest.meta.get(CONFIG_SUM)
    now = run.config_sha256()
    if newest is None or trained == now:  # None both where a loop of the library wrote no such file
        return None
    change = ConfigChange(newest.step, str(trained)[:64], str(now))
    if not accept:
        rule = f"must be the file that the run was trained with, SHA-256 {change.trained}"
        repair = "Restore it from a copy; or go on as it is now with --accept-changed-config."
        raise InvalidInputError(str(run.config_path), rule, f"SHA-256 {change.now}", repair)
    text = f"{run.config_path} is not the file that the run was trained with: {change}"
    held = "but for what the checkpoint holds: weights, a constant beta, the chains' seed and temperatures"
    warnings.warn(f"{text}. It is used as it is now, {held}.", stacklevel=3)
    return change


# ``environment.json``: what a run ran on.


_PACKAGES = ("torch", "numpy", "numba", "triton", "scipy", "scikit-learn", "pydantic", "safetensors")
# variables of the environment that say which instructions a library may use
_SETTINGS = (
    *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"),
    *("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX"),
)
# entries that decide in which order sums are added up on the CPU
_ROUNDING = {
    "platform": ("processor", "vector_instructions", "instruction_settings", "torch_threads", "processes"),
    "packages": ("torch", "numba"),
}


def describe_environment(*, seed: int, device: torch.device | str) -> dict[str, Any]:
    """Versions, date, commit, seed, device and platform of this process, as JSON can express them.

    The commit is None unless the package runs from a git checkout; otherwise it holds ``hash`` and ``modified``,
    whether tracked files differ from that commit.
    """
    device = torch.device(device)
    about: dict[str, Any] = {"type": device.type}
    if device.type == "cuda" and torch.cuda.is_available():
        found = torch.cuda.get_device_properties(device)
        about |= {"name": found.name, "memory_bytes": found.total_memory, "cuda": torch.version.cuda}
    return {
        "discrete_vae": __version__,
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "packages": _packages(),
        "commit": _commit(Path(__file__).resolve().parent),
        "seed": seed,
        "device": about,
        "platform": _platform(),
    }


def other_rounding(begun: Mapping[str, Any]) -> str | None:
    """Words on entries of ``environment.json`` that differ here and let the CPU round differently; None without."""
    here, before, now = {"platform": _platform(), "packages": _packages()}, [], []
    for part, name in ((part, name) for part, names in _ROUNDING.items() for name in names):
        recorded, present = begun.get(part), here[part].get(name)
        if isinstance(recorded, dict) and name in recorded and recorded[name] != present:
            words = name.replace("_", " ")
            before.append(f"{words} {recorded[name]!r}"[:200])
            now.append(f"{words} {present!r}"[:200])
    return f"began with {', '.join(before)} and goes on with {', '.join(now)}" if before else None


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _platform() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "instruction_settings": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "processes": world_size(),
        "implementation": sys.implementation.name,
    }


def _processor() -> str:
    """Name of the processor, as Linux gives it, else the platform."""
    with suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name") and (name := line.partition(":")[2].strip()):
                return name
    return platform.processor() or platform.machine()


def _commit(folder: Path) -> dict[str, Any] | None:
    # An installed package may lie inside the checkout of another project: only a tracked file counts.
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"hash": commit.strip(), "modified": None if changes is None else bool(changes.strip())}


def _git(folder: Path, *arguments: str) -> str | None:
    # Inside a git hook these variables point at another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    with suppress(OSError, subprocess.SubprocessError):
        options = {"capture_output": True, "text": True, "env": environment, "check": True}
        return subprocess.run(command, timeout=10, **options).stdout
    return None


# Runs made of another one, which stays as it is.


_OUT, _REPAIR = "--out", "Free space or check permissions, or give another --out."
Made = TypeVar("Made")


def check_derived_folder(
    out: str | Path,
    run: RunDirectory,
    record: str,
    asked: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], Made],
) -> tuple[Path, Made | None]:
    """The folder that a run made of another may be written to, and the result if it is there.

    A command that is killed after its folder has got its name may be given again: the file `record` of the folder then
    says what is `asked` for, and `read` makes the result of it. What the killed one left beside it is removed.
    """
    folder = without_links(_OUT, unicode_path(_OUT, out))
    if (folder / record).is_file() and (folder / "config.json").is_file():
        said = read_json(folder / record)
        with suppress(KeyError, TypeError):  # where another version wrote it
            if asked.items() <= said.items():
                made = read(said)
                remove_temporaries(folder.parent, of_others=True)
                return folder, made
    RunDirectory.check_new(folder, argument=_OUT)
    if folder.resolve().is_relative_to(run.path.resolve()):
        rule, repair = f"must lie outside the run {run.path}", "Give a folder beside it."
        raise InvalidInputError(_OUT, rule, str(folder), repair)
    check_writable(folder / "config.json", repair=_REPAIR)
    return folder, None


@contextmanager
def derived_run(
    folder: Path,
    run: RunDirectory,
    record: CheckpointRecord,
    tensors: Mapping[str, Tensor],
    *,
    environment: Mapping[str, Any],
    log: Iterable[Mapping[str, Any]],
) -> Iterator[RunDirectory]:
    """Write a run of one checkpoint with the config of another run, whole or not at all.

    The block adds to it before it gets its name, the folder that `check_derived_folder` gave.
    """
    RunDirectory.check_new(folder, argument=_OUT)
    with writing(folder, _REPAIR):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with publish_directory(folder, replace=folder.exists()) as temporary:
            new = RunDirectory(temporary)
            write_bytes(new.config_path, read_regular(run.config_path))
            if environment:
                write_json(new.environment_path, environment)
            for line in log:
                new.metrics().append(line)
            checkpoint = new.checkpoints().folder(record.step)
            checkpoint.mkdir(parents=True)
            write_checkpoint(checkpoint, record, tensors)
            write_json(new.best_path, record.best or {})
            yield new
            RunDirectory.check_new(folder, argument=_OUT)  # which may have been filled meanwhile
