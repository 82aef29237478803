"""Runs of a given number of minutes: how long their parts take, and the config of as many steps as fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from discrete_vae.config import ExperimentConfig, TrainingConfig, WarmUpConfig
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.splits import DataSplits, training_subset
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_elbo
from discrete_vae.training.loop import batches_of, training_step
from discrete_vae.training.state import TrainingState

_TIMED_SECONDS, _TIMED_STEPS = 4.0, 5
_WARM_UP = 0.25  # of a run, at most
_VALIDATIONS = 0.1  # of the time, at most


def with_epochs(
    config: ExperimentConfig, epochs: int, validate_every: int, log_every: int
) -> ExperimentConfig:
    """The config with another length; the bound of beta ends where it did.

    A warm-up that would take more than a quarter of a shorter run is shortened to that.

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

    Steps are rounded to whole epochs. The run writes a line of its log at least as often as it validates.
    """
    steps_per_epoch = _batches(config, dataset).steps_per_epoch
    epochs = max(1, round(num_steps / steps_per_epoch))
    every = math.ceil(epochs * steps_per_epoch / validations)
    return with_epochs(config, epochs, every, min(config.training.log_every, every))


class Costs(NamedTuple):
    """Times of the parts of a run, in seconds."""

    step: float  # before importance samples are taken
    late_step: float  # that takes them; `step` where training has none
    line: float  # of the log, which is the estimate of log Z in it
    # log Z, the ELBO of the validation part and, where training takes importance samples, their bound
    validation: float

    def mean_step(self, settings: TrainingConfig) -> float:
        """A step of the whole run, with its share of the lines."""
        early = settings.importance_start if settings.num_importance_samples > 1 else 1.0
        return early * self.step + (1 - early) * self.late_step + self.line / settings.log_every

    def num_steps(self, settings: TrainingConfig, seconds: float, *, validations: int) -> int:
        """Steps that fit a time beside so many validations; 0 if none does."""
        return int(max(0.0, seconds - validations * self.validation) / self.mean_step(settings))


def time_parts(config: ExperimentConfig, dataset: DataSplits, *, device: torch.device | str = "cpu") -> Costs:
    """Take some steps of a run that is then forgotten, a line of its log and a validation.

    Threads stay torch's. log Z of a prior after a few steps is estimated faster than after many: a validation of a long
    run takes a second or two more than this one.
    """
    state = TrainingState.initial(config, dataset.train, device=device)
    valid = training_subset(dataset, config.training).valid.to(device)
    batches, counts = _batches(config, dataset, device=device), {1, config.training.num_importance_samples}
    # at progress 0 a step size that rises is 0, and a prior without couplings has no log Z to estimate
    step = late_step = _step_seconds(state, config, batches, 0.1 * config.training.optimizer.rise)
    if len(counts) > 1:
        late_step = _step_seconds(state, config, batches, 1.0)

    def validate() -> None:
        state.estimate_log_partition(to_compare=True)
        for count in counts:
            log_partition, _ = state.evaluated_log_partition()
            evaluate_elbo(state.evaluated, valid, log_partition=log_partition, num_importance_samples=count)

    return Costs(step, late_step, _warm_seconds(state.estimate_log_partition), _warm_seconds(validate))


def _step_seconds(
    state: TrainingState, config: ExperimentConfig, batches: TrainingBatches, progress: float
) -> float:
    """Mean time of a step at a share of the run, over some seconds: what else the machine does counts."""
    epoch = float(config.training.num_epochs)
    training_step(state, config, batches.batch(state.step), epoch, progress)  # compiles
    count, begin = 0, time.perf_counter()
    while count < _TIMED_STEPS or time.perf_counter() < begin + _TIMED_SECONDS:
        state.step += 1
        training_step(state, config, batches.batch(state.step), epoch, progress)
        count += 1  # means are read in each step, so a device has finished it
    return (time.perf_counter() - begin) / count


def _warm_seconds(work: Callable[[], object]) -> float:
    """Time of the second call; the first compiles."""
    work()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def with_minutes(
    config: ExperimentConfig,
    dataset: DataSplits,
    minutes: float,
    *,
    validations: int,
    device: torch.device | str = "cpu",
) -> ExperimentConfig:
    """The config with as many steps as fit the time beside the lines of the log and the validations.

    There are fewer validations than asked for where those would take more than a tenth of the time.
    """
    costs, total = time_parts(config, dataset, device=device), 60 * minutes
    validations = max(1, min(validations, int(_VALIDATIONS * total / costs.validation)))
    epoch = _batches(config, dataset).steps_per_epoch * costs.mean_step(config.training)
    least = (epoch + costs.validation) / 60
    if least > minutes:
        rule = f"must have room for an epoch and a validation, which take {least:.3g} here"
        raise InvalidInputError(
            "minutes", rule, f"{minutes:g}", f"Give at least {math.ceil(10 * least) / 10:g}."
        )
    num_steps = costs.num_steps(config.training, total, validations=validations)
    return with_length(config, dataset, num_steps, validations=validations)


def _batches(
    config: ExperimentConfig, dataset: DataSplits, *, device: torch.device | str = "cpu"
) -> TrainingBatches:
    return batches_of(config, training_subset(dataset, config.training), device=device)
