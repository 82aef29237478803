"""The machine: paths, libraries, lengths of time, devices, memory, and threads that wait for a core."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    import torch


# Paths.


def user_path(argument: str, path: str | os.PathLike[str]) -> Path:
    """Return a path with ``~`` replaced by the home directory.

    Examples:
        >>> user_path("run_dir", "runs/a").as_posix()
        'runs/a'
        >>> user_path("run_dir", "~no-such-user/a")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: run_dir must name a user with a home directory after ~; received
        '~no-such-user/a'. Write the whole path out, from / on.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        repair = "Name a file or folder; is a variable of the shell unset?"
        raise InvalidInputError(argument, "must be a path", f"{path!r}"[:80], repair)
    try:
        return Path(text).expanduser()
    except RuntimeError:
        rule = "must name a user with a home directory after ~"
        repair = "Write the whole path out, from / on."
        raise InvalidInputError(argument, rule, repr(text), repair) from None


def check_data_dir(data_dir: str | Path | None, *, argument: str = "data_dir") -> Path | None:
    """Return a folder that the user named, if it exists: a typing error must not start a download.

    None stays None.
    """
    if data_dir is None:
        return None
    path = user_path(argument, data_dir)
    if not path.is_dir():
        rule, repair = "must be an existing folder", "Create it, or correct the path."
        raise InvalidInputError(argument, rule, str(data_dir), repair)
    return path


def without_links(argument: str, path: Path) -> Path:
    """Resolve a path that is a link and return any other path as it is; it need not exist."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            rule, repair = "must lead to a file or folder", "Remove the links."
            raise InvalidInputError(argument, rule, f"{path}, a loop of links", repair) from None
    if not path.is_symlink() and path.name not in ("", ".."):
        return path
    place = Path(os.path.realpath(path))
    # a pipe, /dev/stdout say, has no other name
    return path if path.exists() and not place.exists() else place


def unicode_path(argument: str, path: str | os.PathLike[str]) -> Path:
    """Return a path that is text in UTF-8, which config.json can hold and safetensors can open."""
    found = user_path(argument, path)
    try:
        str(found).encode()
    except UnicodeEncodeError:
        received, repair = ascii(str(path)), "Rename the file or its folder."
        raise InvalidInputError(argument, "must be text in UTF-8", received, repair) from None
    return found


# Libraries that need not be there.


def optional_library(name: str, argument: str, repair: str, *, rule: str = "must be installed") -> ModuleType:
    """Import a module of a library when it is needed, such as "pyarrow.parquet"; the repair says how to get it."""
    try:
        return importlib.import_module(name)
    except (ImportError, ValueError, AttributeError) as error:  # the latter two of a build for another NumPy
        received = f"{type(error).__name__}: {error}"
        raise InvalidInputError(argument, rule, received, repair) from None


# Lengths of time.

_UNITS = ((86400, "day"), (3600, "h"), (60, "min"), (1, "s"))


def in_words(seconds: float) -> str:
    """A length of time in its two largest units, or in seconds with two digits.

    Examples:
        >>> [in_words(seconds) for seconds in (0.02, 9.6, 60, 3661, 2066040)]
        ['0.02 s', '9.6 s', '1 min', '1 h 1 min', '23 days 22 h']
    """
    if seconds < 9.95:
        return f"{round(seconds, 3):.2g} s"
    for (size, name), (finer, finer_name) in pairwise(_UNITS):
        # rounded to what is shown first, so that 59.7 s becomes 1 min and never 60 s
        whole, rest = divmod(round(seconds / finer), size // finer)
        if whole:
            return _counted(whole, name) + (f" {_counted(rest, finer_name)}" if rest else "")
    return _counted(round(seconds), "s")


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' if name == 'day' and number != 1 else ''}"


# Devices.


def check_device(device: torch.device | str, *, argument: str = "device") -> torch.device:
    """Return the device of a name of torch's, or of "auto", CUDA where there is some, if torch has it here."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        name = ("cuda" if count else "cpu") if device == "auto" else device
        found = torch.device(name) if isinstance(name, str | torch.device) else None
    except RuntimeError:
        found = None
    if found is None or found.type == "meta":  # which holds no values
        rule, repair = "must be auto, cpu, cuda or cuda:N", "Leave it out for the default."
        raise InvalidInputError(argument, rule, repr(device)[:80], repair)
    if found.type == "cuda":
        there = (found.index or 0) < count
        sees = f"{count or 'no'} CUDA device{'s' * (count != 1)}"
    else:
        there, sees = True, "none of that kind"
        try:
            torch.empty(0, device=found)
        except (RuntimeError, NotImplementedError, AssertionError, ImportError):  # as each backend has it
            there = False
    if not there:
        received = f"{found}, where torch {torch.__version__} sees {sees}"
        repair = "Check the driver and the build of torch, or compute on cpu."
        raise InvalidInputError(argument, "must be available", received, repair)
    return found


