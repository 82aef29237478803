"""Scales of features, fitted to training data: moments, standard units, asinh for long tails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, constraints

from discrete_vae.records import ShowsShapes
from discrete_vae.sparse import Examples, SparseRows, select

_ROWS, _FEWEST_ROWS, _VALUES = 4096, 256, 1 << 24  # rows of a block, and its values where features are many
_MOST_ROWS = 4000  # that a scale is fitted to
_GAIN = 0.05  # nats per value below which a feature stays as it is
_ENDS = (0.025, 0.25, 0.5, 0.75, 0.975)  # quantiles by which the length of tails is judged
_GAUSSIAN_TAIL = 2.906  # (Q(0.975) - Q(0.5)) / (Q(0.75) - Q(0.5)) of a Gaussian
_WIDTHS = (0.05, 0.1, 0.25, 0.5)  # quantiles of the distances from the center
_MOST_EQUAL = 0.2  # share of values equal to the least, the median or the largest: a spike, such as zeros
_LARGEST = 80.0  # sinh of it is finite in float32
_COLUMNS = 256  # that are fitted at a time, fewer of many rows
_LEAST_REPEATS = 10  # of a value on average, where values are few
_NARROWEST = 1e-15  # least width, as a share of the largest distance from the center


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMoments(ShowsShapes):
    """Moments of each feature over its observed entries, (*event), float64, on the CPU.

    The mean is 0 where nothing was observed, the variance exactly 0 for a constant feature.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor


_Scale: TypeAlias = Callable[[Tensor], Tensor] | None  # what is applied to each entry; None is nothing


def feature_moments(x: Examples, observed: Tensor | None = None, *, scale: _Scale = None) -> FeatureMoments:
    """Count, mean and variance of each feature of x, or of scale(x), in two passes of float64.

    Entries are those that are observed, by default those that are not NaN.

    Examples:
        >>> feature_moments(torch.tensor([[1.0, 5.0], [3.0, torch.nan]])).mean
        tensor([2., 5.], dtype=torch.float64)
    """
    count, total, squares = torch.zeros(3, *x.shape[1:], dtype=torch.float64, device="cpu")
    low, high = torch.full_like(total, torch.inf), torch.full_like(total, -torch.inf)
    for part, seen in row_blocks(x, observed, scale=scale):
        count += seen.sum(0)
        total += part.masked_fill(~seen, 0).sum(0)
        low = torch.minimum(low, part.masked_fill(~seen, torch.inf).amin(0))
        high = torch.maximum(high, part.masked_fill(~seen, -torch.inf).amax(0))
    constant = low == high  # by value: rounding of the mean would leave a variance
    mean = torch.where(constant, low, total / count.clamp_min(1))
    for part, seen in row_blocks(x, observed, scale=scale):
        squares += (part - mean).masked_fill(~seen, 0).square().sum(0)
    return FeatureMoments(count, mean, squares / count.clamp_min(1))


