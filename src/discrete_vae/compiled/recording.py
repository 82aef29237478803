"""What a function of tensors does, written down while it runs: the flat list of torch's operations.

`discrete_vae.compiled.replay` makes a function of the list that repeats it without modules, autograd and checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

P, R = ParamSpec("P"), TypeVar("R")


class ReplayError(RuntimeError):
    """A computation cannot be repeated from its recording."""


@dataclass(frozen=True, eq=False)
class Call:
    """One operation.

    Attributes:
        function: An operation of torch, or a function marked with `recordable`.
        arguments: As it was called.
        keywords: As it was called.
        result: What it gave.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any


class Recorder(TorchDispatchMode):
    """A block within which the operations on this thread are written down, those of backward passes included.

    Results are kept alive, so that a tensor is known by its identity.

    Attributes:
        calls: The operations in order.
        problem: Why they cannot stand for the function, if so: a value was looked at, or a shape depends on one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.problem: str | None = None
        self._inside = False

    def __enter__(self) -> Recorder:
        global _active
        if _active is not None:
            raise RuntimeError("a recording is under way")
        _active = self
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        global _active
        _active = None
        super().__exit__(*exception)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        result = func(*args, **keywords)
        if not self._inside and func.namespace != "profiler":
            self._look_at(func, args, result)
            self.calls.append(Call(func, args, keywords, result))
        return result

    def call(self, function: Callable[..., R], arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> R:
        """Call a `recordable` function, as one operation."""
        if self._inside:
            return function(*arguments, **keywords)
        self._inside = True
        try:
            result = function(*arguments, **keywords)
        finally:
            self._inside = False
        self.calls.append(Call(function, arguments, keywords, result))
        return result

    def _look_at(self, function: OpOverload, arguments: tuple[Any, ...], result: Any) -> None:
        of_values = isinstance(result, (bool, int, float)) and function.overloadpacket not in _OF_SHAPES
        if of_values and tensors_in(arguments):
            self.problem = self.problem or f"{function} looks at a value"
        elif torch.Tag.dynamic_output_shape in function.tags:
            self.problem = self.problem or f"{function} gives a shape that depends on values"


_OF_SHAPES = frozenset([torch.ops.aten.is_same_size])
_active: Recorder | None = None


def recordable(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that reads and writes the memory of its tensors itself, so that torch does not see what it does.

    A recording takes it as one operation. It may write to any tensor that it is given; what it returns are such
    tensors and new ones.
    """

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        recorder = _active
        if recorder is None:
            return function(*arguments, **keywords)
        return recorder.call(function, arguments, keywords)

    return call


def is_recording() -> bool:
    """Whether a recorder, and nothing else, sees torch's operations."""
    return _active is not None and torch._C._len_torch_dispatch_stack() == 1


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors among arguments or results, however nested in lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    if isinstance(value, Mapping):
        return tensors_in(list(value.values()))
    return []
