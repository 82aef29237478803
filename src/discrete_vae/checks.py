"""Checks of arguments, each raising `InvalidInputError`, and domains of features."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

import numpy as np

from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor


# Domains of features and summaries of values, without torch: data can be judged by a config before a model is built.


@dataclass(frozen=True)
class ValueSummary:
    """Range of the values of some data.

    Attributes:
        low: Smallest observed value.
        high: Largest observed value; below low where nothing was observed.
        whole: Whether all observed values are whole numbers.
        num_missing: Number of values that are missing.
        num_values: Number of values, missing ones included.
    """

    low: float
    high: float
    whole: bool
    num_missing: int = 0
    num_values: int = 0

    def __add__(self, other: ValueSummary) -> ValueSummary:
        return ValueSummary(
            min(self.low, other.low),
            max(self.high, other.high),
            self.whole and other.whole,
            self.num_missing + other.num_missing,
            self.num_values + other.num_values,
        )

    def __str__(self) -> str:
        return f"{'whole numbers' if self.whole else 'values'} from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Domain:
    """The values that a feature may have: an interval, or the whole numbers in it. Infinity never belongs to it.

    Attributes:
        rule: End of a sentence that starts with the argument's name ("must hold ...").
        repair: What to do about values outside, as a sentence.
        low: Least value.
        high: Largest value.
        whole: Whether only whole numbers belong to it.
    """

    rule: str
    repair: str
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def repair_of(self, values: ValueSummary) -> str:
        """Advice about values that do not belong to it, as a sentence."""
        return FINITE.repair if math.inf in (values.high, -values.low) else self.repair

    def contains(self, x: Any) -> Any:
        """Mask of the entries of an array or tensor that lie in the domain; False for NaN."""
        inside = (x >= self.low) & (x <= self.high) & (abs(x) < math.inf)
        return inside & (x == x // 1) if self.whole else inside

    def holds(self, values: ValueSummary) -> bool:
        """True if all observed values lie in the domain."""
        if values.low > values.high:
            return True
        if math.inf in (values.high, -values.low) or (self.whole and not values.whole):
            return False
        return self.low <= values.low and values.high <= self.high


_INTO_UNIT = (
    "Divide intensities by their scale, 255 or in 16 bits 65535, or map -1..1 to 0..1 by (x + 1) / 2."
)
_INTO_BITS = "Binarize it, by torch.bernoulli say; -1 and 1 become 0 and 1 by (x + 1) / 2."
_NO_INFINITY = "Remove infinite entries; NaN marks those that were not observed."
_RAW = "Give raw counts, neither scaled nor logarithms; AnnData often has them as a layer."
UNIT_INTERVAL = Domain("must hold values in [0, 1]", _INTO_UNIT, 0.0, 1.0)
BINARY = Domain("must hold only the values 0 and 1", _INTO_BITS, 0.0, 1.0, whole=True)
FINITE = Domain("must hold finite values", _NO_INFINITY)
ABOVE_MINUS_ONE = Domain("must hold values above -1", "Take the plain scale, or asinh.", 1e-6 - 1)
POSITIVE = Domain("must hold values above 0", "Leave rows without one out.", 1e-30)
COUNTS = Domain("must hold whole numbers of at least 0", _RAW, 0.0, whole=True)


def categories(number: int) -> Domain:
    """The codes 0, 1, ..., number - 1."""
    rule = f"must hold whole numbers from 0 to {number - 1}"
    return Domain(rule, "Number the categories from 0.", 0.0, number - 1, whole=True)


@dataclass(frozen=True)
class ColumnDomain(Domain):
    """The values that each column of a table may have; the columns are the last axis.

    Attributes:
        columns: The domain of each.
    """

    columns: tuple[Domain, ...] = ()

    @classmethod
    def of(cls, columns: Sequence[Domain]) -> ColumnDomain:
        """The domain of a row of columns with these domains."""
        low, high = min(each.low for each in columns), max(each.high for each in columns)
        rule, repair = columns[0].rule, columns[0].repair
        if len(set(columns)) > 1:
            rule = "must hold in each column values of its kind"
            repair = "Correct it, or make it NaN."
        return cls(rule, repair, low, high, whole=True, columns=tuple(columns))

    def contains(self, x: Any) -> Any:
        """Mask of the entries of a tensor (..., column) that lie in their column's domain; False for NaN."""
        low, high = (x.new_tensor([getattr(each, end) for each in self.columns]) for end in ("low", "high"))
        whole = x.new_tensor([each.whole for each in self.columns]) > 0
        return (x >= low) & (x <= high) & (abs(x) < math.inf) & (~whole | (x == x // 1))

    def holds(self, values: ValueSummary) -> bool:
        """True: the columns of a file are judged one by one when it is read."""
        return True


# Checks of arguments; the module imports no torch when it is loaded.

Axis = str | int

DIVERGED = "Look for a diverged training step and restore an earlier state."
SPINS = "Spins s of -1 and +1 become states by z = (s + 1) / 2, and their couplings and fields a machine by from_ising."


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, of Python or NumPy; a boolean is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_positive_int(name: str, value: object) -> int:
    """Return value if it is an integer of at least 1."""
    if not is_integer(value) or value < 1:
        repair = "Give a whole number of at least 1."
        raise InvalidInputError(name, "must be a positive integer", repr(value), repair)
    return int(value)


def check_positive_ints(name: str, values: Sequence[object]) -> tuple[int, ...]:
    """Return values if each is a positive integer; names the first that is not by its place."""
    return tuple(check_positive_int(f"{name}[{place}]", value) for place, value in enumerate(values))


def check_count(name: str, value: object, *, repair: str) -> int:
    """Return value if it is an integer from 0 to 2^63 - 1."""
    if not is_integer(value) or not 0 <= value < 2**63:
        raise InvalidInputError(name, "must be an integer from 0 to 2^63 - 1", repr(value)[:80], repair)
    return int(value)


def check_number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    repair: str,
) -> float:
    """Return value as a float if it is a finite number inside the given bounds."""
    bounds = [f"above {above:g}"] if above > -math.inf else []
    bounds += [f"of at least {at_least:g}"] if at_least > -math.inf else []
    bounds += [f"of at most {at_most:g}"] if at_most < math.inf else []
    rule = " ".join(["must be a finite number", " and ".join(bounds)]).rstrip()
    if not is_integer(value) and not isinstance(value, float | np.floating):
        raise InvalidInputError(name, rule, repr(value)[:80], repair)
    try:
        number = float(value)
    except OverflowError:
        raise InvalidInputError(name, rule, "an integer of hundreds of digits", repair) from None
    if not math.isfinite(number) or number <= above or number < at_least or number > at_most:
        raise InvalidInputError(name, rule, repr(value), repair)
    return number


def check_tensor(name: str, value: object, shape: Sequence[Axis | EllipsisType]) -> Tensor:
    """Return value if it is a floating-point tensor of the given shape.

    Args:
        name: Name of the argument.
        value: The object to check.
        shape: One entry an axis: an integer fixes its length, a word names an axis of any length, and a
            leading ``...`` stands for any number of axes.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        dense = f"{name}.toarray()" if hasattr(value, "toarray") else name  # of a sparse matrix of SciPy
        repair = f"Wrap it with torch.as_tensor({dense}, dtype=torch.float32)."
        raise InvalidInputError(name, "must be a torch.Tensor", f"a {type(value).__name__}", repair)
    if value.layout is not torch.strided or value.is_meta:
        received = "a tensor on meta, which has none" if value.is_meta else f"layout {value.layout}"
        repair = f"Convert it with {name}.to_dense(), or put it on the model's device."
        raise InvalidInputError(name, "must be a dense tensor with values", received, repair)
    if not value.is_floating_point() or value.dtype.itemsize < 2:  # torch has no arithmetic for float8
        rule = "must have a floating-point dtype of 16 bits or more"
        raise InvalidInputError(name, rule, value.dtype, f"Convert it with {name}.float().")
    open_front = len(shape) > 0 and shape[0] is Ellipsis
    axes = [axis for axis in shape if axis is not Ellipsis]
    got = tuple(value.shape)
    tail = got[len(got) - len(axes) :] if open_front and len(got) >= len(axes) else got
    pairs = zip(axes, tail, strict=False)
    if len(tail) != len(axes) or any(type(want) is not str and want != have for want, have in pairs):
        words = ", ".join("..." if axis is Ellipsis else str(axis) for axis in shape)
        repair = "Check the order and size of its axes."
        raise InvalidInputError(name, f"must have shape ({words})", f"shape {got}", repair)
    return value


def values_are_known(x: Tensor) -> bool:
    """True if a tensor has values now: it is not fake, nor is it compiled, traced or batched by vmap."""
    import torch
    from torch._C._functorch import is_functorch_wrapped_tensor
    from torch._subclasses import FakeTensor

    if torch.compiler.is_compiling() or isinstance(x, FakeTensor):
        return False
    return not is_functorch_wrapped_tensor(x)


def values_are_readable(x: Tensor) -> bool:
    """True if values can be looked at without waiting for an accelerator or breaking a compiled graph."""
    return x.device.type == "cpu" and values_are_known(x)


def extremes(value: Tensor) -> tuple[float, float] | None:
    """The smallest and the largest element, both NaN if one is; None where `values_are_readable` is False."""
    if value.numel() == 0 or not values_are_readable(value):
        return None
    low, high = value.detach().aminmax()
    return low.item(), high.item()


def check_unit_interval(name: str, value: Tensor, *, repair: str | None = None) -> Tensor:
    """Return value if every element lies in [0, 1]; NaN is refused. Looks where `values_are_readable`."""
    ends = extremes(value)
    if ends is not None and not (ends[0] >= 0 and ends[1] <= 1):
        _refuse_outside(name, value, UNIT_INTERVAL, repair)
    return value


def check_binary(name: str, value: Tensor) -> Tensor:
    """Return value if every element is 0 or 1; NaN is refused. Looks where `values_are_readable`."""
    if values_are_readable(value) and not bool(((value == 0) | (value == 1)).all()):
        _refuse_outside(name, value, BINARY)
    return value


def _refuse_outside(name: str, value: Tensor, domain: Domain, repair: str | None = None) -> NoReturn:
    """Refuse a tensor with elements outside a domain; names the first."""
    first = value[~domain.contains(value)].flatten()[0].item()
    repair = repair or (domain.repair if first == first else "Remove NaN.")
    raise InvalidInputError(name, domain.rule, f"a value of {first:g}", repair)


def check_states(name: str, value: object, shape: Sequence[Axis | EllipsisType]) -> Tensor:
    """Return value if it is a floating-point tensor of that shape with values in [0, 1]: states, relaxed or not."""
    states = check_tensor(name, value, shape)
    return check_unit_interval(name, states, repair=SPINS)


def check_examples(name: str, x: object) -> Tensor:
    """Return examples if they are a floating-point tensor of at least one row, (row, ...)."""
    rows = check_tensor(name, x, (...,))
    if rows.dim() < 2 or len(rows) == 0:
        rule, repair = "must have at least one row, (row, ...)", "Give x[None] for one example."
        raise InvalidInputError(name, rule, f"shape {tuple(rows.shape)}", repair)
    return rows


def check_index(name: str, value: object, size: int, *, repair: str) -> int:
    """Return value if it is an integer from 0 to size - 1 (booleans are refused)."""
    try:
        index = -1 if isinstance(value, bool) else operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        index = -1
    if not 0 <= index < size:
        raise InvalidInputError(name, f"must be an integer from 0 to {size - 1}", repr(value), repair)
    return index


def check_log_partition(value: object) -> Tensor | float:
    """Return log Z, a finite number, a record that `float` turns into one, or a tensor with one element.

    A tensor that carries a gradient may have any value: it stands for the negative phase of training, which looks at
    its loss. One on an accelerator is not waited for.
    """
    import torch

    rule, repair = "must be a finite number or a scalar tensor", "Estimate it with bennett_log_partition."
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.dim() > 1:
            received = f"a tensor of shape {tuple(value.shape)}"
            raise InvalidInputError("log_partition", rule, received, repair)
        if value.is_complex() or (value.is_floating_point() and value.dtype.itemsize < 2):
            raise InvalidInputError("log_partition", rule, value.dtype, repair)
        ends = None if value.requires_grad else extremes(value)
        if ends is None or math.isfinite(ends[0]):
            return value.reshape(())
        raise InvalidInputError("log_partition", rule, ends[0], repair)
    try:
        number = math.nan if isinstance(value, str | bytes | bool) else float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not -math.inf < number < math.inf:  # torch.compile traces no isfinite of a number that changes
        raise InvalidInputError("log_partition", rule, repr(value), repair)
    return number


def check_finite(name: str, value: Tensor, *, repair: str) -> Tensor:
    """Return value if every element is finite; waits for an accelerator."""
    finite = value.isfinite()
    if values_are_known(value) and not bool(finite.all()):
        worst = value[~finite].flatten()[0].item()
        raise InvalidInputError(name, "must be finite", f"a value of {worst}", repair)
    return value


def check_gradients_are_recorded(what: str) -> None:
    """Refuse a call inside `torch.no_grad` or `torch.inference_mode`; ``what`` names the caller."""
    import torch

    if not torch.is_grad_enabled():
        inside = "torch.inference_mode" if torch.is_inference_mode_enabled() else "torch.no_grad"
        rule = "must be called where torch records gradients"
        raise InvalidInputError(what, rule, f"a call inside {inside}()", "Call it outside of that block.")
