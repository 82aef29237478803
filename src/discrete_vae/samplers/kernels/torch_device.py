"""The kernel for accelerators: any Boltzmann machine in plain torch, with few launches per sweep."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.noise import keyed_generator
from discrete_vae.samplers.kernels.torch_reference import SweepCall, draw_blocks

_MIN_UNIFORM = 2.0**-25  # in place of 0, for which a unit of any probability would come on


def run(energy: BoltzmannMachine, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps with the device's own random numbers, from one generator keyed by (key, first sweep, first chain).

    The law is that of every kernel, the stream is another one: it is the same for the same calls on the same kind of
    device, but differs from the CPU's and depends on how sweeps are divided among calls. For an RBM a sweep is 12
    launches (the words of `philox` alone would be a hundred), and nothing waits for the device or is copied to it.
    Beside the states it needs their size again for the noise, and that of a block for its logits.

    Args:
        energy: The machine; only `blocks` and `compute_block_logits` are used.
        z: (chain, unit) float32 in {0,1}.
        call: What to run.

    Returns:
        A new tensor (chain, unit) float32 in {0,1}.
    """
    generator = keyed_generator(call.key, call.first_sweep, call.first_chain, device=z.device)
    z, noise = z.clone(), torch.empty_like(z)
    # latents stay in float32 or better even where the surroundings run in bfloat16
    with torch.autocast(z.device.type, enabled=False):
        for _ in range(call.num_sweeps):
            noise.uniform_(generator=generator).clamp_min_(_MIN_UNIFORM)
            draw_blocks(energy, z, noise, call)
    return z
