"""How many threads a compiled loop uses: torch's number, at most as many as numba may use.

Where torch's own threads can be used (`discrete_vae.compiled.team`), numba's are never launched. Elsewhere numba fixes
its threading layer once per process, when the first parallel function runs. Unless the user chose a layer
(`NUMBA_THREADING_LAYER` or `numba.config.THREADING_LAYER`) or another library already launched one, OpenMP is put first
for that moment and then the order restored: beside OpenMP, numba's own pool nearly halves the speed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALLEST_SHARED = 1_000_000
"""Spin updates of a call from which it is divided among threads.

Waking a second thread costs as much as this many updates gain by it, and far more where another program has its core.
Other loops have other work; `threads_for` takes their bound.
"""

_ORDER, _LIMIT = "THREADING_LAYER_PRIORITY", "NUMBA_NUM_THREADS"
_lock = threading.Lock()
_process_of_threads: int | None = None


def threads_for(work: int, smallest: int | None = None) -> int:
    """The threads for a call of so much work.

    Args:
        work: Spin updates, or what else the loop counts.
        smallest: The least work that is divided; None means `SMALLEST_SHARED`.

    Returns:
        ``torch.get_num_threads()``, or ``NUMBA_NUM_THREADS`` where that is smaller; 1 for a small call. Where they are
        numba's, at most the number of `numba.set_num_threads`, and 1 in a forked child of a process that launched them,
        since GNU OpenMP ends a forked child that starts threads; they are launched only if more than one is to be
        used.
    """
    threads = torch.get_num_threads()
    if threads == 1 or work < (SMALLEST_SHARED if smallest is None else smallest):
        return 1
    import numba  # takes a while
    from numba.core import config

    from discrete_vae.compiled import team

    if getattr(config, _LIMIT) == 1:
        return 1
    if team.has_team():
        return min(threads, getattr(config, _LIMIT))
    _launch()
    return min(threads, numba.get_num_threads()) if _process_of_threads == os.getpid() else 1


@contextmanager
def numba_threads(num_threads: int) -> Iterator[None]:
    """Within the block, this thread's parallel numba functions use so many threads."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(num_threads)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def _launch() -> None:
    """Launch numba's threads once in a process, without changing torch's number.

    numba tells OpenMP its own number of threads. OpenMP keeps that number for each thread that asks, and torch reads
    the same one, so a thread that then ends does it.
    """
    global _process_of_threads
    with _lock:
        if _process_of_threads is not None:
            return
        launcher = threading.Thread(target=_launch_here, name="discrete_vae-launch")
        launcher.start()
        launcher.join()
        _process_of_threads = os.getpid()


def _launch_here() -> None:
    import numba
    from numba.core import config

    order = getattr(config, _ORDER)
    setattr(config, _ORDER, ["omp", "tbb", "workqueue"])
    try:
        numba.get_num_threads()
    finally:
        setattr(config, _ORDER, order)
