"""One of each smoothing transformation, for the tests that run over all of them."""

import torch

from discrete_vae import (
    MixtureOfRamps,
    OverlappingExponential,
    OverlappingPower,
    SpikeExponential,
    SpikeGaussian,
    SpikeSlab,
)
from discrete_vae.config import SmoothingConfig, members

SMOOTHINGS = {
    "spike-exponential": lambda: SpikeExponential(beta=3.0),
    "spike-slab": SpikeSlab,
    "ramps": MixtureOfRamps,
    "overlapping-exponential": lambda: OverlappingExponential(beta=4.0, trainable=True),
    "overlapping-power": lambda: OverlappingPower(b=20.0),
    "spike-gaussian": lambda: SpikeGaussian(prior_loc=0.5),
}
"""By the name that a config has for it; numbers are such that samples of some thousand draws show a wrong gradient."""


def of_prior(smoothing, like):
    """What a transformation that depends on x takes after the logits, as the prior has it; nothing for others."""
    return [torch.full_like(like, value) for value in smoothing.prior_parameters]


def spike(beta):
    """What makes a spike-and-exponential of this beta."""
    return lambda: SpikeExponential(beta=beta)


OVERLAPPING = tuple(config().kind for config in members(SmoothingConfig) if not config.has_spike)
"""Those without a spike."""
