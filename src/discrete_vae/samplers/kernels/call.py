"""What a kernel is asked to do, as one frozen record."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class SweepCall:
    """Arguments of one call of a kernel, as checked by `discrete_vae.samplers.kernels.sweeps.run_sweeps`.

    Attributes:
        num_sweeps: Sweeps to run, at least 1.
        key: The 64-bit Philox key.
        first_sweep: Number of the first sweep.
        first_chain: Number of the first chain.
        inverse_temperature: (chain,), or None for 1.
        clamped: (chain, unit) or (1, unit) bool, True where a unit keeps its value, or None.
        num_threads: Threads that a compiled kernel uses; torch has its own number.
    """

    num_sweeps: int
    key: int
    first_sweep: int
    first_chain: int
    inverse_temperature: Tensor | None
    clamped: Tensor | None
    num_threads: int = 1
