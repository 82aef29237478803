"""The operations of a program as calls on memory that is laid out once.

Every tensor of the program gets its place when the program is bound, so that views are made once, nothing is allocated
in a call, and what stands for an operation is a function without arguments. Memory that is read for the last time is
given to the next result of its size, which then lies in the cache.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from discrete_vae.compiled.program import Operation, Program, Value, values_in
from discrete_vae.compiled.recording import Layout, tensors_in
from discrete_vae.compiled.schemas import is_view

Step = Callable[[], Any]

# fmt: off
_WITH_OUT = frozenset([
    "abs", "add", "addcmul", "addmm", "amax", "amin", "baddbmm", "bmm", "cat", "ceil", "clamp", "clamp_max",
    "clamp_min", "cumsum", "div", "eq", "exp", "expm1", "floor", "ge", "gt", "index_select", "le", "log",
    "log1p", "logsumexp", "lt", "maximum", "minimum", "mm", "mul", "mv", "ne", "neg", "pow", "rand", "randn",
    "reciprocal", "rsqrt", "sgn", "sigmoid", "sign", "sqrt", "square", "stack", "sub", "tanh",
])
# fmt: on
"""Operations that torch's function of the same name takes with the same arguments and a place for the result."""

_REDUCTIONS = frozenset(["sum.dim_IntList", "mean.dim"])
_COPIES = frozenset(["_to_copy", "clone"])
_BLANK = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"])
_CONSTANT = {
    "zeros": 0.0,
    "zeros_like": 0.0,
    "new_zeros": 0.0,
    "ones": 1.0,
    "ones_like": 1.0,
    "new_ones": 1.0,
}


class BoundProgram:
    """A program on memory of its own.

    Args:
        program: Is used up.

    Attributes:
        inputs: Where the inputs lie; sources of noise stand for themselves.
        outputs: Where the outputs lie, None for None.
        steps: What a call does between the two, in order.
    """

    def __init__(self, program: Program) -> None:
        self._things: dict[Value, Any] = {}
        self._pool = _Pool()
        self.steps: list[Step] = []
        self._kept: list[Tensor] = []  # whose addresses are among the steps
        self.inputs = [self._place_input(value) for value in program.inputs]
        last = _last_uses(program)
        for index, operation in enumerate(program.operations):
            self.steps += self._bind(operation)
            for memory in _touched(operation):
                if last[memory] == index and memory.fixed is None:
                    self._pool.give(self._things[memory])
        self.outputs: list[Tensor | None] = [
            None if value is None else self._thing(value) for value in program.outputs
        ]

    def _place_input(self, value: Value) -> Any:
        if value.layout is not None:
            layout = value.layout
            value.fixed = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype)
        return value.fixed

    def _thing(self, value: Value) -> Any:
        return self._things.get(value, value.fixed)

    def _real(self, thing: Any) -> Any:
        """The same with tensors and objects in place of values."""
        if isinstance(thing, Value):
            return self._thing(thing)
        if isinstance(thing, (list, tuple)):
            return type(thing)(self._real(part) for part in thing)
        if isinstance(thing, dict):
            return {name: self._real(part) for name, part in thing.items()}
        return thing

    def _bind(self, operation: Operation) -> list[Step]:
        function = operation.call.function
        arguments, keywords = self._real(operation.arguments), self._real(operation.keywords)
        if not isinstance(function, OpOverload):
            # aliases, which keep the memory even if a parameter is given another one
            self._kept += [tensor.detach() for tensor in tensors_in([arguments, keywords])]
            return [function.prepare(*arguments, **keywords)]  # pyright: ignore[reportFunctionMemberAccess]
        if is_view(function):
            made = function(*arguments, **keywords)
            for value, tensor in zip(
                operation.results, [made] if isinstance(made, Tensor) else made, strict=True
            ):
                self._things[value] = tensor
            return []
        if function._schema.is_mutable:
            return [_in_place(function, arguments, keywords)]
        places = [self._place(value) for value in operation.results]
        return _into(function, arguments, keywords, places)

    def _place(self, value: Value) -> Tensor:
        assert value.layout is not None
        self._things[value] = self._pool.take(value.layout)
        return self._things[value]


