"""Configs of a model and its parts."""

from __future__ import annotations

import math
import re
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, PositiveFloat, model_validator

from discrete_vae.checks import (
    BINARY,
    COUNTS,
    FINITE,
    UNIT_INTERVAL,
    ColumnDomain,
    Domain,
    ValueSummary,
    categories,
)
from discrete_vae.config.base import ComponentConfig, Count, Factor, Record
from discrete_vae.config.columns import ColumnConfig, Exposure, ZeroInflated
from discrete_vae.errors import InvalidInputError

# Smoothing transformations r(zeta|z).


class BaseSmoothingConfig(ComponentConfig):
    """A smoothing transformation's config."""

    has_spike: ClassVar[bool] = True
    """False where zeta does not fix z, so that zeta can be weighted by importance."""
    unbiased: ClassVar[bool] = True
    """False for one whose gradients are biased, which is there to compare others with."""


class SpikeExponentialConfig(BaseSmoothingConfig):
    """Spike-and-exponential smoothing (paper section spike-and-exponential)."""

    target = "discrete_vae.smoothing.spike:SpikeExponential"
    kind: Literal["spike-exponential"] = "spike-exponential"
    beta: Factor = Field(
        default=3.0, ge=0.01, description="Inverse width of the smoothing at the start of training."
    )
    trainable: bool = Field(default=True, description="Learn the smoothing's beta.")


class SpikeSlabConfig(BaseSmoothingConfig):
    """Spike-and-slab smoothing (paper appendix spike-and-slab)."""

    target = "discrete_vae.smoothing.spike:SpikeSlab"
    kind: Literal["spike-slab"] = "spike-slab"


class MixtureOfRampsConfig(BaseSmoothingConfig):
    """Mixture of ramps (paper appendix two-sided-mixture); nothing to set."""

    target = "discrete_vae.smoothing.overlapping:MixtureOfRamps"
    has_spike = False
    kind: Literal["ramps"] = "ramps"


class OverlappingExponentialConfig(BaseSmoothingConfig):
    """Two overlapping exponentials (DVAE++)."""

    target = "discrete_vae.smoothing.overlapping:OverlappingExponential"
    has_spike = False
    references = ("vahdat2018a",)
    kind: Literal["overlapping-exponential"] = "overlapping-exponential"
    beta: Factor = Field(
        default=8.0, ge=0.01, description="Inverse width of both exponentials at the start of training."
    )
    trainable: bool = Field(
        default=False, description="Learn the exponentials' beta; it then stays below training.beta_bound."
    )


class OverlappingPowerConfig(BaseSmoothingConfig):
    """Two overlapping power functions (DVAE#)."""

    target = "discrete_vae.smoothing.overlapping:OverlappingPower"
    has_spike = False
    references = ("vahdat2018b",)
    kind: Literal["overlapping-power"] = "overlapping-power"
    b: float = Field(
        default=30.0,
        gt=1.0,
        le=100.0,
        description="Exponent: the power functions are zeta^(1/b - 1)/b and its mirror image.",
    )


class SpikeGaussianConfig(BaseSmoothingConfig):
    """Spike-and-Gaussian smoothing, which depends on x (paper section sec:spike-and-gaussian)."""

    target = "discrete_vae.smoothing.spike:SpikeGaussian"
    kind: Literal["spike-gaussian"] = "spike-gaussian"
    prior_loc: Factor = Field(default=0.0, ge=-10, description="Mean of the prior's Gaussian.")
    max_ratio: float = Field(
        default=3.0,
        gt=0,
        le=10,
        description="Bound on mean over standard deviation of the posterior's Gaussians.",
    )
    log_scale_bound: float = Field(
        default=5.0,
        gt=0,
        le=20,
        description="Bound on the log standard deviation of the posterior's Gaussians.",
    )
    shifted: bool = Field(
        default=False, description="Use the paper's shifted form, whose gradients are biased."
    )


