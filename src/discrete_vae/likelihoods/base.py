"""What every likelihood p(x | latents) offers: domains, moments, long tails."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, constraints

from discrete_vae.checks import Domain, check_positive_int, check_tensor, extremes, values_are_readable
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import full_precision
from discrete_vae.records import ShowsShapes

# The check that data lie in the domain of a likelihood.


def check_observed(x: Tensor, observed: Tensor | None) -> None:
    """Check that a mask of observed entries is a bool tensor of x's shape; None is none.

    Raises:
        InvalidInputError: If it is anything else.
    """
    if observed is None:
        return
    fits = isinstance(observed, Tensor) and observed.dtype == torch.bool and observed.shape == x.shape
    if fits and (observed.layout is not torch.strided or observed.device.type != x.device.type):
        received = f"layout {observed.layout} on {observed.device}"
        repair = "Make it with ~x.isnan(), or move it there."
        raise InvalidInputError(
            "observed", f"must be a dense tensor on {x.device}, as x is", received, repair
        )
    if not fits:
        received = (
            f"{observed.dtype} of shape {tuple(observed.shape)}"
            if isinstance(observed, Tensor)
            else f"a {type(observed).__name__}"
        )
        rule = f"must be a bool tensor of x's shape {tuple(x.shape)}"
        raise InvalidInputError("observed", rule, received, "True marks the entries that were observed.")


def check_values(x: Tensor, observed: Tensor | None, domain: Domain) -> None:
    """Check that every observed entry of x lies in the domain, where its values can be read.

    Args:
        x: Any shape.
        observed: Bool, of x's shape. None: every entry that is not NaN is observed.
        domain: Where the entries must lie.

    Raises:
        InvalidInputError: If an observed entry lies outside; names the first one's value.
    """
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
        raise InvalidInputError("x", "must hold no NaN where observed is True", "NaN", repair)
    raise InvalidInputError("x", domain.rule, f"a value of {value:g}", domain.repair(value))


# Features with long tails on a scale that shortens them.


_MOST_ROWS = 4000  # that a scale is fitted to
_GAIN = 0.1  # nats per value below which a feature stays as it is
_WIDTHS = (0.05, 0.1, 0.25, 0.5)  # quantiles of the distances from the center
_MOST_EQUAL = 0.2  # share of values equal to the least, the median or the largest: a spike, such as zeros
_LARGEST = 80.0  # sinh of it is finite in float32


class Tails(nn.Module):
    """y = asinh((x - center) / width) for features with long tails, y = x for the others.

    Near its center a scale is even, far from it logarithmic, on both sides. `fit_` takes for each feature the scale on
    which a Gaussian fits best, the density's change of variables included, as Box and Cox compare theirs: with the
    center at 0 (where no value has another sign), the median, or an end, and the width at a quantile of the distances
    from it. A feature on which none gains a tenth of a nat per value stays as it is, and so does one of which a fifth
    are the same value, an end or the median: such a spike has no scale.

    Source: Burbidge, Magee & Robb 1988 (asinh for skewed data); Box & Cox 1964, section 3 (the choice by likelihood).

    Args:
        event_shape: Shape of one example.

    Attributes:
        is_long: Whether the feature has long tails, bool, (*event); False before `fit_`.
        center: (*event).
        width: (*event), above 0.

    Examples:
        >>> tails = Tails((2,))
        >>> normal = torch.randn(500, generator=torch.Generator().manual_seed(0))
        >>> tails.fit_(torch.stack([normal, (2 * normal).exp()], 1))
        >>> tails.is_long
        tensor([False,  True])
    """

    is_long: Tensor
    center: Tensor
    width: Tensor

    def __init__(self, event_shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("is_long", torch.zeros(*event_shape, dtype=torch.bool))
        self.register_buffer("center", torch.zeros(*event_shape))
        self.register_buffer("width", torch.ones(*event_shape))

    @torch.no_grad()
    def fit_(self, x: Tensor, observed: Tensor | None = None) -> None:
        """Take the scales from data; of more than 4,000 examples from evenly spaced ones.

        Args:
            x: (example, *event); NaN marks unobserved entries.
            observed: Bool, of x's shape; None: every entry that is not NaN is observed.
        """
        step = -(-len(x) // _MOST_ROWS)
        rows = x[::step].flatten(1).double()
        if observed is not None:
            rows = rows.masked_fill(~observed[::step].flatten(1), torch.nan)
        best = _log_density(rows) + _GAIN
        center, width = torch.zeros_like(best), torch.ones_like(best)
        is_long = torch.zeros_like(best, dtype=torch.bool)
        low, middle, high = rows.nanquantile(torch.tensor([0.0, 0.5, 1.0], dtype=rows.dtype), 0)
        spikes = torch.stack([(rows == value).double().mean(0) for value in (low, middle, high)]).amax(0)
        best = torch.where(spikes < _MOST_EQUAL, best, torch.inf)
        zero = torch.where((low >= 0) | (high <= 0), 0.0, middle)
        for around in (zero, middle, low, high):
            distances = (rows - around).abs().nanquantile(torch.tensor(_WIDTHS, dtype=rows.dtype), 0)
            for wide in distances:
                scaled = (rows - around) / wide
                found = _log_density(scaled.asinh(), -0.5 * scaled.square().log1p() - wide.log())
                better = found > best  # False for NaN: of features that are constant or never observed
                best = torch.where(better, found, best)
                center, width = torch.where(better, around, center), torch.where(better, wide, width)
                is_long |= better
        for buffer, value in ((self.is_long, is_long), (self.center, center), (self.width, width)):
            buffer.copy_(value.reshape(buffer.shape))

    def forward(self, x: Tensor) -> Tensor:
        """x on the shortened scale, in x's dtype."""
        return torch.where(self.is_long, ((x - self.center) / self.width).asinh(), x).to(x.dtype)

    def log_slope(self, x: Tensor) -> Tensor:
        """log dy/dx, nats, in the shape of x."""
        scaled = (x - self.center) / self.width
        return torch.where(self.is_long, -0.5 * scaled.square().log1p() - self.width.log(), 0.0).to(x.dtype)

    def invert(self, y: Tensor) -> Tensor:
        """x on its own scale; y beyond +-80 counts as that, where sinh is 3e34."""
        x = self.center + self.width * y.clamp(-_LARGEST, _LARGEST).sinh()
        return torch.where(self.is_long, x, y).to(y.dtype)

    def mean_of(self, mean: Tensor, std: Tensor) -> Tensor:
        """E[x] where y is Normal(mean, std): E sinh y = exp(std^2 / 2) sinh(mean); bounded as in `invert`."""
        bounded = mean.clamp(-_LARGEST, _LARGEST)
        half = (0.5 * std.square()).clamp_max(_LARGEST - bounded.abs())
        x = self.center + self.width * half.exp() * bounded.sinh()
        return torch.where(self.is_long, x, mean).to(mean.dtype)

    def mode_of(self, mean: Tensor, std: Tensor) -> Tensor:
        """The x of highest density where y is Normal(mean, std): y + std^2 tanh y = mean, by bisection."""
        low, high = mean.clamp_max(0), mean.clamp_min(0)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = middle + std.square() * middle.tanh() > mean
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return torch.where(self.is_long, self.invert(0.5 * (low + high)), mean).to(mean.dtype)


