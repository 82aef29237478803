"""One checkpoint: a folder with tensors in safetensors, plain values in JSON, and the sums of both."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes
from discrete_vae.runs.checkpoint_record import (
    CheckpointRecord,
    damaged,
    read_record,
    unreadable,
    write_record,
)
from discrete_vae.runs.checksums import sha256_file
from discrete_vae.runs.json_files import to_json
from discrete_vae.runs.rounded_weights import widened_weights

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
