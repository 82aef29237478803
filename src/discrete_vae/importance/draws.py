"""Draws from the posterior with their densities, by the modules themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.posteriors.base import Posterior
from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class Draws(ShowsShapes):
    """Samples of latents.

    Attributes:
        z: (sample, example, unit), in {0,1}.
        log_ratio: log q(z | zeta, x) + log q(h | zeta, x) - log p(h | zeta), (sample, example), nats.
        decoder_input: What p(x | zeta, h) reads, (sample, example, decoder_size).
    """

    z: Tensor
    log_ratio: Tensor
    decoder_input: Tensor


def draw(
    posterior: Posterior,
    hierarchy: Hierarchy,
    features: Tensor,
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
) -> Draws:
    """Draw from q(z, zeta, h | x).

    Args:
        posterior: Over the binary latents.
        hierarchy: Over the continuous ones.
        features: (example, feature), what the encoder makes of x.
        num_samples: Draws per example.
        generator: Source of the noise; None means torch's global generator.
    """
    sample = posterior.rsample(features, num_samples=num_samples, generator=generator)
    below = hierarchy.rsample(features, sample.zeta, generator=generator)
    return Draws(sample.z, sample.log_prob() - below.log_ratio(), below.decoder_input)


def joined(parts: Iterable[Draws]) -> Draws:
    """Draws of several examples beside each other.

    Args:
        parts: With as many samples each.
    """
    columns = zip(*((part.z, part.log_ratio, part.decoder_input) for part in parts), strict=True)
    return Draws(*(torch.cat(column, 1) for column in columns))
