"""Checkpoints of a run: complete or absent, checked on loading, never unpickled."""

from __future__ import annotations

import re
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from discrete_vae import __version__
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes
from discrete_vae.runs.io import (
    RESTORE,
    TEMPORARY_PREFIX,
    Schema,
    parse_json,
    publish_directory,
    read_json,
    read_regular,
    remove_temporaries,
    sha256_fields,
    sha256_file,
    sync_directory,
    to_json,
    unreadable,
    write_json,
)


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device into a safetensors file; views are saved as they look."""
    separate = _separate(tensors)
    file.touch()  # safetensors makes private files; this one has the mode that the user's umask gives
    mode = stat.S_IMODE(file.stat().st_mode)
    try:
        save_file(separate, file)
    except SafetensorError as error:  # safetensors hides the system's error number
        raise OSError(str(error)) from error
    if stat.S_IMODE(file.stat().st_mode) != mode:
        file.chmod(mode)


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Bring tensors to the CPU, contiguous and without common memory, which safetensors refuses."""
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            received, repair = f"a {type(tensor).__name__}", "Put plain values into meta."
            raise InvalidInputError(f"tensors[{name!r}]", "must be a torch.Tensor", received, repair)
        separate[name] = tensor.detach().cpu().contiguous()
    end = 0
    for name, tensor in sorted(separate.items(), key=lambda item: item[1].data_ptr()):
        if tensor.numel() > 0 and tensor.data_ptr() < end:
            separate[name] = tensor.clone()
        else:
            end = max(end, tensor.data_ptr() + tensor.numel() * tensor.element_size())
    return separate


def without_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names have a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


ROUNDED = "rounded"  # key of a checkpoint's plain values: names of float32 tensors kept in bfloat16


