"""Checks of arguments that are to be Boltzmann machines."""

from __future__ import annotations

import torch

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import values_are_known
from discrete_vae.errors import InvalidInputError


def check_parameters(energy: BoltzmannMachine, *, below: float) -> None:
    """Refuse parameters that are not finite, or so large that sums of them may overflow; waits for an accelerator.

    Args:
        energy: The machine.
        below: Bound of the sum of a parameter's absolute values.

    Raises:
        InvalidInputError: If there is one; names it.
    """
    for name, parameter in energy.named_parameters():
        if not values_are_known(parameter):
            continue
        largest = float(parameter.detach().abs().sum(dtype=torch.float64))
        if not largest < below:
            raise InvalidInputError(
                f"energy.{name}",
                f"must be finite, with absolute values that sum to less than {below:g}",
                f"a sum of {largest:g}",
                "Look for a diverged training step and restore an earlier state.",
            )


def check_energy(value: object) -> BoltzmannMachine:
    """Return value if it is a BoltzmannMachine.

    Raises:
        InvalidInputError: If it is something else.
    """
    if not isinstance(value, BoltzmannMachine):
        received = f"a {type(value).__name__}"
        raise InvalidInputError("energy", "must be a BoltzmannMachine", received, "Give an RBM, for example.")
    return value
