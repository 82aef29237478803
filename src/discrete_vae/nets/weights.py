"""Weights: products with them, their low-precision copies, and what is read from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.checks import DIVERGED, values_are_known, values_are_readable
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.registry import are_plain, is_recording

# Linear maps of rows outside training, where a row gets the same digits wherever it stands.


def row_products(
    rows: Tensor, weight: Tensor, bias: Tensor | None = None, *, rectify: bool = False
) -> Tensor:
    """Map rows (..., input) by a weight (output, input), with a rectifier if asked for; no gradient passes through.

    oneDNN gives a row digits that do not depend on its place among at least two rows. What torch calls otherwise does
    not on every processor: those without AVX-512 round the rows of small matrices by where they lie in memory. A
    weight that is a slice is copied: without AVX-512 oneDNN multiplies by one with its reference kernel, far slower.
    """
    if are_plain((rows, weight)) and _multiplies(rows.dtype):
        kind = "relu" if rectify else "none"
        bias = bias if bias is None else bias.contiguous()  # whose strides it does not look at
        return torch.ops.mkldnn._linear_pointwise(rows, weight.contiguous(), bias, kind, [], "")
    out = F.linear(rows, weight, bias)
    return out.relu_() if rectify else out


@cache
def _multiplies(dtype: torch.dtype) -> bool:
    """True if oneDNN multiplies matrices of a precision on this processor: bfloat16 needs AVX-512 or its like."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


# Mixed precision: master weights and their low-precision copies.


