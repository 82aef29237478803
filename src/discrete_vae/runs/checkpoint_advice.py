"""What to do about a damaged checkpoint among others: no advice here may lose what can still be saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from discrete_vae.runs.checkpoint_files import is_intact
from discrete_vae.runs.checkpoint_record import CheckpointRecord, DamagedCheckpointError, read_record

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
