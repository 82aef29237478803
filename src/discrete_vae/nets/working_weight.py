"""What the products of a layer read while a model trains: its weight, or a bfloat16 copy of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from discrete_vae.compiled.recording import is_recording


class WorkingWeight:
    """A weight as products read it, with memory for its gradient.

    The parameter, the master, stays as it is: float32, and the only one of the state. A copy in bfloat16 is a leaf of
    the graph in its place, so that its gradient arrives in bfloat16 and the optimizer, which keeps both, reads half.

    Whatever else changes the master is noticed when the copy is read next: by the master's version, by its place in
    memory, and, as writes through ``.data`` change neither, by its numbers at every stride-th place, which lie in
    every row and every column. So a write through ``.data`` to a few single entries can be missed. Write inside
    `torch.no_grad` instead.

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
        self.master, self.dtype, self._precision = master, dtype, master.dtype
        self._value = master if dtype == master.dtype else master.detach().to(dtype)
        if self._value is not master:
            self._take_place()
        self.memory: Tensor | None = None
        self._lent = False

    def current(self) -> Tensor:
        """The weight in the working precision, a leaf; copied anew if the master has changed.

        It is the master itself once that is in another precision, by ``model.double()`` for example.

        A compiled graph or a recording cannot look at numbers: whoever runs one calls this before.
        """
        value, master = self._value, self.master
        if value is master or master.dtype != self._precision:
            return master
        if torch.compiler.is_compiling() or is_recording():
            return value
        if master.data_ptr() != self._place or master.device != value.device:
            value.data = master.detach().to(self.dtype)  # the leaf stays the same object
            self._take_place()
        elif master._version != self._version or not torch.equal(
            self._probe.to(self.dtype), self._probe_of_value
        ):
            with torch.no_grad():
                value.copy_(master)
            self._version = master._version
        if value.requires_grad != master.requires_grad:
            value.requires_grad_(master.requires_grad)
        return value

    def _take_place(self) -> None:
        """Note where the master lies, what its version is, and where to look for changes of its numbers."""
        master, value = self.master, self._value
        value.requires_grad_(master.requires_grad)
        self._place, self._version = master.data_ptr(), master._version
        rows = max(1, len(master))
        columns = max(1, master.numel() // rows)
        # prime to the number of columns, and at most the number of both: meets each row and each column
        stride = next(
            each for each in range(max(1, min(rows, columns - 1)), 0, -1) if math.gcd(each, columns) == 1
        )
        self._probe, self._probe_of_value = (each.detach().flatten()[::stride] for each in (master, value))

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
        working, weight = self.working, self._parameters["weight"]
        if working is None or working.master is not weight:  # another parameter has taken its place
            return weight  # pyright: ignore[reportReturnType]
        return working.current()

    def gradient_memory(self) -> Tensor | None:
        """Memory for the gradient of `product_weight`, if some is kept and free."""
        return None if self.working is None else self.working.lend_memory()
