"""Where to compute: the names of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    import torch


def check_device(device: torch.device | str, *, argument: str = "device") -> torch.device:
    """Return the device of a name if this machine and this build of torch have it.

    Args:
        device: "cpu", "cuda", "cuda:N" or another name of torch's, such a torch.device, or "auto": CUDA where there is
            a device, else the CPU.
        argument: Name of the argument, for messages.

    Raises:
        InvalidInputError: If it is no such name, or the device is not there.

    Examples:
        >>> check_device("cpu")
        device(type='cpu')
        >>> check_device("gpu")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: device must be auto, cpu, cuda or cuda:N; received 'gpu'. Leave it out
        for the default.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        name = ("cuda" if count else "cpu") if device == "auto" else device
        found = torch.device(name) if isinstance(name, str | torch.device) else None
    except RuntimeError:
        found = None
    if found is None or found.type == "meta":  # which holds no values
        rule, repair = "must be auto, cpu, cuda or cuda:N", "Leave it out for the default."
        raise InvalidInputError(argument, rule, repr(device)[:80], repair)
    if found.type == "cuda":
        there = (found.index or 0) < count
        sees = f"{count or 'no'} CUDA device{'s' * (count != 1)}"
    else:
        there, sees = _is_there(found), "none of that kind"
    if not there:
        received = f"{found}, where torch {torch.__version__} sees {sees}"
        repair = "Check the driver and the build of torch, or compute on cpu."
        raise InvalidInputError(argument, "must be available", received, repair)
    return found


def computing_on(device: torch.device) -> str:
    """One sentence that names the device, and the threads of the CPU."""
    import torch

    threads = torch.get_num_threads()
    with_threads = f" with {threads} thread{'s' * (threads > 1)}" if device.type == "cpu" else ""
    return f"Computing on {device}{with_threads}."


def _is_there(device: torch.device) -> bool:
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, NotImplementedError, AssertionError, ImportError):  # as each backend has it
        return False
    return True