def widened_weights(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> dict[str, Tensor]:
    """Bring the tensors that are kept in bfloat16 back to float32."""
    named = meta.get(ROUNDED, [])
    rounded = set(map(str, named)) if isinstance(named, list) else set()
    return {
        name: value.float() if name in rounded and value.dtype == torch.bfloat16 else value
        for name, value in tensors.items()
    }


# One checkpoint: a folder with its tensors, a record of plain values in JSON, and the SHA-256 of both.

RECORD_FILE, STATE_FILE = "checkpoint.json", "state.safetensors"
FORMAT = 3  # raised whenever what a checkpoint holds, or where, changes
RELEASED_FROM = "released_from"  # key of a released one's plain values: the SHA-256 of the one it was made of
CHECKPOINT_SUM = "checkpoint_sha256"  # key of a result: the SHA-256 of its checkpoint's tensors
MODEL_PREFIX = "model/"  # prefix of the names of a model's weights among a checkpoint's tensors


class DamagedCheckpointError(InvalidInputError):
    """A file of a checkpoint is missing or does not hold what was saved."""


class CheckpointWriteError(InvalidInputError):
    """A checkpoint could not be written; those before it are intact."""


@dataclass(frozen=True)
class CheckpointRecord:
    """The plain values of a checkpoint."""

    step: int  # number of steps done when it was saved
    meta: dict[str, Any]  # those that were saved with it
    best: dict[str, Any] | None = None  # the best at that time: its step and what made it so
    interim: bool = False  # whether it only bridges an interruption
    sha256: str = field(default="", compare=False)  # of the tensors; empty while there are none

    @property
    def sums(self) -> tuple[str, ...]:
        """Sums that its results may name as their checkpoint's; of a released one also that of its original."""
        original = self.meta.get(RELEASED_FROM)
        return (self.sha256,) if original is None else (self.sha256, str(original))


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoint(ShowsShapes):
    """A checkpoint that has been loaded; weights that it keeps in bfloat16 are float32 here."""

    folder: Path
    record: CheckpointRecord
    tensors: dict[str, Tensor]

    @property
    def step(self) -> int:
        """Number of steps done when it was saved."""
        return self.record.step

    @property
    def meta(self) -> dict[str, Any]:
        """The plain values that were saved with the tensors."""
        return self.record.meta


Form = TypeVar("Form", bound=Schema)


class _Best(Schema):
    step: Annotated[int, Field(ge=0)]


class _Record(Schema):
    step: Annotated[int, Field(ge=0)]
    meta: dict[str, Any]
    best: _Best | None
    interim: bool
    sha256: dict[str, str]


def write_checkpoint(folder: Path, record: CheckpointRecord, tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint's files into an existing, empty folder."""
    to_json("meta", record.meta)
    to_json("best", record.best or {})
    save_tensors(folder / STATE_FILE, tensors)
    fields = asdict(record)
    fields["sha256"] = {"state": sha256_file(folder / STATE_FILE)}
    write_summed(folder / RECORD_FILE, FORMAT, "record", fields)


def read_record(folder: Path, step: int) -> CheckpointRecord:
    """Read what the checkpoint of a step says about itself and check its sum; the tensors are not looked at."""
    found = read_summed(folder / RECORD_FILE, FORMAT, "record", _Record)
    best = None if found.best is None else found.best.model_dump()
    with damage_in(folder / RECORD_FILE):
        if found.step != step or (best is not None and best["step"] > step):
            raise ValueError(f"what is of another step than {step}")
    return CheckpointRecord(step, found.meta, best, found.interim, found.sha256.get("state", ""))


def write_summed(file: Path, number: int, part: str, fields: dict[str, Any]) -> None:
    """Write what `read_summed` reads; ``sha256`` holds the sums of other files."""
    fields = {"format": number, "discrete_vae": __version__, **fields}
    sums = fields.pop("sha256")
    write_json(file, {**fields, "sha256": {**sums, part: sha256_fields(part, fields)}})


def read_summed(file: Path, number: int, part: str, schema: type[Form]) -> Form:
    """Read values that were saved with the number of their format and, as the sum of a part, their own SHA-256."""
    with damage_in(file):
        fields: Any = parse_json(read_regular(file))
        if not isinstance(fields, dict):
            raise ValueError("no JSON object")
        sums, said = fields.pop("sha256", None), fields.get("format")
        sums = sums if isinstance(sums, dict) else {}
        fits = sha256_fields(part, fields | {"format": number}) == sums.get(part)
        if type(said) is int and said == number and fits:
            return schema.model_validate(fields | {"sha256": sums})
        # a damaged digit looks like another format, but for the sum
        if fits or said in (0, number) or type(said) is not int:
            raise ValueError("another SHA-256")
    received = f"format {said}, written by discrete-vae {fields.get('discrete_vae', '(unknown)')}"[:80]
    rule, repair = f"must be of format {number}", f"Use the version that wrote it; this one is {__version__}."
    raise InvalidInputError(str(file), rule, received, repair)


def verify_checkpoint(folder: Path, step: int) -> CheckpointRecord:
    """Check a checkpoint's sums without loading its tensors; errors as of `read_record`."""
    record = read_record(folder, step)
    check_sum(folder / STATE_FILE, record.sha256)
    return record


def read_checkpoint(folder: Path, step: int) -> Checkpoint:
    """Check a checkpoint's sums and load it; errors as of `read_record`."""
    record = verify_checkpoint(folder, step)
    with damage_in(folder / STATE_FILE):
        tensors = load_file(folder / STATE_FILE)
    return Checkpoint(folder, record, widened_weights(tensors, record.meta))


def check_sum(file: Path, sha256: str | None) -> None:
    """Check that a file has the SHA-256 with which it was saved."""
    with damage_in(file):
        if sha256_file(file) != sha256:
            raise ValueError("another SHA-256")


@contextmanager
def damage_in(file: Path) -> Iterator[None]:
    """Call what goes wrong in reading a file that was saved its damage, but for missing permissions."""
    try:
        yield
    except PermissionError as error:
        raise unreadable(file, error) from None
    except Exception as error:  # whatever a forged file makes its reader raise
        received = getattr(error, "strerror", None) or str(error).partition(";")[0][:200]
        raise DamagedCheckpointError(str(file), "must hold what was saved", received, RESTORE) from None


# The checkpoints of a run.

Read = TypeVar("Read")


class CheckpointStore:
    """The checkpoints of one run: saves and loads them, and knows which is the best.

    A checkpoint is a folder ``step-N`` with the tensors in safetensors and a ``checkpoint.json`` that holds the plain
    values, which checkpoint is the best so far, and the SHA-256 of everything. It is written to a temporary folder,
    synced and renamed. What the newest intact ``checkpoint.json`` says of the best is the truth; ``best.json`` is a
    copy for people, which only the writer looks at. One process writes; others may read. A save makes the folder, and
    leaves the best checkpoint and `keep_last` of the newest.
    """

    def __init__(self, path: Path, best_path: Path, *, keep_last: int = 2) -> None:
        self.path = path
        self.best_path = best_path
        self.keep_last = check_positive_int("keep_last", keep_last)

    def steps(self) -> tuple[int, ...]:
        """Steps of the checkpoints, ascending; leftovers of interrupted saves are not among them."""
        if not self.path.is_dir():
            return ()
        matches = (re.fullmatch(r"step-(0|[1-9]\d{0,17})", entry.name) for entry in self.path.iterdir())
        return tuple(sorted(int(match[1]) for match in matches if match))

    def folder(self, step: int) -> Path:
        """The folder of a step's checkpoint, whether or not it exists."""
        return self.path / f"step-{step}"

    def newest(self) -> CheckpointRecord | None:
        """The record of the newest checkpoint whose record is intact; None if there is none."""
        for step in reversed(steps := self.steps()):
            try:
                return read_record(self.folder(step), step)
            except DamagedCheckpointError:
                if self.steps() != steps:  # it is not damaged: the writer has removed it meanwhile
                    return self.newest()
        return None

    def best(self) -> dict[str, Any] | None:
        """Step of the best checkpoint and what made it the best, or None if none has been named so."""
        record = self.newest()
        return None if record is None else record.best

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        meta: Mapping[str, Any],
        *,
        best: Mapping[str, Any] | None = None,
        interim: bool = False,
    ) -> Path:
        """Save a checkpoint and return its folder; remove those that are neither among the newest nor the best.

        A checkpoint of the same step is replaced; steps never fall. A damaged one of another step is never removed: it
        may be the best. With values for `best` this one becomes the best, and they are kept beside its step. An interim
        one bridges an interruption: it is not counted among the newest, and the next save removes it, so a run that was
        interrupted leaves the same checkpoints as one that was not.
        """
        steps = self.steps()
        least = steps[-1] if steps else 0
        if type(step) is not int or step < least:
            rule = f"must be an integer of at least {least}" + ", the newest checkpoint's" * bool(steps)
            raise InvalidInputError("step", rule, repr(step), "Give the steps done.")
        kept_best = self.best() if best is None else {"step": step} | dict(best) | {"step": step}
        record = CheckpointRecord(step, dict(meta), kept_best, interim)
        final = self.folder(step)
        try:
            if not self.path.exists():
                self.path.mkdir(parents=True)
                sync_directory(self.path.parent)
            remove_temporaries(self.path, of_others=False)
            with publish_directory(final, replace=True) as temporary:
                write_checkpoint(temporary, record, tensors)
            self.repair_best()
        except OSError as error:
            kept = f"step {steps[-1]} is intact" if steps and steps[-1] < step else "none is before it"
            repair = f"Free space or check permissions, then use --resume; {kept}."
            raise CheckpointWriteError(str(final), "must be written completely", error, repair) from error
        self._prune(record)
        return final

    def repair_best(self) -> None:
        """Make ``best.json`` say what the newest intact checkpoint says; only the run's writer may call this."""
        best, says = self.best(), None
        with suppress(InvalidInputError):
            says = read_json(self.best_path)
        if best is not None and says != best:  # None where the truth is not known, or no best was named
            write_json(self.best_path, best)

    def load(self, step: int | Literal["last", "best"]) -> Checkpoint:
        """Load a checkpoint after checking its sums.

        Where the writer removes a checkpoint that is being read, the newest or the best is chosen anew.
        """
        return self._read(step, read_checkpoint)

    def verify(self, step: int | Literal["last", "best"]) -> None:
        """Check the sums of a checkpoint without loading it; argument and errors as of `load`."""
        self._read(step, verify_checkpoint)

    def _read(self, step: int | Literal["last", "best"], read: Callable[[Path, int], Read]) -> Read:
        chosen = self._choose(step)
        try:
            return read(self.folder(chosen), chosen)
        except DamagedCheckpointError as error:
            if self._choose(step) != chosen:
                return self._read(step, read)
            raise self._with_advice(error, chosen) from None

    def _choose(self, step: int | Literal["last", "best"]) -> int:
        record = self.newest() if step == "best" else None
        steps = self.steps()  # later than the record, which the writer may replace meanwhile
        if step == "last" and steps:
            return steps[-1]
        unnamed = ", which no intact checkpoint names," if step == "best" else ""
        received = f"{step!r}{unnamed} for {self.path}"
        have = f"There are: {', '.join(map(str, steps)) or 'none yet'}."
        if record is not None and record.best is not None:
            step = record.best["step"]
            if step not in steps and self.newest() != record:
                return self._choose("best")  # the writer was faster
            for newer in (other for other in steps if other > record.step):
                try:
                    read_record(self.folder(newer), newer)
                except DamagedCheckpointError:
                    if self.folder(newer).exists():  # it may have named a better one
                        text = f"{self.folder(newer)} is damaged; the best up to step {record.step} is taken."
                        warnings.warn(text, stacklevel=4)
            received = f"the best, step {step}, whose folder is gone from {self.path}"
            have += " Name one of them, or restore the folder from a copy."
        if type(step) is int and step in steps:
            return step
        rule = "must be 'last', 'best' or the step of a checkpoint that is there"
        raise InvalidInputError("checkpoint", rule, received, have)

    def _with_advice(self, error: DamagedCheckpointError, chosen: int) -> DamagedCheckpointError:
        """The same error with the checkpoint that can be used instead."""
        repair = "No checkpoint before it is intact: restore it from a copy, or start a new run elsewhere."
        for step in reversed([other for other in self.steps() if other < chosen]):
            with suppress(InvalidInputError):
                verify_checkpoint(self.folder(step), step)
                repair = f"Step {step} is intact: name it, or move the damaged folder away to go on from it."
                break
        return DamagedCheckpointError(error.argument, error.rule, error.received, repair)

    def _prune(self, newest: CheckpointRecord) -> None:
        records: dict[int, CheckpointRecord] = {}
        for step in self.steps():
            with suppress(InvalidInputError):
                records[step] = read_record(self.folder(step), step)
        regular = sorted(step for step, record in records.items() if not record.interim)
        kept = {*regular[-self.keep_last :], newest.step, newest.best["step"] if newest.best else None}
        for step in records.keys() - kept:
            # Renamed first: a half-deleted folder must not look like a checkpoint.
            doomed = self.path / f"{TEMPORARY_PREFIX}removed-step-{step}"
            with suppress(OSError):  # in a read-only layer of a container image it stays
                self.folder(step).rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