class SharpLimitConfig(BaseSmoothingConfig):
    """zeta = z, in a model that was trained with another transformation (paper section spike-and-exponential)."""

    target = "discrete_vae.smoothing.spike:SharpLimit"
    trains = False
    kind: Literal["sharp"] = "sharp"


class StraightThroughConfig(BaseSmoothingConfig):
    """zeta = z, differentiated as if it were q: biased gradients, for comparisons; or with a score function."""

    target = "discrete_vae.smoothing.spike:StraightThrough"
    unbiased = False
    references = ("bengio2013",)
    kind: Literal["straight-through"] = "straight-through"


SmoothingConfig = Annotated[
    SpikeExponentialConfig
    | SpikeSlabConfig
    | MixtureOfRampsConfig
    | OverlappingExponentialConfig
    | OverlappingPowerConfig
    | SpikeGaussianConfig
    | StraightThroughConfig
    | SharpLimitConfig,
    Field(discriminator="kind", description="Smoothing transformation r(zeta|z) of the binary latents."),
]


# Priors over the binary latents.


class RBMConfig(ComponentConfig):
    """A restricted Boltzmann machine (paper eq. RBM-distribution)."""

    target = "discrete_vae.boltzmann.rbm:RBM"
    kind: Literal["rbm"] = "rbm"
    num_left: Count = Field(default=64, description="Binary units of the RBM's left side.")
    num_right: Count = Field(default=64, description="Binary units of the RBM's right side.")

    @property
    def num_units(self) -> int:
        """Units of both sides."""
        return self.num_left + self.num_right


class FactorialBernoulliConfig(ComponentConfig):
    """Independent binary units: the RBM without its connections (paper section supplementary-results)."""

    target = "discrete_vae.boltzmann.base:FactorialBernoulli"
    kind: Literal["factorial"] = "factorial"
    num_units: Count = Field(default=200, description="Binary units of the prior.")


class GraphBoltzmannConfig(ComponentConfig):
    """A Boltzmann machine on any graph (paper eq. RBM-distribution, with the weights that the graph has)."""

    target = "discrete_vae.boltzmann.graph:GraphBoltzmann"
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
    RBMConfig | FactorialBernoulliConfig | GraphBoltzmannConfig,
    Field(discriminator="kind", description="Prior over the binary latents."),
]


# Approximating posteriors over the binary latents.


class HierarchicalPosteriorConfig(ComponentConfig):
    """A hierarchy of groups of units (paper eq. approx-post-dist); one group is the factorial posterior."""

    target = "discrete_vae.posterior:HierarchicalPosterior"
    kind: Literal["hierarchical"] = "hierarchical"
    groups: Count | Literal["colors"] | tuple[tuple[int, ...], ...] = Field(
        default=4,
        description="Groups of the posterior, which split the units in order, left side first; or colors, one group "
        "per color of the prior's graph; or the units of each.",
    )
    hidden: tuple[Count, ...] = Field(
        default=(2000, 2000), description="Widths of the hidden layers of each group's posterior network."
    )


PosteriorConfig = Annotated[
    HierarchicalPosteriorConfig, Field(description="Approximating posterior over the binary latents.")
]


# Continuous layers below the binary latents.


class NoSharingConfig(ComponentConfig):
    """Each layer's prior has a network of its own (paper section architecture, dynamic MNIST)."""

    target = "discrete_vae.hierarchy.gaussian:NoSharing"
    kind: Literal["none"] = "none"


class GroupSharingConfig(ComponentConfig):
    """Groups of consecutive layers share one prior network each (paper section architecture, static MNIST)."""

    target = "discrete_vae.hierarchy.gaussian:GroupSharing"
    kind: Literal["groups"] = "groups"
    num_groups: Count = Field(
        default=2,
        description="Groups of layers that share a prior network; their number divides that of the layers.",
    )


class CompleteSharingConfig(ComponentConfig):
    """All layers share one prior network (paper section architecture, Caltech-101 Silhouettes)."""

    target = "discrete_vae.hierarchy.gaussian:CompleteSharing"
    kind: Literal["complete"] = "complete"


