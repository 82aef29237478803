"""The base class of likelihoods p(x | latents), the Bernoulli likelihood, and checks of data and statistics."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution

from discrete_vae.checks import (
    BINARY,
    DIVERGED,
    UNIT_INTERVAL,
    Domain,
    check_positive_int,
    check_positive_ints,
    check_tensor,
    extremes,
    values_are_readable,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.scaling import FeatureMoments, feature_moments
from discrete_vae.numerics import bernoulli_log_prob, full_precision, joint_bernoulli_log_prob
from discrete_vae.sparse import Examples, SparseRows

_ROWS = 1024  # of sparse examples that are dense together

PointEstimate: TypeAlias = Literal["mean", "mode"]
Statistic: TypeAlias = Literal["mean", "mode", "sample"]
"""The statistics of p(x | zeta, h) that can be asked for."""


class Likelihood(nn.Module, ABC):
    """p(x | parameters), independent over the features of x given what the decoder returns.

    A decoder returns P parameters per feature, folded into the first event axis: for x of shape (batch, *event) it
    returns (..., batch, P * event[0], *event[1:]), P blocks one after the other. Flat tables, (feature,), and
    images, (channel, row, column), so look alike.

    Entries of x may be unobserved. At the public door NaN or a mask says so; `observed_mask` turns either into the
    mask that all other methods take, in which None declares that every entry is observed.

    A subclass gives `domain`, `distribution` and `sample`; it overrides the rest where it knows better.

    Args:
        event_shape: Shape of one example, at least one axis.
        parameters_per_feature: P.

    Attributes:
        event_shape: Shape of one example.
        parameters_per_feature: P.
        stand_in: A value inside the domain, put in place of unobserved entries before the density is computed.
        has_exposure: Whether `at_exposure` changes the parameters: p is then that of x given its exposure.
        fits_sparse: Whether `initialize_` and `fit_marginals_` read `SparseRows` block by block; others get them dense.
    """

    stand_in: float = 0.0
    has_exposure: bool = False
    fits_sparse: bool = False
    _half_count: float = 0.5  # what fits add to the number of each value, see `set_copies`

    def __init__(self, event_shape: Sequence[int], parameters_per_feature: int = 1) -> None:
        super().__init__()
        if isinstance(event_shape, int) or len(event_shape) == 0:
            repair = "Give a tuple, for example (784,) or (1, 28, 28)."
            raise InvalidInputError("event_shape", "must have at least one axis", repr(event_shape), repair)
        self.event_shape = check_positive_ints("event_shape", event_shape)
        self.parameters_per_feature = check_positive_int("parameters_per_feature", parameters_per_feature)

    @property
    def num_features(self) -> int:
        """Features of one example."""
        return math.prod(self.event_shape)

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """Shape of what the decoder returns for one example, (P * event[0], *event[1:])."""
        return (self.parameters_per_feature * self.event_shape[0], *self.event_shape[1:])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of what the encoder reads of one example, after `network_input`."""
        return self.event_shape

    @abstractmethod
    def domain(self, *, exact: bool = False) -> Domain:
        """The values that a feature may have.

        Args:
            exact: Whether only values count whose `log_prob` is a log-probability or log-density. Training may
                take more, such as means of bits.
        """

    @abstractmethod
    def distribution(self, parameters: Tensor) -> Distribution:
        """p(x | parameters) as a torch distribution of independent features.

        Returns:
            A distribution with batch shape (..., *event) and no event axes, float32 or wider; wrap it in
            `torch.distributions.Independent` for joint log-probabilities. It does not validate its arguments, which
            would wait for an accelerator.
        """

    @abstractmethod
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw x, (..., *event), float32 or wider, without gradient."""

    def check(self, x: Tensor, observed: Tensor | None = None, *, exact: bool = False) -> Tensor:
        """Return x if it may be trained on or evaluated; the check at the public door.

        Values are looked at only where x lies on the CPU and outside compiled graphs.

        Args:
            x: (batch, *event), floating-point; codes and counts too come as floats. NaN marks an unobserved entry.
            observed: Bool, of x's shape; entries that are False may hold anything. None: those that are not NaN.
            exact: As in `domain`.
        """
        if isinstance(x, SparseRows):
            for rows in x.split(_ROWS):
                self.check(rows, exact=exact)
            return x
        check_tensor("x", x, ("batch", *self.event_shape))
        check_observed(x, observed)
        check_values(x, observed, self.domain(exact=exact))
        return x

    @staticmethod
    def observed_mask(
        x: Tensor, observed: Tensor | None = None, *, missing: bool | None = None
    ) -> Tensor | None:
        """The mask that the other methods take.

        It never waits for an accelerator: there, unless `missing` is False, it returns a mask even if nothing is
        missing.

        Args:
            x: (batch, *event).
            observed: The caller's own mask, which is returned as it is; None reads the mask off the NaN in x.
            missing: Whether x may hold NaN; None looks at x if it lies on the CPU and takes True elsewhere.

        Returns:
            Bool, (batch, *event); None declares that every entry is observed, which is faster than a mask that is
            True everywhere.

        Examples:
            >>> Likelihood.observed_mask(torch.tensor([[1.0, torch.nan]]))
            tensor([[ True, False]])
            >>> Likelihood.observed_mask(torch.zeros(1, 2)) is None
            True
        """
        if observed is not None or missing is False:
            return observed
        if missing is None and values_are_readable(x) and not bool(x.isnan().any()):
            return None
        return ~x.isnan()

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Take statistics and starting values from training data, over observed entries.

        Returns:
            A start for the decoder's output, such as biases of its last layer, (*parameter_shape).
        """
        self.check(x, observed)
        return torch.zeros(self.parameter_shape)

    @torch.no_grad()
    def fit_marginals_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Fit features that are independent: statistics as `initialize_`, and the parameters of each feature's law.

        Returns:
            Parameters for every example alike, (*parameter_shape); here the start that `initialize_` returns.
        """
        return self.initialize_(x, observed)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Input of the encoder, (batch, *input_shape), finite, in x's dtype.

        Unobserved entries read as the training mean of what is read of their feature, or 0 without such statistics.
        """
        return x if observed is None else x.masked_fill(~observed, 0)

    def log_prob(self, parameters: Tensor, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x | parameters), summed over the observed features: the others are marginalized exactly.

        Where the likelihood has an exposure, the parameters are first brought to that of x, see `at_exposure`. Computed
        in float32 or wider, also under autocast. What an unobserved entry holds, NaN included, reaches neither the
        value nor the gradient.

        Args:
            parameters: (..., *leading, *parameter_shape), as in (sample, batch, *parameter_shape).
            x: (*leading, *event), as in (batch, *event).
            observed: Bool, of x's shape; None: every entry is observed.

        Returns:
            (..., *leading), nats; log-densities where x is continuous.
        """
        check_tensor("x", x, (..., *self.event_shape))
        leading = x.shape[: x.dim() - len(self.event_shape)]
        check_tensor("parameters", parameters, (..., *leading, *self.parameter_shape))
        check_observed(x, observed)
        if observed is not None:
            # before the density: NaN times 0 is NaN in a gradient
            x = x.masked_fill(~observed, self.stand_in)
        x = x if x.dtype == torch.float64 else x.float()
        with full_precision(parameters):
            if self.has_exposure:
                parameters = self.at_exposure(parameters, x, observed)
            if observed is None:
                return self.joint_log_prob(parameters, x)
            terms = self.feature_log_prob(parameters, x).masked_fill(~observed, 0)
            return terms.sum(tuple(range(-len(self.event_shape), 0)))

    def at_exposure(self, parameters: Tensor, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """The parameters at the exposure of given rows, such as the number of molecules that were read of a cell.

        The decoder's output stands for the reference exposure. `log_prob` calls this itself. `mean`, `mode`, `sample`,
        `distribution`, `joint_log_prob` and `feature_log_prob` take parameters as they are: give them what this
        returns where they speak of a row of data.

        The arguments are those of `log_prob`; what unobserved entries hold is not read. What is returned has the shape
        of the parameters; here they themselves.
        """
        return parameters

    def with_exposure(self, values: Tensor, x: Tensor) -> Tensor:
        """Values that this law gives for rows x, (batch, *event), with x's own exposures where features are such."""
        return values

    def joint_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log p(x | parameters) of whole examples, (..., *leading), the sum of `feature_log_prob`."""
        return self.feature_log_prob(parameters, x).sum(tuple(range(-len(self.event_shape), 0)))

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log p(x_i | parameters) of each feature, (..., *event), for x in the domain, float32 or wider."""
        return self.distribution(parameters).log_prob(x)

    def mean(self, parameters: Tensor) -> Tensor:
        """E[x | parameters], (..., *event), float32 or wider."""
        return self.distribution(parameters).mean

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable x, (..., *event), float32 or wider: a value that x can have."""
        return self.distribution(parameters).mode

    # What is averaged over draws of the latents, and what value an average stands for.

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        """Shape of `statistics` of one example."""
        return self.event_shape

    def statistics(self, x: Tensor) -> Tensor:
        """T(x), whose mean is a law's summary: x itself, or of codes 1 at the code and 0 at the others.

        Of x, (..., *event), they are (..., *statistic_shape), in its dtype.
        """
        return x

    def expected_statistics(self, parameters: Tensor) -> Tensor:
        """E[T(x) | parameters], (..., *statistic_shape): what may be averaged over draws of the parameters."""
        return self.mean(parameters)

    @property
    def point_estimates(self) -> tuple[PointEstimate, ...]:
        """The values that `point_estimate` gives, the default first."""
        return ("mean", "mode") if self.domain(exact=True) == BINARY else ("mean",)

    def check_point_estimate(self, kind: PointEstimate | None) -> None:
        """Refuse a kind of value that no average of these features stands for; None is the default."""
        if kind is not None and kind not in self.point_estimates:
            rule = f"must be {' or '.join(self.point_estimates)} for {type(self).__name__}"
            raise InvalidInputError("filling", rule, repr(kind), "Leave it out, or take draws.")

    def point_estimate(
        self, expected: Tensor, error: Tensor, kind: PointEstimate | None = None
    ) -> tuple[Tensor, Tensor]:
        """The value that expected statistics stand for, with its standard error.

        Args:
            expected: E[T(x)] under any mixture of these laws, (..., *statistic_shape).
            error: Standard errors of it, (..., *statistic_shape).
            kind: "mean", E[x], or "mode", the most probable value of each feature; None is the first of
                `point_estimates`.

        Returns:
            Values, (..., *event), and the standard error of each mean, or of the probability of each mode.
        """
        if kind == "mode":
            return (expected > 0.5).to(expected.dtype), error
        return expected, error

    def _drawable(self, parameters: Tensor) -> Tensor:
        """The parameters, if none is NaN where they can be read: no bit, code or count shows that one was."""
        if values_are_readable(parameters) and bool(parameters.isnan().any()):
            raise InvalidInputError("parameters", "must hold no NaN", "NaN", DIVERGED)
        return parameters

    def unfold(self, parameters: Tensor) -> Tensor:
        """Split the folded axis: (..., *parameter_shape) -> (..., P, *event), float32 or wider."""
        check_tensor("parameters", parameters, (..., *self.parameter_shape))
        wide = parameters if parameters.dtype == torch.float64 else parameters.float()
        return wide.unflatten(-len(self.event_shape), (self.parameters_per_feature, self.event_shape[0]))

    def _only(self, parameters: Tensor) -> Tensor:
        """The parameters where each feature has one, (..., *event), float32 or wider."""
        return self.unfold(parameters).squeeze(self._axis)

    @property
    def _axis(self) -> int:
        """The axis in front of the event's: that of a feature's parameters, or of its codes."""
        return -len(self.event_shape) - 1


class BernoulliLikelihood(Likelihood):
    """p(x | l) = prod_i Bernoulli(x_i; sigmoid(l_i)), one logit per feature.

    For x strictly inside (0, 1), `log_prob` is the expectation over a binarization with these means, not a
    log-density; training may use it, an evaluation asks `check` for `exact` values.

    Source: Rolfe 2017, eq. final-decoder.

    Attributes:
        training_mean: Mean of each feature in the training data, (*event), which the encoder reads for unobserved
            entries; 0.5 before `initialize_` and where nothing was observed.

    Examples:
        >>> BernoulliLikelihood((3,)).log_prob(torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 1.0]]))
        tensor([-2.0794])
    """

    training_mean: Tensor
    fits_sparse = True

    def __init__(self, event_shape: Sequence[int]) -> None:
        super().__init__(event_shape)
        self.register_buffer("training_mean", torch.full(self.event_shape, 0.5))

    def domain(self, *, exact: bool = False) -> Domain:
        return BINARY if exact else UNIT_INTERVAL

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Keep the mean of each feature; return its log-odds, the mean kept between 0.001 and 0.999."""
        self._keep_mean_(x, observed)
        return torch.logit(self.training_mean, eps=1e-3)

    @torch.no_grad()
    def fit_marginals_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Log-odds of the means, with half a count for each value, which keeps them finite for constant features.

        Source: Krichevsky & Trofimov 1981 (the half counts).
        """
        moments = self._keep_mean_(x, observed)
        ones = moments.mean * moments.count
        return (ones + self._half_count).log() - (moments.count - ones + self._half_count).log()

    def _keep_mean_(self, x: Tensor, observed: Tensor | None) -> FeatureMoments:
        self.check(x, observed)
        moments = feature_moments(x, observed)
        self.training_mean.copy_(torch.where(moments.count > 0, moments.mean, 0.5))
        return moments

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        return x if observed is None else torch.where(observed, x, self.training_mean.to(x.dtype))

    def distribution(self, parameters: Tensor) -> Bernoulli:
        return Bernoulli(logits=self._only(parameters), validate_args=False)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """x l - softplus(l), which does not cancel where the logit is saturated, (..., *event)."""
        return bernoulli_log_prob(x, self._only(parameters))

    def joint_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        if type(self).feature_log_prob is not BernoulliLikelihood.feature_log_prob:  # a subclass has its own
            return super().joint_log_prob(parameters, x)
        return joint_bernoulli_log_prob(x, parameters, len(self.event_shape))

    def mean(self, parameters: Tensor) -> Tensor:
        return torch.sigmoid(self._only(parameters))

    def mode(self, parameters: Tensor) -> Tensor:
        logits = self._drawable(self._only(parameters))
        return (logits > 0).to(logits.dtype)

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return torch.bernoulli(self._drawable(self.mean(parameters)), generator=generator)


def check_statistic(statistic: object) -> None:
    """Check the name of a statistic."""
    if not isinstance(statistic, str) or statistic not in get_args(Statistic):
        rule, repair = "must be 'mean', 'mode' or 'sample'", "Codes have a mode, and no useful mean."
        raise InvalidInputError("statistic", rule, f"{statistic!r}"[:80], repair)


def set_copies(likelihood: Likelihood, copies: float) -> None:
    """Say how many rows stand for one example in what a likelihood is fitted to: its half counts grow as much."""
    for part in likelihood.modules():
        if isinstance(part, Likelihood):
            part._half_count = 0.5 * copies


def fitted_to(likelihood: Likelihood, x: Examples) -> Tensor:
    """Examples as a likelihood's `initialize_` and `fit_marginals_` take them: sparse ones dense where it must be."""
    stays = isinstance(x, Tensor) or (likelihood.fits_sparse and len(likelihood.event_shape) == 1)
    return x if stays else x[:]  # pyright: ignore[reportReturnType]


