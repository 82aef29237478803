"""The config of a whole model."""

from __future__ import annotations

import math
from typing import Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from discrete_vae.config.base import Record, is_read_from_file
from discrete_vae.config.hierarchy import HierarchyConfig, NoHierarchyConfig
from discrete_vae.config.likelihood import BernoulliLikelihoodConfig, LikelihoodConfig
from discrete_vae.config.networks import DecoderConfig, EncoderConfig, FlattenEncoderConfig, MLPDecoderConfig
from discrete_vae.config.numbers import Count
from discrete_vae.config.posterior import HierarchicalPosteriorConfig, PosteriorConfig
from discrete_vae.config.prior import PriorConfig, RBMConfig
from discrete_vae.config.smoothing import SmoothingConfig, SpikeExponentialConfig
from discrete_vae.errors import InvalidInputError

Mask: TypeAlias = Literal["gaps", "observed"]
"""What a mask has a 1 for."""


class ModelConfig(Record):
    """A discrete VAE: one config per part."""

    num_features: Count | None = Field(
        default=None, description="Features of one example, if it is a row of a table."
    )
    event_shape: tuple[Count, ...] | None = Field(
        default=None, description="Shape of one example otherwise, for images channel, row, column."
    )
    missing: bool = Field(
        default=False,
        description="Whether entries may be unobserved; the encoder then reads which.",
    )
    mask: Mask = Field(
        default="gaps",
        description="What the encoder reads behind the values where entries may be unobserved: 1 for a gap; or 1 for "
        "what is observed, as models do whose file does not say.",
    )
    prior: PriorConfig = RBMConfig()
    smoothing: SmoothingConfig = SpikeExponentialConfig()
    encoder: EncoderConfig = FlattenEncoderConfig()
    posterior: PosteriorConfig = HierarchicalPosteriorConfig()
    hierarchy: HierarchyConfig = NoHierarchyConfig()
    decoder: DecoderConfig = MLPDecoderConfig()
    likelihood: LikelihoodConfig = BernoulliLikelihoodConfig()

    @model_validator(mode="before")
    @classmethod
    def _mask_of_file(cls, fields: Any) -> Any:
        old = (
            isinstance(fields, dict)
            and fields.get("missing")
            and "mask" not in fields
            and is_read_from_file()
        )
        return fields | {"mask": "observed"} if old else fields

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if (self.num_features is None) == (not self.event_shape):
            received = "neither" if self.num_features is None else "both"
            repair = "For example num_features=784, or event_shape=(1, 28, 28)."
            raise InvalidInputError("num_features", "or event_shape must be given", received, repair)
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.event_shape or (self.num_features or 0,)

    @property
    def num_values(self) -> int:
        """Values of one example."""
        return math.prod(self.shape)
