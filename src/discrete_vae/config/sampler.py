"""Configs of the samplers that draw from a Boltzmann prior."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count


class BlockGibbsConfig(ComponentConfig):
    """Persistent block-Gibbs chains (paper section architecture)."""

    target: ClassVar[str] = "discrete_vae.samplers.block_gibbs:BlockGibbs"
    kind: Literal["block-gibbs"] = "block-gibbs"
    num_chains: Count = Field(
        default=2000, description="Chains; the paper has 20 per element of the minibatch."
    )


class ParallelTemperingConfig(ComponentConfig):
    """Persistent chains of replicas at several temperatures (paper section log-partition-function)."""

    target: ClassVar[str] = "discrete_vae.samplers.parallel_tempering:ParallelTempering"
    kind: Literal["parallel-tempering"] = "parallel-tempering"
    num_chains: Count = Field(default=200, description="Chains; a sweep costs one sweep a replica.")
    inverse_temperatures: tuple[float, ...] | None = Field(
        default=None, description="The ladder, rising to 1; none tunes it to exchange rates near 0.5."
    )


SamplerConfig = Annotated[BlockGibbsConfig | ParallelTemperingConfig, Field(discriminator="kind")]
