"""Replayed functions: recorded operations as a graph, lowered to calls on memory that is laid out once."""

from __future__ import annotations

import bisect
import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from discrete_vae.errors import KernelWarning
from discrete_vae.kernels.capture import (
    Call,
    Layout,
    Recorder,
    ReplayError,
    draws,
    functional,
    is_pure,
    is_view,
    written,
)
from discrete_vae.kernels.registry import tensors_in


@dataclass(eq=False)
class Value:
    """A tensor or another object in a graph.

    The layout is that of a tensor that a call makes or is given; what is fixed is the object itself, the same from call
    to call; the root is the value whose memory a view lies in.
    """

    layout: Layout | None = None
    fixed: Any = None
    root: Value | None = None

    def memory(self) -> Value:
        """The value whose memory this one lies in."""
        return self if self.root is None else self.root


@dataclass(eq=False)
class Operation:
    """A recorded call with values in place of objects; results are in the order of `tensors_in`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    written: list[Value]
    results: list[Value]


class Graph:
    """The operations of a recording that have to be repeated.

    Views of memory that stays where it is are taken once, equal operations on equal values done once, results that
    nobody reads not made.
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
        self.inputs = [
            self._name(each, Value(Layout.of(each)) if isinstance(each, Tensor) else Value(fixed=each))
            for each in inputs
        ]
        self.operations = [operation for call in calls for operation in self._read(call)]
        self.outputs = [None if tensor is None else self._value_of(tensor) for tensor in outputs]
        self._share()
        self._drop_unread()

    def _name(self, thing: Any, value: Value) -> Value:
        self._values[_identity(thing)] = value
        return value

    def _read(self, call: Call) -> Iterator[Operation]:
        call, made = functional(call), tensors_in(call.result)
        function, changed = call.function, written(call)
        if not made and not changed:
            return  # it asked for what shapes and dtypes say
        memories = [self._value_of(tensor).memory() for tensor in changed]
        arguments, keywords = self._stand_in(call.arguments), self._stand_in(call.keywords)
        operation = Operation(function, arguments, keywords, memories, [])
        if draws(function) and not any(
            isinstance(each.fixed, torch.Generator) for each in _read_by(operation)
        ):
            raise ReplayError("it draws from torch's global source of noise")
        results = zip(made, call.layouts, strict=True)
        if is_view(function):
            (source,) = values_in(operation.arguments[:1])
            if function.overloadpacket in _SAME:
                self._name(call.result, source)
                return
            root = source.memory()
            operation.results = [self._name(tensor, Value(layout, root=root)) for tensor, layout in results]
        else:
            operation.results = [
                self._values.get(id(tensor)) or self._name(tensor, Value(layout))
                for tensor, layout in results
            ]
        yield operation

    def _value_of(self, thing: Any) -> Value:
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
        return tree_map(lambda leaf: leaf if type(leaf) in _LITERALS else self._value_of(leaf), thing)

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
            function, views = operation.function, is_view(operation.function)
            constant = ever.isdisjoint(value.memory() for value in operation.results)
            if is_pure(function) and (views or constant):
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
        read = set(values_in(self.outputs))
        kept = []
        for operation in reversed(self.operations):
            if is_pure(operation.function) and not read.intersection(operation.results):
                continue
            read.update(_read_by(operation))
            kept.append(operation)
        self.operations = kept[::-1]


_LITERALS = frozenset([bool, int, float, str, type(None), torch.dtype, torch.layout, torch.memory_format])
_SAME = frozenset([torch.ops.aten.detach, torch.ops.aten.alias])


def _identity(thing: Any) -> int:
    """The same number for the same object; torch wraps a source of noise anew each time it shows it."""
    return thing._cdata if isinstance(thing, torch.Generator) else id(thing)  # pyright: ignore[reportAttributeAccessIssue]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def values_in(thing: Any) -> list[Value]:
    """The values among arguments or results."""
    return [leaf for leaf in tree_leaves(thing) if isinstance(leaf, Value)]


def _read_by(operation: Operation) -> list[Value]:
    return values_in([operation.arguments, operation.keywords])


