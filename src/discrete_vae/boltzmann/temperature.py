"""Inverse temperatures as arguments of a machine's methods."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from discrete_vae.checks import extremes
from discrete_vae.errors import InvalidInputError


def check_temperature(value: float | Tensor, z: Tensor) -> float | Tensor:
    """Return an inverse temperature that does not enlarge the leading axes of z.

    Args:
        value: A finite number, or a tensor that broadcasts to the leading axes.
        z: (..., unit).

    Raises:
        InvalidInputError: If it is something else.
    """
    lead = z.shape[:-1]
    rule = f"must be a number or a tensor that fits the leading axes {tuple(lead)} of z"
    repair = "Give one inverse temperature for each state."
    try:
        t = torch.as_tensor(value, device=z.device)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInputError("inverse_temperature", rule, repr(value), repair) from None
    if t.is_complex():
        raise InvalidInputError("inverse_temperature", rule, t.dtype, repair)
    if t.shape not in ((), lead) and not _fits(t.shape, lead):
        raise InvalidInputError("inverse_temperature", rule, f"shape {tuple(t.shape)}", repair)
    ends = (value, value) if isinstance(value, float) else extremes(t)
    for end in ends or ():
        if not math.isfinite(end):
            raise InvalidInputError(
                "inverse_temperature", "must be finite", end, "Give a number from 0 to 1."
            )
    return value if isinstance(value, float) else t


def _fits(shape: torch.Size, lead: torch.Size) -> bool:
    """Whether a shape broadcasts to another one."""
    try:
        return torch.broadcast_shapes(shape, lead) == lead
    except RuntimeError:
        return False
