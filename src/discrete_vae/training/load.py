"""A trained model out of its run directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.devices import check_device
from discrete_vae.errors import naming
from discrete_vae.memory import allocating
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.saved_weights import load_weights
from discrete_vae.records import ShowsShapes, ShowsTable
from discrete_vae.runs.changed_config import ConfigChange, check_config
from discrete_vae.runs.checkpoint_files import MODEL_PREFIX
from discrete_vae.runs.results import CHECKPOINT_SUM
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.runs.shipped import shipped_folder
from discrete_vae.samplers.protocol import Sampler, UsesSolver
from discrete_vae.training.initial import initial_model
from discrete_vae.training.state import load_chains


@dataclass(frozen=True, eq=False, repr=False)
class LoadedRun(ShowsShapes, ShowsTable):
    """A model with what it was trained with.

    Attributes:
        config: The experiment.
        model: In evaluation mode.
        chains: The persistent chains of training, where the checkpoint left them; of a run that was trained with a
            solver, block-Gibbs chains that start there.
        step: Step of the checkpoint.
        changed_config: How config.json has changed since the run was trained; None if it has not.
        sums: What results of the checkpoint may name as its SHA-256, its own first.
    """

    config: ExperimentConfig
    model: DiscreteVAE
    chains: Sampler
    step: int
    changed_config: ConfigChange | None = None
    sums: tuple[str, ...] = field(default=(), repr=False)

    @property
    def named(self) -> dict[str, Any]:
        """What a result says of the checkpoint that it is of."""
        return {"step": self.step, CHECKPOINT_SUM: next(iter(self.sums), None)}

    @property
    def note(self) -> str | None:
        """What the metadata of its pictures say of a config.json that has changed since; None if it has not."""
        return None if self.changed_config is None else str(self.changed_config)


def load_run(
    run: str | Path | RunDirectory,
    checkpoint: int | Literal["best", "last"] = "best",
    *,
    device: torch.device | str = "cpu",
    accept_changed_config: bool = False,
) -> LoadedRun:
    """Build the model of a run and load one of its checkpoints; the data need not be there any more.

    Args:
        run: The run, or its folder; ``~`` is the home directory.
        checkpoint: A step, or which one; the best is that with the highest validation bound, of as many importance
            samples as training takes, less two standard errors of its log Z.
        device: Where the model and the chains are wanted.
        accept_changed_config: Whether a config.json that has changed since training is a warning, not an error.

    Returns:
        The model and the chains.

    Raises:
        InvalidInputError: If the device is not there; if the config or the checkpoint is missing, damaged, or they do
            not fit each other; if a weight is not finite; if the config has changed and that is not accepted.
    """
    device = check_device(device)
    run = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    config, store = run.read_experiment(), run.checkpoints()
    change = check_config(run, store.newest(), accept=accept_changed_config)
    saved = store.load(checkpoint)
    model = initial_model(config)
    with naming(str(saved.folder)):
        load_weights(model, saved.tensors, prefix=MODEL_PREFIX)
        model.to(device)
        with allocating("training.sampler.num_chains", "Use fewer chains."):
            chains = instantiate(config.training.sampler, energy=model.prior, seed=config.seed)
        load_chains(chains, saved.tensors)
    if isinstance(chains, UsesSolver):  # which need not be there
        chains = chains.local_chains()
    return LoadedRun(config, model.eval(), chains, saved.step, change, saved.sums)


def load_pretrained(name: str, *, device: torch.device | str = "cpu") -> LoadedRun:
    """Load a trained model that comes with the library: no data, no training, no network.

    Args:
        name: One of `pretrained_names`; `dvae list` says what each is and how good.
        device: Where the model and the chains are wanted.

    Raises:
        InvalidInputError: If there is no such model, or the device is not there.

    Examples:
        >>> run = load_pretrained("digits")
        >>> run.model.sample(z=run.chains.step(100)[:20], seed=0).mean.shape
        torch.Size([20, 1, 8, 8])
    """
    return load_run(shipped_folder(name), device=device)