def check_observed(x: Tensor, observed: Tensor | None) -> None:
    """Check that a mask of observed entries is a bool tensor of x's shape; None is none."""
    if observed is None:
        return
    fits = isinstance(observed, Tensor) and observed.dtype == torch.bool and observed.shape == x.shape
    if not fits:
        of = f", {observed.dtype}, {tuple(observed.shape)}" if isinstance(observed, Tensor) else ""
        rule = f"must be a bool tensor of x's shape {tuple(x.shape)}"
        raise InvalidInputError(
            "observed", rule, f"a {type(observed).__name__}{of}", "True marks what was observed."
        )
    if observed.layout is not torch.strided or observed.device.type != x.device.type:
        received, repair = f"layout {observed.layout} on {observed.device}", "Make it with ~x.isnan()."
        raise InvalidInputError("observed", f"must be dense, on {x.device} as x is", received, repair)


def check_values(x: Tensor, observed: Tensor | None, domain: Domain, *, name: str = "x") -> None:
    """Check that every observed entry of x lies in the domain, where its values can be read."""
    ends = extremes(x)
    # one pass settles most batches; NaN compares as outside
    if ends is None or (not domain.whole and domain.contains(ends[0]) and domain.contains(ends[1])):
        return
    inside = domain.contains(x)
    if bool(inside.all()):
        return
    outside = ~inside & (~x.isnan() if observed is None else observed)
    if not bool(outside.any()):
        return
    value = x[outside][0].item()
    if value != value:
        repair = "Mark it as not observed, or fill it."
        raise InvalidInputError(name, "must hold no NaN where observed is True", "NaN", repair)
    raise InvalidInputError(name, domain.rule, f"a value of {value:g}", domain.repair)


