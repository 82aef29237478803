"""Products of states with sparse matrices, with gradients of any order in the memory of the states.

torch's own product of a sparse and a dense matrix forms a dense gradient for the sparse one. The two operations
here are each other's derivatives and never leave the entries that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from discrete_vae.checks import values_are_readable
from discrete_vae.compiled.recording import recordable

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
    return product_at(values, z, torch.stack([rows, columns]), num_rows)


def product_at(
    values: Tensor, z: Tensor, places: Tensor, num_rows: int, *, coalesced: bool = False
) -> Tensor:
    """`sparse_product` with constant places, which need not be sorted at each call.

    Args:
        values: (entry,), of the dtype of z.
        z: (..., column).
        places: (2, entry) int64, rows and columns.
        num_rows: Length of the result's last axis.
        coalesced: Whether the rows ascend, and the columns within a row.

    Returns:
        (..., row).
    """
    flat = z.reshape(-1, z.shape[-1]).T.contiguous()
    return _SparseProduct.apply(values, flat, places, num_rows, coalesced).T.reshape(*z.shape[:-1], num_rows)  # pyright: ignore[reportOptionalMemberAccess]


def sampled_product(left: Tensor, right: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """sum over the batch of left_r right_c for each entry (r, c), in parts of at most 2^24 numbers.

    Args:
        left: (row, batch).
        right: (column, batch).
        rows: (entry,) int64.
        columns: (entry,) int64.

    Returns:
        (entry,).
    """
    return _SampledProduct.apply(left, right, rows, columns)  # pyright: ignore[reportReturnType]


def _multiply(values: Tensor, z: Tensor, places: Tensor, num_rows: int, coalesced: bool) -> Tensor:
    if values_are_readable(z):
        result = z.new_empty(num_rows, z.shape[1])
        _multiply_into(result, values, z, places, coalesced)
        return result
    # an accelerator would sort the entries in each call, and a compiled graph knows no sparse tensors
    result = z.new_zeros(num_rows, z.shape[1])
    size = max(1, _LARGEST_PART // max(1, z.shape[1]))
    for v, r, c in zip(values.split(size), *(place.split(size) for place in places), strict=True):
        result = result.index_add(0, r, z.index_select(0, c) * v[:, None])
    return result


@recordable(only_read=("values", "z", "places"))
def _multiply_into(
    result: Tensor, values: Tensor, z: Tensor, places: Tensor, coalesced: bool
) -> Callable[[], object]:
    """torch's product, as one operation of a recording, which holds no sparse tensors."""
    matrix = torch.sparse_coo_tensor(
        places, values, (len(result), len(z)), check_invariants=False, is_coalesced=coalesced
    )
    return lambda: result.copy_(torch.sparse.mm(matrix, z))


class _SparseProduct(torch.autograd.Function):
    """values (entry,), z (column, batch) -> (row, batch)."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, z: Tensor, places: Tensor, num_rows: int, coalesced: bool
    ) -> Tensor:
        ctx.save_for_backward(values, z, places)
        return _multiply(values, z, places, num_rows, coalesced)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        values, z, places = ctx.saved_tensors
        grad = grad.contiguous()
        of_values = _SampledProduct.apply(grad, z, *places) if ctx.needs_input_grad[0] else None
        of_z = None
        if ctx.needs_input_grad[1]:
            of_z = _SparseProduct.apply(values, grad, places.flip(0), len(z), False)
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
            of_left = _SparseProduct.apply(grad, right, torch.stack([rows, columns]), len(left), False)
        if ctx.needs_input_grad[1]:
            of_right = _SparseProduct.apply(grad, left, torch.stack([columns, rows]), len(right), False)
        return of_left, of_right, None, None
