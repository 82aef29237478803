"""Configs of the smoothing transformations r(zeta|z)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Factor


class SpikeExponentialConfig(ComponentConfig):
    """Spike-and-exponential smoothing (paper section spike-and-exponential)."""

    target: ClassVar[str] = "discrete_vae.smoothing.spike_exponential:SpikeExponential"
    kind: Literal["spike-exponential"] = "spike-exponential"
    beta: Factor = Field(
        default=3.0, ge=0.01, description="Inverse width of the smoothing at the start of training."
    )
    trainable: bool = Field(default=True, description="Whether the smoothing's beta is learned.")


class SpikeSlabConfig(ComponentConfig):
    """Spike-and-slab smoothing (paper appendix spike-and-slab)."""

    target: ClassVar[str] = "discrete_vae.smoothing.spike_slab:SpikeSlab"
    kind: Literal["spike-slab"] = "spike-slab"


class MixtureOfRampsConfig(ComponentConfig):
    """Mixture of ramps (paper appendix two-sided-mixture); nothing to set."""

    target: ClassVar[str] = "discrete_vae.smoothing.ramps:MixtureOfRamps"
    kind: Literal["ramps"] = "ramps"


class OverlappingExponentialConfig(ComponentConfig):
    """Two overlapping exponentials (DVAE++)."""

    target: ClassVar[str] = "discrete_vae.smoothing.overlapping_exponential:OverlappingExponential"
    references: ClassVar[tuple[str, ...]] = ("vahdat2018a",)
    kind: Literal["overlapping-exponential"] = "overlapping-exponential"
    beta: Factor = Field(
        default=8.0, ge=0.01, description="Inverse width of both exponentials at the start of training."
    )
    trainable: bool = Field(
        default=False,
        description="Whether the exponentials' beta is learned; it then stays below training.beta_bound.",
    )


class OverlappingPowerConfig(ComponentConfig):
    """Two overlapping power functions (DVAE#)."""

    target: ClassVar[str] = "discrete_vae.smoothing.overlapping_power:OverlappingPower"
    references: ClassVar[tuple[str, ...]] = ("vahdat2018b",)
    kind: Literal["overlapping-power"] = "overlapping-power"
    b: float = Field(
        default=30.0,
        gt=1.0,
        le=100.0,
        description="Exponent: the power functions are zeta^(1/b - 1)/b and its mirror image.",
    )


class SpikeGaussianConfig(ComponentConfig):
    """Spike-and-Gaussian smoothing, which depends on x (paper section sec:spike-and-gaussian)."""

    target: ClassVar[str] = "discrete_vae.smoothing.spike_gaussian:SpikeGaussian"
    kind: Literal["spike-gaussian"] = "spike-gaussian"
    prior_loc: Factor = Field(default=0.0, ge=-10, description="Mean of the prior's Gaussian.")
    max_ratio: Factor = Field(
        default=3.0,
        gt=0,
        le=10,
        description="Bound on mean over standard deviation of the posterior's Gaussians.",
    )
    log_scale_bound: Factor = Field(
        default=5.0,
        gt=0,
        le=20,
        description="Bound on the log standard deviation of the posterior's Gaussians.",
    )
    shifted: bool = Field(
        default=False, description="Whether to use the paper's shifted form, whose gradients are biased."
    )


class SharpLimitConfig(ComponentConfig):
    """zeta = z, in a model that was trained with another transformation (paper section spike-and-exponential)."""

    target: ClassVar[str] = "discrete_vae.smoothing.sharp_limit:SharpLimit"
    trains: ClassVar[bool] = False
    kind: Literal["sharp"] = "sharp"


OVERLAPPING = (MixtureOfRampsConfig, OverlappingExponentialConfig, OverlappingPowerConfig)
"""Those without a spike, whose zeta can be weighted by importance."""

SmoothingConfig = Annotated[
    SpikeExponentialConfig
    | SpikeSlabConfig
    | MixtureOfRampsConfig
    | OverlappingExponentialConfig
    | OverlappingPowerConfig
    | SpikeGaussianConfig
    | SharpLimitConfig,
    Field(discriminator="kind"),
]
