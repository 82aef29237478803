"""Runs of a given number of minutes: how long a step takes, and the config of as many as fit."""

from __future__ import annotations

import time

import numpy as np
import torch

from discrete_vae.config import ExperimentConfig, WarmUpConfig
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.chosen import chosen_examples
from discrete_vae.data.dataset import DataSplits
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState

_TIMED_SECONDS, _TIMED_STEPS = 4.0, 5
_TIMED_LINES = 3
_WARM_UP = 0.25  # of a run, at most
_FOR_STEPS = 0.95  # of the time; the rest goes to validations


def with_epochs(
    config: ExperimentConfig, epochs: int, validate_every: int, log_every: int
) -> ExperimentConfig:
    """The config with another length; the bound of beta ends where it did.

    A warm-up that would take more than a quarter of a shorter run is shortened to that.

    Args:
        config: The experiment.
        epochs: Passes over the training part.
        validate_every: Steps between two validations.
        log_every: Steps between two lines of the log.

    Raises:
        InvalidInputError: If the experiment's other settings want more epochs, a warm-up for example.

    Examples:
        >>> from discrete_vae import load_experiment
        >>> shorter = with_epochs(load_experiment("digits"), 100, 50, 10).training
        >>> shorter.num_epochs, shorter.beta_bound.slope
        (100, 0.06)
    """
    settings = config.training
    slope = settings.beta_bound.slope * settings.num_epochs / epochs
    changes = {
        "num_epochs": epochs,
        "validate_every": validate_every,
        "log_every": log_every,
        "warm_up": _fitting(settings.warm_up, epochs, settings.num_epochs).model_dump(),
        "beta_bound": settings.beta_bound.model_copy(update={"slope": slope}).model_dump(),
    }
    fields = config.model_dump()
    return ExperimentConfig(**fields | {"training": fields["training"] | changes})


def _fitting(warm_up: WarmUpConfig, epochs: int, num_epochs: int) -> WarmUpConfig:
    if epochs >= num_epochs or warm_up.epochs <= _WARM_UP * epochs:
        return warm_up
    share = _WARM_UP * epochs / warm_up.epochs
    changes = {"epochs": share * warm_up.epochs, "prior_epochs": share * warm_up.prior_epochs}
    return warm_up.model_copy(update=changes)


def with_length(
    config: ExperimentConfig, dataset: DataSplits, num_steps: int, *, validations: int
) -> ExperimentConfig:
    """The config with about so many steps, at least an epoch; the bound of beta ends where it did.

    Args:
        config: The experiment.
        dataset: What it trains on.
        num_steps: Steps, which are rounded to whole epochs.
        validations: How often the run is to validate; it writes a line of its log at least as often.

    Raises:
        InvalidInputError: See `with_epochs`.
    """
    steps_per_epoch = _batches(config, dataset).steps_per_epoch
    epochs = max(1, round(num_steps / steps_per_epoch))
    every = max(1, epochs * steps_per_epoch // validations)
    return with_epochs(config, epochs, every, max(1, min(config.training.log_every, every)))


def step_seconds(
    config: ExperimentConfig, dataset: DataSplits, progress: float, *, device: torch.device | str = "cpu"
) -> float:
    """Time of a step at a share of the run, the median of some seconds; threads stay torch's.

    Args:
        config: The experiment.
        dataset: What it trains on.
        progress: The share, from 0 to 1, which says whether importance samples are taken.
        device: Where to compute.
    """
    state = TrainingState.initial(config, dataset.train, device=device)
    batches = _batches(config, dataset, device=device)
    times: list[float] = []
    begin = time.monotonic()
    while len(times) <= _TIMED_STEPS or time.monotonic() < begin + _TIMED_SECONDS:
        start = time.perf_counter()
        training_step(state, config, batches.batch(state.step), float(config.training.num_epochs), progress)
        times.append(time.perf_counter() - start)  # means are read in each step, so a device has finished it
        state.step += 1
    return float(np.median(times[1:]))  # the first compiles


def line_seconds(
    config: ExperimentConfig, dataset: DataSplits, *, device: torch.device | str = "cpu"
) -> float:
    """Time of a line of the log, which is that of the estimate of log Z in it.

    Args:
        config: The experiment.
        dataset: What it trains on.
        device: Where to compute.
    """
    state = TrainingState.initial(config, dataset.train, device=device)
    times: list[float] = []
    for _ in range(_TIMED_LINES):
        start = time.perf_counter()
        state.estimate_log_partition()
        times.append(time.perf_counter() - start)
    return min(times)  # the first compiles


def affordable_steps(
    config: ExperimentConfig, dataset: DataSplits, minutes: float, *, device: torch.device | str = "cpu"
) -> int:
    """Steps that fit the time with the lines of the log, a twentieth of which is left to validations.

    Args:
        config: The experiment.
        dataset: What it trains on.
        minutes: Of training.
        device: Where to compute.
    """
    seconds, settings = step_seconds(config, dataset, 0.0, device=device), config.training
    if settings.num_importance_samples > 1:
        late = step_seconds(config, dataset, 1.0, device=device)
        seconds = settings.importance_start * seconds + (1 - settings.importance_start) * late
    seconds += line_seconds(config, dataset, device=device) / settings.log_every
    return int(_FOR_STEPS * 60 * minutes / seconds)


def _batches(
    config: ExperimentConfig, dataset: DataSplits, *, device: torch.device | str = "cpu"
) -> TrainingBatches:
    settings = config.training
    chosen = chosen_examples(dataset, settings)
    return TrainingBatches(chosen, settings.batch_size, seed=config.seed, device=device)
