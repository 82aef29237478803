"""What every Boltzmann machine of the library can do; samplers, KLs and log Z estimates build on it alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.temperature import check_temperature
from discrete_vae.checks import check_index, check_states
from discrete_vae.forks import guard_forks
from discrete_vae.full_precision import guard_products
from discrete_vae.numerics import replace_gradient, softplus


class BoltzmannMachine(nn.Module, ABC):
    """A distribution p(z) = exp(-E(z)) / Z over z in {0,1}^n with at most pairwise terms.

    E(z) = -(sum_{i<j} W_ij z_i z_j + b^T z). States may be relaxed or float64: everything is computed in the wider
    of the state's and the parameters' dtypes, so float64 states give float64 results from float32 parameters. Neither
    autocast nor TF32 reaches the methods that compute, a subclass's own included, see `full_precision.full_precision`.

    A machine of your own defines `compute_energy`, `compute_block_logits`, `pair_order` and `expected_energy`, which
    trust their arguments; inner loops call them. The methods without "compute" check theirs first.

    Source: Rolfe 2017, eq. RBM-distribution. Deviation: the paper's W is triangular, here each pair has one entry.

    Attributes:
        num_units: n.
        blocks: Disjoint index tensors (int64) that cover all units; units of one block are independent given all
            others. Block Gibbs samples the blocks in this order. They are buffers and so move with the machine, but
            belong to the constructor's arguments, not to the state.
    """

    num_units: int
    bias: nn.Parameter
    _num_blocks: int

    def __init_subclass__(cls, **keywords: object) -> None:
        """Guard the precision of what the subclass computes."""
        super().__init_subclass__(**keywords)
        guard_products(cls, _COMPUTING)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Every machine passes here, unpickled ones too; whatever divides work among threads here needs a machine."""
        guard_forks()
        return super().__new__(cls)

    @property
    def blocks(self) -> tuple[Tensor, ...]:
        """The blocks, on the machine's device; they belong to the constructor's arguments, not to the state.

        A machine of your own sets them once, after its `nn.Module.__init__`.
        """
        return tuple(self.get_buffer(f"_block_{index}") for index in range(self._num_blocks))

    @blocks.setter
    def blocks(self, blocks: Sequence[Tensor]) -> None:
        self._num_blocks = len(blocks)
        for index, block in enumerate(blocks):
            self.register_buffer(f"_block_{index}", block, persistent=False)

    def block_place(self, block: int) -> slice | Tensor:
        """The units of a block as an index of the last axis: a slice where they are neighbors, which saves copies."""
        return self.get_buffer(f"_block_{block}")

    def is_factorial(self) -> bool:
        """Whether the units are known to be independent, so that log Z = sum_i softplus(b_i); looks at the weights.

        A machine of your own that can tell says so; until then only one with a single block is known to be.
        """
        return self._num_blocks == 1

    def energy(self, z: Tensor) -> Tensor:
        """E(z).

        Args:
            z: (..., unit), in {0,1}, or relaxed.

        Returns:
            (...), nats.

        Raises:
            InvalidInputError: If z is not a floating-point tensor of that shape with values in [0, 1].
        """
        return self.compute_energy(check_states("z", z, (..., self.num_units)))

    def block_logits(self, z: Tensor, block: int) -> Tensor:
        """Log-odds of a block's units given all the others.

        Args:
            z: (..., unit), in {0,1}, or relaxed; the entries of the block itself are ignored.
            block: Index into `blocks`.

        Returns:
            (..., unit of the block), in nats.

        Raises:
            InvalidInputError: If z breaks the rules of `energy`, or there is no such block.
        """
        check_states("z", z, (..., self.num_units))
        return self.compute_block_logits(z, self._check_block(block))

    def free_energy(
        self, z: Tensor, /, block: int | None = None, inverse_temperature: float | Tensor = 1.0
    ) -> Tensor:
        """Free energy of all units but one block: -log sum over the block's states of exp(-t E(z)).

        Its gradient at t = 1 is the Rao-Blackwellized gradient of the energy: averaged over z ~ p it is
        E_p[dE/dtheta] = -d log Z / dtheta (eq. RBM-grad), with less variance than the gradient of E(z).

        Args:
            z: (..., unit), in {0,1}, or relaxed; the entries of the block itself are ignored.
            block: Index into `blocks` of the units that are summed out; None means the last block.
            inverse_temperature: t, a number or a tensor (...) that fits the leading axes of z.

        Returns:
            (...), nats.

        Raises:
            InvalidInputError: If z breaks the rules of `energy`, there is no such block, or t is not finite or has
                another shape.
        """
        check_states("z", z, (..., self.num_units))
        t = check_temperature(inverse_temperature, z)
        return self.compute_free_energy(z, None if block is None else self._check_block(block), t)

    def forward(self, z: Tensor) -> Tensor:
        """The energy, so that the module can be called."""
        return self.energy(z)

    @abstractmethod
    def compute_energy(self, z: Tensor) -> Tensor:
        """`energy` of checked states."""

    @abstractmethod
    def compute_block_logits(self, z: Tensor, block: int) -> Tensor:
        """`block_logits` of checked arguments."""

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
        and the probability of the later one; two units of one group take both probabilities. Arguments are not
        checked.

        Args:
            bits: (..., unit), sampled bits or posterior means of z, carrying the gradient of
                `Smoothing.bits`.
            probabilities: (..., unit), q(z = 1) given everything sampled earlier.
            order: What `pair_order` gives for that posterior.

        Returns:
            (...), nats.
        """

    def sum_pairs(self, z: Tensor) -> Tensor:
        """Sums of z_i z_j over chains, for the pairs whose moments `RunningMoments` keeps.

        Args:
            z: (..., chain, unit), in {0,1}; arguments are not checked.

        Returns:
            For units i of the first block and all j outside it, (..., unit, other unit); a machine whose weights are
            fewer has one sum per weight.
        """
        first = z[..., self.block_place(0)]
        if len(self.blocks) == 1:
            return z.new_zeros(*z.shape[:-2], first.shape[-1], 0)
        return first.transpose(-1, -2) @ z[..., torch.cat(self.blocks[1:])]

    def compute_free_energy(
        self, z: Tensor, block: int | None = None, inverse_temperature: float | Tensor = 1.0
    ) -> Tensor:
        """`free_energy` of checked arguments."""
        z = self._widen(z)
        block = self._num_blocks - 1 if block is None else block
        logits, energy = self.compute_block_logits(z, block), self.compute_energy_without(z, block)
        if isinstance(inverse_temperature, Tensor):
            scale = inverse_temperature.to(z)
            logits, energy = scale[..., None] * logits, scale * energy
        elif inverse_temperature != 1.0:
            logits, energy = inverse_temperature * logits, inverse_temperature * energy
        return energy - softplus(logits).sum(-1)

    def compute_negative_phase(self, z: Tensor) -> Tensor:
        """A scalar of value 0 with the gradient -E_p[dE/dtheta] of log Z, the last block summed out.

        Args:
            z: (chain, unit), checked samples.
        """
        surrogate = -self.compute_free_energy(z).mean()
        return replace_gradient(torch.zeros_like(surrogate), surrogate)

    def compute_energy_without(self, z: Tensor, block: int) -> Tensor:
        """E of checked states with the units of one block set to 0."""
        z = self._widen(z)
        keep = torch.ones(self.num_units, dtype=z.dtype, device=z.device)
        keep[self.block_place(block)] = 0
        return self.compute_energy(z * keep)

    def _widen(self, z: Tensor) -> Tensor:
        """Bring states to the dtype of the computation."""
        return z.to(torch.promote_types(z.dtype, self.bias.dtype))

    def _check_block(self, block: int) -> int:
        """Return the index of a block."""
        repair = "It is an index into the machine's blocks; of an RBM, 0 is the left side and 1 the right."
        return check_index("block", block, len(self.blocks), repair=repair)


_COMPUTING = (
    "compute_energy",
    "compute_energy_without",
    "compute_block_logits",
    "compute_free_energy",
    "compute_negative_phase",
    "expected_energy",
)

guard_products(BoltzmannMachine, _COMPUTING)
