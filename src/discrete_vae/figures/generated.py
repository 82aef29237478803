"""Draws of x along the chains of a model's prior."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.figures.prior_chains import check_prior_chains
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.noise import keyed_generator
from discrete_vae.samplers.protocol import Sampler

_STREAM = 0x7461626C
_MAX_VALUES = 20_000_000  # of samples of a run, 80 MB


@torch.no_grad()
def generated_examples(
    model: DiscreteVAE,
    chains: Sampler,
    *,
    num_rows: int = 20,
    num_sweeps: int = 100,
    num_chains: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Draw examples from the generative model, the noise of its likelihood included.

    Args:
        model: The model; its networks use their running statistics.
        chains: Chains of the model's prior, which this call advances by ``num_rows * num_sweeps`` sweeps.
        num_rows: Draws from each chain.
        num_sweeps: Sweeps before each draw.
        num_chains: How many of the chains to use, from the first; None means all.
        seed: Seed of all noise but the chains' own.

    Returns:
        (row, chain, feature) on the CPU, values that x can have.

    Raises:
        InvalidInputError: If a number is not a positive integer, there are fewer chains than asked for, or the chains
            belong to another machine than the model's prior; the chains have not moved then.

    Examples:
        >>> from discrete_vae import BlockGibbs, DiscreteVAE
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> generated_examples(model, BlockGibbs(model.prior, 3, seed=0), num_rows=4).shape
        torch.Size([4, 3, 6])
    """
    used = chains.num_chains if num_chains is None else num_chains
    check_prior_chains(model, chains, used, num_rows=num_rows, num_sweeps=num_sweeps)
    rows = []
    for row in range(num_rows):
        z = chains.step(num_sweeps)[:used].to(model.dtype)
        generator = keyed_generator(seed, _STREAM, row, device=z.device)
        zeta = model.smoothing.sample_zeta(z, generator=generator)
        with eval_mode(model) as still:
            h = still.hierarchy.sample(zeta, generator=generator)
            parameters = still.decoder(still.hierarchy.decoder_input(zeta, h))
        rows.append(model.likelihood.sample(parameters, generator=generator).flatten(1).cpu())
    return torch.stack(rows)


def num_chains_that_fit(num_chains: int, num_features: int, num_rows: int) -> int:
    """How many of a run's chains are drawn from, for samples that take 80 MB at most.

    Args:
        num_chains: How many there are.
        num_features: Features of a sample.
        num_rows: Draws from each chain.
    """
    return min(num_chains, max(1, _MAX_VALUES // (num_rows * num_features)))
