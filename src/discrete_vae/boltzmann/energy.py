"""What every Boltzmann machine of the library can do; samplers, KLs and log Z estimates build on it alone."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import softplus


class BoltzmannEnergy(nn.Module, ABC):
    """A distribution p(z) = exp(-E(z)) / Z over z in {0,1}^n with at most pairwise terms.

    E(z) = -(sum_{i<j} W_ij z_i z_j + b^T z). States may be relaxed or float64: everything is computed in the wider
    of the state's and the parameters' dtypes, so float64 states give float64 results from float32 parameters.

    Source: Rolfe 2017, eq. RBM-distribution. Deviation: the paper's W is triangular, here each pair has one entry.

    Attributes:
        num_units: n.
        blocks: Disjoint index tensors (int64) that cover all units; units of one block are independent given all
            others. Block Gibbs samples the blocks in this order.
    """

    num_units: int
    blocks: tuple[Tensor, ...]
    bias: nn.Parameter

    @abstractmethod
    def energy(self, z: Tensor) -> Tensor:
        """E(z) for z of shape (..., unit); nats, shape (...)."""

    @abstractmethod
    def block_logits(self, z: Tensor, block: int) -> Tensor:
        """Log-odds of a block's units given all the others.

        Args:
            z: (..., unit); the entries of the block itself are ignored.
            block: Index into `blocks`.

        Returns:
            (..., unit of the block), in nats.
        """

    @abstractmethod
    def pair_order(self, group_of_unit: Tensor) -> nn.Module:
        """What `expected_energy` needs to know of a posterior: which unit of each pair is sampled earlier.

        Args:
            group_of_unit: (unit,) int64, the position of each unit's group in the order of sampling.

        Returns:
            A module that holds nothing but constants; make it once per pair of posterior and machine.
        """

    @abstractmethod
    def expected_energy(self, bits: Tensor, probabilities: Tensor, order: nn.Module) -> Tensor:
        """An unbiased value of E[E(z)] under a posterior in which groups of units are sampled one after another.

        A linear term takes the probability of its unit. A pair takes the bit of the unit that is sampled earlier
        and the probability of the later one; two units of one group take both probabilities.

        Args:
            bits: (..., unit), sampled bits or posterior means of z, carrying the gradient of
                `Smoothing.bits`.
            probabilities: (..., unit), q(z = 1) given everything sampled earlier.
            order: What `pair_order` gives for that posterior.

        Returns:
            (...), nats.
        """

    def block_free_energy(self, z: Tensor, block: int, inverse_temperature: float | Tensor = 1.0) -> Tensor:
        """Free energy of all units but one block: -log sum over the block's states of exp(-t E(z)).

        Args:
            z: (..., unit); the entries of the block itself are ignored.
            block: Index into `blocks`.
            inverse_temperature: t, a number or a tensor (...).

        Returns:
            (...), nats.
        """
        z = self._states("z", z, self.num_units)
        keep = torch.ones(self.num_units, dtype=z.dtype, device=z.device)
        keep[self.blocks[block]] = 0
        scale = torch.as_tensor(inverse_temperature, dtype=z.dtype, device=z.device)
        logits = scale[..., None] * self.block_logits(z, block)
        return scale * self.energy(z * keep) - softplus(logits).sum(-1)

    def marginal_energy(self, z: Tensor, inverse_temperature: float | Tensor = 1.0) -> Tensor:
        """Free energy with the last block summed out.

        Its gradient at t = 1 is the Rao-Blackwellised gradient of the energy: averaged over z ~ p it is
        E_p[dE/dtheta] = -d log Z / dtheta (eq. RBM-grad), with less variance than the gradient of E(z).

        Args:
            z: (..., unit).
            inverse_temperature: t, a number or a tensor (...).

        Returns:
            (...), nats.
        """
        return self.block_free_energy(z, len(self.blocks) - 1, inverse_temperature)

    def forward(self, z: Tensor) -> Tensor:
        """The energy, so that the module can be called."""
        return self.energy(z)

    def _states(self, name: str, z: Tensor, width: int) -> Tensor:
        """Check a batch of states and bring it to the dtype of the computation."""
        check_tensor(name, z, (..., width))
        return z.to(torch.promote_types(z.dtype, self.bias.dtype))


def check_energy(value: object) -> BoltzmannEnergy:
    """Return value if it is a BoltzmannEnergy.

    Raises:
        InvalidInputError: If it is something else.
    """
    if not isinstance(value, BoltzmannEnergy):
        received = f"a {type(value).__name__}"
        raise InvalidInputError("energy", "must be a BoltzmannEnergy", received, "Give an RBM, for example.")
    return value
