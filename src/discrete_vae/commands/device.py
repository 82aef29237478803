"""The option --device."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    import torch


def choose_device(text: str) -> torch.device:
    """The device that a user asks for; auto is a CUDA device where there is one, else the CPU.

    A CUDA device without a number is that of the process among those of torchrun (``LOCAL_RANK``), else the first; it
    becomes the process's current one.

    Raises:
        InvalidInputError: If it is no such name, or this machine or this build of torch does not have it.

    Examples:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    import torch

    found = re.fullmatch(r"auto|cpu|cuda(?::(\d{1,4}))?", text)
    if found is None:
        rule = "must be auto, cpu, cuda or cuda:N"
        raise InvalidInputError("--device", rule, repr(text), "Leave it out for auto.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if text == "cpu" or (text == "auto" and count == 0):
        return torch.device("cpu")
    index = int(found[1] or _local_rank())
    if index >= count:
        received = f"cuda:{index}, where torch {torch.__version__} sees {count or 'no'} CUDA device{'s' * (count != 1)}"
        repair = "Check the driver and the build of torch, or give --device cpu."
        if found[1] is None and count:
            repair = f"Start {count} process{'es' * (count > 1)} at most, or give --device cpu."
        raise InvalidInputError("--device", "must be available", received, repair)
    torch.cuda.set_device(index)  # where compiled kernels start
    return torch.device("cuda", index)


def computing_on(device: torch.device) -> str:
    """One sentence that names the device, and the threads of the CPU."""
    import torch

    threads = torch.get_num_threads()
    with_threads = f" with {threads} thread{'s' * (threads > 1)}" if device.type == "cpu" else ""
    return f"Computing on {device}{with_threads}."


def say_device(device: torch.device) -> None:
    """Say on standard error where the first process computes."""
    from discrete_vae.distributed import rank

    if rank() == 0:
        print(computing_on(device), file=sys.stderr)


def _local_rank() -> str:
    text = os.environ.get("LOCAL_RANK", "0")
    if not re.fullmatch(r"\d{1,4}", text):
        raise InvalidInputError(
            "LOCAL_RANK", "must be a process's number", repr(text), "Let torchrun set it."
        )
    return text
