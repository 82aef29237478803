"""A run around its steps of training: its folder, its threads, the checks before it, and its sizes without training."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from discrete_vae.boltzmann.base import FactorialBernoulli
from discrete_vae.build import check_model_memory, count_weights
from discrete_vae.checks import check_gradients_are_recorded
from discrete_vae.config import (
    BlockGibbsConfig,
    ExperimentConfig,
    ParallelTemperingConfig,
    TrajectoryTemperingConfig,
    instantiate,
)
from discrete_vae.data.splits import (
    PARTS,
    DataSplits,
    check_compatible,
    data_sum,
    describe_data,
    training_subset,
)
from discrete_vae.distributed import check_same, compute_on_rank_zero, held_by_rank_zero, world_size
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import IndependentFeatures, independent_features
from discrete_vae.nets.mlp import MLP, ConcatLinear
from discrete_vae.runs.io import write_json
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.run_directory import RunDirectory, describe_environment, sole_writer
from discrete_vae.samplers.gibbs import UsesSolver
from discrete_vae.samplers.tempering import start_ladder
from discrete_vae.system import check_device, check_memory, unicode_path
from discrete_vae.training.logging import MetricsLogger
from discrete_vae.training.loop import TrainingResult, batches_of, run_steps, training_step
from discrete_vae.training.state import TrainingState
from discrete_vae.training.step import KEY, choose_precision


def train(
    config: ExperimentConfig,
    dataset: DataSplits,
    run_dir: str | Path | RunDirectory,
    *,
    device: torch.device | str = "cpu",
    progress: TrainingProgress | None = None,
    stop: Callable[[], bool] | None = None,
    accept_changed_config: bool = False,
    logger: MetricsLogger | None = None,
) -> TrainingResult:
    """Train a model as `dvae train` does, or go on with a run of the same config; `load_run` gives the model.

    The folder holds what the command writes, so that its verbs read it. The number of threads stays torch's. Within
    `discrete_vae.distributed.process_group` each step is divided among the processes.

    Args:
        config: The experiment.
        dataset: Its data.
        run_dir: The folder: new, empty, or that of a run to go on with; ``~`` is the home directory.
        device: Where to compute.
        progress: What shows the metrics; None makes one on standard error.
        stop: Asked before each step; once it says True, the run is saved where it is and left.
        accept_changed_config: Whether to go on, with a warning, where the run's config.json is not the file that its
            last checkpoint was trained with.
        logger: Where the lines of metrics.jsonl go beside it, for example
            `discrete_vae.training.TensorBoardLogger`; closed however training ends.

    Returns:
        How far it came and which checkpoint is the best.

    Raises:
        InvalidInputError: If the data do not fit the model, the device is not there, the folder holds something else,
            another config's or other data's run, or another process trains in it; or the last checkpoint is damaged.
        NonFiniteLossError: If a term of the loss, a weight or the validation ELBO is not finite; checkpoints stay as
            they are.
        SolverError: If the solver of the chains does not answer; the run is saved after its last step.
        CheckpointWriteError: If a checkpoint cannot be written; those before it stay.

    Examples:
        >>> import tempfile
        >>> from discrete_vae import load_dataset, load_experiment, load_run
        >>> config = load_experiment("digits", size="smoke")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = train(config, load_dataset("digits"), folder, stop=lambda: True)  # before the first step
        >>> result.step
        0
    """
    for name, given, wanted in (("config", config, ExperimentConfig), ("dataset", dataset, DataSplits)):
        if not isinstance(given, wanted):
            received, repair = f"a {type(given).__name__}", "load_experiment and load_dataset make them."
            raise InvalidInputError(name, f"must be of type {wanted.__name__}", received, repair)
    if logger is not None and not isinstance(logger, MetricsLogger):
        rule, repair = "must have the methods begin, write and close", "TensorBoardLogger is one."
        raise InvalidInputError("logger", rule, f"a {type(logger).__name__}", repair)
    device = check_device(device)
    with prepared_run(config, dataset, run_dir, device=device) as (run, _):
        return run_steps(
            config,
            dataset,
            run,
            device=device,
            progress=progress,
            stop=stop,
            accept_changed_config=accept_changed_config,
            logger=logger,
        )


@contextmanager
def prepared_run(
    config: ExperimentConfig, dataset: DataSplits, run_dir: str | Path | RunDirectory, *, device: torch.device
) -> Iterator[tuple[RunDirectory, int]]:
    """Check an experiment, make or open the folder of its run, and hold it against other writers within the block.

    Yields:
        The run, and the number of its steps.
    """
    data = [dataset.train, dataset.valid]
    data += [each for part in (dataset.conditions, dataset.weights, dataset.labels) for each in part.values()]
    check_same(config=[config], data=data, device=[device.type])
    num_steps = check_experiment(config, dataset)
    run = compute_on_rank_zero(lambda: _folder(run_dir))
    with held_by_rank_zero(sole_writer(run.path)):
        compute_on_rank_zero(lambda: _prepare(run, config, dataset, device=device))
        check_same(checkpoint=[run.checkpoints().newest()])
        yield run, num_steps


def _folder(run_dir: str | Path | RunDirectory) -> RunDirectory:
    run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory(unicode_path("run_dir", run_dir))
    return RunDirectory.open(run.path) if run.config_path.exists() else RunDirectory.create(run.path)


def _prepare(
    run: RunDirectory, config: ExperimentConfig, dataset: DataSplits, *, device: torch.device
) -> None:
    """Write what a run's folder says of it, unless it says so already; the caller is the folder's sole writer."""
    for file, what in (
        (run.refit_path, "whose posterior dvae refit has fitted anew"),
        (run.release_path, "a released run, which has nothing of the optimizer"),
    ):
        if file.exists():
            repair = "Go on with the run that it was made of, or begin a new one."
            rule = "must be a run that training left"
            raise InvalidInputError("run_dir", rule, f"{run.path}, {what}", repair)
    if run.config_path.exists():
        _check_same(run, config, dataset)
    run.remove_temporaries()
    if not run.config_path.exists():
        run.write_config(config.model_dump_json(indent=2) + "\n")
    if not run.environment_path.exists():  # a kill may have come between the two
        environment = describe_environment(seed=config.seed, device=device)
        precision = choose_precision(config, device=device).name
        write_json(run.environment_path, environment | {"data": describe_data(dataset), KEY: precision})


def _check_same(run: RunDirectory, config: ExperimentConfig, dataset: DataSplits) -> None:
    stored, trained = run.read_experiment(), data_sum(run)
    if config != stored:
        names = [name for name in type(config).model_fields if getattr(config, name) != getattr(stored, name)]
        repair = "Train with the run's, load_run(...).config, or give another run_dir."
        received = f"another {' and '.join(names)}"
        raise InvalidInputError("config", f"must be that of the run in {run.path}", received, repair)
    if trained is not None and trained != dataset.description.sha256:
        rule = f"must be those that {run.environment_path} names, SHA-256 {trained}"
        received = f"{dataset.description.source} with SHA-256 {dataset.description.sha256}"
        repair = "Bring the file back, or start a new run in another --run-dir."
        raise InvalidInputError("data", rule, received, repair)


def validation_baseline(config: ExperimentConfig, dataset: DataSplits) -> IndependentFeatures:
    """Log-likelihood of independent features on a run's validation examples, fitted to those it trains on."""
    chosen = training_subset(dataset, config.training)
    likelihood = instantiate(config.model.likelihood, event_shape=config.model.shape)
    return independent_features(
        likelihood,
        chosen.train,
        chosen.valid,
        train_weights=chosen.weights.get("train"),
        weights=chosen.weights.get("valid"),
    )


