"""The operations of a function of tensors, recorded while it runs: a flat list, of torch's and of our own.

`discrete_vae.kernels.lowering` makes of it a function that repeats it without modules, autograd and checks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeGuard

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


def is_view(function: object) -> TypeGuard[OpOverload]:
    """True if an operation's result lies in the memory of its argument, which it leaves as it is."""
    if not isinstance(function, OpOverload):
        return False
    returns = function._schema.returns
    return any(kind.alias_info is not None and not kind.alias_info.is_write for kind in returns)


def draws(function: object) -> bool:
    """True if an operation draws random numbers."""
    return isinstance(function, OpOverload) and torch.Tag.nondeterministic_seeded in function.tags


def is_pure(call: Call) -> bool:
    """True if a call only makes its results, the same from the same arguments."""
    function = call.function
    if not isinstance(function, OpOverload):
        return False
    return not function._schema.is_mutable and not draws(function)


def written(call: Call) -> list[Tensor]:
    """The tensors that a call may write to."""
    function = call.function
    if not isinstance(function, OpOverload):
        return function.may_write(*call.arguments, **call.keywords)  # pyright: ignore[reportFunctionMemberAccess]
    found = []
    for index, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = call.arguments[index] if index < len(call.arguments) else call.keywords.get(argument.name)
            found += tensors_in(given)
    return found


def functional(call: Call) -> Call:
    """A call that changes the shape of its argument, as one that makes a view of it; others as they are."""
    function = call.function
    if not isinstance(function, OpOverload) or torch.Tag.inplace_view not in function.tags:
        return call
    packet = getattr(torch.ops.aten, function.overloadpacket.__name__.removesuffix("_"))
    return replace(call, function=getattr(packet, function._overloadname))


P = ParamSpec("P")


class ReplayError(RuntimeError):
    """A computation cannot be repeated from its recording."""


@dataclass(frozen=True)
class Layout:
    """Shape, strides and dtype of a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Layout:
        """The layout of a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)


@dataclass(frozen=True, eq=False)
class Call:
    """One operation with its arguments and result, and the layout of each tensor in it as it was then."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any
    layouts: tuple[Layout, ...]


class Recorder(TorchDispatchMode):
    """A block within which the operations on this thread are written down, those of backward passes included.

    Each thread records on its own. Results are kept alive, so that a tensor is known by its identity. The problem says
    why the calls cannot stand for the function, if so: a value was looked at, or a shape depends on one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.problem: str | None = None
        self._inside = False

    def __enter__(self) -> Recorder:
        if _thread.recorder is not None:
            raise RuntimeError("a recording is under way on this thread")
        _thread.recorder = self
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        _thread.recorder = None
        super().__exit__(*exception)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        result = func(*args, **keywords)
        if not self._inside and func.namespace != "profiler":
            self._look_at(func, args, result)
            layouts = () if self.problem else tuple(map(Layout.of, tensors_in(result)))
            self.calls.append(Call(func, args, keywords, result, layouts))
        return result

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        """Do a `custom_op` operation, as one call."""
        self._inside = True
        try:
            function.lower(*arguments, **keywords)()
        finally:
            self._inside = False
        self.calls.append(Call(function, arguments, keywords, None, ()))

    def _look_at(self, function: OpOverload, arguments: tuple[Any, ...], result: Any) -> None:
        of_values = isinstance(result, (bool, int, float)) and function.overloadpacket not in _OF_SHAPES
        if of_values and tensors_in(arguments):
            self.problem = self.problem or f"{function} looks at a value"
        elif torch.Tag.dynamic_output_shape in function.tags and not _places_are_numbers(function, arguments):
            self.problem = self.problem or f"{function} gives a shape that depends on values"
        elif any(tensor.layout != torch.strided for tensor in tensors_in(result)):
            self.problem = self.problem or f"{function} gives a sparse tensor"


class _Thread(threading.local):
    """The recording that is under way on a thread."""

    recorder: Recorder | None = None


_OF_SHAPES = frozenset([torch.ops.aten.is_same_size])
_thread = _Thread()


def _places_are_numbers(function: OpOverload, arguments: tuple[Any, ...]) -> bool:
    """True if an operation looks values up by their numbers: only by a mask does its shape depend on values."""
    masks = (torch.bool, torch.uint8)
    return function.overloadpacket is torch.ops.aten.index and all(
        places.dtype not in masks for places in tensors_in(arguments[1])
    )


def custom_op(
    *, only_read: Collection[str] = ()
) -> Callable[[Callable[P, Callable[[], object]]], Callable[P, None]]:
    """Make one operation of a function that reads and writes the memory of its tensors, which torch does not see.

    What is decorated takes the operation's arguments and returns a function without arguments that does it. The
    decorated function does it at once; a recording takes it as one call, and a replay lowers it once. It makes no
    tensors, and those that it is given have to stay where they are between the two calls. It may write to all arguments
    but those named as only read. What nobody writes to is computed once by a replay, however often it was recorded.
    """

    def decorate(lower: Callable[P, Callable[[], object]]) -> Callable[P, None]:
        parameters = signature(lower)

        @wraps(lower)
        def call(*arguments: P.args, **keywords: P.kwargs) -> None:
            recorder = _thread.recorder
            if recorder is None:
                lower(*arguments, **keywords)()
            else:
                recorder.call(call, arguments, keywords)

        def may_write(*arguments: P.args, **keywords: P.kwargs) -> list[Tensor]:
            given = parameters.bind(*arguments, **keywords).arguments
            return tensors_in([value for name, value in given.items() if name not in only_read])

        call.lower, call.may_write = lower, may_write  # pyright: ignore[reportAttributeAccessIssue]
        return call

    return decorate


def is_recording() -> bool:
    """True if a recorder, and nothing else, sees torch's operations on this thread."""
    return _thread.recorder is not None and torch._C._len_torch_dispatch_stack() == 1


@contextmanager
def unrecorded() -> Iterator[None]:
    """A block whose operations are no part of a recording that is under way."""
    before, _thread.recorder = _thread.recorder, None
    try:
        with _disable_current_modes():
            yield
    finally:
        _thread.recorder = before


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors among arguments or results, however nested in lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    if isinstance(value, Mapping):
        return tensors_in(list(value.values()))
    return []
