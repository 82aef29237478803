"""Python code for a program of operations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from discrete_vae.compiled.program import Operation, Program, Value, values_in

_FUNCTIONS = frozenset(
    "abs add addcmul addmm amax amin baddbmm bmm cat ceil clamp clamp_max clamp_min cumsum div empty empty_like eq exp "
    "expm1 floor ge gt index_select isinf isnan le log log1p logical_and logical_not logsumexp lt masked_fill maximum "
    "mean minimum mm mul mv ne neg ones_like permute pow prod rand randn reciprocal relu rsqrt rsub select sgn sigmoid "
    "sign softmax sqrt square squeeze stack sub sum t tanh transpose unsqueeze where zeros zeros_like "
    "binary_cross_entropy_with_logits".split()
)
"""Operations that torch's Python function of the same name takes with the same arguments, at a third of the cost."""

_METHODS = frozenset(
    "add_ addcmul_ addmm_ clamp_ clamp_max_ clamp_min_ copy_ div_ exp_ expand expm1_ fill_ lerp_ log_ masked_fill_ mul_ "
    "neg_ pow_ reciprocal_ relu_ sigmoid_ split_with_sizes sqrt_ square_ sub_ tanh_ unbind view zero_".split()
)
"""Likewise methods of tensors."""


def straight_line(program: Program) -> Callable[..., tuple[Tensor | None, ...]]:
    """A function of the program's inputs that does its operations one after the other."""
    return _Writer(program).function()


class _Writer:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._graph = fx.Graph()
        self._nodes: dict[Value, fx.Node] = {}
        self._fixed: list[Any] = []

    def function(self) -> Callable[..., tuple[Tensor | None, ...]]:
        program = self._program
        for value in self._fixed_values():
            self._nodes[value] = self._graph.placeholder(f"fixed_{len(self._fixed)}")
            self._fixed.append(value.fixed)
        for index, value in enumerate(program.inputs):
            self._nodes[value] = self._graph.placeholder(f"input_{index}")
        for operation in program.operations:
            self._write(operation)
        self._graph.output(self._named(tuple(program.outputs)))
        run = fx.GraphModule({}, self._graph).forward
        fixed = tuple(self._fixed)
        return lambda *inputs: run(*fixed, *inputs)

    def _fixed_values(self) -> Iterator[Value]:
        """The fixed values that operations or the outputs read, each once."""
        program, seen = self._program, set(self._program.inputs)
        read = [[operation.arguments, operation.keywords] for operation in program.operations]
        for value in values_in([read, program.outputs]):
            if value.fixed is not None and value not in seen:
                seen.add(value)
                yield value

    def _write(self, operation: Operation) -> None:
        node = self._node(operation)
        several = not isinstance(operation.call.result, Tensor)
        for index, value in enumerate(operation.results):
            if value not in self._nodes:  # it is no argument that was written to
                self._nodes[value] = (
                    self._graph.call_function(operator.getitem, (node, index)) if several else node
                )

    def _node(self, operation: Operation) -> fx.Node:
        function, graph = operation.call.function, self._graph
        arguments, keywords = self._named(operation.arguments), self._named(operation.keywords)
        if not isinstance(function, OpOverload):
            return graph.call_function(function, arguments, keywords)
        name = function.overloadpacket.__name__
        if name in _METHODS:
            return graph.call_method(name, arguments, keywords)
        if name in _FUNCTIONS:
            return graph.call_function(getattr(torch, name), arguments, keywords)
        if name == "_to_copy" and set(keywords) == {"dtype"}:
            return graph.call_method("to", (*arguments, keywords["dtype"]))
        if name == "slice" and not keywords and (arguments[4:] or (1,)) == (1,):
            source, axis, start = (*arguments, 0, 0)[:3] if len(arguments) < 3 else arguments[:3]
            length = operation.call.result.shape[axis]
            size = operation.call.arguments[0].shape[axis]
            start = 0 if start is None else start + size if start < 0 else start
            return graph.call_method("narrow", (source, axis, min(start, size), length))
        return graph.call_function(function, arguments, keywords)

    def _named(self, thing: Any) -> Any:
        """The same with the graph's nodes in place of values."""
        if isinstance(thing, Value):
            return self._nodes[thing]
        if isinstance(thing, (list, tuple)):
            return type(thing)(self._named(part) for part in thing)
        if isinstance(thing, dict):
            return {name: self._named(part) for name, part in thing.items()}
        return thing
