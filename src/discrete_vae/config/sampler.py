"""Configs of the samplers that draw from a Boltzmann prior."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from discrete_vae.config.base import ComponentConfig


class BlockGibbsConfig(ComponentConfig):
    """Persistent block-Gibbs chains (paper section architecture)."""

    target: ClassVar[str] = "discrete_vae.samplers.block_gibbs:BlockGibbs"
    kind: Literal["block-gibbs"] = "block-gibbs"
    num_chains: PositiveInt = Field(
        default=2000, description="Chains; the paper has 20 per element of the minibatch."
    )


SamplerConfig = Annotated[BlockGibbsConfig, Field()]
