"""The CPU kernel for Boltzmann machines on any graph: all sweeps of a call in one compiled loop, on numba's threads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.checks import check_binary
from discrete_vae.samplers.kernels import graph_compiled
from discrete_vae.samplers.kernels.graph_intrinsics import LANES
from discrete_vae.samplers.kernels.torch_reference import SweepCall

_CACHED_SPINS = 1 << 19  # bytes of a chunk that stay in the second-level cache
_FEWEST, _MOST = 64, 512  # chains of a chunk: a cache line at least; more than 512 gain nothing
_MINUS_LOG2_E = -1.4426950408889634


def run(energy: GraphBoltzmann, z: Tensor, call: SweepCall) -> Tensor:
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
    size = chunk_size(num_chains, num_units, call.num_threads)
    binary = np.empty(-(-num_chains // size), np.bool_)
    graph_compiled.run_chunks(
        call.num_threads,
        after,
        z.contiguous().numpy(),
        binary,
        _graph(energy),
        call.num_sweeps,
        np.uint64(call.key),
        np.uint64(call.first_sweep),
        np.uint64(call.first_chain),
        np.empty(0, np.float32)
        if call.inverse_temperature is None
        else call.inverse_temperature.float().contiguous().numpy(),
        np.empty((0, num_units), np.bool_) if call.clamped is None else call.clamped.contiguous().numpy(),
        size,
    )
    return torch.from_numpy(after) if binary.all() else check_binary("z", z)


def chunk_size(num_chains: int, num_units: int, threads: int) -> int:
    """Chains that a thread advances together: as the cache allows, and so that all threads have work.

    Examples:
        >>> chunk_size(1000, 2048, threads=2), chunk_size(1000, 100_000, threads=2), chunk_size(10, 5, threads=4)
        (256, 64, 16)
    """
    most = min(_MOST, max(_FEWEST, _CACHED_SPINS // num_units))
    rounds = -(-num_chains // (threads * most))  # chunks of each thread
    return -(-num_chains // (threads * rounds * LANES)) * LANES


def _graph(energy: GraphBoltzmann) -> tuple[np.ndarray, ...]:
    """The graph and its present parameters as `graph_compiled` takes them."""
    weight, bias = (p.detach().float() * _MINUS_LOG2_E for p in (energy.weight, energy.bias))
    indices = (energy.order, energy.start, energy.neighbor)
    return *(index.numpy() for index in indices), weight[energy.neighbor_edge].numpy(), bias.numpy()
