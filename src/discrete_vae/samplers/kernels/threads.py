"""The threads of the compiled CPU kernels, which are numba's (`numba.set_num_threads`).

numba fixes its threading layer once per process, when the first parallel function runs. Unless the user chose a layer
(`NUMBA_THREADING_LAYER` or `numba.config.THREADING_LAYER`) or another library already launched one, OpenMP is put first
for that moment and then the order restored: OpenMP shares its threads with torch, while numba's own pool nearly halves
the speed beside it.
"""

from __future__ import annotations

import os

import numba
from numba.core import config

_ORDER = "THREADING_LAYER_PRIORITY"
_process_of_threads: int | None = None


def num_threads() -> int:
    """The threads of numba, launched if need be.

    Returns:
        Their number; 1 in a forked child of a process that launched them, since GNU OpenMP ends a forked child that
        starts threads.
    """
    global _process_of_threads
    if _process_of_threads is None:
        order = getattr(config, _ORDER)
        setattr(config, _ORDER, ["omp", "tbb", "workqueue"])
        try:
            numba.get_num_threads()
        finally:
            setattr(config, _ORDER, order)
        _process_of_threads = os.getpid()
    return numba.get_num_threads() if _process_of_threads == os.getpid() else 1