def _replaced(thing: Any, by: dict[Value, Value]) -> Any:
    return tree_map_only(Value, lambda value: by.get(value, value), thing)


def _key(thing: Any) -> Any:
    """A key that differs where operations do."""
    if isinstance(thing, (list, tuple)):
        return tuple(map(_key, thing))
    if isinstance(thing, dict):
        return tuple((name, _key(part)) for name, part in sorted(thing.items()))
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0
    return thing if isinstance(thing, (Value, OpOverload)) else (type(thing), repr(thing))


# Lowering.


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
_CONSTANT: dict[str, float] = dict.fromkeys(("zeros", "zeros_like", "new_zeros"), 0.0)
_CONSTANT |= dict.fromkeys(("ones", "ones_like", "new_ones"), 1.0)


Function = Callable[..., Sequence[Tensor | None]]


class Replay:
    """A function of tensors as the operations that one call of it consisted of, on memory of its own.

    Its shapes, branches and numbers that are no tensors are those of that call. Tensors that it finds elsewhere than
    among its arguments are ``state``: they are read and changed where they are. Needless repetition is left out, see
    `Graph`; what is left are the same operations on the same numbers in the same order, so results are the same to the
    last bit, without the cost of modules, autograd and checks.

    Every tensor gets its place when the graph is lowered, so that views are made once, nothing is allocated in a call,
    and an operation is a function without arguments. Memory that is read for the last time is given to the next result
    of its size, which then lies in the cache. The steps are the operations of a call, in order, between inputs and
    outputs: these are where they lie, sources of noise and None stand for themselves.
    """

    def __init__(
        self,
        recorder: Recorder,
        inputs: Sequence[Any],
        outputs: Sequence[Tensor | None],
        state: Iterable[Tensor],
    ) -> None:
        if recorder.problem is not None:
            raise ReplayError(recorder.problem)
        self._state = list(state)
        graph = Graph(recorder.calls, inputs, outputs, self._state)
        self.is_checked = False  # whether `compare` found no difference
        self.difference = ""
        self._things: dict[Value, Any] = {}
        self._pool = _Pool()
        self.steps: list[Step] = []
        self._kept: list[Tensor] = []  # whose addresses are among the steps
        for value in graph.inputs:
            if value.layout is not None:
                value.fixed = _dense(value.layout, "cpu")
        self._inputs = [value.fixed for value in graph.inputs]
        last = _last_uses(graph)
        for index, operation in enumerate(graph.operations):
            self.steps += self._lower(operation)
            for memory in _touched(operation):
                if last[memory] == index and memory.fixed is None:
                    self._pool.give(self._things[memory])
        self._outputs = [None if value is None else self._thing(value) for value in graph.outputs]

    def __call__(self, *inputs: Any) -> Sequence[Tensor | None]:
        """Repeat the operations, without autograd, and return where the outputs lie; the next call writes over them."""
        with torch.no_grad():
            for place, value in zip(self._inputs, inputs, strict=True):
                if isinstance(place, Tensor):
                    place.copy_(value)
                elif place is not value:
                    raise ReplayError("another source of noise than the recorded one is given")
            for step in self.steps:
                step()
        return self._outputs

    def compare(self, function: Function, *inputs: Any) -> Sequence[Tensor | None]:
        """Call the function once more, and find out whether a replay gives outputs and state to the last bit.

        The state is changed as by that call alone, whose outputs are returned; an error of the replay is a difference.
        """
        # all of the state: an operation of torch may change what its schema does not say, running statistics above all
        before = [tensor.clone() for tensor in self._state]
        sources = [(each, each.get_state()) for each in inputs if isinstance(each, torch.Generator)]
        found, self.difference = [], "it gives other numbers"
        try:
            found = [None if tensor is None else tensor.clone() for tensor in self(*inputs)]
            found += [tensor.clone() for tensor in self._state]
        except Exception as error:
            self.difference = f"{type(error).__name__}: {error}"
        with torch.no_grad():
            for tensor, value in zip(self._state, before, strict=True):
                if not _equal(tensor, value):
                    tensor.copy_(value)
        for source, state in sources:
            source.set_state(state)
        outputs = function(*inputs)
        right = [*outputs, *self._state]
        self.is_checked = len(found) == len(right) and all(map(_equal, found, right))
        return outputs

    def _thing(self, value: Value) -> Any:
        return self._things.get(value, value.fixed)

    def _real(self, thing: Any) -> Any:
        return tree_map_only(Value, self._thing, thing)

    def _lower(self, operation: Operation) -> list[Step]:
        function = operation.function
        arguments, keywords = self._real(operation.arguments), self._real(operation.keywords)
        if not isinstance(function, OpOverload):
            # aliases, which keep the memory even if a parameter is given another one
            self._kept += [tensor.detach() for tensor in tensors_in([arguments, keywords])]
            return [function.lower(*arguments, **keywords)]  # pyright: ignore[reportFunctionMemberAccess]
        if is_view(function):
            made = tensors_in(function(*arguments, **keywords))
            self._things.update(zip(operation.results, made, strict=True))
            return []
        if function._schema.is_mutable:
            return [_in_place(function, arguments, keywords)]
        for value in operation.results:
            assert value.layout is not None
            self._things[value] = self._pool.take(value.layout)
        return _into(function, arguments, keywords, [self._things[value] for value in operation.results])


