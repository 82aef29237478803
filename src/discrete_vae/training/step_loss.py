"""The loss of one training step."""

from __future__ import annotations

from torch import Tensor

from discrete_vae.config import ExperimentConfig
from discrete_vae.noise import keyed_generator
from discrete_vae.objectives.elbo import Elbo
from discrete_vae.training import schedules
from discrete_vae.training.state import TrainingState

_POSTERIOR_STREAM = 0x706F7374


def step_loss(
    state: TrainingState, config: ExperimentConfig, x: Tensor, z: Tensor, epoch: float, progress: float
) -> tuple[Elbo, Tensor]:
    """The bound of a batch at the state's weights, and the loss that the step follows.

    Args:
        state: The state; only the running statistics of its norms change.
        config: The experiment.
        x: (batch, *event) or (batch, feature).
        z: (chain, unit), the negative phase.
        epoch: Epochs done, for the weights of the KL terms.
        progress: Share of the run that is done, for the start of importance samples.
    """
    settings = config.training
    weights = schedules.kl_weights(settings.warm_up, epoch)
    generator = keyed_generator(config.seed, _POSTERIOR_STREAM, state.step, device=x.device)
    num_importance_samples = schedules.num_importance_samples(settings, progress)
    if state.compiled is not None and num_importance_samples == 1:
        return state.compiled(
            x,
            z,
            log_partition=state.log_partition,
            discrete=weights.discrete,
            continuous=weights.continuous,
            generator=generator,
        )
    elbo = state.model.elbo(
        x,
        negative_phase=z,
        log_partition=state.log_partition,
        num_importance_samples=num_importance_samples,
        generator=generator,
    )
    return elbo, elbo.weighted_loss(discrete=weights.discrete, continuous=weights.continuous)
