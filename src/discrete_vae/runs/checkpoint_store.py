"""The checkpoints of a run: complete or absent, checked on loading, never unpickled."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.atomic import TEMPORARY_PREFIX, publish_directory, remove_temporaries, sync_directory
from discrete_vae.runs.checkpoint_files import (
    Checkpoint,
    DamagedCheckpointError,
    read_checkpoint,
    verify_checkpoint,
    write_checkpoint,
)
from discrete_vae.runs.json_files import read_json, to_json, write_json


class CheckpointWriteError(InvalidInputError):
    """A checkpoint could not be written; those before it are intact."""


class CheckpointStore:
    """Saves and loads the checkpoints of one run.

    A checkpoint is a folder ``step-N`` with the tensors in safetensors and a ``checkpoint.json`` that holds
    the plain values and the SHA-256 of everything. It is written to a temporary folder, synced and renamed.
    One process writes; others may read.

    Args:
        path: Folder of the checkpoints; the first save makes it.
        best_path: File that names the best checkpoint.
        keep_last: How many of the newest a save leaves; the best one always stays.

    Raises:
        InvalidInputError: If keep_last is not a positive integer.

    Examples:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = CheckpointStore(Path(folder, "checkpoints"), Path(folder, "best.json"))
        ...     _ = store.save(10, {"bias": torch.ones(2)}, {"epoch": 1}, best={"elbo": -90.0})
        ...     store.load("last").tensors["bias"], store.load("best").meta
        (tensor([1., 1.]), {'epoch': 1})
    """

    def __init__(self, path: Path, best_path: Path, *, keep_last: int = 2) -> None:
        self.path = path
        self.best_path = best_path
        self.keep_last = check_positive_int("keep_last", keep_last)

    def steps(self) -> tuple[int, ...]:
        """Steps of the checkpoints, ascending; leftovers of interrupted saves are not among them."""
        if not self.path.is_dir():
            return ()
        matches = (re.fullmatch(r"step-(0|[1-9]\d*)", entry.name) for entry in self.path.iterdir())
        return tuple(sorted(int(match[1]) for match in matches if match))

    def folder(self, step: int) -> Path:
        """The folder of a step's checkpoint, whether or not it exists."""
        return self.path / f"step-{step}"

    def best(self) -> dict[str, Any] | None:
        """What ``best.json`` says, or None if there is none or its checkpoint is gone.

        Raises:
            InvalidInputError: If the file is damaged.
        """
        if not self.best_path.exists():
            return None
        record = read_json(self.best_path, repair="Remove the file; the next best checkpoint writes it anew.")
        return record if record.get("step") in self.steps() else None

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        meta: Mapping[str, Any],
        *,
        best: Mapping[str, Any] | None = None,
    ) -> Path:
        """Save a checkpoint, then remove those that are neither among the newest nor the best.

        A checkpoint of the same step is replaced, unless it is intact and holds the same.

        Args:
            step: Number of steps done, at least 0.
            tensors: Tensors of any device by name; views are saved as they look.
            meta: Plain values that JSON can express.
            best: If given, this checkpoint becomes the best one, and ``best.json`` holds these values
                beside the step.

        Returns:
            The checkpoint's folder.

        Raises:
            InvalidInputError: If the step, a tensor or a plain value breaks its rule; nothing is kept of it.
            CheckpointWriteError: If the disk is full or refuses; the checkpoints before it are intact.
        """
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise InvalidInputError(
                "step", "must be a non-negative integer", repr(step), "Give the steps done."
            )
        to_json("best", best or {})
        final = self.folder(step)
        try:
            if not self.path.exists():
                self.path.mkdir(parents=True)
                sync_directory(self.path.parent)
            remove_temporaries(self.path)
            if not self._holds(step, tensors, meta):
                with publish_directory(final, replace=True) as temporary:
                    write_checkpoint(temporary, step, tensors, meta)
            if best is not None:
                write_json(self.best_path, {"step": step, **best})
        except OSError as error:
            before = [other for other in self.steps() if other < step]
            kept = (
                f"step {before[-1]}, the last before it, is intact" if before else "there is none before it"
            )
            repair = f"Free space or check permissions, then use --resume; {kept}."
            raise CheckpointWriteError(
                str(final), "must be written completely", str(error), repair
            ) from error
        self._prune()
        return final

    def load(self, step: int | Literal["last", "best"]) -> Checkpoint:
        """Load a checkpoint after checking its sums.

        Args:
            step: A step, or which one.

        Raises:
            InvalidInputError: If there is no such checkpoint.
            DamagedCheckpointError: If it is damaged; names it, and the last good one before it.
        """
        chosen = self._choose(step)
        try:
            return read_checkpoint(self.folder(chosen), chosen)
        except DamagedCheckpointError as error:
            good = next((s for s in reversed(self.steps()) if s < chosen and self._is_intact(s)), None)
            if good is None:
                repair = "There is no good one before it: restore the folder from a copy, or start a new run."
            else:
                repair = f"Step {good}, before it, is good: name it, or remove the damaged folder to resume."
            raise DamagedCheckpointError(error.argument, error.rule, error.received, repair) from None

    def _choose(self, step: int | Literal["last", "best"]) -> int:
        steps = self.steps()
        have = (
            f"There are: {', '.join(map(str, steps))}." if steps else "The run has saved no checkpoint yet."
        )
        if step == "last" and steps:
            return steps[-1]
        if step == "best" and (best := self.best()) is not None:
            return int(best["step"])
        if not isinstance(step, bool) and step in steps:
            return int(step)
        rule = "must be 'last', 'best' or the step of a checkpoint that is there"
        raise InvalidInputError("checkpoint", rule, f"{step!r} for {self.path}", have)

    def _is_intact(self, step: int) -> bool:
        try:
            verify_checkpoint(self.folder(step), step)
        except DamagedCheckpointError:
            return False
        return True

    def _holds(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bool:
        """Whether the step's checkpoint is intact and equal: replacing it would only put it at risk."""
        if not self.folder(step).exists() or not self._is_intact(step):
            return False
        there = read_checkpoint(self.folder(step), step)
        if there.tensors.keys() != tensors.keys() or to_json("meta", there.meta) != to_json("meta", meta):
            return False
        return all(
            mine.dtype == there.tensors[name].dtype and mine.detach().cpu().equal(there.tensors[name])
            for name, mine in tensors.items()
        )

    def _prune(self) -> None:
        best = self.best()
        kept = {*self.steps()[-self.keep_last :], best["step"] if best is not None else None}
        for step in self.steps():
            if step not in kept:
                # Renamed first: a half-deleted folder must not look like a checkpoint.
                doomed = self.path / f"{TEMPORARY_PREFIX}removed-step-{step}"
                self.folder(step).rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