def _last_uses(graph: Graph) -> dict[Value, float]:
    """The index of the operation that touches each memory for the last time."""
    last: dict[Value, float] = {}
    for index, operation in enumerate(graph.operations):
        last.update(dict.fromkeys(_touched(operation), index))
    last.update((value.memory(), math.inf) for value in values_in(graph.outputs))
    return last


def _touched(operation: Operation) -> set[Value]:
    """The memories that an operation reads or writes."""
    values = values_in([operation.arguments, operation.keywords, operation.results])
    return {value.memory() for value in values}


def _in_place(function: OpOverload, arguments: Sequence[Any], keywords: dict[str, Any]) -> Step:
    name = function.overloadpacket.__name__
    # torch's methods take no None among the places of an index
    method = getattr(arguments[0], name, None) if name.endswith("_") and name != "index_put_" else None
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
    if name in ("slice_backward", "select_backward"):
        gradient, _, *where = arguments
        inside = getattr(torch.ops.aten, name.removesuffix("_backward"))(place, *where)
        return [place.zero_, partial(inside.copy_, gradient)]
    if name == "sum" and not arguments[1:] and not keywords:
        return [partial(torch.sum, arguments[0], dim=None, out=place)]
    if name == "where" and all(isinstance(each, Tensor) for each in arguments):
        return [partial(torch.where, *arguments, out=place)]
    if name in _WITH_OUT or str(function).removeprefix("aten.") in _REDUCTIONS:
        if name in ("rand", "randn"):  # which look for the default device's source if none is named
            keywords = {"generator": keywords.get("generator"), "device": place.device}
        return [partial(getattr(torch, name), *arguments, **keywords, out=place)]
    return [partial(_call_and_copy, function, tuple(arguments), keywords, tuple(places))]


def _call_and_copy(
    function: OpOverload, arguments: tuple[Any, ...], keywords: dict[str, Any], places: tuple[Tensor, ...]
) -> None:
    """For the few that have no form with a place for the result."""
    made = function(*arguments, **keywords)
    for place, tensor in zip(places, tensors_in(made), strict=True):  # gradients that nobody wants are None
        place.copy_(tensor)


def _dense(layout: Layout, device: str) -> Tensor:
    """A tensor of a layout without gaps, its axes in their order; contiguous if numbers share places."""
    axes = sorted(
        (stride, size) for size, stride in zip(layout.shape, layout.stride, strict=True) if size > 1
    )
    apart = all(stride > 0 for stride, _ in axes)
    apart = apart and all(size * stride <= larger for (stride, size), (larger, _) in pairwise(axes))
    like = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device="meta")
    kind = torch.preserve_format if apart else torch.contiguous_format
    return torch.empty_like(like, device=device, memory_format=kind)


