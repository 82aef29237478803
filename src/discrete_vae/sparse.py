"""Examples most of whose values are 0, kept as a sparse matrix until some of them are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_examples
from discrete_vae.errors import InvalidInputError
from discrete_vae.system import check_memory

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_CHECKED = 1 << 26  # bytes of dense rows from which on the machine's memory is looked at
_REPAIR = "Take fewer examples (--num-examples), or a machine with more memory."


class SparseRows:
    """Rows of a sparse matrix, of which an index makes dense float32 tensors; what is not stored is 0.

    Args:
        matrix: (example, feature), float32, without duplicates. NaN marks a missing value.
        device: Where the dense rows are wanted; the matrix itself stays on the CPU.

    Examples:
        >>> from scipy.sparse import csr_array
        >>> rows = SparseRows(csr_array(np.diag([1.0, 2.0, 3.0]).astype(np.float32)))
        >>> len(rows), rows[1:]
        (3, tensor([[0., 2., 0.],
                [0., 0., 3.]]))
    """

    dtype = torch.float32
    ndim = 2

    def __init__(self, matrix: csr_array, device: torch.device | str = "cpu") -> None:
        self.matrix = matrix
        self.shape: tuple[int, int] = matrix.shape  # pyright: ignore[reportAttributeAccessIssue]
        self.device = torch.device(device)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | np.ndarray | Sequence[int] | slice) -> Tensor:
        """Some of the rows, (row, feature) float32, dense, on the device."""
        chosen = self.select(rows)
        count = chosen.size * self.dtype.itemsize
        if count > _CHECKED:
            check_memory("sparse data", count, _REPAIR, what=f"for {len(chosen)} dense rows")
        return torch.from_numpy(chosen.matrix.toarray()).to(self.device)

    def select(self, rows: Tensor | np.ndarray | Sequence[int] | slice) -> SparseRows:
        """Some of the rows, sparse as before."""
        if isinstance(rows, Tensor):
            rows = rows.cpu().numpy()
        whole = isinstance(rows, slice) and rows == slice(None)
        return self if whole else SparseRows(self.matrix[rows], self.device)

    def split(self, size: int) -> Iterator[Tensor]:
        """Blocks of so many rows, dense."""
        return (self[first : first + size] for first in range(0, len(self), size))

    def to(self, device: torch.device | str) -> SparseRows:
        """The same rows, whose dense tensors are wanted on another device."""
        return SparseRows(self.matrix, device)

    def columns(self, places: Sequence[int] | slice) -> SparseRows:
        """Some of the features, in the order given."""
        return SparseRows(self.matrix[:, places].tocsr(), self.device)

    def sums(self, axis: int) -> Tensor:
        """Sums over the rows (0) or the features (1), float64, on the CPU."""
        return torch.from_numpy(np.asarray(self.matrix.sum(axis, dtype=np.float64)).ravel())

    @property
    def values(self) -> Tensor:
        """The stored values, (value,) float32, on the CPU."""
        return torch.from_numpy(self.matrix.data)

    @property
    def size(self) -> int:
        """Number of values, with those that are not stored."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory of the matrix, in bytes."""
        matrix = self.matrix
        return matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes


Examples: TypeAlias = Tensor | SparseRows
"""Examples (example, feature), dense or sparse; an index gives a dense tensor of some of them."""


def check_rows(name: str, x: object) -> Examples:
    """Return examples if they are sparse rows, or a floating-point tensor of at least one row, (row, ...)."""
    if not isinstance(x, SparseRows):
        return check_examples(name, x)
    if not len(x):
        raise InvalidInputError(name, "must have at least one row", "none", "Give examples.")
    return x


def select(x: Examples, rows: Tensor | np.ndarray | Sequence[int] | slice) -> Examples:
    """Some examples of a part, sparse where they were."""
    return x.select(rows) if isinstance(x, SparseRows) else x[rows]