def _last_uses(program: Program) -> dict[Value, float]:
    """The index of the operation that touches each memory for the last time."""
    last: dict[Value, float] = {}
    for index, operation in enumerate(program.operations):
        last.update(dict.fromkeys(_touched(operation), index))
    last.update((value.memory(), math.inf) for value in values_in(program.outputs))
    return last


def _touched(operation: Operation) -> set[Value]:
    """The memories that an operation reads or writes."""
    values = values_in([operation.arguments, operation.keywords, operation.results])
    return {value.memory() for value in values}


def _in_place(function: OpOverload, arguments: Sequence[Any], keywords: dict[str, Any]) -> Step:
    """A call that writes to its arguments."""
    name = function.overloadpacket.__name__
    method = getattr(arguments[0], name, None) if name.endswith("_") else None
    if method is not None:
        return partial(method, *arguments[1:], **keywords)
    if name in _WITH_OUT and set(keywords) == {"out"}:
        return partial(getattr(torch, name), *arguments, **keywords)
    return partial(function, *arguments, **keywords)


def _into(
    function: OpOverload, arguments: Sequence[Any], keywords: dict[str, Any], places: Sequence[Tensor]
) -> list[Step]:
    """Calls that leave the results of an operation in their places."""
    name, place = function.overloadpacket.__name__, places[0]
    if name in _BLANK:
        return []
    if name in _CONSTANT:
        return [partial(place.fill_, _CONSTANT[name])]
    if name in _COPIES:
        return [partial(place.copy_, arguments[0])]
    if name == "masked_fill":
        return [partial(place.copy_, arguments[0]), partial(place.masked_fill_, *arguments[1:])]
    if name == "slice_backward":
        gradient, _, axis, start, stop, step = arguments
        inside = torch.ops.aten.slice.Tensor(place, axis, start, stop, step)
        return [place.zero_, partial(inside.copy_, gradient)]
    if name == "select_backward":
        gradient, _, axis, index = arguments
        return [place.zero_, partial(place.select(axis, index).copy_, gradient)]
    if name == "sum" and not arguments[1:] and not keywords:
        return [partial(torch.sum, arguments[0], dim=None, out=place)]
    if name == "where" and all(isinstance(each, Tensor) for each in arguments):
        return [partial(torch.where, *arguments, out=place)]
    if name in _WITH_OUT or str(function).removeprefix("aten.") in _REDUCTIONS:
        if name not in ("rand", "randn"):
            return [partial(getattr(torch, name), *arguments, **keywords, out=place)]
        return [partial(getattr(torch, name), *arguments, generator=keywords.get("generator"), out=place)]
    return [partial(_call_and_copy, function, tuple(arguments), keywords, tuple(places))]


def _call_and_copy(
    function: OpOverload, arguments: tuple[Any, ...], keywords: dict[str, Any], places: tuple[Tensor, ...]
) -> None:
    """For the few that have no form with a place for the result."""
    made = function(*arguments, **keywords)
    for place, tensor in zip(places, tensors_in(made), strict=True):  # gradients that nobody wants are None
        place.copy_(tensor)


class _Pool:
    """Memory that is free again."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, torch.UntypedStorage]] = []  # by size
        self._count = 0

    def take(self, layout: Layout) -> Tensor:
        """A tensor of a layout, or dense if that has gaps, in memory of at most twice its size."""
        blank = torch.empty_like(
            torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device="meta")
        )
        size = max(1, blank.numel() * blank.element_size())
        place = bisect.bisect_left(self._free, size, key=lambda each: each[0])
        if place < len(self._free) and self._free[place][0] <= 2 * size:
            storage = self._free.pop(place)[2]
        else:
            storage = torch.UntypedStorage(-(-size // 64) * 64)
        return torch.empty(0, dtype=layout.dtype).set_(storage, 0, blank.shape, blank.stride())

    def give(self, tensor: Tensor) -> None:
        """Free a tensor's memory."""
        storage = tensor.untyped_storage()
        self._count -= 1  # of equal sizes the latest comes first
        bisect.insort(self._free, (storage.nbytes(), self._count, storage), key=lambda each: each[:2])
