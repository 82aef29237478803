"""Whether a module holds a number that is not finite."""

from __future__ import annotations

import math

from torch import Tensor, nn

from discrete_vae.checks import values_are_known
from discrete_vae.errors import InvalidInputError


def non_finite_weight(module: nn.Module) -> tuple[str, float] | None:
    """The first parameter or buffer of the state that holds NaN or an infinity.

    Args:
        module: What to look through.

    Returns:
        Its name and the first such value; None if there is none.

    Examples:
        >>> import torch
        >>> norm = nn.Linear(1, 1)
        >>> non_finite_weight(norm)
        >>> torch.nn.init.constant_(norm.bias, math.inf).shape, non_finite_weight(norm)
        (torch.Size([1]), ('bias', inf))
    """
    for name, value in module.state_dict().items():
        # a sum is finite only if all of its terms are; it reads the numbers once and writes none
        if not isinstance(value, Tensor) or not values_are_known(value):  # or a module's extra state
            continue
        if value.is_floating_point() and not math.isfinite(float(value.sum())):
            broken = value[~value.isfinite()]
            if len(broken) > 0:
                return name, float(broken[0])
    return None


def check_weights(name: str, module: nn.Module) -> None:
    """Refuse a module with weights that are not finite.

    Raises:
        InvalidInputError: If it has one; names it.
    """
    found = non_finite_weight(module)
    if found is not None:
        repair = "Look for a diverged training step and restore an earlier state."
        raise InvalidInputError(f"{name}.{found[0]}", "must be finite", f"a value of {found[1]}", repair)
