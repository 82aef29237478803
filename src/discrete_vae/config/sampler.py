"""Configs of the samplers that draw from a Boltzmann prior."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count


class BlockGibbsConfig(ComponentConfig):
    """Persistent block-Gibbs chains (paper section architecture)."""

    target: ClassVar[str] = "discrete_vae.samplers.block_gibbs:BlockGibbs"
    references: ClassVar[tuple[str, ...]] = ("tieleman2008",)
    kind: Literal["block-gibbs"] = "block-gibbs"
    num_chains: Count = Field(
        default=2000, description="Persistent chains; the paper has 20 per example of the batch."
    )


class ParallelTemperingConfig(ComponentConfig):
    """Persistent chains of replicas at several temperatures (paper section log-partition-function)."""

    target: ClassVar[str] = "discrete_vae.samplers.parallel_tempering:ParallelTempering"
    references: ClassVar[tuple[str, ...]] = ("swendsen1986",)
    kind: Literal["parallel-tempering"] = "parallel-tempering"
    num_chains: Count = Field(
        default=200, description="Persistent chains; a sweep of one costs one sweep per replica."
    )
    inverse_temperatures: tuple[float, ...] | None = Field(
        default=None,
        description="Inverse temperatures of the replicas, rising to 1; none tunes them to exchange rates near 0.5.",
    )


class TrajectoryTemperingConfig(ComponentConfig):
    """Persistent chains led by states of machines that the training has passed; tells log Z (arXiv 2607.27077)."""

    target: ClassVar[str] = "discrete_vae.samplers.trajectory_tempering:TrajectoryTempering"
    references: ClassVar[tuple[str, ...]] = ("bereux2024",)
    kind: Literal["trajectory-tempering"] = "trajectory-tempering"
    num_chains: Count = Field(
        default=2000, ge=2, description="Persistent chains; their spread is the error of log Z."
    )
    sweeps_per_swap: Count = Field(
        default=100,
        description="Sweeps of a training step after which chains may change to states of the last rung once more.",
    )


SamplerConfig = Annotated[
    BlockGibbsConfig | ParallelTemperingConfig | TrajectoryTemperingConfig, Field(discriminator="kind")
]