def validate_batch(
    x: object,
    observed: Tensor | None,
    likelihood: Likelihood,
    *,
    like: Tensor,
    missing: bool,
    exact: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Check a batch, (batch, *event) or (batch, feature), and its mask of observed entries at the model's door.

    Only where `missing` is true may entries be unobserved; `like` is a tensor on the model's device. Gives x in the
    event's shape, and the mask as `Likelihood.observed_mask` has it.
    """
    shape = likelihood.event_shape
    # others are refused below
    if isinstance(x, Tensor) and x.layout == torch.strided and x.shape[1:] == (math.prod(shape),):
        if isinstance(observed, Tensor) and observed.layout == torch.strided and observed.shape == x.shape:
            observed = observed.reshape(-1, *shape)
        x = x.reshape(-1, *shape)
    batch = check_tensor("x", x, ("batch", *shape))
    if batch.device.type != like.device.type:
        repair = f"Move it with x.to({str(like.device)!r})."
        raise InvalidInputError("x", f"must be on the model's device, {like.device}", batch.device, repair)
    likelihood.check(batch, observed, exact=exact)
    ends = None if missing else extremes(batch)  # None where values cannot be looked at
    if not missing and (observed is not None or (ends is not None and math.isnan(ends[0]))):
        repair = "Build the model with missing=True: its encoder then reads which entries are observed."
        raise InvalidInputError("x", "must have no unobserved entries", "some", repair)
    return batch, likelihood.observed_mask(batch, observed, missing=missing)
