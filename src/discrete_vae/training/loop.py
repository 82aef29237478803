"""The training loop."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discrete_vae.config import ExperimentConfig
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.dataset import Dataset
from discrete_vae.errors import InvalidInputError, NonFiniteLossError
from discrete_vae.evaluation.elbo import ElboEstimate, evaluate_elbo
from discrete_vae.evaluation.log_partition import quick_log_partition
from discrete_vae.noise import key_to_seed, keyed_generator
from discrete_vae.objectives.elbo import Elbo
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training import schedules
from discrete_vae.training.progress import TrainingProgress
from discrete_vae.training.state import TrainingState

_POSTERIOR_STREAM = 0x706F7374
_VALIDATION_STREAM = 0x76616C6964
_ANNEALED_CHAINS, _TEMPERATURES, _MAX_ENUMERATED = 500, 1000, 16  # log Z at validations: under a second


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Attributes:
        num_steps: Steps of the run.
        best_step: Step of the checkpoint with the best validation ELBO.
        best_elbo: That ELBO, nats.
        seconds: Time this process trained.
    """

    num_steps: int
    best_step: int
    best_elbo: float
    seconds: float


def train(
    config: ExperimentConfig, dataset: Dataset, run: RunDirectory, *, progress: TrainingProgress | None = None
) -> TrainingResult:
    """Train a model, from the run's last checkpoint if it has one.

    A step draws the negative phase from the persistent chains, then follows the gradient of the ELBO, whose KL terms
    are turned on gradually, and brings bounded parameters back inside their bounds. All noise is keyed by the seed
    and the step, so a resumed run equals an unbroken one bit for bit on the CPU.

    Source: Rolfe 2017, section architecture.

    Args:
        config: The experiment.
        dataset: Its data.
        run: Where checkpoints and metrics go.
        progress: What shows the figures; None makes one on standard error.

    Returns:
        Which checkpoint is the best.

    Raises:
        InvalidInputError: If the data do not fit the model, or the last checkpoint is damaged or another model's.
        NonFiniteLossError: If a term of the loss is not finite; checkpoints stay as they are.
        CheckpointWriteError: If a checkpoint cannot be written; those before it stay.
    """
    if dataset.num_features != config.model.num_features:
        rule = f"must be the data's {dataset.num_features}"
        repair = "Leave it out, or use the data that the model was made for."
        raise InvalidInputError("model.num_features", rule, config.model.num_features, repair)
    settings = config.training
    batches = TrainingBatches(dataset, settings.batch_size, seed=config.seed)
    num_steps = settings.num_epochs * batches.steps_per_epoch
    state = TrainingState.initial(config, dataset.train.mean(0))
    store, metrics = run.checkpoints(), run.metrics()
    if store.steps():
        checkpoint = store.load("last")
        state.restore(checkpoint.tensors, checkpoint.meta)
    metrics.drop_after(state.step)
    best = store.best()
    start = time.monotonic()
    sums = _Sums()
    with progress or TrainingProgress(state.step, num_steps) as shown:
        while state.step < num_steps:
            epoch = state.step / batches.steps_per_epoch
            elbo = _one_step(state, config, batches.batch(state.step), epoch, state.step / num_steps, run)
            sums.add(elbo)
            state.step += 1
            shown.advance(state.step)
            finished = state.step == num_steps
            validates = finished or state.step % settings.validate_every == 0
            if validates or state.step % settings.log_every == 0:
                figures = sums.means() | _figures(state)
                seconds = time.monotonic() - start
                metrics.append({"step": state.step, "epoch": epoch, "seconds": seconds, **figures})
                shown.show(
                    state.step,
                    epoch,
                    {name: figures[name] for name in ("elbo", "kl_discrete", "beta") if name in figures},
                )
                sums = _Sums()
            if validates:
                estimate = _validate(state, dataset.valid, config.seed)
                metrics.append({"step": state.step, "epoch": epoch, "validation_elbo": estimate.elbo})
                better = best is None or estimate.elbo > best["validation_elbo"]
                if better:
                    best = {"step": state.step, "validation_elbo": estimate.elbo}
                metrics.sync()
                store.save(
                    state.step, *state.capture(), best={"validation_elbo": estimate.elbo} if better else None
                )
                shown.note(
                    f"step {state.step}: validation ELBO {estimate.elbo:.2f} +- {estimate.elbo_std_error:.2f} nats"
                    f"{' (best so far)' if better else ''}"
                )
    if best is None:
        raise InvalidInputError(
            "run", "must have a best checkpoint", "none", "Remove the folder and train anew."
        )
    return TrainingResult(num_steps, best["step"], best["validation_elbo"], time.monotonic() - start)


