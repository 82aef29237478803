"""What an operation of torch does, as its schema says."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch._ops import OpOverload

from discrete_vae.compiled.recording import Call, tensors_in


def is_view(function: OpOverload) -> bool:
    """Whether what it returns lies in the memory of its argument, which it leaves as it is."""
    returns = function._schema.returns
    return any(kind.alias_info is not None and not kind.alias_info.is_write for kind in returns)


def draws(function: object) -> bool:
    """Whether an operation draws random numbers."""
    return isinstance(function, OpOverload) and torch.Tag.nondeterministic_seeded in function.tags


def is_pure(call: Call) -> bool:
    """Whether a call only makes its results, the same from the same arguments."""
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
