"""Latents of examples: the most probable code, or draws with noise of each example's own."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.generative import Statistic
from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.inference.row_noise import CentralNoise
from discrete_vae.model import DiscreteVAE
from discrete_vae.noise import keyed_generator
from discrete_vae.posteriors.base import Posterior
from discrete_vae.prepared_noise import NoiseSource
from discrete_vae.records import ShowsShapes

_SAMPLE_STREAM = 0x736D706C


@dataclass(frozen=True, eq=False, repr=False)
class Latents(ShowsShapes):
    """Latents of a batch.

    Attributes:
        z: (batch, unit), in {0,1}.
        zeta: (batch, unit).
        logits: Log-odds of each unit given x and the earlier groups, (batch, unit).
        h: The continuous layers, (batch, layer, unit).
        decoder_input: What the decoder reads of them, (batch, decoder_size).
        layers_given_zeta: p(h_m | h_<m, zeta) at h, (batch, layer, unit).
        log_ratio: log p(h | zeta) - log q(z, h | zeta, x), (batch,), nats: with log p(z) and log p(x | zeta, h) the
            importance weight of a draw.
    """

    z: Tensor
    zeta: Tensor
    logits: Tensor
    h: Tensor
    decoder_input: Tensor
    layers_given_zeta: Gaussian
    log_ratio: Tensor


def most_probable(model: DiscreteVAE, features: Tensor) -> Latents:
    """The most probable code, group after group.

    Each group's bits are the most probable ones given x and the groups before it, whose zeta are the medians of
    r(zeta|z) at their bits; among all codes this one need not be the most probable. Each Gaussian layer is the mean of
    q(h_m | h_<m, zeta, x) at the means before it.

    Args:
        model: In evaluation mode.
        features: What `DiscreteVAE.read` makes of x.

    Raises:
        InvalidInputError: If the posterior cannot draw bits, or a logit is not finite.
    """
    posterior = model.posterior
    if type(posterior).sample_discretely is Posterior.sample_discretely:
        repair = "Give it that method, or take draws."
        received = type(posterior).__name__
        raise InvalidInputError(
            "model.posterior", "must have sample_discretely for a most probable code", received, repair
        )
    halves = features.new_full((1, len(features), posterior.num_units), 0.5)
    central: Any = CentralNoise()
    sample = posterior.sample_discretely(features, halves, generator=central)
    return _with_layers(
        model, features, (sample.z[0], sample.zeta[0], sample.logits[0], sample.log_prob()[0]), central
    )


def drawn(model: DiscreteVAE, features: Tensor, noise: NoiseSource) -> Latents:
    """A draw of all latents from the posterior.

    Args:
        model: In evaluation mode.
        features: What `DiscreteVAE.read` makes of x.
        noise: Of the batch.

    Raises:
        InvalidInputError: If a logit is not finite.
    """
    source: Any = noise
    sample = model.posterior.rsample(features, generator=source)
    return _with_layers(model, features, (sample.z, sample.zeta, sample.logits, sample.log_prob()), source)


def _with_layers(
    model: DiscreteVAE, features: Tensor, binary: tuple[Tensor, Tensor, Tensor, Tensor], noise: Any
) -> Latents:
    z, zeta, logits, log_prob = binary
    model._finite("the posterior network's logits", logits)
    below = model.hierarchy.rsample(features, zeta, generator=noise)
    h = model._finite("the posterior's h", below.h)
    return Latents(z, zeta, logits, h, below.decoder_input, below.prior, below.log_ratio() - log_prob)


def read_out(
    model: DiscreteVAE, parameters: Tensor, statistic: Statistic, numbers: list[int], seed: int
) -> Tensor:
    """A statistic of p(x | zeta, h) for each example, (batch, *event).

    Args:
        model: The model.
        parameters: What the decoder gives, (batch, *parameter_shape).
        statistic: "mean", "mode" or "sample".
        numbers: Numbers of the examples, which key the noise of samples.
        seed: Its seed.

    Raises:
        InvalidInputError: If the result is not finite.
    """
    likelihood = model.likelihood
    if statistic == "mean":
        found = likelihood.mean(parameters)
    elif statistic == "mode":
        found = likelihood.mode(parameters)
    else:  # on the CPU, so that it is the same on every device
        likelihood, rows = deepcopy(likelihood).cpu(), parameters.cpu().split(1)
        found = torch.cat(
            [
                likelihood.sample(row, generator=keyed_generator(seed, _SAMPLE_STREAM, number))
                for row, number in zip(rows, numbers, strict=True)
            ]
        ).to(parameters.device)
    return model._finite(f"the decoder's {statistic}", found)
