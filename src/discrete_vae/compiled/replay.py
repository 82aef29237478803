"""A computation repeated from its recording.

What a recording repeats needlessly is left out: views of memory that stays where it is are taken once, equal operations
on equal values done once, results that nobody reads not made. What is left are the same operations on the same numbers
in the same order, so results are the same to the last bit, without the cost of modules, autograd and checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from discrete_vae.compiled.binding import BoundProgram
from discrete_vae.compiled.program import Program
from discrete_vae.compiled.recording import Recorder, ReplayError

Function = Callable[..., Sequence[Tensor | None]]


class Replay:
    """A function of tensors as the operations that one call of it consisted of.

    Its shapes, branches and numbers that are no tensors are those of that call. Tensors that it finds elsewhere than
    among its arguments are ``state``: they are read and changed where they are.

    Args:
        recorder: Has seen the call.
        inputs: Tensors and sources of noise that the call was given.
        outputs: What it returned.
        state: Tensors whose memory stays where it is.

    Attributes:
        num_operations: Operations of a call.

    Raises:
        ReplayError: If the function looked at a value, or read a tensor that is neither an input, nor state, nor made
            by an operation.

    Examples:
        >>> scale, x = torch.ones(2), torch.arange(2.0)
        >>> with Recorder() as recorder:
        ...     outputs = [x * scale + 1]
        >>> Replay(recorder, [x], outputs, [scale])(torch.tensor([5.0, 7.0]))
        [tensor([6., 8.])]
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
        self._bound = BoundProgram(Program(recorder.calls, inputs, outputs, self._state))
        self.num_operations = len(self._bound.steps)

    def __call__(self, *inputs: Any) -> Sequence[Tensor | None]:
        """Repeat the operations, without autograd.

        Args:
            inputs: Of the shapes and dtypes of those that were recorded; the same sources of noise.

        Returns:
            Where the outputs lie; the next call writes over them.
        """
        bound = self._bound
        with torch.no_grad():
            for place, value in zip(bound.inputs, inputs, strict=True):
                if isinstance(place, Tensor):
                    place.copy_(value)
                elif place is not value:
                    raise ReplayError("another source of noise than the recorded one is given")
            for step in bound.steps:
                step()
        return bound.outputs

    def compare(self, function: Function, *inputs: Any) -> tuple[Sequence[Tensor | None], bool]:
        """Call the function once more and compare; the state is changed as by that call alone.

        Args:
            function: What was recorded.
            inputs: Others than those that were recorded.

        Returns:
            What the function gave, and whether outputs and state are the same to the last bit.
        """
        # all of the state: an operation of torch may change what its schema does not say, running statistics above all
        before = [tensor.clone() for tensor in self._state]
        sources = [(each, each.get_state()) for each in inputs if isinstance(each, torch.Generator)]
        found = [None if tensor is None else tensor.clone() for tensor in self(*inputs)]
        found += [tensor.clone() for tensor in self._state]
        with torch.no_grad():
            for tensor, value in zip(self._state, before, strict=True):
                if not _equal(tensor, value):
                    tensor.copy_(value)
        for source, state in sources:
            source.set_state(state)
        outputs = function(*inputs)
        right = [*outputs, *self._state]
        return outputs, all(_equal(mine, other) for mine, other in zip(found, right, strict=True))


def _equal(mine: Tensor | None, other: Tensor | None) -> bool:
    """Whether two tensors have the same numbers, NaN being NaN."""
    if mine is None or other is None:
        return mine is other
    if mine.shape != other.shape or mine.dtype != other.dtype:
        return False
    return torch.equal(mine, other) or torch.allclose(mine, other, rtol=0, atol=0, equal_nan=True)