# Before a run: its threads, and the checks of its experiment.


SMALLEST_SHARED = 20_000_000
"""Weights times examples of a batch from which a training step is divided among threads.

Below it, the operations of a step are so short that waking a second thread takes what it gains.
"""


@contextmanager
def training_threads(config: ExperimentConfig, environment: dict[str, Any]) -> Iterator[None]:
    """Within the block, torch has the number of threads of the run, of which an environment.json may tell.

    A small model trains on one thread. A resumed run goes on with the number that it began with, since sums round
    differently for another one. ``OMP_NUM_THREADS`` is the user's word and goes before both.
    """
    own = chosen = torch.get_num_threads()
    begun = environment.get("platform", {}).get("torch_threads")
    if "OMP_NUM_THREADS" not in os.environ:
        if begun is not None:
            chosen = min(begun, own)
        elif own > 1 and count_weights(config.model) * config.training.batch_size < SMALLEST_SHARED:
            chosen = 1
    torch.set_num_threads(chosen)
    try:
        yield
    finally:
        torch.set_num_threads(own)


# Least bytes. A parameter has its value, its gradient and two moments of Adam, and may have its average.
_PER_PARAMETER, _PER_AVERAGE = 16, 4
_PER_SPIN = 16  # while chains are made


def check_experiment(config: ExperimentConfig, dataset: DataSplits) -> int:
    """Check that an experiment can be run on its data, before anything large is made; returns the steps of the run.

    Networks are counted without being made, on torch's meta device.
    """
    check_gradients_are_recorded("train")
    if dataset.num_features != config.model.num_values:
        rule = f"must have the data's {dataset.num_features} values"
        repair = "Leave it out, or use the data that the model was made for."
        name = "model.num_features" if config.model.event_shape is None else "model.event_shape"
        raise InvalidInputError(name, rule, config.model.num_values, repair)
    check_compatible(config.model, dataset)
    num_examples = config.evaluation.num_examples
    if num_examples is not None and num_examples > len(dataset.test):
        rule = f"must be at most the {len(dataset.test)} test examples"
        raise InvalidInputError("evaluation.num_examples", rule, num_examples, "Leave it out for all.")
    # two chains of one unit: what the chains' settings have to obey does not depend on their number
    few = config.training.sampler.model_copy(update={"num_chains": 2})
    sampler = instantiate(few, energy=FactorialBernoulli(1), seed=config.seed)
    check_model_memory(
        config.model,
        _PER_PARAMETER + (_PER_AVERAGE if config.training.averaging.decay > 0 else 0),
        "for weights, gradients and Adam",
        gradient=config.training.gradient,
    )
    _check_chains_memory(config)
    _check_divisible(config)
    _check_classes(config)
    _warn_of_bounds(config)
    chosen = training_subset(dataset, config.training)
    num_steps = config.training.num_epochs * batches_of(config, chosen).steps_per_epoch
    if isinstance(sampler, UsesSolver):  # the last check, which may cost a read
        prior = instantiate(config.model.prior)
        chains = instantiate(config.training.sampler, energy=prior, seed=config.seed)
        chains.connect(config.training.num_sweeps)
    return num_steps