def computing_on(device: torch.device) -> str:
    """One sentence that names the device, and the threads of the CPU."""
    import torch

    threads = torch.get_num_threads()
    with_threads = f" with {threads} thread{'s' * (threads > 1)}" if device.type == "cpu" else ""
    return f"Computing on {device}{with_threads}."


# Memory. Nothing here imports torch or NumPy, so the command line can look at any error.

_FITS = "must fit this machine's memory"
_MEMINFO = Path("/proc/meminfo")
_CGROUP, _OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_STATM = Path("/proc/self/statm")
# messages of torch about a failed allocation, and about a tensor whose bytes no machine could count
_TORCH_FAILURES = re.compile(
    r"can't allocate memory|out of memory|Storage size calculation overflowed|numel: integer multiplication overflow",
    re.IGNORECASE,
)


def available_memory() -> int | None:
    """Bytes that a process could still take without swapping; None where the system does not say."""
    found = (_free_on_machine(), _free_in_container(), _free_of_limits())
    return min((count for count in found if count is not None), default=None)


def check_memory(argument: str, needed: int, repair: str, *, what: str = "") -> None:
    """Refuse what cannot fit this machine; does nothing where the system does not say what it has.

    What is needed is in bytes, at least; `what` says what for, "for weights".
    """
    free = available_memory()
    if free is not None and needed > free:
        need = (
            f"a need of at least {_gibibytes(needed)}{what and ' '}{what}, where {_gibibytes(free)} are free"
        )
        raise InvalidInputError(argument, _FITS, need, repair)


@contextmanager
def allocating(argument: str, repair: str) -> Iterator[None]:
    """Turn a failed allocation in the block into an `InvalidInputError`, except on torch's meta device."""
    try:
        yield
    except Exception as error:
        torch = sys.modules.get("torch")
        on_meta = torch is not None and torch.get_default_device().type == "meta"
        if on_meta or not is_allocation_failure(error):
            raise
        raise out_of_memory(argument, repair) from None


def is_allocation_failure(error: BaseException) -> bool:
    """True if Python, NumPy or torch could not allocate the memory that it asked for."""
    of_torch = isinstance(error, RuntimeError) and _TORCH_FAILURES.search(str(error)) is not None
    return of_torch or isinstance(error, MemoryError)


_LOWER = "Lower what is largest: chains, batch, widths of the networks, samples or array; or use a machine with more."


def out_of_memory(argument: str = "This command", repair: str = _LOWER) -> InvalidInputError:
    """Error of a failed allocation; the defaults are for where it is not known what asked for it."""
    free = available_memory()
    received = "more than it has" if free is None else f"more than the {_gibibytes(free)} that are free"
    return InvalidInputError(argument, _FITS, received, repair)


def _gibibytes(count: int) -> str:
    return f"{count / 2**30:,.{0 if count >= 100 * 2**30 else 1}f} GiB"


