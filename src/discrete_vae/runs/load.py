"""Trained models out of their files: those of runs and of the library, models alone, and what a run starts from."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor

from discrete_vae.config import ExperimentConfig, ModelConfig, instantiate
from discrete_vae.distributed import own_share, world_size
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.weights import OTHER_MODEL, described, load_weights
from discrete_vae.records import ShowsShapes, ShowsTable, some
from discrete_vae.rng import DrawsFrom, key_to_seed
from discrete_vae.runs.checkpoints import (
    CHECKPOINT_SUM,
    MODEL_PREFIX,
    Checkpoint,
    CheckpointStore,
    check_sum,
    damage_in,
    read_summed,
    save_tensors,
    without_prefix,
    write_summed,
)
from discrete_vae.runs.io import Schema, publish_directory, remove_temporaries, sha256_file, shipped_folder
from discrete_vae.runs.run_directory import ConfigChange, RunDirectory, check_config, held_names
from discrete_vae.samplers.gibbs import Sampler, UsesSolver
from discrete_vae.system import allocating, check_device, unicode_path, without_links

if TYPE_CHECKING:
    from discrete_vae.objectives.gradients import GradientEstimator

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
    saved = _best(run, store) if checkpoint == "best" else store.load(checkpoint)
    model = initial_model(config)
    with naming(str(saved.folder)):
        load_weights(model, saved.tensors, prefix=MODEL_PREFIX)
        model.to(device)
        with allocating("training.sampler.num_chains", "Use fewer chains."):
            chains: Sampler = instantiate(config.training.sampler, energy=model.prior, seed=config.seed)
        held = without_prefix(saved.tensors, CHAINS_PREFIX).keys()
        local = chains.local_chains() if isinstance(chains, UsesSolver) else chains
        if local.state_dict().keys() == held:
            chains = local  # which a refit of a run with a solver has written
        load_chains(chains, saved.tensors)
    if isinstance(chains, UsesSolver):  # which need not be there
        chains = chains.local_chains()
    return LoadedRun(config, model.eval(), chains, saved.step, change, saved.record.sums)


def _best(run: RunDirectory, store: CheckpointStore) -> Checkpoint:
    """The best checkpoint of a run, with a warning if that is the model of independent columns."""
    saved, last = store.load("best"), store.steps()[-1]
    if saved.step == 0:
        what = "a model of independent columns, whose codes say nothing about a row"
        also = f"; the last one, of step {last}, is trained" if last > 0 else ""
        warnings.warn(f"{run.path}: the best checkpoint is that of step 0, {what}{also}.", stacklevel=3)
    return saved


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
    return load_run(shipped_folder(name), device=device)


def load_chains(chains: Sampler, tensors: Mapping[str, Tensor], *, divided: bool = False) -> None:
    """Bring chains, all of them or the share of this process, to where a checkpoint left them."""
    state = without_prefix(tensors, CHAINS_PREFIX)
    if divided and world_size() > 1:
        shared = {name: value for name, value in state.items() if value.ndim > 0}
        state |= {name: value[own_share(len(value))] for name, value in shared.items()}
    for name, fresh in chains.state_dict().items():  # the sampler checks sizes itself
        value = state.get(name)
        if not isinstance(fresh, Tensor):
            fits, rule = type(value) is type(fresh), f"must be a value of type {type(fresh).__name__}"
        else:
            fits = isinstance(value, Tensor) and (value.dtype, value.ndim) == (fresh.dtype, fresh.ndim)
            rule = f"must be {fresh.dtype} with {fresh.ndim} axes"
        if not fits:
            raise InvalidInputError(f"chains/{name}", rule, described(value), OTHER_MODEL)
    chains.load_state_dict(state)


# A model alone, without a run: a folder with its weights in safetensors and its config in JSON, with their sums.


WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
FORMAT = 1


@dataclass(frozen=True, eq=False, repr=False)
class SavedModel(ShowsShapes):
    """A model as it lies in a folder."""

    config: ModelConfig
    dtype: torch.dtype  # in which its networks compute
    own: tuple[str, ...]  # names of the parts that are modules of the user's own, which no config describes
    tensors: dict[str, Tensor]
    source: str  # its place, for messages

    def check_parts(self, **given: object) -> None:
        """Check that a module is given for each part that is the user's own, and none for another part."""
        for name, part in given.items():
            if part is None and name in self.own:
                rule = "must be given: the model was saved with one of your own"
                raise InvalidInputError(name, rule, "None", f"Add {name}=module.")
            if part is not None and name not in self.own:
                rule = "must be left out: the model was saved with the config's"
                raise InvalidInputError(name, rule, f"a {type(part).__name__}", f"Leave out {name}.")


class _Config(Schema):
    model: object
    dtype: Literal["float32", "float64", "bfloat16", "float16"]
    own: list[Literal["encoder", "decoder"]]
    sha256: dict[str, str]


