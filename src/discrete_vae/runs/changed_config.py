"""Whether config.json is still what the run was trained with."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.checkpoint_record import CheckpointRecord
from discrete_vae.runs.run_directory import RunDirectory

CONFIG_SUM = "config_sha256"
"""The entry of a checkpoint's plain values."""


@dataclass(frozen=True)
class ConfigChange:
    """A change of config.json that the user has accepted.

    Attributes:
        step: Steps done when it was accepted.
        trained: SHA-256 of the file that those steps were trained with.
        now: SHA-256 of the file since.
    """

    step: int
    trained: str
    now: str

    def __str__(self) -> str:
        return (
            f"config.json was changed after step {self.step}: SHA-256 {self.trained} before, {self.now} since"
        )


def check_config(run: RunDirectory, newest: CheckpointRecord | None, *, accept: bool) -> ConfigChange | None:
    """Compare config.json with what the newest checkpoint was trained with.

    Args:
        run: The run.
        newest: Its newest checkpoint; None if there is none yet.
        accept: Whether a change is a warning instead of an error.

    Returns:
        The change; None if there is none.

    Raises:
        InvalidInputError: If the file has changed and that is not accepted.
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
    warnings.warn(
        f"{run.config_path} is not the file that the run was trained with up to step {change.step}: its SHA-256 is "
        f"{change.now}, not {change.trained}. It is used as it is now.",
        stacklevel=3,
    )
    return change
