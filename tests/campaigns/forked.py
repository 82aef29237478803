"""Commands of dvae in forked processes, and what a clean refusal is."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

_HOUSE_FORM = re.compile(r"error: .+; received .*\. .+[.?]$")
_SPARE_MEMORY = 3 << 30  # bytes beyond those in use: more must be refused, not bring the machine down
_LEFT_TO_END = 8.0  # seconds for the others of a process that failed
_HELD = {signal.SIGINT, signal.SIGTERM}


@dataclass(frozen=True)
class Ended:
    """How a forked command ended: its exit status, minus the signal's number, or None for the time limit."""

    words: tuple[str, ...]
    status: int | None
    out: str
    err: str

    def __str__(self) -> str:
        shown = "time limit" if self.status is None else f"status {self.status}"
        return (
            f"dvae {' '.join(map(repr, self.words))[:1000]}\n{shown}\n{self.out[-1500:]}\n{self.err[-3000:]}"
        )


def call(
    words: Sequence[str],
    *,
    limit: float = 30.0,
    first: Callable[[], None] | None = None,
    stop: tuple[float | str, int] | None = None,
    main: Callable[[Sequence[str]], int] | None = None,
) -> Ended:
    """Run one command of dvae in a forked process.

    Args:
        words: The command line without the program's name.
        limit: Seconds until it counts as hanging.
        first: Called in the process before the command, to plant a fault there.
        stop: After how many seconds, or which words on standard error, it is sent which signal.
        main: What is run in place of dvae.
    """
    started = _start(words, first, main)
    if stop is not None:
        after, kind = stop
        if isinstance(after, str):
            started[2].wait_for(after.encode())
            after = 0.0
        return _ended(words, started, _wait(started[0], limit, (after, kind)))
    return _ended(words, started, _wait(started[0], limit, None))


def call_together(
    words: Sequence[str],
    number: int,
    *,
    limit: float = 30.0,
    first: tuple[int, Callable[[], None]] | None = None,
    stop: tuple[int, float, int] | None = None,
) -> list[Ended]:
    """Run one command in several processes that know of each other; once one fails the others are sent SIGTERM.

    Args:
        words: The command line without the program's name.
        number: How many.
        limit: Seconds until they count as hanging.
        first: Which process plants a fault in itself before the command, and how.
        stop: Which one is sent a signal, after how many seconds, and which signal.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}

    def prepared(rank: int) -> Callable[[], None]:
        def prepare() -> None:
            os.environ |= address | {"WORLD_SIZE": str(number), "RANK": str(rank)}
            if first is not None and first[0] == rank:
                first[1]()

        return prepare

    all_started = [_start(words, prepared(rank), None) for rank in range(number)]
    statuses: dict[int, int | None] = {}
    begin, deadline, told = time.monotonic(), limit, False
    while len(statuses) < number:
        left = [rank for rank in range(number) if rank not in statuses]
        ready, _, _ = select.select([all_started[rank][0][1] for rank in left], [], [], 0.02)
        seconds = time.monotonic() - begin
        for rank in left:
            process, ends = all_started[rank][0]
            if ends in ready or seconds > deadline:
                statuses[rank] = _wait((process, ends), 0.0, None)
            elif stop is not None and stop[0] == rank and seconds > stop[1]:
                os.kill(process, stop[2])
                stop = None
        if not told and any(status != 0 for status in statuses.values()):
            told, deadline = True, seconds + _LEFT_TO_END
            for rank in left:
                if rank not in statuses:
                    os.kill(all_started[rank][0][0], signal.SIGTERM)
    return [_ended(words, all_started[rank], statuses[rank]) for rank in range(number)]


_Started: TypeAlias = "tuple[tuple[int, int], _Output, _Output]"
"""What `_fork` gives of a command, its output and what it writes on standard error."""


def _start(
    words: Sequence[str], first: Callable[[], None] | None, main: Callable[[Sequence[str]], int] | None
) -> _Started:
    from discrete_vae import cli

    out, err = _Output(), _Output()
    return _fork(lambda: _command(main or cli.main, words, first), out.end, err.end), out, err


def _ended(words: Sequence[str], started: _Started, status: int | None) -> Ended:
    return Ended(tuple(words), status, started[1].text(), started[2].text())


class _Output:
    """What a command writes: a pipe, since limits on the size of files are not meant for it."""

    def __init__(self) -> None:
        self._start, self.end = os.pipe()
        self._read = b""
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(self._start, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.set_blocking(self._start, False)

    def wait_for(self, words: bytes) -> None:
        """Until it has written these words, or for half a minute nothing."""
        while words not in self._read and select.select([self._start], [], [], 30.0)[0]:
            self._read += os.read(self._start, 1 << 16)

    def text(self) -> str:
        """All of it, after the command has ended."""
        os.close(self.end)
        with os.fdopen(self._start, "rb") as file:
            return (self._read + (file.read() or b"")).decode(errors="backslashreplace")


def _command(
    main: Callable[[Sequence[str]], int], words: Sequence[str], first: Callable[[], None] | None
) -> int:
    limit_memory()
    if first is not None:
        first()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    status = main(list(words))
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def limit_memory() -> None:
    """Let this process fail where it asks for much memory, instead of the machine."""
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _SPARE_MEMORY, resource.RLIM_INFINITY))


def _fork(work: Callable[[], int], out: int, err: int) -> tuple[int, int]:
    """Start a process; returns its id and the end of a pipe that closes when it ends."""
    ends, held = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)  # a signal is for the command, not for its start
    process = os.fork()
    if process == 0:
        status = 99
        try:
            os.close(ends)
            os.dup2(out, 1)
            os.dup2(err, 2)
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (descriptors)
            sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
            status = work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(held)
    return process, ends


def _wait(process: tuple[int, int], limit: float, stop: tuple[float, int] | None) -> int | None:
    number, ends = process
    if stop is not None and not select.select([ends], [], [], stop[0])[0]:
        os.kill(number, stop[1])
    ready, _, _ = select.select([ends], [], [], limit)
    os.close(ends)
    if not ready:
        os.kill(number, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    return status if ready else None


def refusal_fault(ended: Ended, *, statuses: Sequence[int] = (2,), before: bool = True) -> str | None:
    """What is wrong with a refusal; None if it is one line in the house's form.

    Args:
        ended: The command.
        statuses: Exit statuses that fit.
        before: Whether it must have been refused before any work, so that nothing else is on standard error.
    """
    lines = ended.err.splitlines()
    if ended.status not in statuses or "Traceback" in ended.err:
        return "neither success nor a clean refusal"
    if not lines or not lines[-1].startswith("error: "):
        return "no line that starts with error:"
    if ended.status == 2 and not _HOUSE_FORM.match(lines[-1]):
        return "not in the house's form"
    others = [line for line in lines[:-1] if not line.startswith("warning: ")]
    if (before and (others or ended.out)) or any(line.startswith("error: ") for line in others):
        return "more than one line"
    return None