SharingConfig = Annotated[
    NoSharingConfig | GroupSharingConfig | CompleteSharingConfig,
    Field(discriminator="kind", description="Sharing of prior networks by the Gaussian layers."),
]


class NoHierarchyConfig(ComponentConfig):
    """No continuous layers: the decoder reads zeta alone."""

    target = "discrete_vae.hierarchy.base:NoHierarchy"
    kind: Literal["none"] = "none"


class GaussianHierarchyConfig(ComponentConfig):
    """Autoregressive layers of Gaussian latents (paper section continuous-hierarchy)."""

    target = "discrete_vae.hierarchy.gaussian:build_gaussian_hierarchy"
    references = ("kingma2014",)
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
    sharing: SharingConfig = NoSharingConfig()
    log_std_bound: Annotated[Factor, Field(gt=0, ge=1e-30)] | None = Field(
        default=5.0,
        description="Bound of the Gaussian layers' log standard deviations, by tanh; none is no bound.",
    )


HierarchyConfig = Annotated[
    NoHierarchyConfig | GaussianHierarchyConfig,
    Field(discriminator="kind", description="Gaussian layers below the binary latents."),
]


# Likelihoods p(x|zeta, h).


_MAX_CATEGORIES = 256  # that are taken from data unasked: a decoder has an output for each of every feature


class BaseLikelihoodConfig(ComponentConfig):
    """A likelihood's config, with what can be said of data before a model is built.

    Attributes:
        reads: The values that it reads, in words that go on "needs ...".
        values: The values that a feature may have.
    """

    reads: ClassVar[str]
    values: ClassVar[Domain]

    def domain(self, *, exact: bool = False) -> Domain:
        """The `domain` of the likelihood."""
        return self.values

    @classmethod
    def for_values(cls, values: ValueSummary) -> Self:
        """The config for given data: its defaults, with what only the data can tell."""
        return cls()


class BernoulliLikelihoodConfig(BaseLikelihoodConfig):
    """Bits, or probabilities of bits that are drawn anew in each step (paper eq. final-decoder)."""

    target = "discrete_vae.likelihoods.base:BernoulliLikelihood"
    reads = "values in [0, 1]"
    values = UNIT_INTERVAL
    kind: Literal["bernoulli"] = "bernoulli"

    def domain(self, *, exact: bool = False) -> Domain:
        return BINARY if exact else self.values


class GaussianLikelihoodConfig(BaseLikelihoodConfig):
    """Real values, each feature with a learned scale."""

    target = "discrete_vae.likelihoods.families:GaussianLikelihood"
    reads = "finite values"
    values = FINITE
    kind: Literal["gaussian"] = "gaussian"
    min_scale: PositiveFloat = Field(
        default=1e-3, description="Smallest scale of a feature, in standard deviations of the training data."
    )
    shorten_tails: bool = Field(
        default=False,
        description="Read features with long tails on a scale of asinh that is fitted to them, as if their "
        "logarithms were taken.",
    )
    grid_floor: bool = Field(
        default=False,
        description="Keep the scale of a feature of few values so wide that its density is at most 1 over their least "
        "distance.",
    )


class CategoricalLikelihoodConfig(BaseLikelihoodConfig):
    """Codes 0, 1, ..., the same number of categories for every feature."""

    target = "discrete_vae.likelihoods.families:CategoricalLikelihood"
    reads = f"whole numbers from 0 to {_MAX_CATEGORIES - 1}"
    kind: Literal["categorical"] = "categorical"
    num_categories: Count = Field(default=2, ge=2, description="Categories of each feature.")

    def domain(self, *, exact: bool = False) -> Domain:
        return categories(self.num_categories)

    @classmethod
    def for_values(cls, values: ValueSummary) -> Self:
        """As many categories as the largest code asks for, up to 256."""
        if not (values.whole and values.low >= 0 and 1 < values.high < _MAX_CATEGORIES):
            return cls()
        return cls(num_categories=int(values.high) + 1)


