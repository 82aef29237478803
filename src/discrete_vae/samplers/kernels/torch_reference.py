"""The reference kernel: any Boltzmann machine, any device, plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.boltzmann.energy import BoltzmannEnergy
from discrete_vae.checks import check_binary
from discrete_vae.samplers.kernels.call import SweepCall
from discrete_vae.samplers.kernels.philox import uniforms, unit_words


def run(energy: BoltzmannEnergy, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps one block after another: z_i = 1 where u_i < sigmoid(inverse temperature * logit_i).

    Args:
        energy: The machine; only `blocks` and `compute_block_logits` are used.
        z: (chain, unit) float32 in {0,1}.
        call: What to run.

    Returns:
        A new tensor (chain, unit) float32 in {0,1}.

    Raises:
        InvalidInputError: If z holds anything but 0 and 1.
    """
    z = check_binary("z", z).clone()
    blocks = [block.to(z.device) for block in energy.blocks]
    # latents stay in float32 or better even where the surroundings run in bfloat16
    with torch.autocast(z.device.type, enabled=False):
        for sweep in range(call.first_sweep, call.first_sweep + call.num_sweeps):
            words = unit_words(
                *z.shape, key=call.key, sweep=sweep, first_chain=call.first_chain, device=z.device
            )
            noise = uniforms(words)
            for index, block in enumerate(blocks):
                logits = energy.compute_block_logits(z, index)
                if call.inverse_temperature is not None:
                    logits = logits * call.inverse_temperature[:, None]
                drawn = (noise[:, block] < torch.sigmoid(logits)).to(z.dtype)
                if call.clamped is not None:
                    drawn = torch.where(call.clamped[:, block], z[:, block], drawn)
                z[:, block] = drawn
    return z
