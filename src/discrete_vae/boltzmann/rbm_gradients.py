"""Energies of bipartite machines whose gradients are written out: one node each in place of a dozen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.numerics import differentiable_once, row_sum

BIT_MEAN, MEAN_BIT, MEAN_MEAN = CASES = range(3)
"""What the left and the right unit of a pair give: the bit of the one sampled earlier, the mean of the other one."""


class PairOrder(nn.Module):
    """Which pairs of the two sides take the bit of which side: a mask for each case that occurs, None if all do."""

    def __init__(self, group_left: Tensor, group_right: Tensor) -> None:
        super().__init__()
        masks = (group_left < group_right, group_left > group_right, group_left == group_right)
        self._present = tuple(case for case in CASES if bool(masks[case].any()))
        for case in self._present:
            mask = None if bool(masks[case].all()) else masks[case]
            self.register_buffer(f"mask{case}", mask, persistent=False)

    def cases(self) -> tuple[tuple[int, ...], *tuple[Tensor | None, ...]]:
        """The cases that occur, and of each the pairs that it is for, None if it is for all."""
        return self._present, *(self._buffers[f"mask{case}"] for case in self._present)


class ExpectedEnergy(torch.autograd.Function):
    """E = -(q^T b + sum over cases c of a_c^T (W * m_c) d_c), with a_c and d_c the bits or the means of the sides.

    dE/dq = -b and, by what each case takes, dE/da_c = -(W * m_c) d_c, dE/dd_c = -(W * m_c)^T a_c; by W it is
    -sum_c (a_c d_c^T) * m_c. It can be differentiated once.
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
        """The energy of each row.

        Args:
            ctx: Keeps what the backward pass needs.
            bits: (row, unit).
            mean: (row, unit).
            weight: (left, right).
            bias: (unit,).
            cases: Those of `CASES` that occur.
            masks: Of each case the pairs that it is for, (left, right) bool; None is all.

        Returns:
            (row,), nats.
        """
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
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        """See the class."""
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


class NegativePhase(torch.autograd.Function):
    """A scalar of value 0 with the gradient of log Z that states give, the right side summed out.

    With p = sigmoid(W^T z_L + b_R): by W it is the mean of z_L p^T, by b_L that of z_L, by b_R that of p. It can be
    differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, left: Tensor) -> Tensor:
        """The scalar; the gradient is worked out here.

        Args:
            ctx: Keeps the gradient.
            weight: (left, right).
            bias: (unit,).
            left: (chain, left), in {0,1}.
        """
        right = torch.addmm(bias[len(weight) :], left, weight).sigmoid_()
        ctx.num_chains = len(left)
        ctx.save_for_backward(left.T @ right, torch.cat([row_sum(left), row_sum(right)]))
        return left.new_zeros(())

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        """See the class."""
        of_weight, of_bias = ctx.saved_tensors
        of_chain = gradients[0] / ctx.num_chains
        return of_weight * of_chain, of_bias * of_chain, None


def _sides(bits: Tensor, mean: Tensor, case: int, num_left: int) -> tuple[Tensor, Tensor]:
    """What the left and the right side give in a case, as views."""
    left = bits if case == BIT_MEAN else mean
    right = bits if case == MEAN_BIT else mean
    return left[:, :num_left], right[:, num_left:]
