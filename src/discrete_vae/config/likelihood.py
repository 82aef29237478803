"""Configs of the likelihoods p(x|zeta, h)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count


class BernoulliLikelihoodConfig(ComponentConfig):
    """Bits, or probabilities of bits that are drawn anew in each step (paper eq. final-decoder)."""

    target: ClassVar[str] = "discrete_vae.likelihoods.bernoulli:BernoulliLikelihood"
    kind: Literal["bernoulli"] = "bernoulli"


class GaussianLikelihoodConfig(ComponentConfig):
    """Real values, each feature with a learned scale."""

    target: ClassVar[str] = "discrete_vae.likelihoods.gaussian:GaussianLikelihood"
    kind: Literal["gaussian"] = "gaussian"
    min_scale: PositiveFloat = Field(
        default=1e-3, description="Smallest scale of a feature, in standard deviations of the training data."
    )


class CategoricalLikelihoodConfig(ComponentConfig):
    """Codes 0, 1, ..., the same number of categories for every feature."""

    target: ClassVar[str] = "discrete_vae.likelihoods.categorical:CategoricalLikelihood"
    kind: Literal["categorical"] = "categorical"
    num_categories: Count = Field(default=2, ge=2, description="Categories of each feature.")


class NegativeBinomialLikelihoodConfig(ComponentConfig):
    """Counts, each feature with a learned dispersion."""

    target: ClassVar[str] = "discrete_vae.likelihoods.negative_binomial:NegativeBinomialLikelihood"
    kind: Literal["negative-binomial"] = "negative-binomial"


LikelihoodConfig = Annotated[
    BernoulliLikelihoodConfig
    | GaussianLikelihoodConfig
    | CategoricalLikelihoodConfig
    | NegativeBinomialLikelihoodConfig,
    Field(discriminator="kind"),
]
