"""Products of states with sparse matrices, with gradients of any order in the memory of the states.

torch's own product of a sparse and a dense matrix forms a dense gradient for the sparse one. The two operations
here are each other's derivatives and never leave the entries that are there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discrete_vae.checks import values_are_readable

_LARGEST_PART = 1 << 24  # numbers that a product of gathered states holds at a time


def sparse_product(values: Tensor, z: Tensor, rows: Tensor, columns: Tensor, num_rows: int) -> Tensor:
    """y_r = sum over the entries (r, c, v) of v z_c.

    Args:
        values: (entry,), of the dtype of z.
        z: (..., column).
        rows: (entry,) int64.
        columns: (entry,) int64.
        num_rows: Length of the result's last axis.

    Returns:
        (..., row).

    Examples:
        >>> place = torch.tensor([0, 1])
        >>> sparse_product(torch.tensor([2.0, 3.0]), torch.tensor([[1.0, 10.0]]), place, 1 - place, 2)
        tensor([[20.,  3.]])
    """
    flat = z.reshape(-1, z.shape[-1]).T.contiguous()
    return _SparseProduct.apply(values, flat, rows, columns, num_rows).T.reshape(*z.shape[:-1], num_rows)  # pyright: ignore[reportOptionalMemberAccess]


class _SparseProduct(torch.autograd.Function):
    """values (entry,), z (column, batch) -> (row, batch)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, z: Tensor, rows: Tensor, columns: Tensor, num_rows: int) -> Tensor:
        ctx.save_for_backward(values, z, rows, columns)
        if values_are_readable(z):
            matrix = torch.sparse_coo_tensor(
                torch.stack([rows, columns]), values, (num_rows, len(z)), check_invariants=False
            )
            return torch.sparse.mm(matrix, z)
        # an accelerator would sort the entries in each call, and a compiled graph knows no sparse tensors
        result = z.new_zeros(num_rows, z.shape[1])
        size = max(1, _LARGEST_PART // max(1, z.shape[1]))
        for v, r, c in zip(values.split(size), rows.split(size), columns.split(size), strict=True):
            result = result.index_add(0, r, z.index_select(0, c) * v[:, None])
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        values, z, rows, columns = ctx.saved_tensors
        grad = grad.contiguous()
        of_values = _SampledProduct.apply(grad, z, rows, columns) if ctx.needs_input_grad[0] else None
        of_z = None
        if ctx.needs_input_grad[1]:
            of_z = _SparseProduct.apply(values, grad, columns, rows, len(z))
        return of_values, of_z, None, None, None


class _SampledProduct(torch.autograd.Function):
    """left (row, batch), right (column, batch) -> sum over the batch of left_r right_c for each entry."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(left, right, rows, columns)
        size = max(1, _LARGEST_PART // max(1, left.shape[1]))
        parts = [
            (left.index_select(0, r) * right.index_select(0, c)).sum(-1)
            for r, c in zip(rows.split(size), columns.split(size), strict=True)
        ]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        left, right, rows, columns = ctx.saved_tensors
        of_left = of_right = None
        if ctx.needs_input_grad[0]:
            of_left = _SparseProduct.apply(grad, right, rows, columns, len(left))
        if ctx.needs_input_grad[1]:
            of_right = _SparseProduct.apply(grad, left, columns, rows, len(right))
        return of_left, of_right, None, None
