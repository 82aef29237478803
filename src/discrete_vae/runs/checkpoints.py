"""Checkpoints: what is in one, its files, and the store of a run."""

from __future__ import annotations

import re
import shutil
import stat
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from discrete_vae._version import __version__
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes
from discrete_vae.runs.io import (
    TEMPORARY_PREFIX,
    parse_json,
    publish_directory,
    read_json,
    read_regular,
    remove_temporaries,
    sha256_bytes,
    sha256_file,
    sync_directory,
    to_json,
    write_json,
)

# Weights that a checkpoint keeps in bfloat16: half the bytes, and float32 again when it is read.


KEY = "rounded"
"""The entry of a checkpoint's plain values that names the tensors."""


def rounded_weights(
    tensors: Mapping[str, Tensor], names: Collection[str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Round some tensors to bfloat16, to the nearest.

    Args:
        tensors: float32 tensors by name.
        names: Which of them; none means that all stay as they are.

    Returns:
        All tensors, and what the checkpoint's plain values have to say of them.

    Examples:
        >>> tensors, meta = rounded_weights({"weight": torch.tensor([1.001]), "bias": torch.ones(1)}, ["weight"])
        >>> tensors["weight"].dtype, widened_weights(tensors, meta)["weight"]
        (torch.bfloat16, tensor([1.]))
    """
    chosen = sorted(names)
    found = dict(tensors) | {name: tensors[name].to(torch.bfloat16) for name in chosen}
    return found, {KEY: chosen} if chosen else {}


def widened_weights(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> dict[str, Tensor]:
    """Undo `rounded_weights`, but for the digits that are gone.

    Args:
        tensors: What the checkpoint holds. One that is said to be rounded and is not stays as it is.
        meta: Its plain values.
    """
    named = meta.get(KEY, [])
    rounded = set(map(str, named)) if isinstance(named, list) else set()
    return {
        name: value.float() if name in rounded and value.dtype == torch.bfloat16 else value
        for name, value in tensors.items()
    }


# ``checkpoint.json``: what a checkpoint says about itself, its format and its sums.


RECORD_FILE = "checkpoint.json"
FORMAT = 3
"""Raised whenever what a checkpoint holds, or where, changes."""


class DamagedCheckpointError(InvalidInputError):
    """A checkpoint does not hold what was saved."""


class ForeignCheckpointError(InvalidInputError):
    """A checkpoint is not damaged, but neither for this version nor, perhaps, for this user to read."""


@dataclass(frozen=True)
class CheckpointRecord:
    """What a checkpoint says about itself.

    Attributes:
        step: Number of steps done when it was saved.
        meta: The plain values that were saved with it.
        best: Step of the best checkpoint at that time and what made it the best; None if there was none.
        interim: Whether it only bridges an interruption.
    """

    step: int
    meta: dict[str, Any]
    best: dict[str, Any] | None = None
    interim: bool = False


def write_record(folder: Path, record: CheckpointRecord, state_sum: str) -> None:
    """Write what a checkpoint says about itself.

    Args:
        folder: The checkpoint's folder.
        record: It.
        state_sum: SHA-256 of the file with the tensors.

    Raises:
        InvalidInputError: If it holds what JSON cannot express.
        OSError: If the disk is full or refuses.
    """
    fields = {"format": FORMAT, "discrete_vae": __version__, **asdict(record)}
    sums = {"state": state_sum, "record": _sum_of(fields)}
    write_json(folder / RECORD_FILE, {**fields, "sha256": sums})


def read_record(folder: Path, step: int) -> tuple[CheckpointRecord, object]:
    """Read what a checkpoint says about itself, and check the sum of that; its tensors are not looked at.

    Args:
        folder: The checkpoint's folder.
        step: The step that it should be of.

    Returns:
        The record, and the SHA-256 that the file with the tensors should have.

    Raises:
        DamagedCheckpointError: If the file is missing or does not hold what was saved.
        ForeignCheckpointError: If another version wrote it, or it may not be read.
    """
    try:
        fields = parse_json(read_regular(folder / RECORD_FILE))
    except OSError as error:
        raise unreadable(folder, RECORD_FILE, error) from None
    except ValueError as error:
        raise damaged(folder, f"{str(error).partition(';')[0]} in {RECORD_FILE}") from None
    if not isinstance(fields, dict):
        raise damaged(folder, f"a {RECORD_FILE} of an unknown form")
    sums = fields.pop("sha256", None)
    sums = sums if isinstance(sums, dict) else {}
    _check_format(folder, fields, sums.get("record"))
    meta, best, interim = fields.get("meta"), fields.get("best"), fields.get("interim")
    if (
        not isinstance(meta, dict)
        or not isinstance(interim, bool)
        or not (best is None or isinstance(best, dict))
        or "record" not in sums
    ):
        raise damaged(folder, f"a {RECORD_FILE} of an unknown form")
    if not _fits(fields, sums["record"]):
        raise damaged(folder, f"other values in {RECORD_FILE} than were saved")
    if fields.get("step") != step:
        raise damaged(folder, f"a {RECORD_FILE} of step {str(fields.get('step'))[:20]}")
    if best is not None and not (_is_whole(best.get("step")) and best["step"] <= step):
        raise damaged(folder, f"a best checkpoint of step {str(best.get('step'))[:20]} in {RECORD_FILE}")
    return CheckpointRecord(step, meta, best, interim), sums.get("state")


def unreadable(folder: Path, file: str, error: OSError) -> InvalidInputError:
    """The error for a file of a checkpoint that cannot be read: permissions are no damage."""
    reason = error.strerror or str(error)
    if isinstance(error, PermissionError):
        repair = "Ask its owner for the permission to read it."
        return ForeignCheckpointError(str(folder / file), "must be readable", reason, repair)
    return damaged(folder, f"{reason}: {file}")


def damaged(folder: Path, received: str) -> DamagedCheckpointError:
    """The error for a checkpoint that does not hold what was saved."""
    repair = "Restore the folder from a copy, or use another checkpoint."
    return DamagedCheckpointError(str(folder), "must hold what was saved", received, repair)


def _check_format(folder: Path, fields: dict[str, Any], record_sum: object) -> None:
    form = fields.get("format")
    # A damaged digit looks like another format, but for the sum.
    if _is_whole(form) and form not in (0, FORMAT) and not _fits({**fields, "format": FORMAT}, record_sum):
        named, older = fields.get("discrete_vae"), form < FORMAT
        writer = f"discrete-vae {named[:40]}" if isinstance(named, str) else "a version that left no name"
        repair = (
            "Go on with the version that wrote it, or start a new run in another folder; nothing was changed."
            if older
            else f"Update discrete-vae, which is {__version__} here; nothing was changed."
        )
        received = f"the {'older' if older else 'newer'} format {str(form)[:20]}, written by {writer}"
        raise ForeignCheckpointError(
            str(folder), f"must be a checkpoint of format {FORMAT}", received, repair
        )
    if form != FORMAT:
        raise damaged(folder, f"a {RECORD_FILE} of an unknown form")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _sum_of(fields: Mapping[str, Any]) -> str:
    return sha256_bytes(to_json("meta", fields).encode())


def _fits(fields: Mapping[str, Any], record_sum: object) -> bool:
    try:
        return _sum_of(fields) == record_sum
    except InvalidInputError:  # nested so deeply that it can be read but not written
        return False


# One checkpoint: a folder with tensors in safetensors, plain values in JSON, and the sums of both.


STATE_FILE = "state.safetensors"
RELEASED_FROM = "released_from"
"""The entry of a released checkpoint's plain values that holds the SHA-256 of the one it was made of."""
MODEL_PREFIX = "model/"
"""What stands before the names of a model's weights among a checkpoint's tensors."""


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoint(ShowsShapes):
    """What one checkpoint holds.

    Attributes:
        folder: Where it is.
        record: What it says about itself.
        tensors: The tensors by name, on the CPU; weights that it keeps in bfloat16 are float32 here.
        sha256: Sum of the file with the tensors.
    """

    folder: Path
    record: CheckpointRecord
    tensors: dict[str, Tensor]
    sha256: str = ""

    @property
    def step(self) -> int:
        """Number of steps done when it was saved."""
        return self.record.step

    @property
    def meta(self) -> dict[str, Any]:
        """The plain values that were saved with the tensors."""
        return self.record.meta

    @property
    def sums(self) -> tuple[str, ...]:
        """What results of it may name as their checkpoint's SHA-256; of a released one also that of its original."""
        return result_sums(self.record, self.sha256)


def result_sums(record: CheckpointRecord, state_sum: object) -> tuple[str, ...]:
    """What results of a checkpoint may name as its SHA-256; see `Checkpoint.sums`."""
    return tuple(str(each) for each in (state_sum, record.meta.get(RELEASED_FROM)) if each is not None)


def write_checkpoint(folder: Path, record: CheckpointRecord, tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint's files into a folder.

    Args:
        folder: An existing, empty folder.
        record: Its step, and plain values that JSON can express.
        tensors: Tensors of any device by name; views are saved as they look.

    Raises:
        InvalidInputError: If the record holds something else.
        OSError: If the disk is full or refuses.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_checkpoint(Path(folder), CheckpointRecord(3, {"epoch": 1}), {"bias": torch.ones(2)})
        ...     checkpoint = read_checkpoint(Path(folder), 3)
        >>> checkpoint.step, checkpoint.meta, checkpoint.tensors
        (3, {'epoch': 1}, {'bias': tensor([1., 1.])})
    """
    to_json("meta", record.meta)
    to_json("best", record.best or {})
    state = folder / STATE_FILE
    save_tensors(state, tensors)
    write_record(folder, record, sha256_file(state))


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device into a safetensors file; views are saved as they look.

    Raises:
        InvalidInputError: If one of them is no tensor.
        OSError: If the disk is full or refuses.
    """
    separate = _separate(tensors)
    file.touch()  # safetensors makes private files; this one has the mode that the user's umask gives
    mode = stat.S_IMODE(file.stat().st_mode)
    try:
        save_file(separate, file)
    except SafetensorError as error:  # safetensors hides the system's error number
        raise OSError(str(error)) from error
    if stat.S_IMODE(file.stat().st_mode) != mode:
        file.chmod(mode)


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file whose sum has been checked; raises whatever a forged one makes its reader raise."""
    return load_file(file)


def verify_checkpoint(folder: Path, step: int) -> CheckpointRecord:
    """Check a checkpoint's sums without loading its tensors.

    Args:
        folder: The checkpoint's folder.
        step: The step that it should be of.

    Returns:
        What it says about itself.

    Raises:
        DamagedCheckpointError: If a file is missing or does not hold what was saved.
        ForeignCheckpointError: If another version wrote it, or it may not be read.
    """
    return _verified(folder, step)[0]


def _verified(folder: Path, step: int) -> tuple[CheckpointRecord, str]:
    record, state_sum = read_record(folder, step)
    try:
        found = sha256_file(folder / STATE_FILE)
    except OSError as error:
        raise unreadable(folder, STATE_FILE, error) from None
    if found != state_sum:
        raise damaged(folder, f"a {STATE_FILE} with another SHA-256")
    return record, found


def read_checkpoint(folder: Path, step: int) -> Checkpoint:
    """Check a checkpoint's sums and load it.

    Args:
        folder: The checkpoint's folder.
        step: The step that it should be of.

    Raises:
        DamagedCheckpointError: See `verify_checkpoint`.
        ForeignCheckpointError: See `verify_checkpoint`.
    """
    record, total = _verified(folder, step)
    try:
        tensors = load_tensors(folder / STATE_FILE)
    except OSError as error:
        raise unreadable(folder, STATE_FILE, error) from None
    except Exception as error:  # whatever a forged file makes its reader raise
        raise damaged(folder, f"{STATE_FILE}: {str(error)[:200]}") from None
    return Checkpoint(folder, record, widened_weights(tensors, record.meta), total)


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Bring tensors to the CPU, contiguous and without common memory, which safetensors refuses."""
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise InvalidInputError(
                f"tensors[{name!r}]",
                "must be a torch.Tensor",
                f"a {type(tensor).__name__}",
                "Put plain values into meta.",
            )
        separate[name] = tensor.detach().cpu().contiguous()
    end = 0
    for name, tensor in sorted(separate.items(), key=lambda item: item[1].data_ptr()):
        if tensor.numel() > 0 and tensor.data_ptr() < end:
            separate[name] = tensor.clone()
        else:
            end = max(end, tensor.data_ptr() + tensor.numel() * tensor.element_size())
    return separate


def is_intact(folder: Path, step: int) -> bool:
    """Whether a checkpoint holds what was saved."""
    try:
        verify_checkpoint(folder, step)
    except InvalidInputError:
        return False
    return True


def holds(folder: Path, record: CheckpointRecord, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a checkpoint is there, intact and equal: replacing it would only put it at risk."""
    if not folder.exists() or not is_intact(folder, record.step):
        return False
    there = read_checkpoint(folder, record.step)
    if to_json("meta", asdict(there.record)) != to_json("meta", asdict(record)):
        return False
    if there.tensors.keys() != tensors.keys():
        return False
    return all(
        mine.dtype == there.tensors[name].dtype and mine.detach().cpu().equal(there.tensors[name])
        for name, mine in tensors.items()
    )


# What to do about a damaged checkpoint among others: no advice here may lose what can still be saved.


Folder = Callable[[int], Path]
"""The folder of a step's checkpoint."""


def warn_of_damage(steps: Sequence[int], newest: CheckpointRecord, folder: Folder) -> None:
    """Warn if what is newer than the newest intact record, and may be the best, cannot say so.

    Args:
        steps: The checkpoints that are there.
        newest: The newest intact record.
        folder: Where they are.
    """
    for step in steps:
        if step > newest.step:
            try:
                read_record(folder(step), step)
            except DamagedCheckpointError:
                if not folder(step).exists():  # the writer has removed it meanwhile
                    continue
                warnings.warn(
                    f"{folder(step)} is damaged; the best up to step {newest.step} is taken.", stacklevel=4
                )


def with_advice(
    error: DamagedCheckpointError, chosen: int, steps: Sequence[int], folder: Folder
) -> DamagedCheckpointError:
    """The same error with what can be done.

    Args:
        error: What was found.
        chosen: The step of the damaged checkpoint.
        steps: The checkpoints that are there.
        folder: Where they are.
    """
    good = next((s for s in reversed(steps) if s < chosen and is_intact(folder(s), s)), None)
    if good is not None:
        repair = f"Step {good}, before it, is good: name it"
        repair += ", or move the damaged folder elsewhere to go on from it." if chosen == steps[-1] else "."
    else:
        repair = (
            "There is no good one before it: restore the folder from a copy, or start a new run elsewhere."
        )
    return DamagedCheckpointError(error.argument, error.rule, error.received, repair)


# The checkpoints of a run: complete or absent, checked on loading, never unpickled.


class CheckpointWriteError(InvalidInputError):
    """A checkpoint could not be written; those before it are intact."""


class CheckpointStore:
    """Saves and loads the checkpoints of one run, and knows which is the best.

    A checkpoint is a folder ``step-N`` with the tensors in safetensors and a ``checkpoint.json`` that holds
    the plain values, which checkpoint is the best so far, and the SHA-256 of everything. It is written to a
    temporary folder, synced and renamed. What the newest intact ``checkpoint.json`` says of the best is the truth;
    ``best.json`` is a copy for people, which only the writer looks at. One process writes; others may read.

    Args:
        path: Folder of the checkpoints; the first save makes it.
        best_path: File that shows people which checkpoint is the best.
        keep_last: How many of the newest a save leaves; the best one always stays.

    Raises:
        InvalidInputError: If keep_last is not a positive integer.

    Examples:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = CheckpointStore(Path(folder, "checkpoints"), Path(folder, "best.json"))
        ...     _ = store.save(10, {"bias": torch.ones(2)}, {"epoch": 1}, best={"elbo": -90.0})
        ...     _ = store.save(20, {"bias": torch.zeros(2)}, {"epoch": 2})
        ...     store.best(), store.load("last").tensors["bias"], store.load("best").meta
        ({'step': 10, 'elbo': -90.0}, tensor([0., 0.]), {'epoch': 1})
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
        """What the newest checkpoint with an intact record says; None if there is none.

        Raises:
            ForeignCheckpointError: If a newer one is another version's, or may not be read.
        """
        for step in reversed(steps := self.steps()):
            try:
                return read_record(self.folder(step), step)[0]
            except DamagedCheckpointError:
                if self.steps() != steps:  # it is not damaged: the writer has removed it meanwhile
                    return self.newest()
        return None

    def best(self) -> dict[str, Any] | None:
        """Step of the best checkpoint and what made it the best, or None if none has been named so.

        Raises:
            ForeignCheckpointError: See `newest`.
        """
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
        """Save a checkpoint, then remove those that are neither among the newest nor the best.

        A checkpoint of the same step is replaced, unless it is intact and holds the same. A damaged one of another
        step is never removed: it may be the best.

        Args:
            step: Number of steps done, at least that of the newest checkpoint.
            tensors: Tensors of any device by name; views are saved as they look.
            meta: Plain values that JSON can express.
            best: If given, this checkpoint becomes the best one, and these values are kept beside its step. If not,
                the best one stays what it was.
            interim: Whether it only bridges an interruption: it is not counted among the newest, and the next save
                removes it, so a run that was interrupted leaves the same checkpoints as one that was not.

        Returns:
            The checkpoint's folder.

        Raises:
            InvalidInputError: If the step, a tensor or a plain value breaks its rule, or the newest checkpoint is
                another version's; nothing is kept of it.
            CheckpointWriteError: If the disk is full or refuses; the checkpoints before it are intact.
        """
        self._check_step(step)
        to_json("best", best or {})
        kept_best = self.best() if best is None else {"step": step} | dict(best) | {"step": step}
        record = CheckpointRecord(step, dict(meta), kept_best, interim)
        final = self.folder(step)
        try:
            if not self.path.exists():
                self.path.mkdir(parents=True)
                sync_directory(self.path.parent)
            remove_temporaries(self.path, of_others=False)
            if not holds(final, record, tensors):
                with publish_directory(final, replace=True) as temporary:
                    write_checkpoint(temporary, record, tensors)
            self.repair_best()
        except OSError as error:
            before = [other for other in self.steps() if other < step]
            kept = (
                f"step {before[-1]}, the last before it, is intact" if before else "there is none before it"
            )
            repair = f"Free space or check permissions, then use --resume; {kept}."
            raise CheckpointWriteError(
                str(final), "must be written completely", str(error), repair
            ) from error
        self._prune(record)
        return final

    def repair_best(self) -> None:
        """Make ``best.json`` say what the newest intact checkpoint says; only the run's writer may call this.

        Raises:
            ForeignCheckpointError: See `newest`.
            OSError: If the file cannot be written.
        """
        record = self.newest()
        if (
            record is None or record.best is None
        ):  # the truth is not known, or no checkpoint was named the best
            return
        try:
            says = read_json(self.best_path)
        except InvalidInputError:
            says = None
        if says != record.best:
            write_json(self.best_path, record.best)

    def load(self, step: int | Literal["last", "best"]) -> Checkpoint:
        """Load a checkpoint after checking its sums.

        Where the writer removes a checkpoint that is being read, the newest or the best is chosen anew.

        Args:
            step: A step, or which one.

        Raises:
            InvalidInputError: If there is no such checkpoint.
            DamagedCheckpointError: If it is damaged; names it, and a good one.
            ForeignCheckpointError: If another version wrote it, or it may not be read.
        """
        chosen = self._choose(step)
        try:
            return read_checkpoint(self.folder(chosen), chosen)
        except DamagedCheckpointError as error:
            if self._choose(step) != chosen:
                return self.load(step)
            raise with_advice(error, chosen, self.steps(), self.folder) from None

    def verify(self, step: int | Literal["last", "best"]) -> None:
        """Check the sums of a checkpoint without loading it.

        Raises:
            InvalidInputError: See `load`.
        """
        chosen = self._choose(step)
        try:
            verify_checkpoint(self.folder(chosen), chosen)
        except DamagedCheckpointError as error:
            raise with_advice(error, chosen, self.steps(), self.folder) from None

    def _check_step(self, step: int) -> None:
        steps = self.steps()
        least = steps[-1] if steps else 0
        if isinstance(step, bool) or not isinstance(step, int) or step < least:
            rule = f"must be an integer of at least {least}, the newest checkpoint's" if least else ""
            raise InvalidInputError(
                "step", rule or "must be a non-negative integer", repr(step), "Give the steps done."
            )

    def _choose(self, step: int | Literal["last", "best"]) -> int:
        record = self.newest() if step == "best" else None
        steps = self.steps()
        have = (
            f"There are: {', '.join(map(str, steps))}." if steps else "The run has saved no checkpoint yet."
        )
        if step == "last" and steps:
            return steps[-1]
        received = f"{step!r} for {self.path}"
        if record is not None and record.best is not None:
            if record.best["step"] not in steps and self.newest() != record:
                return self._choose(step)  # the writer was faster
            warn_of_damage(steps, record, self.folder)
            step = record.best["step"]
            received = f"the best, step {step}, whose folder is gone from {self.path}"
            have += " Name one of them, or restore the folder from a copy."
        if not isinstance(step, bool) and step in steps:
            return int(step)
        rule = "must be 'last', 'best' or the step of a checkpoint that is there"
        raise InvalidInputError("checkpoint", rule, received, have)

    def _prune(self, newest: CheckpointRecord) -> None:
        """Remove what is neither among the newest nor the best nor damaged."""
        records: dict[int, CheckpointRecord] = {}
        for step in self.steps():
            with suppress(InvalidInputError):
                records[step] = read_record(self.folder(step), step)[0]
        regular = sorted(step for step, record in records.items() if not record.interim)
        kept = {*regular[-self.keep_last :], newest.step, newest.best["step"] if newest.best else None}
        for step in records.keys() - kept:
            # Renamed first: a half-deleted folder must not look like a checkpoint.
            doomed = self.path / f"{TEMPORARY_PREFIX}removed-step-{step}"
            self.folder(step).rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