def long_tails(x: Tensor) -> Tensor:
    """Which features have tails that `Tails` would shorten, bool, (*event).

    Args:
        x: (example, *event); NaN marks unobserved entries.
    """
    tails = Tails(x.shape[1:])
    tails.fit_(x)
    return tails.is_long


class LongTailedNormal(Distribution):
    """The law of x where `Tails` of x is Normal(loc, scale).

    Args:
        loc: Mean of y, (..., *event).
        scale: Standard deviation of y, of that shape.
        tails: The scales.
    """

    def __init__(self, loc: Tensor, scale: Tensor, tails: Tails) -> None:
        self.loc, self.scale, self.tails = loc, scale, tails
        super().__init__(loc.shape, validate_args=False)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """None: nothing is checked, which would wait for an accelerator."""
        return {}

    @property
    def support(self) -> constraints.Constraint:
        """All numbers."""
        return constraints.real

    @property
    def mean(self) -> Tensor:
        """E[x]."""
        return self.tails.mean_of(self.loc, self.scale)

    @property
    def mode(self) -> Tensor:
        """The x of highest density."""
        return self.tails.mode_of(self.loc, self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density, nats."""
        law = torch.distributions.Normal(self.loc, self.scale, validate_args=False)
        return law.log_prob(self.tails(value)) + self.tails.log_slope(value)

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw x."""
        shape = self._extended_shape(torch.Size(sample_shape))
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.tails.invert(self.loc + self.scale * noise)


def _variance(rows: Tensor) -> Tensor:
    """Variance of each column over its observed rows."""
    return (rows - rows.nanmean(0)).square().nanmean(0)


def _log_density(y: Tensor, log_slopes: Tensor | None = None) -> Tensor:
    """Mean log-density of a Gaussian that fits y, up to a constant; log_slopes are those of y in x."""
    slope = 0.0 if log_slopes is None else log_slopes.nanmean(0)
    return slope - 0.5 * _variance(y).log()


# Moments of features over training data with unobserved entries.


_ROWS = 4096


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMoments(ShowsShapes):
    """Moments of each feature over its observed entries, on the CPU.

    Attributes:
        count: Number of observed entries, (*event), float64.
        mean: (*event), float64; 0 where nothing was observed.
        variance: Mean squared deviation, (*event), float64; exactly 0 for a constant feature.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor


def feature_moments(x: Tensor, observed: Tensor | None = None) -> FeatureMoments:
    """Count, mean and variance of each feature in two passes of float64.

    Args:
        x: (example, *event); NaN marks unobserved entries.
        observed: Bool, of x's shape; None: every entry that is not NaN is observed.

    Examples:
        >>> feature_moments(torch.tensor([[1.0, 5.0], [3.0, torch.nan]])).mean
        tensor([2., 5.], dtype=torch.float64)
    """
    shape = x.shape[1:]
    count, total = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    low = torch.full(shape, torch.inf, dtype=torch.float64)
    high = -low
    for part, seen in _parts(x, observed):
        count += seen.sum(0)
        total += part.masked_fill(~seen, 0).sum(0)
        low = torch.minimum(low, part.masked_fill(~seen, torch.inf).amin(0))
        high = torch.maximum(high, part.masked_fill(~seen, -torch.inf).amax(0))
    constant = low == high  # by value: rounding of the mean would leave a variance
    mean = torch.where(constant, low, total / count.clamp_min(1))
    squares = torch.zeros(shape, dtype=torch.float64)
    for part, seen in _parts(x, observed):
        squares += (part - mean).masked_fill(~seen, 0).square().sum(0)
    return FeatureMoments(count, mean, squares / count.clamp_min(1))


def _parts(x: Tensor, observed: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of rows in float64, each with its mask."""
    for first in range(0, len(x), _ROWS):
        part = x[first : first + _ROWS].detach().to("cpu", torch.float64)
        yield part, ~part.isnan() if observed is None else observed[first : first + _ROWS].cpu()


# What every likelihood offers.


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

    Raises:
        InvalidInputError: If a size is not a positive integer, or there is none.
    """

    stand_in: float = 0.0

    def __init__(self, event_shape: Sequence[int], parameters_per_feature: int = 1) -> None:
        super().__init__()
        if isinstance(event_shape, int) or len(event_shape) == 0:
            repair = "Give a tuple, for example (784,) or (1, 28, 28)."
            raise InvalidInputError("event_shape", "must have at least one axis", repr(event_shape), repair)
        self.event_shape = tuple(
            check_positive_int(f"event_shape[{axis}]", size) for axis, size in enumerate(event_shape)
        )
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

        Args:
            parameters: (..., *parameter_shape).

        Returns:
            A distribution with batch shape (..., *event) and no event axes, float32 or wider; wrap it in
            `torch.distributions.Independent` for joint log-probabilities. It does not validate its arguments, which
            would wait for an accelerator.
        """

    @abstractmethod
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw x, without gradient.

        Args:
            parameters: (..., *parameter_shape).
            generator: Source of the noise; None means torch's global generator.

        Returns:
            (..., *event), float32 or wider.
        """

    def check(self, x: Tensor, observed: Tensor | None = None, *, exact: bool = False) -> Tensor:
        """Return x if it may be trained on or evaluated; the check at the public door.

        Values are looked at only where x lies on the CPU and outside compiled graphs.

        Args:
            x: (batch, *event), floating-point; codes and counts too come as floats. NaN marks an unobserved entry.
            observed: Bool, of x's shape; entries that are False may hold anything. None: those that are not NaN.
            exact: As in `domain`.

        Raises:
            InvalidInputError: If x is not a floating-point tensor of that shape, or an observed value lies outside the
                domain.
        """
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

        Args:
            x: (example, *event), as `check` takes it.
            observed: As in `check`.

        Returns:
            A start for the decoder's output, such as biases of its last layer, (*parameter_shape).

        Raises:
            InvalidInputError: If `check` refuses x or observed.
        """
        self.check(x, observed)
        return torch.zeros(self.parameter_shape)

    @torch.no_grad()
    def fit_marginals_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Fit features that are independent: statistics as `initialize_`, and the parameters of each feature's law.

        Args:
            x: As in `initialize_`.
            observed: As in `initialize_`.

        Returns:
            Parameters for every example alike, (*parameter_shape); here the start that `initialize_` returns.

        Raises:
            InvalidInputError: If `check` refuses x or observed.
        """
        return self.initialize_(x, observed)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """What the encoder reads.

        Unobserved entries read as the training mean of what is read of their feature, or 0 without such statistics.

        Args:
            x: (batch, *event).
            observed: Bool, of x's shape; None: every entry is observed.

        Returns:
            (batch, *input_shape), in x's dtype, finite.
        """
        return x if observed is None else x.masked_fill(~observed, 0)

    def log_prob(self, parameters: Tensor, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x | parameters), summed over the observed features: the others are marginalized exactly.

        Computed in float32 or wider, also under autocast. What an unobserved entry holds, NaN included, reaches
        neither the value nor the gradient.

        Args:
            parameters: (..., *leading, *parameter_shape), as in (sample, batch, *parameter_shape).
            x: (*leading, *event), as in (batch, *event).
            observed: Bool, of x's shape; None: every entry is observed.

        Returns:
            (..., *leading), nats; log-densities where x is continuous.

        Raises:
            InvalidInputError: If a shape does not fit the event's or the parameters', or a dtype is not floating-point.
        """
        check_tensor("x", x, (..., *self.event_shape))
        leading = x.shape[: x.dim() - len(self.event_shape)]
        check_tensor("parameters", parameters, (..., *leading, *self.parameter_shape))
        check_observed(x, observed)
        if observed is not None:
            x = x.masked_fill(
                ~observed, self.stand_in
            )  # before the density: NaN times 0 is NaN in a gradient
        x = x if x.dtype == torch.float64 else x.float()
        with full_precision(parameters):
            if observed is None:
                return self.joint_log_prob(parameters, x)
            terms = self.feature_log_prob(parameters, x).masked_fill(~observed, 0)
            return terms.sum(tuple(range(-len(self.event_shape), 0)))

    def joint_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log p(x | parameters) of whole examples, (..., *leading), the sum of `feature_log_prob`.

        Args:
            parameters: As in `feature_log_prob`.
            x: Likewise.
        """
        return self.feature_log_prob(parameters, x).sum(tuple(range(-len(self.event_shape), 0)))

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log p(x_i | parameters) of each feature, (..., *event); x holds values of the domain only.

        Args:
            parameters: (..., *leading, *parameter_shape).
            x: (..., *event), float32 or wider.
        """
        return self.distribution(parameters).log_prob(x)

    def mean(self, parameters: Tensor) -> Tensor:
        """E[x | parameters].

        Args:
            parameters: (..., *parameter_shape).

        Returns:
            (..., *event), float32 or wider.
        """
        return self.distribution(parameters).mean

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable x, which is a value that x can have.

        Args:
            parameters: (..., *parameter_shape).

        Returns:
            (..., *event), float32 or wider.
        """
        return self.distribution(parameters).mode

    def _drawable(self, parameters: Tensor) -> Tensor:
        """The parameters, if none is NaN where they can be read: no bit, code or count shows that one was."""
        if values_are_readable(parameters) and bool(parameters.isnan().any()):
            repair = "Look for a diverged training step and restore an earlier state."
            raise InvalidInputError("parameters", "must hold no NaN", "NaN", repair)
        return parameters

    def unfold(self, parameters: Tensor) -> Tensor:
        """Split the folded axis: (..., *parameter_shape) -> (..., P, *event), float32 or wider.

        Raises:
            InvalidInputError: If parameters has another shape or dtype.
        """
        check_tensor("parameters", parameters, (..., *self.parameter_shape))
        wide = parameters if parameters.dtype == torch.float64 else parameters.float()
        return wide.unflatten(-len(self.event_shape), (self.parameters_per_feature, self.event_shape[0]))

    def _only(self, parameters: Tensor) -> Tensor:
        """The parameters where each feature has one, (..., *event), float32 or wider."""
        return self.unfold(parameters).squeeze(-len(self.event_shape) - 1)
