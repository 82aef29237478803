"""The restricted Boltzmann machine."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import Array, PairMachine, check_temperature, finite_numbers
from discrete_vae.checks import check_positive_int, check_states
from discrete_vae.numerics import differentiable_once, full_precision, row_sum
from discrete_vae.rng import open_uniform
from discrete_vae.system import allocating


class RBM(PairMachine):
    """Two fully connected sides of binary units: E(z) = -(z_L^T W z_R + b_L^T z_L + b_R^T z_R).

    In the field's words the left side is visible and the right side hidden. Weights and biases start at zero, where
    log Z = n log 2 exactly and the posterior breaks the symmetry.

    Source: Rolfe 2017, eq. RBM-distribution, with W of shape (left, right) in place of a triangular matrix.

    Args:
        num_left: Units of the left side, at least 1.
        num_right: Units of the right side, at least 1.

    Attributes:
        weight: (left, right).
        bias: (unit,), the left side first.

    Examples:
        >>> rbm = RBM(2, 1)
        >>> with torch.no_grad():
        ...     _ = rbm.weight.copy_(torch.tensor([[1.0], [2.0]]))
        >>> rbm.energy(torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])).tolist()
        [-3.0, -0.0]
    """

    _compiled_sweeps = "gibbs_rbm"  # in `discrete_vae.kernels`

    def __init__(self, num_left: int, num_right: int) -> None:
        super().__init__()
        self.num_left = check_positive_int("num_left", num_left)
        self.num_right = check_positive_int("num_right", num_right)
        self.num_units = num_left + num_right
        with allocating("num_left, num_right", "Use fewer units."):
            self.weight = nn.Parameter(torch.zeros(num_left, num_right))
            self.bias = nn.Parameter(torch.zeros(self.num_units))
            self.blocks = (torch.arange(num_left), torch.arange(num_left, self.num_units))

    def extra_repr(self) -> str:
        return f"num_left={self.num_left}, num_right={self.num_right}"

    @classmethod
    def from_ising(cls, couplings: Array, fields: Array, *, dtype: torch.dtype | None = None) -> RBM:
        """The machine whose bits z = (s + 1) / 2 have the law of the spins s in {-1,+1} of an Ising model.

        p(s) ~ exp(-E_ising(s)) with E_ising(s) = -(s_L^T J s_R + h^T s), nats. The couplings J are (left, right), the
        fields h (unit,), the left side first; signs and all else are as in `GraphBoltzmann.from_ising`.
        `to_ising` gives both back.

        Examples:
            >>> machine = RBM.from_ising([[0.5]], [0.0, 0.1])
            >>> machine.weight.tolist(), machine.bias.tolist()
            ([[2.0]], [-1.0, -0.800...])
        """
        couplings = finite_numbers("couplings", couplings, ("left", "right"))
        machine = cls(*couplings.shape).to(dtype or torch.get_default_dtype())
        return machine._set_from_ising_(couplings, fields)

    def _pair_sums(self, values: Tensor) -> Tensor:
        return torch.cat([values.sum(1), values.sum(0)])

    def compute_energy(self, z: Tensor) -> Tensor:
        z = self._widen(z)
        left, right = z[..., : self.num_left], z[..., self.num_left :]
        return -((left @ self.weight.to(z.dtype) * right).sum(-1) + z @ self.bias.to(z.dtype))

    def free_energy(
        self, left: Tensor, block: int | None = None, inverse_temperature: float | Tensor = 1.0
    ) -> Tensor:
        """See `BoltzmannMachine.free_energy`; with the right side summed out, states of the left side suffice.

        At t = 1 that is -b_L^T z_L - sum_j softplus(b_j + (z_L^T W)_j). Block 0 is the left side; 1 or None, the right.

        Examples:
            >>> rbm = RBM(2, 3)
            >>> torch.equal(rbm.free_energy(torch.ones(4, 2)), rbm.free_energy(torch.ones(4, 5)))
            True
        """
        has_all_units = isinstance(left, Tensor) and left.shape[-1:] == (self.num_units,)
        if has_all_units or (block is not None and self._check_block(block) == 0):
            return super().free_energy(left, block, inverse_temperature)
        check_states("left", left, (..., self.num_left))
        return self.compute_free_energy(left, 1, check_temperature(inverse_temperature, left))

    def hidden_given_visible(self, visible: Tensor) -> Tensor:
        """p(z_R = 1 | z_L) = sigmoid(W^T z_L + b_R), (..., right), with a gradient, of z_L, (..., left).

        Examples:
            >>> RBM(2, 1).hidden_given_visible(torch.tensor([[1.0, 1.0], [0.0, 0.0]])).tolist()
            [[0.5], [0.5]]
        """
        with full_precision(check_states("visible", visible, (..., self.num_left))):
            return torch.sigmoid(self._logits_of_right(visible))

    def visible_given_hidden(self, hidden: Tensor) -> Tensor:
        """p(z_L = 1 | z_R) = sigmoid(W z_R + b_L) of states (..., right): (..., left); see `hidden_given_visible`."""
        with full_precision(check_states("hidden", hidden, (..., self.num_right))):
            return torch.sigmoid(self._logits_of_left(hidden))

    @torch.no_grad()
    def sample_hidden(self, visible: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw the right side, (..., right) in {0,1}, given the left one, (..., left), without gradient."""
        return _draw_bits(self.hidden_given_visible(visible), generator)

    @torch.no_grad()
    def sample_visible(self, hidden: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw the left side, (..., left), given the right one, (..., right); see `sample_hidden`."""
        return _draw_bits(self.visible_given_hidden(hidden), generator)

    def _logits_of_left(self, right: Tensor) -> Tensor:
        right = self._widen(right)
        return right @ self.weight.to(right.dtype).T + self.bias[: self.num_left].to(right.dtype)

    def _logits_of_right(self, left: Tensor) -> Tensor:
        left = self._widen(left)
        return left @ self.weight.to(left.dtype) + self.bias[self.num_left :].to(left.dtype)

    def block_place(self, block: int) -> slice:
        return slice(self.num_left) if block == 0 else slice(self.num_left, self.num_units)

    def compute_block_logits(self, z: Tensor, block: int) -> Tensor:
        if block == 0:
            return self._logits_of_left(z[..., self.num_left :])
        return self._logits_of_right(z[..., : self.num_left])

    def compute_energy_without(self, z: Tensor, block: int) -> Tensor:
        """See `BoltzmannMachine.compute_energy_without`: without one side no pair is left, so it costs no product.

        Of block 1, z may be the left side alone.
        """
        others = self.block_place(1 - block)
        z = self._widen(z)
        return -(z[..., others] @ self.bias[others].to(z.dtype))

    def pair_order(self, group_of_unit: Tensor) -> nn.Module:
        group_of_unit = group_of_unit.cpu()  # where values can be looked at
        return _PairOrder(group_of_unit[: self.num_left, None], group_of_unit[self.num_left :])

    def expected_energy(self, bits: Tensor, probabilities: Tensor, order: nn.Module) -> Tensor:
        assert isinstance(order, _PairOrder)
        weight, bias = self.weight.to(probabilities.dtype), self.bias.to(probabilities.dtype)
        rows = bits.reshape(-1, self.num_units), probabilities.reshape(-1, self.num_units)
        energy = _ExpectedEnergy.apply(*rows, weight, bias, *order.cases())
        return energy.view(probabilities.shape[:-1])

    def compute_negative_phase(self, z: Tensor) -> Tensor:
        z = self._widen(z)
        return _NegativePhase.apply(self.weight.to(z.dtype), self.bias.to(z.dtype), z[:, : self.num_left])


def _draw_bits(probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    return (open_uniform(probabilities, generator=generator) < probabilities).to(probabilities.dtype)


# Energies whose gradients are written out: one node of the graph each in place of a dozen.


_BIT_MEAN, _MEAN_BIT, _MEAN_MEAN = _CASES = range(3)
"""Cases of a pair of a left and a right unit: the bit of the one sampled earlier, the mean of the other one."""


class _PairOrder(nn.Module):
    """The cases of pairs that occur, and the mask of each, None where all pairs are of it."""

    def __init__(self, group_left: Tensor, group_right: Tensor) -> None:
        super().__init__()
        masks = (group_left < group_right, group_left > group_right, group_left == group_right)
        self._present = tuple(case for case in _CASES if bool(masks[case].any()))
        for case in self._present:
            mask = None if bool(masks[case].all()) else masks[case]
            self.register_buffer(f"mask{case}", mask, persistent=False)

    def cases(self) -> tuple[tuple[int, ...], *tuple[Tensor | None, ...]]:
        return self._present, *(self._buffers[f"mask{case}"] for case in self._present)


class _ExpectedEnergy(torch.autograd.Function):
    """E = -(q^T b + sum over cases c of a_c^T (W * m_c) d_c), with a_c and d_c the bits or the means of the sides.

    Linear term: dE/dq = -b, dE/db = -q. Pairs: dE/da_c = -(W * m_c) d_c, dE/dd_c = -(W * m_c)^T a_c and
    dE/dW = -sum_c (a_c d_c^T) * m_c. E is (row,), nats, of bits and mean (row, unit); differentiable once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        bits: Tensor,
        mean: Tensor,
        weight: Tensor,
        bias: Tensor,
        cases: tuple[int, ...],
        *masks: Tensor | None,
    ) -> Tensor:
        num_left = len(weight)
        total, fields = mean @ bias, []
        for case, mask in zip(cases, masks, strict=True):
            left, right = _sides(bits, mean, case, num_left)
            fields.append(left @ (weight if mask is None else weight * mask))
            total = total.add((fields[-1] * right).sum(-1))
        ctx.cases, ctx.masks = cases, masks
        ctx.save_for_backward(bits, mean, weight, bias, *fields)
        return total.neg()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        bits, mean, weight, bias, *fields = ctx.saved_tensors
        num_left = len(weight)
        minus = gradients[0].neg().unsqueeze(-1)
        of_bits, of_mean, of_weight = torch.zeros_like(bits), minus * bias, None
        for case, mask, field in zip(ctx.cases, ctx.masks, fields, strict=True):
            left, right = _sides(bits, mean, case, num_left)
            of_left, of_right = _sides(of_bits, of_mean, case, num_left)
            scaled = minus * right
            of_right.addcmul_(field, minus)
            of_left.addmm_(scaled, (weight if mask is None else weight * mask).T)
            pairs = left.T @ scaled
            pairs = pairs if mask is None else pairs * mask
            of_weight = pairs if of_weight is None else of_weight + pairs
        return of_bits, of_mean, of_weight, minus.squeeze(-1) @ mean, None, *(None for _ in ctx.masks)


class _NegativePhase(torch.autograd.Function):
    """A scalar of value 0 with the gradient of log Z that states give, the right side summed out.

    With p = sigmoid(W^T z_L + b_R), it is the mean of z_L p^T for W, of z_L for b_L, of p for b_R. It can be
    differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, left: Tensor) -> Tensor:
        right = torch.addmm(bias[len(weight) :], left, weight).sigmoid_()
        ctx.num_chains = len(left)
        ctx.save_for_backward(left.T @ right, torch.cat([row_sum(left), row_sum(right)]))
        return left.new_zeros(())

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        of_weight, of_bias = ctx.saved_tensors
        of_chain = gradients[0] / ctx.num_chains
        return of_weight * of_chain, of_bias * of_chain, None


def _sides(bits: Tensor, mean: Tensor, case: int, num_left: int) -> tuple[Tensor, Tensor]:
    left = bits if case == _BIT_MEAN else mean
    right = bits if case == _MEAN_BIT else mean
    return left[:, :num_left], right[:, num_left:]
