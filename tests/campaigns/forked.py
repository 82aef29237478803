"""Commands of dvae in forked processes, and what a clean refusal is."""

import fcntl
import os
import re
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

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

    def __str__(self):
        shown = "time limit" if self.status is None else f"status {self.status}"
        words = " ".join(map(repr, self.words))[:1000]
        return f"dvae {words}\n{shown}\n{self.out[-1500:]}\n{self.err[-3000:]}"


def call(words, *, limit=30.0, first=None, stop=None, main=None):
    """Run one command of dvae in a forked process.

    Args:
        words: The command line without the program's name.
        limit: Seconds until it counts as hanging.
        first: Called in the process before the command, to plant a fault there.
        stop: After how many seconds, or which words on standard error, it is sent which signal.
        main: What is run in place of dvae.
    """
    process = _Process(words, first, main)
    if stop is not None:
        process.stop(*stop)
    return process.end(limit)


def call_together(words, number, *, limit=30.0, first=None, stop=None):
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

    def prepare(rank):
        os.environ |= address | {"WORLD_SIZE": str(number), "RANK": str(rank)}
        if first is not None and first[0] == rank:
            first[1]()

    processes = [_Process(words, lambda rank=rank: prepare(rank)) for rank in range(number)]
    ended, begin, deadline, told = {}, time.monotonic(), limit, False
    while len(ended) < number:
        left = [rank for rank in range(number) if rank not in ended]
        ready, _, _ = select.select([processes[rank].ends for rank in left], [], [], 0.02)
        seconds = time.monotonic() - begin
        for rank in left:
            if processes[rank].ends in ready or seconds > deadline:
                ended[rank] = processes[rank].end(0.0)
            elif stop is not None and stop[0] == rank and seconds > stop[1]:
                os.kill(processes[rank].number, stop[2])
                stop = None
        if not told and any(each.status != 0 for each in ended.values()):
            told, deadline = True, seconds + _LEFT_TO_END
            for rank in set(left) - set(ended):
                os.kill(processes[rank].number, signal.SIGTERM)
    return [ended[rank] for rank in range(number)]


class _Process:
    """A command in a forked process; `ends` is a pipe that closes when it ends."""

    def __init__(self, words, first, main=None):
        from discrete_vae import cli

        self.words, self.out, self.err = tuple(words), _Output(), _Output()
        self.ends, held = os.pipe()
        # a signal is for the command, not for its start
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        self.number = os.fork()
        if self.number == 0:
            status = 99
            try:
                os.close(self.ends)
                os.dup2(self.out.end, 1)
                os.dup2(self.err.end, 2)
                sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (descriptors)
                sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
                status = _command(main or cli.main, words, first)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(held)

    def stop(self, after, kind):
        """Send a signal after some seconds, or once some words are on standard error, if it has not ended."""
        if isinstance(after, str):
            self.err.wait_for(after.encode())
            after = 0.0
        if not select.select([self.ends], [], [], after)[0]:
            os.kill(self.number, kind)

    def end(self, limit):
        """How it ends within some seconds, else is killed."""
        ready, _, _ = select.select([self.ends], [], [], limit)
        os.close(self.ends)
        if not ready:
            os.kill(self.number, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
        return Ended(self.words, status if ready else None, self.out.text(), self.err.text())


class _Output:
    """What a command writes: a pipe, since limits on the size of files are not meant for it."""

    def __init__(self):
        self._start, self.end = os.pipe()
        self._read = b""
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(self._start, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.set_blocking(self._start, False)

    def wait_for(self, words):
        """Until it has written these words, or for half a minute nothing."""
        while words not in self._read and select.select([self._start], [], [], 30.0)[0]:
            self._read += os.read(self._start, 1 << 16)

    def text(self):
        """All of it, after the command has ended."""
        os.close(self.end)
        with os.fdopen(self._start, "rb") as file:
            return (self._read + (file.read() or b"")).decode(errors="backslashreplace")


def _command(main, words, first):
    limit_memory()
    if first is not None:
        first()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    except KeyboardInterrupt:  # on a busy machine it came before the command could hear it
        return 130
    status = main(list(words))
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def limit_memory():
    """Let this process fail where it asks for much memory, instead of the machine."""
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _SPARE_MEMORY, resource.RLIM_INFINITY))


def refusal_fault(ended, *, statuses=(2,), before=True):
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