class NegativeBinomialLikelihoodConfig(BaseLikelihoodConfig):
    """Counts, each feature with a learned dispersion."""

    target = "discrete_vae.likelihoods.counts:NegativeBinomialLikelihood"
    reads = "whole numbers of at least 0"
    values = COUNTS
    kind: Literal["negative-binomial"] = "negative-binomial"
    zero_inflated: ZeroInflated = False
    exposure: Exposure = "none"


class TableLikelihoodConfig(BaseLikelihoodConfig):
    """Columns of different kinds; `discrete_vae.data.infer_schema` finds them."""

    target = "discrete_vae.likelihoods.table:TableLikelihood"
    is_choice = False
    reads = "a table with named columns"
    kind: Literal["table"] = "table"
    columns: tuple[ColumnConfig, ...] = Field(
        min_length=1, description="The columns, in the order of the data."
    )

    def domain(self, *, exact: bool = False) -> Domain:
        return ColumnDomain.of([column.domain for column in self.columns])


LikelihoodConfig = Annotated[
    BernoulliLikelihoodConfig
    | GaussianLikelihoodConfig
    | CategoricalLikelihoodConfig
    | NegativeBinomialLikelihoodConfig
    | TableLikelihoodConfig,
    Field(discriminator="kind", description="Likelihood of x given the latents."),
]


# The encoder, which reads x, and the decoder, which gives the likelihood's parameters.


class FlattenEncoderConfig(ComponentConfig):
    """The values of x in one row, as in the paper: the networks of the posterior read x itself."""

    target = "discrete_vae.nets.mlp:FlattenEncoder"
    kind: Literal["flatten"] = "flatten"


class ConvolutionalEncoderConfig(ComponentConfig):
    """A small residual convolutional network for images (channel, row, column)."""

    target = "discrete_vae.nets.convolutional:ConvolutionalEncoder"
    kind: Literal["convolutional"] = "convolutional"
    num_features: Count = Field(default=256, description="Features that the posterior reads.")
    widths: tuple[Count, ...] = Field(
        default=(16, 32, 64), description="Channels after each halving of the image."
    )


EncoderConfig = Annotated[
    FlattenEncoderConfig | ConvolutionalEncoderConfig,
    Field(discriminator="kind", description="Network that reads x for the posterior."),
]


class MLPDecoderConfig(ComponentConfig):
    """Fully connected; no hidden layer makes it linear, as in the paper (section architecture)."""

    target = "discrete_vae.nets.mlp:MLPDecoder"
    kind: Literal["mlp"] = "mlp"
    hidden: tuple[Count, ...] = Field(default=(), description="Widths of the decoder's hidden layers.")


class ConvolutionalDecoderConfig(ComponentConfig):
    """A small residual convolutional network for images (channel, row, column)."""

    target = "discrete_vae.nets.convolutional:ConvolutionalDecoder"
    kind: Literal["convolutional"] = "convolutional"
    widths: tuple[Count, ...] = Field(
        default=(16, 32, 64), description="Channels of the images, the largest first."
    )


DecoderConfig = Annotated[
    MLPDecoderConfig | ConvolutionalDecoderConfig,
    Field(discriminator="kind", description="Network that gives the likelihood's parameters."),
]


Mask: TypeAlias = Literal["gaps", "observed"]
"""The meaning of a 1 in a mask."""


def _without_zeros(label: str) -> str:
    """A whole number as such: 1 for 01."""
    return str(int(label)) if re.fullmatch("[+-]?[0-9]{1,18}", label) else label


