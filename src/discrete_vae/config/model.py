"""The config of a whole model."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from discrete_vae.config.base import Record
from discrete_vae.config.hierarchy import HierarchyConfig, NoHierarchyConfig
from discrete_vae.config.likelihood import BernoulliLikelihoodConfig, LikelihoodConfig
from discrete_vae.config.numbers import Count
from discrete_vae.config.posterior import HierarchicalPosteriorConfig, PosteriorConfig
from discrete_vae.config.prior import PriorConfig, RBMConfig
from discrete_vae.config.smoothing import SmoothingConfig, SpikeExponentialConfig


class ModelConfig(Record):
    """A discrete VAE: one config a part."""

    target: ClassVar[str] = "discrete_vae.model:DiscreteVAE"
    num_features: Count = Field(description="Binary features of one example.")
    prior: PriorConfig = RBMConfig()
    smoothing: SmoothingConfig = SpikeExponentialConfig()
    posterior: PosteriorConfig = HierarchicalPosteriorConfig()
    hierarchy: HierarchyConfig = NoHierarchyConfig()
    likelihood: LikelihoodConfig = BernoulliLikelihoodConfig()
