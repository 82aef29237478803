"""Configs of the likelihoods p(x|zeta, h)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count
from discrete_vae.domains import BINARY, COUNTS, FINITE, UNIT_INTERVAL, Domain, ValueSummary, categories

_MAX_CATEGORIES = 256  # that are taken from data unasked: a decoder has an output for each of every feature


class BaseLikelihoodConfig(ComponentConfig, ABC):
    """What every likelihood's config knows of the data that it reads.

    Attributes:
        reads: What it reads, in words that go on "needs ...".
    """

    reads: ClassVar[str]

    @abstractmethod
    def domain(self, *, exact: bool = False) -> Domain:
        """The likelihood's `domain`, without building it."""

    @classmethod
    def for_values(cls, values: ValueSummary) -> Self:
        """The config for given data: its defaults, with what only the data can tell."""
        del values
        return cls()


class BernoulliLikelihoodConfig(BaseLikelihoodConfig):
    """Bits, or probabilities of bits that are drawn anew in each step (paper eq. final-decoder)."""

    target: ClassVar[str] = "discrete_vae.likelihoods.bernoulli:BernoulliLikelihood"
    reads: ClassVar[str] = "values in [0, 1]"
    kind: Literal["bernoulli"] = "bernoulli"

    def domain(self, *, exact: bool = False) -> Domain:
        """[0, 1]; {0, 1} if exact."""
        return BINARY if exact else UNIT_INTERVAL


class GaussianLikelihoodConfig(BaseLikelihoodConfig):
    """Real values, each feature with a learned scale."""

    target: ClassVar[str] = "discrete_vae.likelihoods.gaussian:GaussianLikelihood"
    reads: ClassVar[str] = "finite values"
    kind: Literal["gaussian"] = "gaussian"
    min_scale: PositiveFloat = Field(
        default=1e-3, description="Smallest scale of a feature, in standard deviations of the training data."
    )
    shorten_tails: bool = Field(
        default=False,
        description="Whether features with long tails are read on a scale of asinh that is fitted to them, as if their "
        "logarithms were taken.",
    )

    def domain(self, *, exact: bool = False) -> Domain:
        """Finite numbers."""
        del exact
        return FINITE


class CategoricalLikelihoodConfig(BaseLikelihoodConfig):
    """Codes 0, 1, ..., the same number of categories for every feature."""

    target: ClassVar[str] = "discrete_vae.likelihoods.categorical:CategoricalLikelihood"
    reads: ClassVar[str] = f"whole numbers from 0 to {_MAX_CATEGORIES - 1}"
    kind: Literal["categorical"] = "categorical"
    num_categories: Count = Field(default=2, ge=2, description="Categories of each feature.")

    def domain(self, *, exact: bool = False) -> Domain:
        """The codes 0, ..., K - 1."""
        del exact
        return categories(self.num_categories)

    @classmethod
    def for_values(cls, values: ValueSummary) -> Self:
        """As many categories as the largest code asks for, up to 256."""
        if not (values.whole and values.low >= 0 and 1 < values.high < _MAX_CATEGORIES):
            return cls()
        return cls(num_categories=int(values.high) + 1)


class NegativeBinomialLikelihoodConfig(BaseLikelihoodConfig):
    """Counts, each feature with a learned dispersion."""

    target: ClassVar[str] = "discrete_vae.likelihoods.negative_binomial:NegativeBinomialLikelihood"
    reads: ClassVar[str] = "whole numbers of at least 0"
    kind: Literal["negative-binomial"] = "negative-binomial"

    def domain(self, *, exact: bool = False) -> Domain:
        """Whole numbers of at least 0."""
        del exact
        return COUNTS


LikelihoodConfig = Annotated[
    BernoulliLikelihoodConfig
    | GaussianLikelihoodConfig
    | CategoricalLikelihoodConfig
    | NegativeBinomialLikelihoodConfig,
    Field(discriminator="kind"),
]