class MixedPrecisionWeight:
    """A master weight and its low-precision copy, which products read, with memory for the copy's gradient.

    The master is the parameter: float32, and the only one of the two in the state. The copy in bfloat16, once an
    optimizer has claimed it, is a leaf of the graph in its place, so that its gradient arrives in bfloat16 and the
    optimizer, which keeps both, reads half. In the master's own precision the copy is the master itself.

    Whatever else changes the master is noticed when the copy is read next: by the master's version, by its place in
    memory, and, as writes through ``.data`` change neither, by its numbers at every stride-th place, which lie in
    every row and every column. So a write through ``.data`` to a few single entries can be missed, and on an
    accelerator, where a look would wait for the device, each one is. Write inside `torch.no_grad` instead.

    Memory of the gradient is kept from step to step: fresh memory of megabytes costs more than writing it.
    """

    claimed = False  # by an optimizer that brings the copy's gradient to the master

    def __init__(self, master: nn.Parameter, dtype: torch.dtype) -> None:
        self.master, self.dtype, self._precision = master, dtype, master.dtype
        self._value = master if dtype == master.dtype else master.detach().to(dtype)
        if self._value is not master:
            self._record_master()
        self.memory: Tensor | None = None
        self._lent = False

    def __getstate__(self) -> dict[str, object]:
        # no optimizer has claimed a copy
        return {name: value for name, value in vars(self).items() if name != "claimed"}

    def current(self) -> Tensor:
        """What products read: the copy, brought up to date if the master has changed.

        It is the master itself once that is in another precision, by ``model.double()`` for example. Where a gradient
        is wanted and no optimizer has claimed the copy, it is a new one, through which the gradient reaches the master.

        A compiled graph or a recording cannot look at numbers: whoever runs one calls this before.
        """
        value, master = self._value, self.master
        if value is master or master.dtype != self._precision:
            return master
        if not self.claimed and master.requires_grad and torch.is_grad_enabled():
            return master.to(self.dtype)
        if torch.compiler.is_compiling() or is_recording():
            return value
        if master.device != value.device or master.shape != value.shape:
            value.data = master.detach().to(self.dtype)  # the leaf stays the same object
            self._record_master()
        elif master.data_ptr() != self._place:
            with torch.no_grad():  # the copy stays where it is, which pointer tables and recordings know
                value.copy_(master)
            self._record_master()
        elif self._master_version() != self._version or self._was_written_unnoticed():
            with torch.no_grad():
                value.copy_(master)
            self._version = self._master_version()
        if value.requires_grad != master.requires_grad:
            value.requires_grad_(master.requires_grad)
        return value

    def _master_version(self) -> int | None:
        return None if self.master.is_inference() else self.master._version  # inference tensors count none

    def _was_written_unnoticed(self) -> bool:
        """True if a number at one of the places that are looked at is another one; on an accelerator none is."""
        if not values_are_readable(self.master):
            return False
        return not torch.equal(self._probe.to(self.dtype), self._probe_of_value)

    def _record_master(self) -> None:
        """Record address and version of the master, and views of the numbers by which writes to it are found."""
        master, value = self.master, self._value
        value.requires_grad_(master.requires_grad)
        self._place, self._version = master.data_ptr(), self._master_version()
        rows = max(1, len(master))
        columns = max(1, master.numel() // rows)
        # prime to the number of columns, and at most the number of both: meets each row and each column
        stride = next(
            each for each in range(max(1, min(rows, columns - 1)), 0, -1) if math.gcd(each, columns) == 1
        )
        self._probe, self._probe_of_value = (
            each.detach().flatten()[::stride] if master.is_contiguous() else each.detach()  # no copies
            for each in (master, value)
        )

    def written(self) -> None:
        """Mark the copy as up to date, after an optimizer has written both."""
        self._version = self._master_version()

    def lend_memory(self) -> Tensor | None:
        """Memory for the gradient of `current`, once until `clear_gradient`; None if it is lent already."""
        if self._lent or not self.claimed or self.master.dtype != self._precision:
            return None
        self._lent = True
        return self.own_memory().detach()  # autograd keeps a gradient that nobody else holds as it is

    def own_memory(self) -> Tensor:
        """The memory for the gradient, made when it is asked for first."""
        if self.memory is None:
            self.memory = torch.empty(self._value.shape, dtype=self._value.dtype, device=self._value.device)
        return self.memory

    @property
    def gradient(self) -> Tensor | None:
        """Sum of the last backward passes, in the precision of products."""
        return self._value.grad

    def clear_gradient(self) -> None:
        """Forget the gradient; its memory may be written again."""
        self._value.grad = None
        self._lent = False


# Weights that are not finite.


def non_finite_weight(module: nn.Module) -> tuple[str, float] | None:
    """The first parameter or buffer of the state that holds NaN or an infinity."""
    for name, value in module.state_dict().items():
        # a sum is finite only if all of its terms are; it reads the numbers once and writes none
        if not isinstance(value, Tensor) or not values_are_known(value):  # or a module's extra state
            continue
        if value.is_floating_point() and not math.isfinite(float(value.sum())):
            broken = value[~value.isfinite()]
            if len(broken) > 0:
                return name, float(broken[0])
    return None


def check_finite_weights(model: nn.Module) -> None:
    """Refuse a model with weights that are not finite; names the first."""
    found = non_finite_weight(model)
    if found is not None:
        raise InvalidInputError(f"model.{found[0]}", "must be finite", f"a value of {found[1]}", DIVERGED)


# Weights from a file, checked against the module that they are for before anything changes.

OTHER_MODEL = "It belongs to another model: check config.json."


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, prefix: str = "") -> None:
    """Copy weights into a model, once `check_weights` has passed."""
    check_weights(model, tensors, prefix=prefix)
    model.load_state_dict({name: tensors[f"{prefix}{name}"] for name in model.state_dict()})


def check_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, prefix: str = "") -> None:
    """Check that saved weights have a model's names, shapes and types, and that all are finite."""
    wanted = {f"{prefix}{name}": value for name, value in model.state_dict().items()}
    saved = {name: value for name, value in tensors.items() if name.startswith(prefix)}
    for name in sorted(wanted.keys() | saved.keys()):
        check_like(name, saved.get(name), wanted.get(name))
    for name, value in saved.items():
        finite = value.isfinite()
        if not bool(finite.all()):
            repair = "The file was changed by other means than training: restore it from a copy."
            received = f"a value of {float(value[~finite].flatten()[0])}"
            raise InvalidInputError(name, "must hold finite weights", received, repair)


def check_like(name: str, saved: Tensor | None, wanted: Tensor | None) -> None:
    """Check that a saved tensor is there, or not there, as wanted, with its shape and type."""
    if wanted is None:
        raise InvalidInputError(name, "must not be there", described(saved), OTHER_MODEL)
    if saved is None or saved.shape != wanted.shape or saved.dtype != wanted.dtype:
        raise InvalidInputError(name, f"must be {described(wanted)}", described(saved), OTHER_MODEL)


def described(value: object) -> str:
    """A tensor's type and shape in words; of something else its beginning."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return "no such tensor" if value is None else f"{value!r}"[:80]
