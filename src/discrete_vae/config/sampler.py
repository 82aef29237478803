"""Configs of the samplers that draw from a Boltzmann prior."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

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


class DimodSamplerConfig(ComponentConfig):
    """Samples of a dimod solver, such as an annealer, corrected for its temperature (extra dwave)."""

    target: ClassVar[str] = "discrete_vae.interop.dimod.negative_phase:DimodSampler"
    references: ClassVar[tuple[str, ...]] = ("raymond2016",)
    kind: Literal["dimod"] = "dimod"
    solver: str = Field(
        default="simulated-annealing",
        description="Name of the solver: simulated-annealing, qpu, block-gibbs, parallel-tempering, or one that was "
        "registered in Python.",
    )
    num_chains: Count = Field(default=500, description="Reads per training step.")
    parameters: dict[str, JsonValue] = Field(
        default={},
        description="Further keywords of the solver, as a JSON object: '{\"annealing_time\": 20}'.",
    )
    correct_temperature: bool = Field(
        default=True, description="Follow the solver's temperature and scale the energies that it gets by it."
    )
    num_gibbs_sweeps: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="Sweeps of block Gibbs that each sample makes after the solver.",
    )


SamplerConfig = Annotated[
    BlockGibbsConfig | ParallelTemperingConfig | TrajectoryTemperingConfig | DimodSamplerConfig,
    Field(discriminator="kind"),
]
