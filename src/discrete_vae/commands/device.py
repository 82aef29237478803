"""The option --device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    import torch


def check_device(text: str) -> torch.device:
    """The device that a user asks for.

    Raises:
        InvalidInputError: If it is no such name, or this machine or this build of torch does not have it.

    Examples:
        >>> check_device("cpu")
        device(type='cpu')
    """
    import torch

    if not re.fullmatch(r"cpu|cuda(:\d{1,4})?", text):
        raise InvalidInputError(
            "--device", "must be cpu, cuda or cuda:N", repr(text), "Leave it out for cpu."
        )
    device = torch.device(text)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        received = (
            f"{text}, where torch {torch.__version__} sees {count or 'no'} CUDA device{'s' * (count != 1)}"
        )
        repair = "Leave it out for cpu, or check the driver and the build of torch."
        raise InvalidInputError("--device", "must be available", received, repair)
    return device
