"""Configs of the likelihoods p(x|zeta)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count


class BernoulliLikelihoodConfig(ComponentConfig):
    """Factorial Bernoulli over binary features; no hidden layer makes it linear plus logistic, as in the paper."""

    target: ClassVar[str] = "discrete_vae.likelihoods.bernoulli:BernoulliLikelihood"
    kind: Literal["bernoulli"] = "bernoulli"
    hidden: tuple[Count, ...] = Field(default=(), description="Widths of the hidden layers.")


LikelihoodConfig = Annotated[BernoulliLikelihoodConfig, Field()]