def grid_widths(x: Tensor, observed: Tensor | None = None) -> Tensor:
    """Least distance of different values of each feature of few values, 0 for other features, (*event) float64.

    Values are few if there are two or more, and each is there ten times on average.

    Examples:
        >>> grid_widths(torch.stack([torch.arange(40.0) % 4 / 2, torch.arange(40.0)], 1))
        tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    found = []
    for rows in column_blocks(x, observed):
        steps = rows.sort(0).values.diff(dim=0)  # NaN come last
        steps = torch.where(steps > 0, steps, torch.inf)
        jumps = steps.isfinite().sum(0)
        few = (jumps > 0) & (_LEAST_REPEATS * (jumps + 1) <= (~rows.isnan()).sum(0))
        found.append(torch.where(few, steps.amin(0), 0.0) if len(steps) else rows.new_zeros(rows.shape[1]))
    return torch.cat(found).reshape(x.shape[1:])


def row_blocks(
    x: Examples, observed: Tensor | None, *, scale: _Scale = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of rows of examples, sparse ones too, in float64, each with its mask; `scale` as in `feature_moments`."""
    size = max(_FEWEST_ROWS, min(_ROWS, _VALUES // max(1, math.prod(x.shape[1:]))))
    for first in range(0, len(x), size):
        rows = x[first : first + size].detach()
        part = (rows if scale is None else scale(rows)).to("cpu", torch.float64)
        yield part, ~part.isnan() if observed is None else observed[first : first + size].cpu()


def column_blocks(x: Examples, observed: Tensor | None = None) -> Iterator[Tensor]:
    """Blocks of features of examples, sparse ones too, (example, column) float64; NaN where nothing was observed."""
    # by rows each block would read the whole matrix
    columns = x.matrix.tocsc() if isinstance(x, SparseRows) else x.detach().flatten(1)
    size = max(1, min(_COLUMNS, _VALUES // max(1, len(x))))
    for first in range(0, math.prod(x.shape[1:]), size):
        part = columns[:, first : first + size]
        rows = part if isinstance(part, Tensor) else torch.from_numpy(part.toarray(order="C"))
        rows = rows.to("cpu", torch.float64)
        if observed is not None:
            rows = rows.masked_fill(~observed.flatten(1)[:, first : first + size].cpu(), torch.nan)
        yield rows


class Standardizer(nn.Module):
    """(x - location) / scale for each feature, 0 for constant ones; both are constants that `fit_` takes from data.

    Attributes:
        location: Training mean, (*event); 0 before `fit_` and where nothing was observed.
        scale: Training standard deviation, (*event); 0 for constant features, 1 before `fit_` and where nothing was
            observed.

    Examples:
        >>> standardizer = Standardizer((2,))
        >>> standardizer.fit_(torch.tensor([[1.0, 7.0], [3.0, 7.0]]))
        >>> standardizer(torch.tensor([5.0, 7.0]))
        tensor([3., 0.])
    """

    location: Tensor
    scale: Tensor

    def __init__(self, event_shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("location", torch.zeros(*event_shape))
        self.register_buffer("scale", torch.ones(*event_shape))

    @torch.no_grad()
    def fit_(self, x: Examples, observed: Tensor | None = None, *, scale: _Scale = None) -> None:
        """Take location and scale from data, as `feature_moments` reads it."""
        moments = feature_moments(x, observed, scale=scale)
        self.location.copy_(moments.mean)
        deviation = moments.variance.sqrt()
        # in float32 as in float64: what float32 cannot divide by is no spread
        is_none = deviation < torch.finfo(torch.float32).tiny
        self.scale.copy_(deviation.masked_fill_(is_none, 0.0).masked_fill_(moments.count == 0, 1.0))

    @property
    def is_fitted(self) -> bool:
        """Whether a feature has a location other than 0 or a scale other than 1."""
        return bool((self.location != 0).any() or (self.scale != 1).any())

    @property
    def constant(self) -> Tensor:
        """Mask of the features that had one value in the data, (*event)."""
        return self.scale == 0

    @property
    def divisor(self) -> Tensor:
        """The scale, 1 for constant features, (*event)."""
        return self.scale.masked_fill(self.constant, 1.0)

    def forward(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Standardize (..., *event); unobserved entries and constant features become 0, the training mean."""
        standard = ((x - self.location) / self.divisor).to(x.dtype).masked_fill(self.constant, 0)
        return standard if observed is None else standard.masked_fill(~observed, 0)


class Tails(nn.Module):
    """y = asinh((x - center) / width) for features with long tails, y = x for the others.

    Near its center a scale is even, far from it logarithmic, on both sides. `fit_` takes for each feature the scale on
    which a Gaussian fits best, the density's change of variables included, as Box and Cox compare theirs: with the
    center at 0 (where no value has another sign), the median, or an end, and the width at a quantile of the distances
    from it. A feature stays as it is

    - where none gains a twentieth of a nat per value;
    - where neither tail is longer than a Gaussian's, by the quantiles Q: the larger of
      (Q(0.975) - Q(0.5)) / (Q(0.75) - Q(0.5)) and its mirror image is at most 2.906. Values that heap up at the ends of
      an interval, or in two groups, have short tails, though a scale of asinh may fit them better;
    - where a fifth are the same value, an end or the median: such a spike has no scale.

    Source: Burbidge, Magee & Robb 1988 (asinh for skewed data); Box & Cox 1964, section 3 (the choice by likelihood).
    The length of tails as a ratio of quantiles is a common measure, scale-free and blind to single outliers.

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
    def fit_(self, x: Examples, observed: Tensor | None = None) -> None:
        """Take the scales from data as `feature_moments` reads it, at most 4,000 examples evenly spaced."""
        chosen = slice(None, None, -(-len(x) // _MOST_ROWS))
        blocks = column_blocks(select(x, chosen), None if observed is None else observed[chosen])
        found = zip(*map(self._fitted, blocks), strict=True)
        for buffer, values in zip((self.is_long, self.center, self.width), found, strict=True):
            buffer.copy_(torch.cat(values).reshape(buffer.shape))

    @staticmethod
    def _fitted(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which features have long tails, with the centers and widths, (column,)."""
        best = _log_density(rows) + _GAIN
        center, width = torch.zeros_like(best), torch.ones_like(best)
        is_long = torch.zeros_like(best, dtype=torch.bool)
        levels = rows.new_tensor([0.0, *_ENDS, 1.0])
        low, bottom, below, middle, above, top, high = rows.nanquantile(levels, 0)
        tail = torch.maximum((top - middle) / (above - middle), (middle - bottom) / (middle - below))
        count = (~rows.isnan()).sum(0).clamp(min=1)
        spikes = torch.stack([(rows == value).sum(0) / count for value in (low, middle, high)]).amax(0)
        best = torch.where((spikes < _MOST_EQUAL) & (tail > _GAUSSIAN_TAIL), best, torch.inf)
        zero = torch.where((low >= 0) | (high <= 0), 0.0, middle)
        for around in (zero, middle, low, high):
            away = (rows - around).abs()
            distances = away.nanquantile(rows.new_tensor(_WIDTHS), 0)
            # beyond, the square of (x - center) / width overflows in float32
            least = _NARROWEST * away.nan_to_num(-torch.inf).amax(0)
            distances = distances.where(distances > least, torch.nan)
            for wide in distances:
                scaled = (rows - around) / wide
                found = _log_density(scaled.asinh(), -0.5 * scaled.square().log1p() - wide.log())
                better = found > best  # False for NaN: of features that are constant or never observed
                best = torch.where(better, found, best)
                center, width = torch.where(better, around, center), torch.where(better, wide, width)
                is_long |= better
        return is_long, center, width

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


def long_tails(x: Examples) -> Tensor:
    """Mask of the features whose tails `Tails` would shorten, bool, (*event); NaN marks unobserved entries of x."""
    with torch.device("cpu"):
        tails = Tails(x.shape[1:])
    tails.fit_(x)
    return tails.is_long


class UncheckedDistribution(Distribution):
    """A law whose arguments are not checked, which would wait for an accelerator."""

    def __init__(self, batch_shape: torch.Size) -> None:
        super().__init__(batch_shape, validate_args=False)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {}


class LongTailedNormal(UncheckedDistribution):
    """The law of x where `Tails` of x is Normal(loc, scale)."""

    def __init__(self, loc: Tensor, scale: Tensor, tails: Tails) -> None:
        self.loc, self.scale, self.tails = loc, scale, tails
        super().__init__(loc.shape)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.real

    @property
    def mean(self) -> Tensor:
        return self.tails.mean_of(self.loc, self.scale)

    @property
    def mode(self) -> Tensor:
        return self.tails.mode_of(self.loc, self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        law = torch.distributions.Normal(self.loc, self.scale, validate_args=False)
        return law.log_prob(self.tails(value)) + self.tails.log_slope(value)

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.tails.invert(self.loc + self.scale * noise)


def _log_density(y: Tensor, log_slopes: Tensor | None = None) -> Tensor:
    """Mean log-density of a Gaussian that fits y, up to a constant; log_slopes are those of y in x."""
    slope = 0.0 if log_slopes is None else log_slopes.nanmean(0)
    return slope - 0.5 * (y - y.nanmean(0)).square().nanmean(0).log()
