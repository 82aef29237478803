"""Training an RBM on bits alone, by persistent chains."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TextIO

import torch
from rich.console import Console
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.contention import yielding_threads
from discrete_vae.data.batches import batch_indices, binarize
from discrete_vae.memory import check_memory
from discrete_vae.noise import keyed_generator
from discrete_vae.samplers.block_gibbs import BlockGibbs
from discrete_vae.training.progress import TrainingProgress

_INIT_STREAM, _BITS_STREAM = 0x72626D30, 0x72626D31
_LEAST_FREQUENCY = 0.01
_FIRST_SCALE = 0.01
_PER_WEIGHT = 16  # bytes: the weight, its gradient, Adam's moments
_SHOWN = 20  # lines of a run


@dataclass(frozen=True)
class RBMSettings:
    """The machine and its training, checked.

    Attributes:
        num_hidden: Hidden units.
        num_epochs: Passes over the rows.
        batch_size: Rows per step, at most.
        learning_rate: Step size of Adam at the start; it falls to 0.
        num_chains: Persistent chains.
        num_sweeps: Their sweeps per step.
        seed: Seed of the first weights and all noise.
    """

    num_hidden: int
    num_epochs: int
    batch_size: int
    learning_rate: float
    num_chains: int
    num_sweeps: int
    seed: int


def fit_rbm(rows: Tensor, settings: RBMSettings, stream: TextIO | None) -> tuple[RBM, Tensor]:
    """Maximize the log-likelihood of rows.

    It starts at the frequencies of the bits. Values between 0 and 1 are probabilities of bits, drawn anew in each step.

    Args:
        rows: (row, feature) float32, in [0, 1].
        settings: The machine and its training.
        stream: Where the course is shown; None is nowhere.

    Returns:
        The machine in float64, its left side the features, and (chain, unit), where its chains ended.
    """
    seed, num_features = settings.seed, rows.shape[1]
    needed = _PER_WEIGHT * num_features * settings.num_hidden
    check_memory("num_hidden", needed, "Use fewer hidden units.")
    rbm = RBM(num_features, settings.num_hidden)
    frequency = rows.mean(0).clamp(_LEAST_FREQUENCY, 1 - _LEAST_FREQUENCY)
    with torch.no_grad():
        rbm.bias[:num_features] = torch.logit(frequency)
        rbm.weight.normal_(0, _FIRST_SCALE, generator=keyed_generator(seed, _INIT_STREAM))
    batch_size = min(settings.batch_size, len(rows))
    num_steps = settings.num_epochs * (len(rows) // batch_size)
    chains = BlockGibbs(rbm, settings.num_chains, seed=seed)
    optimizer = torch.optim.Adam(rbm.parameters(), lr=settings.learning_rate)
    draws = not bool(((rows == 0) | (rows == 1)).all())
    shown = TrainingProgress(0, num_steps, Console(file=stream)) if stream is not None else None
    with yielding_threads(), torch.enable_grad(), shown or nullcontext():
        for step in range(num_steps):
            x = rows[batch_indices(len(rows), batch_size, seed, step)]
            if draws:
                x = binarize(x, generator=keyed_generator(seed, _BITS_STREAM, step))
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * (1 - step / num_steps)
            z = chains.step(settings.num_sweeps)
            # the gradient of log Z is that of the mean free energy of its own states, with the sign turned
            loss = rbm.free_energy(x).mean() - rbm.free_energy(z).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if shown is not None:
                shown.advance(step + 1)
                if (step + 1) % max(1, num_steps // _SHOWN) == 0:
                    error = (x.mean(0) - z[:, :num_features].mean(0)).abs().mean()
                    shown.show(step + 1, None, {"mean error of frequencies": error.item()})
    return rbm.double(), chains.z
