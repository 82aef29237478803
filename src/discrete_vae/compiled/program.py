"""Recorded operations as a program over numbered values, and what of it need not be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from discrete_vae.compiled.recording import Call, Layout, ReplayError, tensors_in
from discrete_vae.compiled.schemas import draws, functional, is_pure, is_view, written


@dataclass(eq=False)
class Value:
    """What stands for an object in a program.

    Attributes:
        layout: Of a tensor that a call makes or is given.
        fixed: The object itself where it is the same from call to call; None for what calls make or are given.
        root: The value whose memory it lies in; None for itself.
    """

    layout: Layout | None = None
    fixed: Any = None
    root: Value | None = None

    def memory(self) -> Value:
        """The value whose memory this one lies in."""
        return self if self.root is None else self.root


@dataclass(eq=False)
class Operation:
    """A call with values in place of objects.

    Attributes:
        call: As it was recorded.
        arguments: Its arguments, with values for tensors and for objects.
        keywords: Likewise.
        written: The memories that it may write to.
        results: What its results stand for, in the order of `tensors_in`.
    """

    call: Call
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    written: list[Value]
    results: list[Value]


class Program:
    """The operations of a recording that have to be repeated.

    Args:
        calls: The recording.
        inputs: Objects that each call is given.
        outputs: Tensors that a call returns; None stays None.
        state: Tensors whose memory stays where it is.

    Attributes:
        inputs: What stands for the inputs.
        outputs: What stands for the outputs, None for None.
        operations: In order.

    Raises:
        ReplayError: If an operation reads a tensor or a source of noise that is none of these.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        inputs: Sequence[Any],
        outputs: Sequence[Tensor | None],
        state: Iterable[Tensor],
    ) -> None:
        self._values: dict[int, Value] = {}
        self._memories = {_storage(tensor): Value(fixed=tensor) for tensor in state}
        self._keep: list[Any] = [inputs, state]  # identities stay those of these objects
        self.inputs = [self._name(value, _input(value)) for value in inputs]
        self.operations = [operation for call in calls for operation in self._read(call)]
        self.outputs = [None if tensor is None else self._value_of(tensor) for tensor in outputs]
        self._share()
        self._drop_unread()

    def _name(self, thing: Any, value: Value) -> Value:
        self._values[_identity(thing)] = value
        return value

    def _read(self, call: Call) -> Iterator[Operation]:
        """Take in one call; what it makes is known afterwards."""
        call, made = functional(call), tensors_in(call.result)
        function = call.function
        if not made and not written(call):
            return  # it asked for what shapes and dtypes say
        changed = [self._value_of(tensor).memory() for tensor in written(call)]
        operation = Operation(
            call, self._stand_in(call.arguments), self._stand_in(call.keywords), changed, []
        )
        if draws(function) and not any(
            isinstance(each.fixed, torch.Generator) for each in _read_by(operation)
        ):
            raise ReplayError("it draws from torch's global source of noise")
        if isinstance(function, OpOverload) and is_view(function):
            (source,) = values_in(operation.arguments[:1])
            if function.overloadpacket in _SAME:
                self._name(call.result, source)
                return
            operation.results = [
                self._name(tensor, Value(layout, root=source.memory()))
                for tensor, layout in zip(made, call.layouts, strict=True)
            ]
        else:
            for tensor, layout in zip(made, call.layouts, strict=True):
                known = self._values.get(id(tensor))
                operation.results.append(self._name(tensor, Value(layout)) if known is None else known)
        yield operation

    def _value_of(self, thing: Any) -> Value:
        """What stands for an object that a call reads."""
        known = self._values.get(_identity(thing))
        if known is not None:
            return known
        if isinstance(thing, Tensor):
            memory = self._memories.get(_storage(thing))
            if memory is None:
                shape = tuple(thing.shape)
                raise ReplayError(f"it reads a tensor of shape {shape} that is neither an argument nor state")
            return self._name(thing, Value(fixed=thing, root=memory))
        if isinstance(thing, torch.Generator):
            raise ReplayError("it draws from a source of noise that is no argument")
        self._keep.append(thing)
        return self._name(thing, Value(fixed=thing))

    def _stand_in(self, thing: Any) -> Any:
        """The same with values in place of tensors and of what has no literal."""
        if isinstance(thing, (list, tuple)):
            return type(thing)(self._stand_in(part) for part in thing)
        if isinstance(thing, dict):
            return {name: self._stand_in(part) for name, part in thing.items()}
        if type(thing) in _LITERALS:
            return thing
        return self._value_of(thing)

    def _share(self) -> None:
        """Let an operation that repeats another one on the same values take its results.

        Values are the same as long as nobody writes into their memory, which counts how often that was done.
        """
        first: dict[Any, Operation] = {}
        ever = {memory for operation in self.operations for memory in operation.written}
        writes: Counter[Value] = Counter()
        same: dict[Value, Value] = {}
        kept = []
        for operation in self.operations:
            operation.arguments = _replaced(operation.arguments, same)
            operation.keywords = _replaced(operation.keywords, same)
            writes.update(operation.written)
            function = operation.call.function
            views = isinstance(function, OpOverload) and is_view(function)
            constant = ever.isdisjoint(value.memory() for value in operation.results)
            if is_pure(operation.call) and (views or constant):
                states = [] if views else [writes[value.memory()] for value in _read_by(operation)]
                key = _key([function, operation.arguments, operation.keywords, states])
                earlier = first.setdefault(key, operation)
                if earlier is not operation:
                    same.update(zip(operation.results, earlier.results, strict=True))
                    continue
            if views:
                (source,) = values_in(operation.arguments[:1])
                for value in operation.results:
                    value.root = source.memory()  # which may have taken another one's place
            kept.append(operation)
        self.operations = kept
        self.outputs = _replaced(self.outputs, same)

    def _drop_unread(self) -> None:
        """Leave out what only makes results that nobody reads."""
        read = set(values_in(self.outputs))
        kept = []
        for operation in reversed(self.operations):
            if is_pure(operation.call) and not read.intersection(operation.results):
                continue
            read.update(_read_by(operation))
            kept.append(operation)
        self.operations = kept[::-1]


