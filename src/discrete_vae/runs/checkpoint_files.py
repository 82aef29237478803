"""One checkpoint: a folder with tensors in safetensors, plain values in JSON, and the sums of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.checksums import sha256_file, sha256_text
from discrete_vae.runs.json_files import read_json, to_json, write_json

STATE_FILE = "state.safetensors"
RECORD_FILE = "checkpoint.json"
_FORMAT = 1


class DamagedCheckpointError(InvalidInputError):
    """A checkpoint does not hold what was saved."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What one checkpoint holds.

    Attributes:
        step: Number of steps done when it was saved.
        tensors: The tensors by name, on the CPU.
        meta: The plain values that were saved with them.
    """

    step: int
    tensors: dict[str, Tensor]
    meta: dict[str, Any]


def write_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write a checkpoint's files into a folder.

    Args:
        folder: An existing, empty folder.
        step: Number of steps done.
        tensors: Tensors of any device by name; views are saved as they look.
        meta: Plain values that JSON can express.

    Raises:
        InvalidInputError: If meta holds something else.
        OSError: If the disk is full or refuses.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_checkpoint(Path(folder), 3, {"bias": torch.ones(2)}, {"epoch": 1})
        ...     read_checkpoint(Path(folder), 3)
        Checkpoint(step=3, tensors={'bias': tensor([1., 1.])}, meta={'epoch': 1})
    """
    meta_text = to_json("meta", meta)
    try:
        save_file(_separate(tensors), folder / STATE_FILE)
    except SafetensorError as error:  # safetensors hides the system's error number
        raise OSError(str(error)) from error
    sums = {STATE_FILE: sha256_file(folder / STATE_FILE), "meta": sha256_text(meta_text)}
    write_json(folder / RECORD_FILE, {"format": _FORMAT, "step": step, "sha256": sums, "meta": meta})


def verify_checkpoint(folder: Path, step: int) -> dict[str, Any]:
    """Check a checkpoint's sums without loading its tensors.

    Args:
        folder: The checkpoint's folder.
        step: The step that it should be of.

    Returns:
        The plain values.

    Raises:
        DamagedCheckpointError: If a file is missing or does not hold what was saved.
    """
    try:
        record = read_json(folder / RECORD_FILE)
        state_sum = sha256_file(folder / STATE_FILE)
    except InvalidInputError as error:
        raise _damaged(folder, f"{error.received} in {RECORD_FILE}") from None
    except OSError as error:
        raise _damaged(folder, f"{error.strerror}: {STATE_FILE}") from None
    sums, meta = record.get("sha256"), record.get("meta")
    if record.get("format") != _FORMAT or not isinstance(sums, dict) or not isinstance(meta, dict):
        raise _damaged(folder, f"a {RECORD_FILE} of an unknown form")
    if record.get("step") != step:
        raise _damaged(folder, f"a {RECORD_FILE} of step {record.get('step')}")
    if sums.get("meta") != sha256_text(to_json("meta", meta)):
        raise _damaged(folder, f"other values in {RECORD_FILE} than were saved")
    if sums.get(STATE_FILE) != state_sum:
        raise _damaged(folder, f"a {STATE_FILE} with another SHA-256")
    return meta


def read_checkpoint(folder: Path, step: int) -> Checkpoint:
    """Check a checkpoint's sums and load it.

    Args:
        folder: The checkpoint's folder.
        step: The step that it should be of.

    Raises:
        DamagedCheckpointError: See `verify_checkpoint`.
    """
    meta = verify_checkpoint(folder, step)
    try:
        tensors = load_file(folder / STATE_FILE)
    except (SafetensorError, OSError) as error:
        raise _damaged(folder, str(error)) from None
    return Checkpoint(step, tensors, meta)


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


def _damaged(folder: Path, received: str) -> DamagedCheckpointError:
    repair = "Restore the folder from a copy, or use an earlier checkpoint."
    return DamagedCheckpointError(str(folder), "must hold what was saved", received, repair)
