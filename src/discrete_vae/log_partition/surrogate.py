"""log Z with the gradient that samples of the machine give it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from discrete_vae.boltzmann.energy import BoltzmannEnergy
from discrete_vae.checks import check_states
from discrete_vae.numerics import replace_gradient


def log_partition_surrogate(energy: BoltzmannEnergy, z: Tensor, value: float = math.nan) -> Tensor:
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
        InvalidInputError: If z is not a floating-point tensor of that shape, in [0, 1].

    Examples:
        >>> from discrete_vae import RBM
        >>> rbm, z = RBM(1, 1), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> log_partition_surrogate(rbm, z).backward()
        >>> rbm.bias.grad  # of the left unit's mean, and of the right one's given the left
        tensor([0.5000, 0.5000])
    """
    return negative_phase_gradient(energy, check_states("z", z, ("chain", energy.num_units))) + value


def negative_phase_gradient(energy: BoltzmannEnergy, z: Tensor) -> Tensor:
    """A scalar of value 0 with the gradient of `log_partition_surrogate`, of checked samples."""
    surrogate = -energy.compute_marginal_energy(z.detach()).mean()
    return replace_gradient(torch.zeros_like(surrogate), surrogate)
