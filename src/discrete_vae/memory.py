"""How much memory this machine has left, and what is said where it does not suffice.

Imports neither torch nor NumPy, so the command line can look at any error.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from discrete_vae.errors import InvalidInputError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_STATM = Path("/proc/self/statm")
# How torch words a failed allocation, and a tensor whose bytes no machine could count.
_TORCH_FAILURES = re.compile(
    r"can't allocate memory|out of memory|Storage size calculation overflowed|numel: integer multiplication overflow",
    re.IGNORECASE,
)


def available_memory() -> int | None:
    """Bytes that a process could still take without swapping; None where the system does not say.

    Examples:
        >>> free = available_memory()
        >>> free is None or free > 0
        True
    """
    found = (_of_the_machine(), _of_the_container(), _of_the_process())
    return min((count for count in found if count is not None), default=None)


def check_memory(argument: str, needed: int, repair: str, *, what: str = "") -> None:
    """Refuse what cannot fit this machine; does nothing where the system does not say what it has.

    Args:
        argument: What asks for the memory.
        needed: Bytes that it takes at least.
        repair: What to lower.
        what: What the memory is for, "for weights" say.

    Raises:
        InvalidInputError: If less is available.

    Examples:
        >>> check_memory("num_chains", 10**18, "Use fewer chains.")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: num_chains must fit this machine's memory; received a need of at
        least 931,322,575 GiB, where ... GiB are free. Use fewer chains.
    """
    free = available_memory()
    if free is not None and needed > free:
        need = f"a need of at least {_gibibytes(needed)}{what and ' '}{what}"
        raise InvalidInputError(
            argument, "must fit this machine's memory", f"{need}, where {_gibibytes(free)} are free", repair
        )


@contextmanager
def allocating(argument: str, repair: str) -> Iterator[None]:
    """Turn a failed allocation of the block into the house's form, but for torch's meta device, where only sizes count.

    Raises:
        InvalidInputError: In place of Python's, NumPy's or torch's own error.
    """
    try:
        yield
    except Exception as error:
        torch = sys.modules.get("torch")
        on_meta = torch is not None and torch.get_default_device().type == "meta"
        if on_meta or not is_allocation_failure(error):
            raise
        raise out_of_memory(argument, repair) from None


def is_allocation_failure(error: BaseException) -> bool:
    """Whether Python, NumPy or torch could not have the memory that it asked for.

    Examples:
        >>> is_allocation_failure(MemoryError()), is_allocation_failure(RuntimeError("shapes differ"))
        (True, False)
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and _TORCH_FAILURES.search(str(error)) is not None


_LOWER = (
    "Lower what is largest: the chains, the batch, the widths of the networks, the samples or the array; or use a "
    "machine with more."
)


def out_of_memory(argument: str = "This command", repair: str = _LOWER) -> InvalidInputError:
    """What to raise after a failed allocation; the defaults are for where it is not known what asked for it.

    Args:
        argument: What asked for the memory.
        repair: What to lower.
    """
    free = available_memory()
    received = "more than it has" if free is None else f"more than the {_gibibytes(free)} that are free"
    return InvalidInputError(argument, "must fit this machine's memory", received, repair)


def _gibibytes(count: int) -> str:
    return f"{count / 2**30:,.{0 if count >= 100 * 2**30 else 1}f} GiB"


def _of_the_machine() -> int | None:
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


def _of_the_container() -> int | None:
    """What the limit of a container leaves; files that the system keeps in memory give way."""
    try:
        limit, used, parts = (
            (_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current", "memory.stat")
        )
        files = sum(map(int, re.findall(r"^(?:in)?active_file (\d+)$", parts, re.MULTILINE)))
        return max(0, int(limit) - int(used) + files) if limit.isdecimal() else None
    except (OSError, ValueError):
        return None


def _of_the_process() -> int | None:
    """What a limit of the shell or of a batch system (ulimit -v) leaves."""
    try:
        import resource  # Windows has none

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except (ImportError, AttributeError, OSError, ValueError):
        return None
    return None if limit == resource.RLIM_INFINITY else max(0, limit - used)