_LITERALS = frozenset([bool, int, float, str, type(None), torch.dtype, torch.layout, torch.memory_format])
_SAME = frozenset([torch.ops.aten.detach, torch.ops.aten.alias])


def _input(thing: Any) -> Value:
    return Value(Layout.of(thing)) if isinstance(thing, Tensor) else Value(fixed=thing)


def _identity(thing: Any) -> int:
    """The same number for the same object; torch wraps a source of noise anew each time it shows it."""
    return thing._cdata if isinstance(thing, torch.Generator) else id(thing)  # pyright: ignore[reportAttributeAccessIssue]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def values_in(thing: Any) -> list[Value]:
    """The values among arguments or results."""
    if isinstance(thing, Value):
        return [thing]
    if isinstance(thing, dict):
        thing = list(thing.values())
    return [value for part in thing for value in values_in(part)] if isinstance(thing, (list, tuple)) else []


def _read_by(operation: Operation) -> list[Value]:
    """What an operation is given."""
    return values_in([operation.arguments, operation.keywords])


def _replaced(thing: Any, by: dict[Value, Value]) -> Any:
    """The same with other values in place of some."""
    if isinstance(thing, Value):
        return by.get(thing, thing)
    if isinstance(thing, (list, tuple)):
        return type(thing)(_replaced(part, by) for part in thing)
    if isinstance(thing, dict):
        return {name: _replaced(part, by) for name, part in thing.items()}
    return thing


def _key(thing: Any) -> Any:
    """Something that can be looked up and differs where operations do."""
    if isinstance(thing, (list, tuple)):
        return tuple(map(_key, thing))
    if isinstance(thing, dict):
        return tuple((name, _key(part)) for name, part in sorted(thing.items()))
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0
    return thing if isinstance(thing, (Value, OpOverload)) else (type(thing), repr(thing))
