"""Independent binary units: a Boltzmann machine without connections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int
from discrete_vae.memory import allocating


class FactorialBernoulli(BoltzmannMachine):
    """p(z) = prod_i Bernoulli(z_i; sigmoid(b_i)), so E(z) = -b^T z and log Z = sum_i softplus(b_i).

    All units form one block: one sweep of block Gibbs draws independent samples, and the marginal energy is the
    constant -log Z, whose gradient is exact.

    Source: Rolfe 2017, section supplementary-results (the prior without lateral connections).

    Args:
        num_units: Number of units, at least 1.

    Attributes:
        bias: (unit,), the log-odds; zero at the start.

    Raises:
        InvalidInputError: If num_units is not a positive integer.

    Examples:
        >>> FactorialBernoulli(3).free_energy(torch.zeros(1, 3)).item()  # -3 log 2
        -2.0794...
    """

    def __init__(self, num_units: int) -> None:
        super().__init__()
        self.num_units = check_positive_int("num_units", num_units)
        with allocating("num_units", "Use fewer units."):
            self.bias = nn.Parameter(torch.zeros(num_units))
            self.blocks = (torch.arange(num_units),)

    def extra_repr(self) -> str:
        """The size."""
        return f"num_units={self.num_units}"

    def compute_energy(self, z: Tensor) -> Tensor:
        """E(z) = -b^T z; see `BoltzmannMachine.energy`."""
        z = self._widen(z)
        return -(z @ self.bias.to(z.dtype))

    def block_place(self, block: int) -> slice:
        """See `BoltzmannMachine.block_place`: all units."""
        return slice(self.num_units)

    def compute_energy_without(self, z: Tensor, block: int) -> Tensor:
        """0: there are no units outside the block."""
        return self._widen(z).new_zeros(z.shape[:-1])

    def compute_block_logits(self, z: Tensor, block: int) -> Tensor:
        """The biases, whatever z; see `BoltzmannMachine.block_logits`."""
        z = self._widen(z)
        return self.bias.to(z.dtype).expand(z.shape)

    def pair_order(self, group_of_unit: Tensor) -> nn.Module:
        """See `BoltzmannMachine.pair_order`: there are no pairs."""
        return nn.Identity()

    def expected_energy(self, bits: Tensor, probabilities: Tensor, order: nn.Module) -> Tensor:
        """See `BoltzmannMachine.expected_energy`: there are no pairs, so bits and order do not matter."""
        return -(probabilities @ self.bias.to(probabilities.dtype))
