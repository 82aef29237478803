"""``checkpoint.json``: what a checkpoint says about itself, its format and its sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard

from discrete_vae._version import __version__
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.checksums import sha256_bytes
from discrete_vae.runs.json_files import parse_json, to_json, write_json
from discrete_vae.runs.regular_files import read_regular

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
