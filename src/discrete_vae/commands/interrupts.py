"""Ctrl-C and SIGTERM: either ends a command with all that cleans up; while a run trains the first asks to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from discrete_vae.contention import torch_is_loading

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ASKED = b"\nStopping after the step in progress; once more ends at once.\n"


class StopRequest:
    """Whether a signal has asked to stop; calling it says so.

    Attributes:
        signal: Number of the signal; None before one.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def status(self) -> int:
        """The exit status that tells the shell of the signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Take note of a signal; a second one raises.

        Raises:
            KeyboardInterrupt: If a signal came before.
        """
        repeated, self.signal = self.signal is not None, number
        if repeated:
            raise KeyboardInterrupt
        with suppress(OSError):  # not print: a handler may have interrupted another print
            os.write(2, _ASKED)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which takes the way of Ctrl-C."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise `Terminated` inside the block, so that nothing half-written stays; a second one kills.

    Where somebody else handles it, or in another thread than the main one, nothing is changed.

    Examples:
        >>> import os
        >>> try:
        ...     with ended_by_sigterm():
        ...         os.kill(os.getpid(), signal.SIGTERM)
        ... except Terminated:
        ...     print("ended")
        ended
    """

    def receive(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        _end_if_torch_loads(number, b"Ended by SIGTERM.\n")
        raise Terminated

    is_ours = threading.current_thread() is threading.main_thread()
    is_ours = is_ours and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, receive)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Let Ctrl-C inside the block end a process that is still importing torch, and else raise as ever.

    For a process that is a command. An exception that comes up inside that import can meet C++ that cannot pass it on,
    which aborts the process. Nothing has been written by then.
    """

    def receive(number: int, frame: FrameType | None) -> None:
        _end_if_torch_loads(number, b"Interrupted.\n")
        raise KeyboardInterrupt

    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, receive)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_if_torch_loads(number: int, words: bytes) -> None:
    if torch_is_loading():
        with suppress(OSError):
            os.write(2, words)
        os._exit(128 + number)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Let signals ask to stop inside the block, and put back afterwards what was there before.

    Python delivers signals to its main thread alone: in another one nothing is changed.

    Examples:
        >>> with stop_on_signals() as stop:
        ...     stop()
        False
    """
    request = StopRequest()
    before: dict[signal.Signals, Callable[..., Any] | int | None] = {}
    if threading.current_thread() is threading.main_thread():
        for each in _SIGNALS:
            if signal.getsignal(each) != signal.SIG_IGN:  # as nohup and background jobs of a shell ask
                before[each] = signal.signal(each, request.receive)
    try:
        yield request
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
