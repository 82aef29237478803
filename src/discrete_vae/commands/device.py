"""The option --device."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from discrete_vae.devices import check_device, computing_on
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    import torch


def choose_device(text: str) -> torch.device:
    """The device that a user asks for; it becomes the process's current one.

    A CUDA device without a number is that of the process among those of torchrun (``LOCAL_RANK``), else the first.

    Raises:
        InvalidInputError: If it is no such name, or this machine or this build of torch does not have it.

    Examples:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    import torch

    device = check_device(text, argument="--device")
    if device.type != "cuda":
        return device
    if device.index is None:
        rank, count = os.environ.get("LOCAL_RANK", "0"), torch.cuda.device_count()
        if not re.fullmatch(r"\d{1,4}", rank):
            rule, repair = "must be a process's number", "Let torchrun set it."
            raise InvalidInputError("LOCAL_RANK", rule, repr(rank), repair)
        if int(rank) >= count:
            rule = f"must have a device of its own for each process, and torch sees {count}"
            repair = f"Start {count} process{'es' * (count > 1)} at most, or compute on cpu."
            raise InvalidInputError("--device", rule, f"process {rank}", repair)
        device = torch.device("cuda", int(rank))
    torch.cuda.set_device(device.index)  # where compiled kernels start
    return device


def say_device(device: torch.device) -> None:
    """Say on standard error where the first process computes."""
    from discrete_vae.distributed import rank

    if rank() == 0:
        print(computing_on(device), file=sys.stderr)
