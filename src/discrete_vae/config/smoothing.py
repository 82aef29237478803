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


SmoothingConfig = Annotated[SpikeExponentialConfig | SpikeSlabConfig, Field(discriminator="kind")]