def _one_step(
    state: TrainingState,
    config: ExperimentConfig,
    x: Tensor,
    epoch: float,
    progress: float,
    run: RunDirectory,
) -> Elbo:
    """One step of the optimiser; returns the bound that it was taken for."""
    settings, model = config.training, state.model
    model.train()
    model.smoothing.max_beta = schedules.max_beta(settings.beta_bound, epoch)
    for group in state.optimiser.param_groups:
        group["lr"] = schedules.learning_rate(settings.optimiser, progress)
    weights = schedules.kl_weights(settings.warm_up, epoch)

    z = state.chains.step(settings.num_sweeps)
    state.running.update(z)
    generator = keyed_generator(config.seed, _POSTERIOR_STREAM, state.step)
    elbo = model.elbo(x, log_partition=state.running.tensor(z), generator=generator)
    kl = weights.discrete * elbo.kl_discrete + weights.continuous * elbo.kl_continuous
    loss = (kl - elbo.reconstruction).mean()
    if not math.isfinite(loss.item()):
        raise _non_finite(elbo, state.step, run)
    state.optimiser.zero_grad()
    loss.backward()
    state.optimiser.step()
    model.project_()
    return elbo


def _validate(state: TrainingState, x: Tensor, seed: int) -> ElboEstimate:
    """The validation ELBO with log Z estimated anew; the running value starts again from it."""
    log_partition = quick_log_partition(
        state.model.prior,
        num_chains=_ANNEALED_CHAINS,
        num_temperatures=_TEMPERATURES,
        max_enumerated=_MAX_ENUMERATED,
        seed=key_to_seed(seed, _VALIDATION_STREAM, state.step),
    )
    state.running.reset(log_partition.value)
    return evaluate_elbo(
        state.model, x, log_partition=log_partition.value, seed=key_to_seed(seed, _VALIDATION_STREAM)
    )


def _non_finite(elbo: Elbo, step: int, run: RunDirectory) -> NonFiniteLossError:
    """The error that names the first term that is not finite."""
    steps = run.checkpoints().steps()
    last = steps[-1] if steps else None
    for term in ("reconstruction", "kl_discrete", "kl_continuous"):
        value = float(getattr(elbo, term).detach().mean())
        if not math.isfinite(value):
            return NonFiniteLossError(step, term, value, last)
    return NonFiniteLossError(step, "the sum of the terms", math.inf, last)


def _figures(state: TrainingState) -> dict[str, Any]:
    """Figures of the state that are worth a line of the log."""
    figures = {
        "log_partition": state.running.value,
        "log_partition_std_error": state.running.std_error,
        "learning_rate": state.optimiser.param_groups[0]["lr"],
    }
    beta = getattr(state.model.smoothing, "beta", None)
    if isinstance(beta, Tensor):
        figures["beta"] = float(beta.detach())
    return figures


class _Sums:
    """Sums of the bound's parts over the steps since the last line of the log."""

    def __init__(self) -> None:
        self._parts = torch.zeros(4, dtype=torch.float64)
        self._count = 0

    def add(self, elbo: Elbo) -> None:
        parts = (elbo.value, elbo.reconstruction, elbo.kl_discrete, elbo.kl_continuous)
        self._parts += torch.stack([part.detach().mean() for part in parts]).double()
        self._count += 1

    def means(self) -> dict[str, float]:
        names = ("elbo", "reconstruction", "kl_discrete", "kl_continuous")
        return dict(zip(names, (self._parts / self._count).tolist(), strict=True))