def write_model(
    path: str | Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    own: tuple[str, ...],
) -> Path:
    """Write a model's folder, whole or not at all, and return it; one that holds a saved model gives way."""
    folder = without_links("path", unicode_path("path", path)).resolve()
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError("path", "must be a folder", f"the file {folder}", "Give another folder.")
    if (names := held_names(folder)) and names != {WEIGHTS_FILE, CONFIG_FILE}:
        rule = "must be a new or empty folder, or that of a saved model"
        received = f"{folder}, which holds {some(sorted(names), 3)}"
        raise InvalidInputError("path", rule, received, "Give another folder.")
    for name, value in tensors.items():
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype:
            repair = "Bring the model to one dtype, by model.float() say."
            raise InvalidInputError(name, f"must be {dtype}, as the decoder is", value.dtype, repair)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with publish_directory(folder, replace=True) as temporary:
        save_tensors(temporary / WEIGHTS_FILE, tensors)
        fields = {"model": config.model_dump(mode="json"), "dtype": str(dtype).removeprefix("torch.")}
        sums = {"weights": sha256_file(temporary / WEIGHTS_FILE)}
        write_summed(temporary / CONFIG_FILE, FORMAT, "config", {**fields, "own": list(own), "sha256": sums})
    return folder


def read_model(path: str | Path | RunDirectory, *, revision: str | None = None) -> SavedModel:
    """Read what `write_model` wrote, here or on the hub, or the best checkpoint of a run; nothing is unpickled."""
    if isinstance(path, RunDirectory):
        return _of_run(path)
    folder = unicode_path("path", path)
    if isinstance(path, str) and is_hub_name(path):
        return _of_folder(fetch_snapshot(path, [WEIGHTS_FILE, CONFIG_FILE], revision=revision))
    if revision is not None:
        repair = "Leave it out, or name a model of the hub as OWNER/NAME."
        raise InvalidInputError("revision", "must go with a model of the hub", str(folder), repair)
    if not os.path.isdir(folder):  # noqa: PTH112 (False where a name is too long)
        with suppress(OSError):  # a process that was killed while it replaced the model may leave it aside
            remove_temporaries(folder.parent, of_others=True)
    if not os.path.isdir(folder):  # noqa: PTH112
        rule, repair = "must be an existing folder", "Check the path of the model."
        raise InvalidInputError("path", rule, str(folder), repair)
    if (folder / WEIGHTS_FILE).exists():
        return _of_folder(folder)
    if (folder / CONFIG_FILE).exists():
        return _of_run(RunDirectory.open(folder))
    received = f"{folder}, which holds neither {WEIGHTS_FILE} nor {CONFIG_FILE}"
    repair = "Give the folder that save_pretrained or dvae train wrote."
    raise InvalidInputError("path", "must be the folder of a model or a run", received, repair)


def _of_run(run: RunDirectory) -> SavedModel:
    config, store = run.read_experiment().model, run.checkpoints()
    check_config(run, store.newest(), accept=False)
    saved = _best(run, store)
    weights = without_prefix(saved.tensors, MODEL_PREFIX)
    return SavedModel(config, torch.get_default_dtype(), (), weights, str(saved.folder))


def _of_folder(folder: Path) -> SavedModel:
    weights, file = folder / WEIGHTS_FILE, folder / CONFIG_FILE
    saved = read_summed(file, FORMAT, "config", _Config)
    check_sum(weights, saved.sha256.get("weights"))
    config = ModelConfig.from_json(json.dumps(saved.model), source=str(file))
    with damage_in(weights):
        tensors = load_file(weights)
    return SavedModel(config, getattr(torch, saved.dtype), tuple(saved.own), tensors, str(folder))


# Models of the Hugging Face hub, by name.

EXTRA = "pip install 'discrete-vae[hub]'"
_LONGEST = 200  # characters; the hub allows 96 and an owner
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(path: object) -> bool:
    """True for a possible name of a model of the hub: OWNER/NAME, where there is no folder OWNER here."""
    if not isinstance(path, str) or len(path) > _LONGEST or _NAME.fullmatch(path) is None:
        return False
    return not Path(path).parent.exists()


def fetch_snapshot(name: str, files: Sequence[str], *, revision: str | None = None) -> Path:
    """Folder of a model of the hub in the hub's own cache: its newest files, or without the network those there."""
    rule = "must be an existing folder, or a model of the hub as OWNER/NAME"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        repair = f"Check the path; for the hub install huggingface_hub: {EXTRA}."
        raise InvalidInputError("path", rule, name, repair) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except Exception as error:  # the hub's own, or its HTTP client's
        repair = "Check the name, the network and, for a private model, the login."
        raise InvalidInputError("path", rule, refusal(name, error), repair) from None


def refusal(name: str, error: Exception) -> str:
    """An error of the hub for messages: its first line."""
    line = str(error).strip().partition("\n")[0]  # a client's error may have no text
    return f"{name} ({type(error).__name__}: {line[:200]})"
