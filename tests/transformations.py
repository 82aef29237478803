"""One of each smoothing transformation, for the tests that run over all of them."""

import math

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


def noise_and_logits(*shape, scale=3.0, dtype=torch.float64):
    """rho of the open unit interval and normal logits, of one seed."""
    generator = torch.Generator().manual_seed(0)
    rho = torch.rand(*shape, generator=generator, dtype=dtype).clamp_min(2.0**-25)
    return rho, scale * torch.randn(*shape, generator=generator, dtype=dtype)


def spike(beta):
    """What makes a spike-and-exponential of this beta."""
    return lambda: SpikeExponential(beta=beta)


def log_densities(smoothing, zeta):
    """log r(zeta|0) and log r(zeta|1) of a transformation without a spike, as published."""
    if hasattr(smoothing, "beta"):
        log_scale = torch.log(-smoothing.beta / torch.expm1(-smoothing.beta))
        return log_scale - smoothing.beta * zeta, log_scale - smoothing.beta * (1 - zeta)
    if hasattr(smoothing, "b"):
        power, log_scale = 1 / smoothing.b - 1, -math.log(smoothing.b)
        return log_scale + power * zeta.log(), log_scale + power * (1 - zeta).log()
    return math.log(2) + (1 - zeta).log(), math.log(2) + zeta.log()


OVERLAPPING = tuple(config().kind for config in members(SmoothingConfig) if not config.has_spike)
"""Those without a spike."""
