"""Configs of the priors over the binary latents."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count


class RBMConfig(ComponentConfig):
    """A restricted Boltzmann machine (paper eq. RBM-distribution)."""

    target: ClassVar[str] = "discrete_vae.boltzmann.rbm:RBM"
    kind: Literal["rbm"] = "rbm"
    num_left: Count = Field(default=64, description="Binary units of the RBM's left side.")
    num_right: Count = Field(default=64, description="Binary units of the RBM's right side.")

    @property
    def num_units(self) -> int:
        """Units of both sides."""
        return self.num_left + self.num_right


class FactorialBernoulliConfig(ComponentConfig):
    """Independent binary units: the RBM without its connections (paper section supplementary-results)."""

    target: ClassVar[str] = "discrete_vae.boltzmann.factorial:FactorialBernoulli"
    kind: Literal["factorial"] = "factorial"
    num_units: Count = Field(default=200, description="Binary units of the prior.")


class GraphBoltzmannConfig(ComponentConfig):
    """A Boltzmann machine on any graph (paper eq. RBM-distribution, with the weights that the graph has)."""

    target: ClassVar[str] = "discrete_vae.boltzmann.graph:GraphBoltzmann"
    kind: Literal["graph"] = "graph"
    num_units: Count = Field(
        default=128,
        description="Binary units of the prior; 8 m^2 for a Chimera graph, 8 (m - 1) (3 m - 1) for a Pegasus graph, "
        "16 m (2 m + 1) for a Zephyr graph.",
    )
    edges: Literal["chimera", "complete", "pegasus", "zephyr"] | tuple[tuple[int, int], ...] = Field(
        default="chimera", description="A graph's name, or the pairs of units that are joined."
    )
    nodes: tuple[int, ...] | None = Field(
        default=None,
        description="Number of each unit's node in a larger graph, such as a qubit of an annealer; none means those of "
        "a named graph, else 0, 1, ....",
    )


PriorConfig = Annotated[
    RBMConfig | FactorialBernoulliConfig | GraphBoltzmannConfig, Field(discriminator="kind")
]
