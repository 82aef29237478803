"""What a run starts from: the model and the gradient's estimator before the first step."""

from __future__ import annotations

import torch

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.model import DiscreteVAE
from discrete_vae.noise import DrawsFrom, key_to_seed
from discrete_vae.objectives.gradients.base import GradientEstimator

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
    """The model with its first weights, which depend on the config's seed alone.

    Raises:
        InvalidInputError: If its parts do not fit each other.
    """
    # the weights start on the CPU wherever they go
    with _draws(config, _INIT_STREAM), torch.device("cpu"):
        return DiscreteVAE.from_config(config.model)


def _draws(config: ExperimentConfig, stream: int) -> DrawsFrom:
    return DrawsFrom(torch.Generator("cpu").manual_seed(key_to_seed(config.seed, stream) >> 1))
