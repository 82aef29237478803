"""The training loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from rich.console import Console
from torch import Tensor

from discrete_vae.config import ExperimentConfig
from discrete_vae.contention import yielding_threads
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.chosen import chosen_examples
from discrete_vae.data.dataset import DataSplits
from discrete_vae.distributed import agree_any, own_share, rank
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.elbo import MeanElbo, evaluate_elbo
from discrete_vae.noise import key_to_seed
from discrete_vae.objectives.elbo import Elbo
from discrete_vae.records import ShowsTable
from discrete_vae.runs.checkpoint_store import CheckpointStore
from discrete_vae.runs.environment import other_rounding
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training import schedules
from discrete_vae.training.elbo_sums import ElboSums
from discrete_vae.training.experiment_check import check_experiment
from discrete_vae.training.finite import check_finite, non_finite_term, non_finite_weight
from discrete_vae.training.log_metrics import Clock, is_due, state_metrics, validates
from discrete_vae.training.logger import MetricsLogger, written
from discrete_vae.training.parameter_groups import decay_weights, set_rates
from discrete_vae.training.precision import choose_precision
from discrete_vae.training.progress import TrainingProgress
from discrete_vae.training.replicas import noise_key
from discrete_vae.training.run_checkpoints import RunCheckpoints
from discrete_vae.training.selection import validation_score
from discrete_vae.training.state import TrainingState
from discrete_vae.training.step_times import shares_in_words
from discrete_vae.training.step_trace import StepTrace

_POSTERIOR_STREAM = 0x706F7374
_VALIDATION_STREAM = 0x76616C6964


@dataclass(frozen=True)
class TrainingResult(ShowsTable):
    """How a run ended.

    Attributes:
        num_steps: Steps of the whole run.
        step: Steps done; fewer if the run was asked to stop.
        best_step: Step of the best checkpoint, by `validation_score`; None before the first validation.
        best_elbo: That ELBO, nats; None before the first validation.
        seconds: Time this process trained.
    """

    num_steps: int
    step: int
    best_step: int | None
    best_elbo: float | None
    seconds: float


def run_steps(
    config: ExperimentConfig,
    dataset: DataSplits,
    run: RunDirectory,
    *,
    device: torch.device | str = "cpu",
    progress: TrainingProgress | None = None,
    stop: Callable[[], bool] | None = None,
    accept_changed_config: bool = False,
    trace: StepTrace | None = None,
    logger: MetricsLogger | None = None,
) -> TrainingResult:
    """Take the steps of a run, from its last checkpoint if it has one; `discrete_vae.train` prepares its folder.

    A step draws the negative phase from the persistent chains, then follows the gradient of the ELBO, whose KL terms
    are turned on gradually, and brings bounded parameters back inside their bounds. All noise is keyed by the seed
    and the step, so a resumed run equals an unbroken one bit for bit on CPUs of one kind; on another kind a warning
    says so. Among the processes of torchrun each step is divided, see `discrete_vae.training.replicas`; the first
    process writes.

    Source: Rolfe 2017, section architecture.

    Args:
        config: The experiment.
        dataset: Its data.
        run: Where checkpoints and metrics go.
        device: Where to compute.
        progress: What shows the metrics; None makes one on standard error.
        stop: Asked before each step; once it says True, the run is saved where it is and left.
        accept_changed_config: Whether to go on, with a warning and an entry in the checkpoints, where the run's
            config.json is not the one that its last checkpoint was trained with.
        trace: What records single steps, if any.
        logger: Where the lines of metrics.jsonl go beside it; closed however training ends.

    Returns:
        How far it came and which checkpoint is the best.

    Raises:
        InvalidInputError: If the data do not fit the model, the last checkpoint is damaged or another model's, or
            config.json has changed and that is not accepted.
        NonFiniteLossError: If a term of the loss, a weight or the validation ELBO is not finite; checkpoints stay as
            they are.
        CheckpointWriteError: If a checkpoint cannot be written; those before it stay.
        PeerLostError: If another process of the run has ended.
    """
    num_steps = check_experiment(config, dataset)
    settings = config.training
    dataset = chosen_examples(dataset, settings)
    share = own_share(settings.batch_size)
    batches = TrainingBatches(dataset, settings.batch_size, seed=config.seed, device=device, share=share)
    valid = dataset.valid.to(device)
    begun = run.read_environment()
    precision = choose_precision(config, device=device, begun=begun)
    state = TrainingState.initial(config, dataset.train, device=device, precision=precision.dtype)
    metrics = run.metrics()
    checkpoints = RunCheckpoints(run, state, num_steps=num_steps, accept_changed_config=accept_changed_config)
    store = checkpoints.store
    if is_writer := rank() == 0:
        metrics.drop_after(state.step)
        checkpoints.warn_of_missing_lines(settings)
        if (
            0 < state.step < num_steps
            and torch.device(device).type == "cpu"
            and (others := other_rounding(begun))
        ):
            text = "sums round differently, so its last weights are not those of an unbroken run"
            warnings.warn(f"the run {others}: {text}.", stacklevel=2)
    state.replicas.start()
    clock = Clock(metrics.read())
    state.times.restart()
    times: dict[str, float] = {}
    console = None if is_writer else Console(quiet=True)
    slower = schedules.first_importance_step(settings, num_steps)
    stage = None if slower is None else (slower, "importance samples")
    shows = progress or TrainingProgress(state.step, num_steps, console, stage=stage)
    with yielding_threads(), written(metrics, logger, writes=is_writer) as append, shows as shown:
        if state.compiled is not None and state.step < num_steps:
            shown.note("Compiling the training step, which takes a minute or two.")
            state.compiled.prepare(batches.batch(state.step), state.chains.z)
            state.times.restart()
        elif (reason := state.recorded.functions.reason) is not None:
            shown.note(f"Steps are taken operation by operation, which is slower: {reason}.")
        while state.step < num_steps and not agree_any(stop is not None and stop()):
            start = state.step / batches.steps_per_epoch
            x = batches.batch(state.step)
            with nullcontext() if trace is None else trace.around(state.step + 1, state.times):
                training_step(state, config, x, start, state.step / num_steps, store)
            state.step += 1
            shown.advance(state.step)
            if trace is not None and trace.is_complete():
                shown.note(trace.write())
            epoch = state.step / batches.steps_per_epoch
            if is_due(settings, state.step, num_steps):
                times = state.times.metrics(settings.batch_size, x.device)
                validating = validates(settings, state.step, num_steps)
                change = _estimate_log_partition(state, store, to_compare=validating)
                values = state.sums.means(change) | state_metrics(state) | times
                check_finite(values, state.step, store)
                append({"step": state.step, "epoch": epoch, "seconds": clock.total(), **values})
                shown.show(
                    state.step,
                    epoch,
                    {
                        name: values[name]
                        for name in ("elbo", "kl_discrete", "examples_per_second")
                        if name in values
                    },
                )
                state.sums = ElboSums()
            if validates(settings, state.step, num_steps):
                estimate = _validate(state, valid, config.seed, store)
                bound, also = estimate, ""
                if (count := settings.num_importance_samples) > 1:
                    bound = _validate(state, valid, config.seed, store, count)
                    also = f", bound of {count} samples {bound.elbo:.2f}"
                found = {
                    "validation_elbo": estimate.elbo,
                    "validation_elbo_std_error": estimate.total_std_error,
                    "validation_score": validation_score(bound),
                }
                found = {name: value for name, value in found.items() if not math.isnan(value)}
                append({"step": state.step, "epoch": epoch, "seconds": clock.total(), **found})
                better = checkpoints.save(estimate, bound)
                shown.note(
                    f"step {state.step}: validation ELBO {estimate.elbo:.2f} +- {_error(estimate.total_std_error)} nats"
                    f"{also}{' (best so far)' if better else ''}"
                )
            if is_due(settings, state.step, num_steps):
                state.times.restart()  # what the line itself took is not a step's
        if shares := ", ".join(shares_in_words(times)):
            shown.note(f"Time of the last steps: {shares}.")
        checkpoints.save_interim()
        if trace is not None and not trace.written:
            shown.note(trace.write())
    best = checkpoints.best_step, checkpoints.best_elbo
    return TrainingResult(num_steps, state.step, *best, clock.here())


def _error(error: float) -> str:
    """A standard error in words; a single example has none."""
    return "unknown" if math.isnan(error) else f"{error:.2f}"


def training_step(
    state: TrainingState,
    config: ExperimentConfig,
    x: Tensor,
    epoch: float,
    progress: float,
    store: CheckpointStore | None = None,
) -> Elbo:
    """Take one step of the optimizer.

    Args:
        state: What the step changes; its count of steps, which keys the noise, stays.
        config: The experiment.
        x: (batch, *event) or (batch, feature).
        epoch: Epochs done, for warm-up and the bound of beta.
        progress: Share of the run that is done, for the step size and the start of importance samples.
        store: Where to look for the last good checkpoint if the step fails.

    Returns:
        The bound that the step was taken for.

    Raises:
        NonFiniteLossError: If a term of the loss is not finite; the parameters stay as they are.
    """
    settings, model = config.training, state.model
    state.times.begin("chains")
    if not model.training:
        model.train()
    model.smoothing.bound_sharpness_(schedules.max_beta(settings.beta_bound, epoch))
    set_rates(state.optimizer, schedules.learning_rate(settings.optimizer, progress))
    try:
        z = state.chains.step(settings.num_sweeps)
    except InvalidInputError:
        # the chains look at every weight that they use, so looking twice at each step is saved
        broken = non_finite_weight(state, store)
        if broken is None:
            raise
        raise broken from None
    state.times.begin("networks")
    weights = schedules.kl_weights(settings.warm_up, epoch)
    num_samples = schedules.num_importance_samples(settings, progress)
    graph = state.compiled if num_samples == 1 else None
    found = (graph or state.recorded).take_gradients(
        x,
        z,
        discrete=weights.discrete,
        continuous=weights.continuous,
        num_importance_samples=num_samples,
        noise_key=noise_key(config.seed, _POSTERIOR_STREAM, state.step),
    )
    means = state.replicas.average(found.means)
    if not all(map(math.isfinite, means)):
        raise non_finite_term(means, state.step, store)
    state.times.begin("optimizer")
    decay_weights(state.optimizer)
    state.optimizer.update()
    state.recorded.project_()
    if state.averages is not None:
        state.averages.update(model, state.step + 1)
    state.sums.add(means, state.log_partition)
    state.times.end_step()
    return Elbo(
        found.reconstruction,
        found.kl_relative,
        found.kl_continuous,
        state.log_partition,
        trains_prior=True,
        num_importance_samples=num_samples,
    )


def _estimate_log_partition(state: TrainingState, store: CheckpointStore, *, to_compare: bool) -> float:
    """Estimate log Z anew; returns by how much the state's value changed."""
    broken = non_finite_weight(state, store)
    if broken is not None:
        raise broken
    before = state.log_partition
    state.estimate_log_partition(to_compare=to_compare)
    return state.log_partition - before


def _validate(
    state: TrainingState, x: Tensor, seed: int, store: CheckpointStore, num_importance_samples: int = 1
) -> MeanElbo:
    """The validation ELBO or bound, with the log Z of the log's last line or, of averaged weights, their own."""
    log_partition, std_error = state.evaluated_log_partition()
    elbo = evaluate_elbo(
        state.evaluated,
        x,
        log_partition=log_partition,
        log_partition_std_error=std_error,
        num_importance_samples=num_importance_samples,
        seed=key_to_seed(seed, _VALIDATION_STREAM),
    )
    check_finite({"the validation ELBO": elbo.elbo}, state.step, store)
    return elbo
