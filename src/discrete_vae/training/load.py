"""A trained model out of its run directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.model import DiscreteVAE
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.samplers.protocol import Sampler
from discrete_vae.training.state import chains_state, initial_model, load_model


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A model with what it was trained with.

    Attributes:
        config: The experiment.
        model: In evaluation mode.
        chains: The persistent chains of training, where the checkpoint left them.
        step: Step of the checkpoint.
    """

    config: ExperimentConfig
    model: DiscreteVAE
    chains: Sampler
    step: int


def load_run(
    run: RunDirectory,
    checkpoint: int | Literal["best", "last"] = "best",
    *,
    device: torch.device | str = "cpu",
) -> LoadedRun:
    """Build the model of a run and load one of its checkpoints.

    Args:
        run: The run.
        checkpoint: A step, or which one; the best is that with the highest validation ELBO.
        device: Where the model and the chains are wanted.

    Returns:
        The model and the chains.

    Raises:
        InvalidInputError: If the config or the checkpoint is missing, damaged, or they do not fit each other.
    """
    config = run.read_experiment()
    saved = run.checkpoints().load(checkpoint)
    model = initial_model(config)
    load_model(model, saved.tensors)
    model.to(device)
    chains = instantiate(config.training.sampler, energy=model.prior, seed=config.seed)
    chains.load_state_dict(chains_state(saved.tensors, saved.meta))
    return LoadedRun(config, model.eval(), chains, saved.step)
