"""What the products of a layer read while a model trains: its weight, or a bfloat16 copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn


class WorkingWeight:
    """A weight as products read it, with memory for its gradient.

    The parameter, the master, stays as it is: float32, and the only one of the state. A copy in bfloat16 is a leaf of
    the graph in its place, so that its gradient arrives in bfloat16 and the optimizer, which keeps both, reads half.
    Whatever else changes the master is noticed by its version.

    Memory of the gradient is kept from step to step: fresh memory of megabytes costs more than writing it.

    Args:
        master: The parameter.
        dtype: What products are computed in.

    Attributes:
        master: The parameter.
        dtype: What products are computed in.
        memory: Memory for the gradient; None before it was lent for the first time.
    """

    def __init__(self, master: nn.Parameter, dtype: torch.dtype) -> None:
        self.master, self.dtype = master, dtype
        self._value = master if dtype == master.dtype else master.detach().to(dtype)
        self._value.requires_grad_(master.requires_grad)
        self._version = master._version
        self.memory: Tensor | None = None
        self._lent = False

    def current(self) -> Tensor:
        """The weight in the working precision, a leaf; copied anew if the master has changed.

        A compiled graph cannot look at versions: whoever runs one calls this before.
        """
        if torch.compiler.is_compiling():
            return self._value
        if self._value is not self.master and self._version != self.master._version:
            with torch.no_grad():
                self._value.copy_(self.master)
            self._version = self.master._version
        return self._value

    def written(self) -> None:
        """Say that the copy has just been brought to where the master is."""
        self._version = self.master._version

    def lend_memory(self) -> Tensor | None:
        """Memory for the gradient, once until `clear_gradient`; None if it is lent already."""
        if self._lent:
            return None
        self._lent = True
        return self.own_memory().detach()  # autograd keeps a gradient that nobody else holds as it is

    def own_memory(self) -> Tensor:
        """The memory for the gradient, made when it is asked for first."""
        if self.memory is None:
            self.memory = torch.empty_like(self._value, requires_grad=False)
        return self.memory

    @property
    def gradient(self) -> Tensor | None:
        """What the last backward passes gave, in the working precision."""
        return self._value.grad

    def clear_gradient(self) -> None:
        """Forget the gradient; its memory may be written again."""
        self._value.grad = None
        self._lent = False


class WorkingLayer(nn.Module):
    """A layer with a weight whose products may read a working copy of it; stands before torch's class among the bases.

    Attributes:
        working: What products read in place of the weight, with memory for the gradient; None for the weight itself.
            `discrete_vae.nets.precision` sets it.
    """

    working: WorkingWeight | None = None

    def product_weight(self) -> Tensor:
        """What the products read."""
        working = self.working
        return self._parameters["weight"] if working is None else working.current()  # pyright: ignore[reportReturnType]

    def gradient_memory(self) -> Tensor | None:
        """Memory for the gradient of `product_weight`, if some is kept and free."""
        return None if self.working is None else self.working.lend_memory()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moved or in another precision, the layer has no working copy any more."""
        self.working = None
        return super()._apply(fn, recurse)
