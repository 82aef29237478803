"""Checks of arguments, each raising an error in the house's form.

The functions look at attributes of tensors only, so this module imports no torch when it is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING

from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor

Axis = str | int


def check_positive_int(
    name: str, value: object, *, repair: str = "Give a whole number of at least 1."
) -> int:
    """Return value if it is an integer of at least 1 (booleans are refused).

    Raises:
        InvalidInputError: If it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInputError(name, "must be a positive integer", repr(value), repair)
    return value


def check_number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    repair: str,
) -> float:
    """Return value as a float if it is a finite number inside the given bounds.

    Raises:
        InvalidInputError: If it is not a number, not finite, or outside the bounds.
    """
    rule = "must be a finite number"
    rule += f" above {above:g}" if above > -math.inf else ""
    rule += f" of at least {at_least:g}" if at_least > -math.inf else ""
    rule += f" of at most {at_most:g}" if at_most < math.inf else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(name, rule, repr(value)[:80], repair)
    try:
        number = float(value)
    except OverflowError:
        raise InvalidInputError(name, rule, "an integer of hundreds of digits", repair) from None
    if not math.isfinite(number) or number <= above or number < at_least or number > at_most:
        raise InvalidInputError(name, rule, repr(value), repair)
    return number


def check_tensor(name: str, value: object, shape: Sequence[Axis | EllipsisType]) -> Tensor:
    """Return value if it is a floating-point tensor of the given shape.

    Args:
        name: Name of the argument.
        value: The object to check.
        shape: One entry an axis: an integer fixes its length, a word names an axis of any length, and a
            leading ``...`` stands for any number of axes.

    Raises:
        InvalidInputError: If it is not a tensor, not of a floating-point type, or of another shape.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        raise InvalidInputError(
            name,
            "must be a torch.Tensor",
            f"a {type(value).__name__}",
            "Wrap it with torch.as_tensor(..., dtype=torch.float32).",
        )
    if not value.is_floating_point():
        raise InvalidInputError(
            name, "must have a floating-point dtype", value.dtype, f"Convert it with {name}.float()."
        )
    open_front = len(shape) > 0 and shape[0] is Ellipsis
    axes = [axis for axis in shape if axis is not Ellipsis]
    got = tuple(value.shape)
    tail = got[len(got) - len(axes) :] if open_front and len(got) >= len(axes) else got
    fits = len(tail) == len(axes) and all(
        isinstance(want, str) or want == have for want, have in zip(axes, tail, strict=True)
    )
    if not fits:
        words = ", ".join("..." if axis is Ellipsis else str(axis) for axis in shape)
        raise InvalidInputError(
            name, f"must have shape ({words})", f"shape {got}", "Check the order and size of its axes."
        )
    return value


def check_unit_interval(name: str, value: Tensor) -> Tensor:
    """Return value if every element lies in [0, 1]; NaN is refused.

    Raises:
        InvalidInputError: If an element is NaN or outside [0, 1]; names the first offender's value.
    """
    inside = (value >= 0) & (value <= 1)
    if not bool(inside.all()):
        worst = value[~inside].flatten()[0].item()
        largest = value.max().item()
        repair = "Divide 0..255 intensities by 255." if largest > 1 else "Remove NaN and negative entries."
        raise InvalidInputError(name, "must hold values in [0, 1]", f"a value of {worst:g}", repair)
    return value


def check_binary(name: str, value: Tensor) -> Tensor:
    """Return value if every element is 0 or 1.

    Raises:
        InvalidInputError: If any element is something else, NaN included.
    """
    binary = (value == 0) | (value == 1)
    if not bool(binary.all()):
        worst = value[~binary].flatten()[0].item()
        raise InvalidInputError(
            name,
            "must hold only the values 0 and 1",
            f"a value of {worst:g}",
            "Binarise it, for example with torch.bernoulli.",
        )
    return value
