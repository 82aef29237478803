"""log Z with the gradient that samples of the machine give it."""

from __future__ import annotations

import math
from typing import SupportsFloat

from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_log_partition, check_states
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.exact import (
    MAX_SILENTLY_ENUMERATED_UNITS,
    enumerate_log_partition,
    num_enumerated_units,
)


def log_partition_surrogate(energy: BoltzmannMachine, z: Tensor, value: float = math.nan) -> Tensor:
    """A scalar whose gradient, -E_p[dE/dtheta], is that of log Z: the negative phase of samples.

    The last block of the energy is summed out, which lowers the variance. The gradient is unbiased where the samples
    are from p; the value is taken as it is.

    Source: Rolfe 2017, eq. RBM-grad.

    Args:
        energy: The machine.
        z: (chain, unit), samples of it.
        value: log Z, nats, if it is known; it has no effect on the gradient.

    Returns:
        A scalar tensor, nats; NaN unless value is given.

    Raises:
        InvalidInputError: If z is not a floating-point tensor of that shape, in [0, 1], with one chain at least.

    Examples:
        >>> import torch
        >>> from discrete_vae import RBM
        >>> rbm, z = RBM(1, 1), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> log_partition_surrogate(rbm, z).backward()
        >>> rbm.bias.grad  # of the left unit's mean, and of the right one's given the left
        tensor([0.5000, 0.5000])
    """
    z = _check_chains("z", z, energy)
    return energy.compute_negative_phase(z.detach()) + value


def _check_chains(name: str, z: object, energy: BoltzmannMachine) -> Tensor:
    """Return samples of a machine for its negative phase if they are (chain, unit), at least one, in [0, 1].

    Raises:
        InvalidInputError: If they are anything else.
    """
    states = check_states(name, z, ("chain", energy.num_units))
    if len(states) == 0:
        raise InvalidInputError(
            name, "must hold at least one state", 0, "Draw some, for example chains.step(30)."
        )
    return states


def gradient_and_value(
    energy: BoltzmannMachine, negative_phase: Tensor | None, log_partition: Tensor | SupportsFloat | None
) -> tuple[Tensor | None, Tensor | float | None]:
    """What an objective knows of log Z.

    Where neither argument is given, log Z is enumerated if at most 12 units lie outside the energy's largest block.

    Args:
        energy: The machine.
        negative_phase: (chain, unit), samples of it, which give the gradient.
        log_partition: The value, nats; a tensor that carries a gradient gives that too.

    Returns:
        A scalar of value 0 with the gradient of log Z, and its value; None for what is not known.

    Raises:
        InvalidInputError: If an argument breaks its rule, or both carry a gradient.
    """
    if negative_phase is None and log_partition is None:
        if num_enumerated_units(energy) > MAX_SILENTLY_ENUMERATED_UNITS:
            return None, None
        log_partition = enumerate_log_partition(energy)
    value = None if log_partition is None else check_log_partition(log_partition)
    gradient = None
    if negative_phase is not None:
        states = _check_chains("negative_phase", negative_phase, energy)
        gradient = energy.compute_negative_phase(states.detach())
    if isinstance(value, Tensor) and value.requires_grad:
        if gradient is not None:
            repair = "Give the negative phase, or a log Z that carries a gradient, not both."
            raise InvalidInputError("log_partition", "must carry no gradient here", "one that does", repair)
        value, gradient = value.detach(), value - value.detach()
    return gradient, value
