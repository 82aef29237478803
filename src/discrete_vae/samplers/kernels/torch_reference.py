"""The reference kernel, for any Boltzmann machine in plain torch, and what every kernel is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_binary
from discrete_vae.records import ShowsShapes
from discrete_vae.samplers.kernels.philox import uniforms, unit_words

_LARGEST_PART = 1 << 22  # spins that are advanced together; their random words take a dozen int64 each


@dataclass(frozen=True, eq=False, repr=False)
class SweepCall(ShowsShapes):
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


def run(energy: BoltzmannMachine, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps one block after another: z_i = 1 where u_i < sigmoid(inverse temperature * logit_i).

    Of 2^22 spins or more the chains are advanced in parts, so that random words take half a gigabyte at most.

    Args:
        energy: The machine; only `blocks` and `compute_block_logits` are used.
        z: (chain, unit) float32 in {0,1}.
        call: What to run.

    Returns:
        A new tensor (chain, unit) float32 in {0,1}.

    Raises:
        InvalidInputError: If z holds anything but 0 and 1.
    """
    check_binary("z", z)
    size = max(1, _LARGEST_PART // z.shape[1])
    if len(z) <= size:
        return _run_part(energy, z, call)
    parts = []
    for first in range(0, len(z), size):
        rows = slice(first, first + size)
        t, clamped = call.inverse_temperature, call.clamped
        part = replace(
            call,
            first_chain=call.first_chain + first,
            inverse_temperature=None if t is None else t[rows],
            clamped=clamped if clamped is None or len(clamped) == 1 else clamped[rows],
        )
        parts.append(_run_part(energy, z[rows], part))
    return torch.cat(parts)


def _run_part(energy: BoltzmannMachine, z: Tensor, call: SweepCall) -> Tensor:
    z = z.clone()
    # latents stay in float32 or better even where the surroundings run in bfloat16
    with torch.autocast(z.device.type, enabled=False):
        for sweep in range(call.first_sweep, call.first_sweep + call.num_sweeps):
            words = unit_words(
                *z.shape, key=call.key, sweep=sweep, first_chain=call.first_chain, device=z.device
            )
            draw_blocks(energy, z, uniforms(words), call)
    return z


def draw_blocks(energy: BoltzmannMachine, z: Tensor, noise: Tensor, call: SweepCall) -> None:
    """One sweep with given uniforms, (chain, unit); changes z."""
    for index in range(len(energy.blocks)):
        place = energy.block_place(index)
        logits = energy.compute_block_logits(z, index)
        if call.inverse_temperature is not None:
            logits = logits * call.inverse_temperature[:, None]
        drawn = noise[:, place] < torch.sigmoid(logits)
        if call.clamped is not None:
            drawn = torch.where(call.clamped[:, place], z[:, place] != 0, drawn)
        z[:, place] = (
            drawn if isinstance(place, slice) else drawn.to(z.dtype)
        )  # a slice converts while it copies
