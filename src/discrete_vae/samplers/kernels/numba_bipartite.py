"""The CPU kernel for restricted Boltzmann machines: all sweeps of a call in one compiled loop.

Threads are numba's (`numba.set_num_threads`). numba fixes its threading layer once per process, when the
first parallel function runs. Unless the user chose a layer (`NUMBA_THREADING_LAYER` or
`numba.config.THREADING_LAYER`) or another library already launched one, this module puts OpenMP first for
that moment and then restores the order: OpenMP shares its threads with torch, while numba's own pool nearly
halves the speed beside it.

GNU OpenMP ends a forked child that starts threads, so a child of a process that ran the kernel works on one
thread.
"""

from __future__ import annotations

import os

import numba
import numpy as np
import torch
from numba.core import config
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_binary
from discrete_vae.samplers.kernels import bipartite_compiled
from discrete_vae.samplers.kernels.call import SweepCall

_LARGEST_CHUNK = (
    1000  # chains a thread advances together; more gain nothing, fewer reload the tables more often
)
_ORDER = "THREADING_LAYER_PRIORITY"
_process_of_threads: int | None = None


def run(energy: RBM, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps on numba's threads.

    Args:
        energy: A machine with parameters on the CPU, finite in float32.
        z: (chain, unit) float32 in {0,1}, on the CPU.
        call: What to run.

    Returns:
        A new tensor (chain, unit) float32 in {0,1}.

    Raises:
        InvalidInputError: If z holds anything but 0 and 1.
    """
    num_chains, num_units = z.shape
    after = np.empty((num_chains, num_units), np.float32)
    threads = _num_threads()
    run_chunks = bipartite_compiled.run_parallel if threads > 1 else bipartite_compiled.run_serial
    binary = run_chunks(
        after,
        _array(z),
        _array(energy.weight),
        _array(energy.bias),
        call.num_sweeps,
        np.uint64(call.key),
        np.uint64(call.first_sweep),
        np.uint64(call.first_chain),
        np.empty(0, np.float32) if call.inverse_temperature is None else _array(call.inverse_temperature),
        np.empty((0, num_units), np.float32) if call.clamped is None else _array(call.clamped),
        min(_LARGEST_CHUNK, -(-num_chains // threads)),
    )
    return check_binary("z", z) if not binary else torch.from_numpy(after)


def _array(tensor: Tensor) -> np.ndarray:
    """A contiguous float32 array, so that the compiled function meets one type only."""
    return tensor.detach().to(torch.float32).contiguous().numpy()


def _num_threads() -> int:
    """The threads of numba, launched if need be; 1 in a forked child of a process that launched them."""
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