class _Pool:
    """Memory that is free again."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, torch.UntypedStorage]] = []  # by size
        self._count = 0

    def take(self, layout: Layout) -> Tensor:
        """A tensor of a layout, or dense if that has gaps, in memory of at most twice its size."""
        blank = _dense(layout, "meta")
        size = max(1, blank.numel() * blank.element_size())
        place = bisect.bisect_left(self._free, size, key=lambda each: each[0])
        if place < len(self._free) and self._free[place][0] <= 2 * size:
            storage = self._free.pop(place)[2]
        else:
            storage = torch.UntypedStorage(-(-size // 64) * 64)
        return torch.empty(0, dtype=layout.dtype, device="cpu").set_(storage, 0, blank.shape, blank.stride())

    def give(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._count -= 1  # of equal sizes the latest comes first
        bisect.insort(self._free, (storage.nbytes(), self._count, storage), key=lambda each: each[:2])


def _equal(mine: Tensor | None, other: Tensor | None) -> bool:
    if mine is None or other is None:
        return mine is other
    if mine.shape != other.shape or mine.dtype != other.dtype:
        return False
    return torch.equal(mine, other) or torch.allclose(mine, other, rtol=0, atol=0, equal_nan=True)


_MOST_FORMS = 16  # a replay keeps its intermediate values


class ReplayedFunctions:
    """Calls functions of tensors: the first time with a recorder, the second time both ways, then from the recording.

    The two ways of the second call have to give the same bits. Where they do not, or a call cannot be recorded,
    functions are called as they are, with a `KernelWarning`; the reason is then there, as it is from the start where
    nothing may be repeated. Of more than sixteen keys the others are called as they are, with a warning too. The state
    gives the tensors that the functions find elsewhere than among their inputs, see `Replay`.
    """

    def __init__(self, state: Callable[[], Iterable[Tensor]], reason: str | None = None) -> None:
        self.reason = reason
        self._state = state
        self._replays: dict[Hashable, Replay] = {}
        self._restarts, self._too_many = 0, False

    def __call__(self, key: Hashable, function: Function, *inputs: Any) -> Sequence[Tensor | None]:
        """Call a function of tensors and sources of noise that returns tensors or None.

        The key names it with all that its recording depends on: shapes, dtypes, numbers, branches. The outputs are
        without gradient, and the next call with the same key may write into the same memory.
        """
        if self.reason is not None:
            return function(*inputs)
        if (replay := self._replays.get(key)) is not None:
            if replay.is_checked:
                return replay(*inputs)
            outputs = replay.compare(function, *inputs)
            if not replay.is_checked:
                self.stop(f"the recording of {key} cannot be repeated, {replay.difference}")
            return outputs
        if len(self._replays) < _MOST_FORMS:
            return self._record(key, function, inputs)
        if not self._too_many:
            self._too_many = True
            _warn(f"no more than {_MOST_FORMS} shapes and settings are recorded, and this is one more")
        return function(*inputs)

    def restart(self) -> None:
        """Record anew, as what recordings take as given has changed; to no end where it changes all the time."""
        self._restarts = 0 if any(each.is_checked for each in self._replays.values()) else self._restarts + 1
        self._replays.clear()
        if self._restarts == _MOST_FORMS and self.reason is None:
            self.stop("the model changes from call to call")

    def stop(self, reason: str) -> None:
        """Repeat nothing any more, and warn of the reason."""
        self.reason = reason
        self._replays.clear()
        _warn(reason)

    def _record(self, key: Hashable, function: Function, inputs: tuple[Any, ...]) -> Sequence[Tensor | None]:
        state = list(self._state())  # what is made during the call would be taken for an intermediate value
        with Recorder() as recorder:
            outputs = function(*inputs)
        try:
            self._replays[key] = Replay(recorder, inputs, outputs, state)
        except ReplayError as error:
            self.stop(str(error))
        return outputs


def _warn(reason: str) -> None:
    message = f"Operations are called one by one from here on, which is slower: {reason}."
    warnings.warn(message, KernelWarning, stacklevel=4)
