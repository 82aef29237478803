"""Configs of the approximating posteriors over the binary latents."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count


class HierarchicalPosteriorConfig(ComponentConfig):
    """A hierarchy of groups of units (paper eq. approx-post-dist); one group is the factorial posterior."""

    target: ClassVar[str] = "discrete_vae.posteriors.hierarchical:HierarchicalPosterior"
    kind: Literal["hierarchical"] = "hierarchical"
    groups: Count | Literal["colors"] | tuple[tuple[int, ...], ...] = Field(
        default=4,
        description="Groups of the posterior, which split the units in order, left side first; or colors, one group "
        "per color of the prior's graph; or the units of each.",
    )
    hidden: tuple[Count, ...] = Field(
        default=(2000, 2000), description="Widths of the hidden layers of each group's posterior network."
    )


PosteriorConfig = Annotated[HierarchicalPosteriorConfig, Field()]
