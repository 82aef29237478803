"""The operations of a function of tensors, recorded while it runs: a flat list, of torch's and of our own.

`discrete_vae.kernels.lowering` makes of it a function that repeats it without modules, autograd and checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from discrete_vae.kernels.registry import is_recording, tensors_in


def is_view(function: object) -> TypeGuard[OpOverload]:
    """True if an operation's result lies in the memory of its argument, which it leaves as it is."""
    if not isinstance(function, OpOverload):
        return False
    returns = function._schema.returns
    return any(kind.alias_info is not None and not kind.alias_info.is_write for kind in returns)


def draws(function: object) -> bool:
    """True if an operation draws random numbers."""
    return isinstance(function, OpOverload) and torch.Tag.nondeterministic_seeded in function.tags


def is_pure(function: object) -> bool:
    """True if an operation only makes its results, the same from the same arguments."""
    return isinstance(function, OpOverload) and not function._schema.is_mutable and not draws(function)


def written(call: Call) -> list[Tensor]:
    """The tensors that a call may write to."""
    function = call.function
    if not isinstance(function, OpOverload):
        return function.may_write(*call.arguments, **call.keywords)  # pyright: ignore[reportFunctionMemberAccess]
    schema = function._schema.arguments
    given = {each.name: value for each, value in zip(schema, call.arguments, strict=False)} | call.keywords
    changed = [each.name for each in schema if each.alias_info and each.alias_info.is_write]
    return tensors_in([given.get(name) for name in changed])


def functional(call: Call) -> Call:
    """A call that changes the shape of its argument, as one that makes a view of it; others as they are."""
    function = call.function
    if not isinstance(function, OpOverload) or torch.Tag.inplace_view not in function.tags:
        return call
    packet = getattr(torch.ops.aten, function.overloadpacket.__name__.removesuffix("_"))
    return replace(call, function=getattr(packet, function._overloadname))


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
    keywords: dict[str, Any]
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

    def __enter__(self) -> Recorder:
        if is_recording():
            raise RuntimeError("a recording is under way on this thread")
        return super().__enter__()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        result = func(*args, **keywords)
        if func.namespace != "profiler":
            self._look_at(func, args, result)
            layouts = () if self.problem else tuple(map(Layout.of, tensors_in(result)))
            self.calls.append(Call(func, args, keywords, result, layouts))
        return result

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Do a `custom_op` operation, as one call."""
        with _disable_current_modes():
            function.lower(*arguments, **keywords)()
        self.calls.append(Call(function, arguments, keywords, None, ()))

    def _look_at(self, function: OpOverload, arguments: tuple[Any, ...], result: Any) -> None:
        of_tensors = isinstance(result, (bool, int, float)) and tensors_in(arguments)
        if of_tensors and function.overloadpacket is not torch.ops.aten.is_same_size:
            self.problem = self.problem or f"{function} looks at a value"
        elif torch.Tag.dynamic_output_shape in function.tags and not _places_are_numbers(function, arguments):
            self.problem = self.problem or f"{function} gives a shape that depends on values"
        elif any(tensor.layout != torch.strided for tensor in tensors_in(result)):
            self.problem = self.problem or f"{function} gives a sparse tensor"


def _places_are_numbers(function: OpOverload, arguments: tuple[Any, ...]) -> bool:
    """True if an operation looks values up by their numbers: only by a mask does its shape depend on values."""
    masks = (torch.bool, torch.uint8)
    return function.overloadpacket is torch.ops.aten.index and all(
        places.dtype not in masks for places in tensors_in(arguments[1])
    )
