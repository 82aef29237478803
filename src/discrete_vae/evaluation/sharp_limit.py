"""A trained model in the limit of infinitely sharp smoothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from discrete_vae.model import DiscreteVAE
from discrete_vae.smoothing.sharp_limit import SharpLimit


def has_sharp_limit(model: DiscreteVAE) -> bool:
    """Whether the model's smoothing has a beta that can go to infinity."""
    return hasattr(model.smoothing, "beta")


@contextmanager
def sharp_limit(model: DiscreteVAE) -> Iterator[DiscreteVAE]:
    """The model with zeta = z inside the block: networks read bits where they were trained on smoothed values.

    Source: Rolfe 2017, footnote in section spike-and-exponential (a trained model may be used with beta -> infinity).
    """
    smoothing = model.posterior.smoothing
    limit = SharpLimit()
    limit.train(smoothing.training)
    model.posterior.smoothing = limit
    try:
        yield model
    finally:
        model.posterior.smoothing = smoothing
