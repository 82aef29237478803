"""The parts of the bound of a batch, at draws of a model's posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.objectives.kl_boltzmann import kl_without_log_partition
from discrete_vae.objectives.partial_bound import partial_bound
from discrete_vae.objectives.relaxed_bound import relaxed_bound
from discrete_vae.posteriors.base import Posterior, PosteriorSample
from discrete_vae.records import ShowsShapes
from discrete_vae.smoothing.overlapping import OverlappingSmoothing


class BoundedModel(Protocol):
    """What the bound needs of a model; `DiscreteVAE` has it. Arguments are checked, and no value is looked at."""

    prior: BoltzmannMachine
    posterior: Posterior
    hierarchy: Hierarchy
    likelihood: Likelihood
    pair_order: nn.Module

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the networks."""
        ...

    def read(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """What the posterior and the Gaussian layers read of x, (batch, feature)."""
        ...

    def parameters_of(self, latents: Tensor) -> Tensor:
        """The likelihood's parameters, (..., *parameter_shape), at what the decoder reads, (..., latent)."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Batch(ShowsShapes):
    """What the bound of a batch is evaluated of; checked.

    Attributes:
        x: (batch, *event), in the likelihood's domain.
        observed: As `Likelihood.observed_mask` gives it.
        log_partition_gradient: A scalar of value 0 with the gradient of log Z; None for none.
        num_importance_samples: As in `DiscreteVAE.elbo`.
        discrete_weight: Weight of the KL of the binary latents in the loss, a number or (batch,), of which the
            gradient of importance weights that hold this KL is not a linear function.
        generator: Source of the noise; None means torch's global generator.
    """

    x: Tensor
    observed: Tensor | None
    log_partition_gradient: Tensor | None
    num_importance_samples: int = 1
    discrete_weight: Tensor | float = 1.0
    generator: torch.Generator | None = None


class BoundParts(NamedTuple):
    """The parts of the bound, as in `Elbo`, (..., batch), nats."""

    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor


def weighs_binary_latents(model: BoundedModel) -> bool:
    """Whether importance weights are those of zeta, from which z is summed out."""
    return model.hierarchy.num_layers == 0 and isinstance(model.posterior.smoothing, OverlappingSmoothing)


def bound_parts(model: BoundedModel, batch: Batch) -> BoundParts:
    """The parts at draws from the posterior; no value is looked at, so that a step can be recorded."""
    features = model.read(batch.x, batch.observed)
    if batch.num_importance_samples > 1 and weighs_binary_latents(model):
        return _relaxed_parts(model, features, batch)
    sample = model.posterior.rsample(features, generator=batch.generator)
    return bound_parts_at(model, sample, features, batch)


def bound_parts_at(
    model: BoundedModel, sample: PosteriorSample, features: Tensor, batch: Batch
) -> BoundParts:
    """`bound_parts` at draws of the binary latents that are made.

    Args:
        model: The model.
        sample: The draws, (..., batch, unit); several importance samples take one per example, (batch, unit).
        features: What the posterior drew them of, (batch, feature).
        batch: What the bound is evaluated of.
    """

    def log_prob(latents: Tensor) -> Tensor:
        return model.likelihood.log_prob(model.parameters_of(latents), batch.x, batch.observed)

    if batch.num_importance_samples == 1:
        below = model.hierarchy.rsample(features, sample.zeta, generator=batch.generator)
        reconstruction, kl_continuous = log_prob(below.decoder_input), below.kl()
    else:
        bound = partial_bound(
            model.hierarchy,
            features,
            sample.zeta,
            log_prob,
            batch.num_importance_samples,
            generator=batch.generator,
        )
        reconstruction, kl_continuous = bound.reconstruction, bound.kl_continuous
    relative = kl_without_log_partition(model.prior, sample.logits, sample.bits, model.pair_order)
    kl_of_zeta = sample.kl_of_zeta()
    if kl_of_zeta is not None:
        relative = relative + kl_of_zeta.sum(-1)
    relative = _with_gradient_of_log_z(relative, batch)
    return BoundParts(reconstruction, relative.to(reconstruction.dtype), kl_continuous)


def _relaxed_parts(model: BoundedModel, features: Tensor, batch: Batch) -> BoundParts:
    """The parts of the bound whose weights are those of zeta."""
    smoothing = model.posterior.smoothing
    assert isinstance(smoothing, OverlappingSmoothing)
    drawn = model.posterior.rsample(
        features, num_samples=batch.num_importance_samples, generator=batch.generator
    )
    relaxed = relaxed_bound(
        model.prior,
        smoothing,
        drawn,
        lambda zeta: model.likelihood.log_prob(
            model.parameters_of(zeta.to(model.dtype)), batch.x, batch.observed
        ),
        weight=batch.discrete_weight,
    )
    relative = _with_gradient_of_log_z(relaxed.kl_relative, batch)
    return BoundParts(relaxed.reconstruction, relative, torch.zeros_like(relaxed.kl_relative))


def _with_gradient_of_log_z(relative: Tensor, batch: Batch) -> Tensor:
    gradient = batch.log_partition_gradient
    return relative if gradient is None else relative + gradient
