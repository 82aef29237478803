"""Configs of the continuous layers below the binary latents."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count, Factor


class NoSharingConfig(ComponentConfig):
    """Each layer's prior has a network of its own (paper section architecture, dynamic MNIST)."""

    target: ClassVar[str] = "discrete_vae.hierarchy.no_sharing:NoSharing"
    kind: Literal["none"] = "none"


class GroupSharingConfig(ComponentConfig):
    """Groups of consecutive layers share one prior network each (paper section architecture, static MNIST)."""

    target: ClassVar[str] = "discrete_vae.hierarchy.group_sharing:GroupSharing"
    kind: Literal["groups"] = "groups"
    num_groups: Count = Field(
        default=2,
        description="Groups of layers that share a prior network; their number divides that of the layers.",
    )


class CompleteSharingConfig(ComponentConfig):
    """All layers share one prior network (paper section architecture, Caltech-101 Silhouettes)."""

    target: ClassVar[str] = "discrete_vae.hierarchy.group_sharing:CompleteSharing"
    kind: Literal["complete"] = "complete"


SharingConfig = Annotated[
    NoSharingConfig | GroupSharingConfig | CompleteSharingConfig, Field(discriminator="kind")
]


class NoHierarchyConfig(ComponentConfig):
    """No continuous layers: the decoder reads zeta alone."""

    target: ClassVar[str] = "discrete_vae.hierarchy.base:NoHierarchy"
    kind: Literal["none"] = "none"


class GaussianHierarchyConfig(ComponentConfig):
    """Autoregressive layers of Gaussian latents (paper section continuous-hierarchy)."""

    target: ClassVar[str] = "discrete_vae.hierarchy.gaussian_hierarchy:build_gaussian_hierarchy"
    references: ClassVar[tuple[str, ...]] = ("kingma2014",)
    kind: Literal["gaussian"] = "gaussian"
    num_layers: Count = Field(default=10, description="Layers of Gaussian latents.")
    num_units: Count = Field(default=64, description="Units of each layer of Gaussian latents.")
    posterior_hidden: tuple[Count, ...] = Field(
        default=(2000, 2000),
        description="Widths of the hidden layers of each Gaussian layer's posterior network.",
    )
    prior_hidden: tuple[Count, ...] = Field(
        default=(1000,), description="Widths of the hidden layers of a prior network of the Gaussian layers."
    )
    sharing: SharingConfig = Field(
        default=NoSharingConfig(), description="Which Gaussian layers share a prior network."
    )
    log_std_bound: Annotated[Factor, Field(gt=0, ge=1e-30)] | None = Field(
        default=5.0,
        description="Bound of the Gaussian layers' log standard deviations, by tanh; none is no bound.",
    )


HierarchyConfig = Annotated[NoHierarchyConfig | GaussianHierarchyConfig, Field(discriminator="kind")]
