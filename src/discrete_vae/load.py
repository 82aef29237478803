"""The trained model of a run directory, and the model that a run starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.distributed import own_share, world_size
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.weights import OTHER_MODEL, described, load_weights
from discrete_vae.objectives.gradients import GradientEstimator
from discrete_vae.records import ShowsShapes, ShowsTable
from discrete_vae.rng import DrawsFrom, key_to_seed
from discrete_vae.runs.checkpoints import MODEL_PREFIX, without_prefix
from discrete_vae.runs.results import CHECKPOINT_SUM
from discrete_vae.runs.run_directory import ConfigChange, RunDirectory, check_config
from discrete_vae.samplers.gibbs import Sampler, UsesSolver
from discrete_vae.system import allocating, check_device

CHAINS_PREFIX = "chains/"  # in front of the names of the chains' state, in a checkpoint

_INIT_STREAM, _GRADIENT_STREAM = 0x696E6974, 0x67726164


def initial_gradient(config: ExperimentConfig, model: DiscreteVAE) -> GradientEstimator:
    """The estimator of the gradient before the first step, which depends on the config and its seed alone."""
    posterior = model.posterior
    with _draws(config, _GRADIENT_STREAM), torch.device("cpu"):
        made = instantiate(
            config.training.gradient,
            group_of_unit=posterior.group_of_unit.cpu(),
            num_features=posterior.num_features,
        )
    return made.to(model.prior.bias.device)


def initial_model(config: ExperimentConfig) -> DiscreteVAE:
    """The model with its first weights, which depend on the config's seed alone."""
    # the weights start on the CPU wherever they go
    with _draws(config, _INIT_STREAM), torch.device("cpu"):
        return DiscreteVAE.from_config(config.model)


def _draws(config: ExperimentConfig, stream: int) -> DrawsFrom:
    return DrawsFrom(torch.Generator("cpu").manual_seed(key_to_seed(config.seed, stream) >> 1))


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
        """The entries by which a result names the checkpoint that it is of."""
        return {"step": self.step, CHECKPOINT_SUM: next(iter(self.sums), None)}

    @property
    def note(self) -> str | None:
        """The note of its pictures on a config.json that has changed since; None if it has not."""
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
        accept_changed_config: True makes a config.json that has changed since training a warning, not an error.

    Raises:
        InvalidInputError: If the device is not there, the config or the checkpoint is missing, damaged, or not of the
            other, a weight is not finite, or the config has changed and that is not accepted.
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
    return LoadedRun(config, model.eval(), chains, saved.step, change, saved.record.sums)


def load_pretrained(name: str, *, device: torch.device | str = "cpu") -> LoadedRun:
    """Load a trained model that comes with the library: no data, no training, no network.

    Args:
        name: One of `pretrained_names`; `dvae list` says what each is and how good.
        device: Where the model and the chains are wanted.

    Examples:
        >>> run = load_pretrained("digits")
        >>> run.model.sample(z=run.chains.step(100)[:20], seed=0).mean.shape
        torch.Size([20, 1, 8, 8])
    """
    from discrete_vae.runs.hub import shipped_folder  # here, since other runs need none of it

    return load_run(shipped_folder(name), device=device)


def load_chains(chains: Sampler, tensors: Mapping[str, Tensor], *, divided: bool = False) -> None:
    """Bring chains, all of them or the share of this process, to where a checkpoint left them."""
    state = without_prefix(tensors, CHAINS_PREFIX)
    if divided and world_size() > 1:
        shared = {name: value for name, value in state.items() if value.ndim > 0}
        state |= {name: value[own_share(len(value))] for name, value in shared.items()}
    for name, fresh in chains.state_dict().items():  # the sampler checks sizes itself
        value, rule = state.get(name), ""
        if not isinstance(fresh, Tensor):
            rule = "" if type(value) is type(fresh) else f"must be a value of type {type(fresh).__name__}"
        elif not isinstance(value, Tensor) or value.dtype != fresh.dtype or value.ndim != fresh.ndim:
            rule = f"must be {fresh.dtype} with {fresh.ndim} axes"
        if rule:
            raise InvalidInputError(f"chains/{name}", rule, described(value), OTHER_MODEL)
    chains.load_state_dict(state)
