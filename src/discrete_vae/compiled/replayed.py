"""Functions that are recorded, checked and from then on repeated."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from torch import Tensor

from discrete_vae.compiled.recording import Recorder, ReplayError
from discrete_vae.compiled.replay import Replay
from discrete_vae.errors import KernelWarning

_MOST_FORMS = 16  # a replay keeps its intermediate values


class ReplayedFunctions:
    """Calls functions of tensors: the first time with a recorder, the second time both ways, then from the recording.

    The two ways of the second call have to give the same bits. Where they do not, or a call cannot be recorded, or
    there are more than sixteen keys, functions are called as they are, with a `KernelWarning`.

    Args:
        state: Gives the tensors that the functions find elsewhere than among their inputs, see `Replay`.
        reason: Why nothing may be repeated, if so.

    Attributes:
        reason: Why functions are called as they are, as far as that is known; None while they are repeated.

    Examples:
        >>> import torch
        >>> functions = ReplayedFunctions(lambda: [])
        >>> for number in (1.0, 2.0, 3.0):
        ...     found = functions("double", lambda x: [x + x], torch.tensor(number))
        >>> found, functions.reason
        ([tensor(6.)], None)
    """

    def __init__(self, state: Callable[[], Iterable[Tensor]], reason: str | None = None) -> None:
        self.reason = reason
        self._state = state
        self._replays: dict[Hashable, Replay] = {}
        self._checked: set[Hashable] = set()
        self._restarts, self._too_many = 0, False

    def __call__(
        self, key: Hashable, function: Callable[..., Sequence[Tensor | None]], *inputs: Any
    ) -> Sequence[Tensor | None]:
        """Call a function.

        Args:
            key: Names the function with all that its recording depends on: shapes, dtypes, numbers, branches.
            function: Takes the inputs, returns tensors or None.
            inputs: Tensors and sources of noise.

        Returns:
            What it gives, without gradient; the next call with the same key may write into the same memory.
        """
        if self.reason is not None:
            return function(*inputs)
        replay = self._replays.get(key)
        if key in self._checked and replay is not None:
            return replay(*inputs)
        if replay is not None:
            return self._compare(key, replay, function, inputs)
        if len(self._replays) < _MOST_FORMS:
            return self._record(key, function, inputs)
        if not self._too_many:
            self._too_many = True
            _warn(f"no more than {_MOST_FORMS} shapes and settings are recorded, and this is one more")
        return function(*inputs)

    def restart(self) -> None:
        """Record anew, as what recordings take as given has changed; to no end where it changes all the time."""
        self._restarts = 0 if self._checked else self._restarts + 1
        self._replays.clear()
        self._checked.clear()
        if self._restarts == _MOST_FORMS and self.reason is None:
            self.stop("the model changes from call to call")

    def stop(self, reason: str) -> None:
        """Repeat nothing any more.

        Args:
            reason: Why.

        Warns:
            KernelWarning: Always.
        """
        self.reason = reason
        self._replays.clear()
        self._checked.clear()
        _warn(reason)

    def _record(
        self, key: Hashable, function: Callable[..., Sequence[Tensor | None]], inputs: tuple[Any, ...]
    ) -> Sequence[Tensor | None]:
        state = list(self._state())  # what is made during the call would be taken for an intermediate value
        with Recorder() as recorder:
            outputs = function(*inputs)
        try:
            self._replays[key] = Replay(recorder, inputs, outputs, state)
        except ReplayError as error:
            self.stop(str(error))
        return outputs

    def _compare(
        self,
        key: Hashable,
        replay: Replay,
        function: Callable[..., Sequence[Tensor | None]],
        inputs: tuple[Any, ...],
    ) -> Sequence[Tensor | None]:
        outputs, same = replay.compare(function, *inputs)
        if same:
            self._checked.add(key)
        else:
            self.stop(f"the recording of {key} gives other numbers")
        return outputs


def _warn(reason: str) -> None:
    message = f"Operations are called one by one from here on, which is slower: {reason}."
    warnings.warn(message, KernelWarning, stacklevel=4)