def _warn_of_bounds(config: ExperimentConfig) -> None:
    """Warn of a setting that another one keeps from its effect."""
    training, smoothing = config.training, config.model.smoothing
    start, trains = training.beta_bound.start, getattr(smoothing, "trainable", False)
    if trains and smoothing != type(smoothing)() and (beta := getattr(smoothing, "beta", 0.0)) > start:
        warnings.warn(
            f"model.smoothing.beta starts at training.beta_bound.start, {start:g}, not at {beta:g}, which is above it.",
            stacklevel=3,
        )
    if config.size != "smoke" and training.last_warm_up >= training.num_epochs:
        warnings.warn(
            f"the run ends before its warm-up does, after {training.last_warm_up:g} epochs, and never trains the bound "
            "itself. Shorten training.warm_up, or train longer.",
            stacklevel=3,
        )


def _check_classes(config: ExperimentConfig) -> None:
    training = config.training
    if not config.model.num_classes:
        return
    for name, value, needed in (
        ("num_importance_samples", training.num_importance_samples, 1),
        ("gradient", training.gradient.kind, "reparameterized"),
        ("independent_start", training.independent_start, False),
    ):
        if value != needed:
            wanted = str(needed).lower()
            rule, repair = f"must be {wanted} for a model with classes", f"Set it to {wanted}."
            raise InvalidInputError(f"training.{name}", rule, value, repair)


def _check_chains_memory(config: ExperimentConfig) -> None:
    units, sampler = config.model.prior.num_units, config.training.sampler
    states = 1
    if isinstance(sampler, ParallelTemperingConfig):
        states = len(sampler.inverse_temperatures or start_ladder())
    elif isinstance(sampler, TrajectoryTemperingConfig):
        from discrete_vae.samplers.trajectory import SETS

        states = 1 + SETS
    for argument, count in (
        ("training.sampler.num_chains", states * sampler.num_chains),
        ("evaluation.num_annealed_chains", config.evaluation.num_annealed_chains),
    ):
        check_memory(argument, _PER_SPIN * units * count, "Use fewer chains, or fewer units of the prior.")


def _check_divisible(config: ExperimentConfig) -> None:
    number, training = world_size(), config.training
    if number == 1:
        return
    sampler = training.sampler
    if not isinstance(sampler, BlockGibbsConfig):
        rule = f"must be 'block-gibbs' with {number} processes, among which its chains are divided"
        repair = "Leave it out, or train in one process."
        raise InvalidInputError("training.sampler", rule, repr(sampler.kind), repair)
    # norms compare the rows of a process
    sizes = (("batch_size", training.batch_size, 2), ("sampler.num_chains", sampler.num_chains, 1))
    for name, size, least_of_process in sizes:
        least = number * least_of_process
        if size % number or size < least:
            rule = f"must be a multiple of the {number} processes, at least {least}"
            repair = f"Give {max(size // number * number, least)}, or start another number of processes."
            raise InvalidInputError(f"training.{name}", rule, size, repair)


