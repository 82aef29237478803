"""The checkpoints of a run: complete or absent, checked on loading, never unpickled."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.atomic import TEMPORARY_PREFIX, publish_directory, remove_temporaries, sync_directory
from discrete_vae.runs.checkpoint_advice import warn_of_damage, with_advice
from discrete_vae.runs.checkpoint_files import (
    Checkpoint,
    holds,
    read_checkpoint,
    verify_checkpoint,
    write_checkpoint,
)
from discrete_vae.runs.checkpoint_record import CheckpointRecord, DamagedCheckpointError, read_record
from discrete_vae.runs.json_files import read_json, to_json, write_json


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
