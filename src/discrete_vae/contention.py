"""Threads that stop spinning while other programs want their cores."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_TASKS = Path("/proc/self/task")
_PERIOD = 0.25  # seconds between two looks
_CONTENDED, _FREE = 0.15, 0.02  # seconds that threads waited for a core, per second
_FIRST_HOLD, _LONGEST_HOLD = 1.0, 30.0  # seconds without contention before threads spin again
_MAX_HOLDERS = 64

_lock = threading.Lock()
_users = 0
_watch: _Watch | None = None


@contextmanager
def yielding_threads() -> Iterator[None]:
    """Within the block, threads that wait for each other sleep at once while another program wants their cores.

    GNU OpenMP, which torch uses on Linux, lets a thread that waits for the others of its team spin for milliseconds.
    That is fast on an idle machine. Where another program wants one of the cores, threads spin while the one that they
    wait for is not running, and a training step takes several times as long. OpenMP reads how long to spin when torch
    is imported. But it spins next to never while it manages more threads than there are cores (its manual, under
    GOMP_SPINCOUNT). So a background thread looks at how long this process's threads wait for a core, and while that is
    long it keeps idle threads of OpenMP in being; when it is over, it lets them end.

    No result changes by it. Where the system does not say how long threads wait, or torch uses one thread, nothing
    happens. Blocks may be nested and entered by several threads.

    Examples:
        >>> with yielding_threads():
        ...     pass  # train here
    """
    global _users, _watch
    with _lock:
        _users += 1
        if _watch is None or not _watch.is_alive():  # the thread of a forked child's parent is not alive
            _watch = _Watch(_seconds_waited, _Holders())
            _watch.start()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _watch is not None:
                _watch.end()
                _watch = None


def torch_is_loading() -> bool:
    """Whether torch is being imported: some of it is there, some is not yet."""
    return bool(getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False))


class _Watch(threading.Thread):
    """Looks at the waiting time again and again, and holds or frees the holders.

    Args:
        seconds_waited: Seconds that the threads of this process have waited for a core so far; None if unknown.
        holders: What keeps OpenMP from spinning while it is held.
    """

    def __init__(self, seconds_waited: Callable[[], float | None], holders: _Holders) -> None:
        super().__init__(name="discrete_vae-contention", daemon=True)
        self._seconds_waited, self._holders = seconds_waited, holders
        self._over = threading.Event()
        self._judge = _Judge()

    def run(self) -> None:
        """Look until the end."""
        before, then = self._seconds_waited(), time.monotonic()
        while before is not None and not self._over.wait(_PERIOD):
            waited, now = self._seconds_waited(), time.monotonic()
            if waited is None:
                break
            # threads that ended take their time along
            share, before, then = max(0.0, waited - before) / (now - then), waited, now
            if self._judge.look(share, now):
                self._holders.hold()
            else:
                self._holders.free()
        self._holders.free()

    def end(self) -> None:
        """Let the thread end soon."""
        self._over.set()


class _Judge:
    """Whether other programs want the cores, from how long threads wait for one.

    Freed and soon contended again, it waits longer before it frees the next time: two trainings that both stop
    spinning leave each other in peace, and would start to spin again in turn.
    """

    def __init__(self) -> None:
        self.contended = False
        self._hold = _FIRST_HOLD
        self._last = self._freed = -float("inf")

    def look(self, share: float, now: float) -> bool:
        """Judge by the waiting time per second since the last look, at a time in seconds."""
        if share > (_FREE if self.contended else _CONTENDED):
            if not self.contended:
                soon = now - self._freed < 2 * self._hold
                self._hold = min(_LONGEST_HOLD, 2 * self._hold) if soon else _FIRST_HOLD
            self.contended, self._last = True, now
        elif self.contended and now - self._last > self._hold:
            self.contended, self._freed = False, now
        return self.contended


class _Holders:
    """Idle teams of OpenMP, so many that it manages more threads than there are cores."""

    def __init__(self) -> None:
        self._release: threading.Event | None = None

    def hold(self) -> None:
        """Make the teams, unless they are there, or there is no torch yet whose threads could spin."""
        torch = sys.modules.get("torch")
        # never imported here: beside an import of the main thread that a signal ends, this one would fail too
        if self._release is not None or torch is None or torch_is_loading():
            return
        team, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
        if team == 1:
            return
        self._release = threading.Event()
        for _ in range(min(_MAX_HOLDERS, max(1, -(-(cores + 1 - team) // team)))):
            threading.Thread(target=_hold_a_team, args=(self._release,), daemon=True).start()

    def free(self) -> None:
        """Let the teams end."""
        if self._release is not None:
            self._release.set()
            self._release = None


def _hold_a_team(release: threading.Event) -> None:
    import torch

    torch.ones(1 << 18).sum()  # large enough to be divided: OpenMP makes a team for this thread, and keeps it
    release.wait()


def _seconds_waited() -> float | None:
    """Seconds that this process's threads have waited for a core, all together; None where the system is silent."""
    total = 0
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return None
    for task in tasks:
        try:
            total += int((task / "schedstat").read_text().split()[1])
        except FileNotFoundError:
            if not task.exists():  # the thread has ended
                continue
            return None
        except (OSError, ValueError, IndexError):
            return None
    return total / 1e9
