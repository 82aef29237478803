"""Configs of the optimizer, of its step size along a run, and of averaged weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from discrete_vae.config.base import ComponentConfig, Record
from discrete_vae.config.numbers import Factor
from discrete_vae.errors import InvalidInputError

_FINAL_FRACTION = "Share of Adam's step size that is left at the end of training."


class ConstantRateConfig(ComponentConfig):
    """One step size throughout."""

    target: ClassVar[str] = "discrete_vae.training.rates:ConstantRate"
    kind: Literal["constant"] = "constant"


class ExponentialRateConfig(ComponentConfig):
    """A step size that falls geometrically."""

    target: ClassVar[str] = "discrete_vae.training.rates:ExponentialRate"
    kind: Literal["exponential"] = "exponential"
    final_fraction: float = Field(default=0.03, gt=0.0, le=1.0, description=_FINAL_FRACTION)


class CosineRateConfig(ComponentConfig):
    """A step size that falls as half a cosine: slowly at first and at the end."""

    target: ClassVar[str] = "discrete_vae.training.rates:CosineRate"
    references: ClassVar[tuple[str, ...]] = ("loshchilov2017",)
    kind: Literal["cosine"] = "cosine"
    final_fraction: float = Field(default=0.03, ge=0.0, le=1.0, description=_FINAL_FRACTION)


class StepRateConfig(ComponentConfig):
    """A step size that drops at some points of the run."""

    target: ClassVar[str] = "discrete_vae.training.rates:StepRate"
    kind: Literal["steps"] = "steps"
    at: tuple[float, ...] = Field(
        default=(0.6, 0.75, 0.95), description="Shares of the run after which Adam's step size drops, rising."
    )
    factor: float = Field(
        default=0.3, gt=0.0, le=1.0, description="What is left of Adam's step size after each drop."
    )

    @field_validator("at")
    @classmethod
    def _check_rising(cls, at: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0.0 < share < 1.0 for share in at) or not all(a < b for a, b in pairwise(at)):
            raise InvalidInputError("at", "must rise, each between 0 and 1", at, "For example 0.6 0.75 0.95.")
        return at


RateConfig = Annotated[
    ConstantRateConfig | ExponentialRateConfig | CosineRateConfig | StepRateConfig,
    Field(discriminator="kind"),
]


class OptimizerConfig(Record):
    """Adam with a decaying step size (paper section architecture)."""

    learning_rate: Factor = Field(default=3e-3, gt=0.0, description="Adam's step size at its largest.")
    rate: RateConfig = CosineRateConfig()
    rise: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        description="Share of the run over which Adam's step size rises linearly from 0.",
    )
    prior_learning_rate_factor: Factor = Field(
        default=1.0, gt=0.0, description="Step size of the Boltzmann machine in units of the networks'."
    )
    layers_weight_decay: Factor = Field(
        default=0.0,
        ge=0.0,
        description="Decay of the weights of the Gaussian layers' prior networks, per step in units of the step size.",
    )
    decoder_weight_decay: Factor = Field(
        default=0.0,
        ge=0.0,
        description="Decay of the decoder's weights, per step in units of the step size.",
    )
    eps: Factor = Field(default=1e-8, gt=0.0, description="Adam's epsilon, which keeps its divisions finite.")


class AveragingConfig(Record):
    """Averaged weights, which are validated, saved as the model and evaluated in place of those that train."""

    decay: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        description="Decay per step of the running average of all weights that is the run's model; 0 is no average.",
    )