def _free_on_machine() -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", _MEMINFO.read_text(encoding="ascii"), re.MULTILINE)
    except (OSError, ValueError):
        found = None
    if found is not None:
        return int(found[1]) * 1024
    try:  # all that there is, where the system does not tell how much of it is free
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _free_in_container() -> int | None:
    """Bytes that the limits leave of a container, of a job of a batch system, and of all that they lie in."""
    group = _CGROUP
    with suppress(OSError, ValueError):
        own = re.search(r"^0::/(.*)$", _OWN_GROUP.read_text(), re.MULTILINE)
        group = _CGROUP if own is None else _CGROUP / own[1]
    found = map(_free_in_group, [each for each in (group, *group.parents) if each.is_relative_to(_CGROUP)])
    return min((count for count in found if count is not None), default=None)


def _free_in_group(group: Path) -> int | None:
    """Bytes that the limit of a control group leaves; files that the system keeps in memory give way."""
    try:
        limit, used, parts = (
            (group / name).read_text().strip() for name in ("memory.max", "memory.current", "memory.stat")
        )
        files = sum(map(int, re.findall(r"^(?:in)?active_file (\d+)$", parts, re.MULTILINE)))
        return max(0, int(limit) - int(used) + files) if limit.isdecimal() else None
    except (OSError, ValueError):
        return None


def _free_of_limits() -> int | None:
    """Bytes that a limit of the shell or of a batch system (ulimit -v) leaves."""
    try:
        import resource  # Windows has none

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except (ImportError, AttributeError, OSError, ValueError):
        return None
    return None if limit == resource.RLIM_INFINITY else max(0, limit - used)


# The OpenMP wait policy: threads stop spinning while other programs want their cores.

_TASKS = Path("/proc/self/task")
_PERIOD = 0.25  # seconds between two looks
_CONTENDED, _FREE = 0.15, 0.02  # seconds that threads waited for a core, per second
_FIRST_HOLD, _LONGEST_HOLD = 1.0, 30.0  # seconds without contention before threads spin again
_MAX_HOLDERS = 64
_LONGEST_END = 5.0  # seconds that the end waits for a thread

_lock = threading.Lock()
_users = 0
_watch: _Watch | None = None


@contextmanager
def yielding_threads() -> Iterator[None]:
    """Within the block, threads that wait for each other sleep at once while another program wants their cores.

    GNU OpenMP, which torch uses on Linux, lets a thread that waits for the others of its team spin for milliseconds.
    Where another program wants one of the cores, threads spin while the one that they wait for is not running, and a
    training step takes several times as long. OpenMP spins next to never while it manages more threads than there are
    cores (its manual, under GOMP_SPINCOUNT). So a background thread looks at how long this process's threads wait for a
    core, and while that is long it keeps idle threads of OpenMP in being.

    No result changes by it. Where the system does not say how long threads wait, or torch uses one thread, nothing
    happens. Blocks may be nested and entered by several threads.
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
    """True while torch is being imported: some of it is there, some is not yet."""
    return bool(getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False))


class _Watch(threading.Thread):
    """Looks at the waiting time again and again, and holds or frees the holders."""

    def __init__(self, seconds_waited: Callable[[], float | None], holders: _Holders) -> None:
        super().__init__(name="discrete_vae-openmp-wait", daemon=True)
        self._seconds_waited, self._holders = seconds_waited, holders
        self._over = threading.Event()
        self._judge = _Judge()

    def run(self) -> None:
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
        """Wait for all threads to end: one inside torch while the interpreter ends would abort the process."""
        self._over.set()
        self.join(_LONGEST_END)


class _Judge:
    """Decides from the time that threads wait for a core if other programs want the cores.

    Freed and soon contended again, it waits longer before it frees the next time: two trainings that both stop
    spinning leave each other in peace, and would start to spin again in turn.
    """

    def __init__(self) -> None:
        self.contended = False
        self._hold = _FIRST_HOLD
        self._last = self._freed = -float("inf")

    def look(self, share: float, now: float) -> bool:
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
        self._threads: list[threading.Thread] = []

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
            self._threads.append(threading.Thread(target=_hold_a_team, args=(self._release,), daemon=True))
            self._threads[-1].start()

    def free(self) -> None:
        if self._release is not None:
            self._release.set()
            self._release = None
        while self._threads:
            self._threads.pop().join(_LONGEST_END)


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