class ModelConfig(Record):
    """A discrete VAE: one config per part."""

    num_features: Count | None = Field(
        default=None, description="Features of one example, if it is a row of a table."
    )
    event_shape: tuple[Count, ...] | None = Field(
        default=None, description="Shape of one example otherwise, for images channel, row, column."
    )
    missing: bool = Field(
        default=False, description="Let entries be unobserved; the encoder then reads which."
    )
    mask: Mask = Field(
        default="gaps",
        description="Bits that the encoder reads behind the values where entries may be unobserved: 1 for a gap, or 1 "
        "for what is observed, as in models whose file does not say.",
    )
    condition: tuple[ColumnConfig, ...] = Field(
        default=(),
        description="Columns c of a model of p(x | c); all read them but the prior of the binary latents.",
    )
    num_classes: int = Field(
        default=0,
        ge=0,
        description="Classes of a label that is known of some examples: the prior's first units, one for each class; 0 "
        "is no label.",
    )
    class_names: tuple[str, ...] = Field(
        default=(),
        description="Words for the classes, in the order of their units; none numbers them from 0.",
    )
    prior: PriorConfig = RBMConfig()
    smoothing: SmoothingConfig = SpikeExponentialConfig()
    encoder: EncoderConfig = FlattenEncoderConfig()
    posterior: PosteriorConfig = HierarchicalPosteriorConfig()
    hierarchy: HierarchyConfig = NoHierarchyConfig()
    decoder: DecoderConfig = MLPDecoderConfig()
    likelihood: LikelihoodConfig = BernoulliLikelihoodConfig()

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if (self.num_features is None) == (not self.event_shape):
            received = "neither" if self.num_features is None else "both"
            repair = "For example num_features=784, or event_shape=(1, 28, 28)."
            raise InvalidInputError("num_features", "or event_shape must be given", received, repair)
        return self

    @model_validator(mode="after")
    def _has_units_for_labels(self) -> Self:
        if self.num_classes and not 2 <= self.num_classes < self.prior.num_units:
            rule = f"must be 0, or at least 2 and less than the prior's {self.prior.num_units} units"
            repair = "Give the prior more units." if self.num_classes > 1 else "Give 0 for no classes."
            raise InvalidInputError("num_classes", rule, self.num_classes, repair)
        names = self.class_names
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidInputError("class_names", "must differ", repr(twice[0])[:80], "Name each once.")
        if "" in names:
            repair = "Name it; an empty label is one that is not known."
            raise InvalidInputError("class_names", "must not be empty", repr(""), repair)
        if names and len(names) != self.num_classes:
            rule = f"must be the number of class_names, {len(names)}"
            raise InvalidInputError("num_classes", rule, self.num_classes, "Leave one of them out.")
        return self

    @property
    def classes(self) -> tuple[str, ...]:
        """A word for each class, in the order of their units."""
        return self.class_names or tuple(map(str, range(self.num_classes)))

    def label_numbers(self, labels: np.ndarray | None, num_rows: int) -> np.ndarray | None:
        """Numbers of the classes of labels, (row,) int64, -1 for one that is not known; None without classes.

        Labels, (row,), are with `class_names` words, "" for one that is not known, else integers from 0, or -1. None
        knows none.
        """
        if not self.num_classes:
            return None
        if labels is None:
            return np.full(num_rows, -1)
        shown = f"{', '.join(self.classes[:20])}{', ...' * (self.num_classes > 20)}"
        unknown = '""' if self.class_names else "-1"
        rule = f"must be for each of {num_rows} rows one of {shown}, or {unknown} where it is not known"
        repair = "Leave other labels out." if self.class_names else "Give ModelConfig.class_names for words."
        if labels.shape != (num_rows,) or labels.dtype.kind not in ("biufU" if self.class_names else "iu"):
            raise InvalidInputError("labels", rule, f"shape {labels.shape} of {labels.dtype}", repair)
        number_of = {name: number for number, name in enumerate(self.classes)} | {unknown.strip('"'): -1}
        # a table of numbers alone has 1 where one with words has 01
        number_of = {_without_zeros(name): number for name, number in number_of.items()} | number_of
        words = map(str, labels.tolist())
        found = [number_of.get(word, number_of.get(_without_zeros(word))) for word in words]
        if None in found:
            place = found.index(None)
            raise InvalidInputError("labels", rule, f"{str(labels[place])[:40]!r} in row {place}", repair)
        return np.array(found, np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.event_shape or (self.num_features or 0,)

    @property
    def num_values(self) -> int:
        """Values of one example."""
        return math.prod(self.shape)