# Sizes, parameters, memory and the time of a step.


@dataclass(frozen=True)
class ParameterRow:
    """A network, or a tensor that belongs to none."""

    part: str  # the part of the model: prior, posterior, hierarchy.prior, hierarchy.posterior, likelihood
    name: str  # its dotted name
    shape: str  # widths from input to output, or the tensor's shape
    count: int  # its parameters


def parameter_rows(model: nn.Module) -> list[ParameterRow]:
    """The rows of a model; each parameter is counted in exactly one of them."""
    networks = {name: module for name, module in model.named_modules() if isinstance(module, MLP)}
    rows: dict[str, ParameterRow] = {}
    for name, parameter in model.named_parameters():
        owner = next((network for network in networks if name.startswith(f"{network}.")), name)
        if owner in rows:
            continue
        if (network := networks.get(owner)) is not None:
            widths = [layer.out_features for layer in network.modules() if isinstance(layer, ConcatLinear)]
            shape = " -> ".join([" + ".join(map(str, network.input_sizes)), *map(str, widths)])
            count = sum(each.numel() for each in network.parameters())
        else:
            shape, count = " x ".join(map(str, parameter.shape)) or "scalar", parameter.numel()
        first, second = name.split(".")[:2]
        part = f"{first}.{second}" if first == "hierarchy" else first
        rows[owner] = ParameterRow(part, owner, shape, count)
    return list(rows.values())


TIMED_STEPS = 3


@dataclass(frozen=True)
class ExperimentDescription:
    """Sizes, parameters, memory and pace of an experiment."""

    num_examples: tuple[int, int]  # examples that training and validation see
    num_steps: int  # steps of the whole run
    steps_per_epoch: int  # steps of an epoch
    num_chains: int
    num_units: int
    num_groups: int
    num_layers: int  # continuous layers
    units_per_layer: int
    decoder_size: int  # values that the decoder reads
    parameters: tuple[ParameterRow, ...]  # the model's networks and tensors
    weight_bytes: int  # memory of weights, gradients and Adam
    data_bytes: int  # memory of the data
    peak_bytes: int | None  # most that the process, or the CUDA device, has taken; None where it is not told
    seconds_per_step: float  # the shortest time of a few real steps


def describe_experiment(
    config: ExperimentConfig, dataset: DataSplits, *, device: torch.device | str = "cpu"
) -> ExperimentDescription:
    """Build the model of an experiment and take a few steps; nothing is written."""
    where, num_steps = check_device(device), check_experiment(config, dataset)
    chosen = training_subset(dataset, config.training)
    batches = batches_of(config, chosen, device=where)
    of_train = {"condition": chosen.conditions.get("train"), "weights": chosen.weights.get("train")}
    state = TrainingState.initial(config, chosen.train, **of_train, device=where)
    model, settings, times = state.model, config.training, dict[float, float]()
    late = settings.importance_start if settings.num_importance_samples > 1 else 1.0
    for progress in sorted({0.0, late} - {1.0}):  # without importance samples and with them
        times[progress] = math.inf
        for step in range(TIMED_STEPS):
            start = time.perf_counter()
            x, condition, labels = batches.batch(step), batches.condition(step), batches.labels(step)
            training_step(state, config, x, 0.0, progress, condition=condition, labels=labels)
            if where.type == "cuda":
                torch.cuda.synchronize(where)
            times[progress] = min(times[progress], time.perf_counter() - start)
            state.step += 1
    seconds = late * times[0.0] + (1 - late) * times.get(late, 0.0)
    return ExperimentDescription(
        num_examples=(len(chosen.train), len(chosen.valid)),
        num_steps=num_steps,
        steps_per_epoch=batches.steps_per_epoch,
        num_chains=state.chains.num_chains,
        num_units=model.prior.num_units,
        num_groups=model.posterior.num_groups,
        num_layers=model.hierarchy.num_layers,
        units_per_layer=model.hierarchy.num_units,
        decoder_size=model.hierarchy.decoder_size,
        parameters=tuple(parameter_rows(model)),
        weight_bytes=_PER_PARAMETER * sum(parameter.numel() for parameter in model.parameters()),
        data_bytes=sum(getattr(dataset, part).nbytes for part in PARTS),
        peak_bytes=_peak_bytes(where),
        seconds_per_step=seconds,
    )


def _peak_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
