"""The likelihood of counts: the negative binomial law, with added zeros and exposures, and its fit by moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributions import Distribution, NegativeBinomial, constraints

from discrete_vae.checks import COUNTS, Domain
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.scaling import (
    Standardizer,
    UncheckedDistribution,
    column_blocks,
    feature_moments,
)
from discrete_vae.numerics import HALF_LOG_TWO_PI, bounded, project_
from discrete_vae.sparse import Examples, SparseRows

_MIN_SIZE, _MAX_SIZE = 1e-4, 1e6  # of r
_LEAST_START, _LARGEST_START = 1e-2, 1e4  # of r as data give it
_LEAST_TOTAL = 0.5  # stands for the total of a row of zeros
_ROUNDS = 30  # of fits in turn
_LARGEST_RATE = 1e18  # that torch draws at: beyond the largest int64 it gives negative counts
_LARGEST_LOG = 60.0  # e^60, and counts times e^60, are finite in float32


def stirling_error(z: Tensor) -> Tensor:
    """log Gamma(z + 1) - ((z + 1/2) log z - z + log sqrt(2 pi)), what Stirling's formula lacks."""
    small = z < 8
    near = torch.where(small, z, 1.0)
    direct = torch.lgamma(near + 1) - (near + 0.5) * near.log() + near - HALF_LOG_TWO_PI
    inverse = 1 / torch.where(small, 8.0, z)
    square = inverse * inverse
    series = 1 / 1680 - square / 1188
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * series)))
    return torch.where(small, direct, series)


def negative_binomial_log_prob(x: Tensor, log_mean: Tensor, log_size: Tensor) -> Tensor:
    """log NB(x; mu, r), with variance mu + mu^2 / r.

    log NB(x; mu, r) = log NB(x; x, r) - D, with D = r log((mu + r) / (x + r)) + x log(x (mu + r) / ((x + r) mu)) >= 0.
    The textbook form is a difference of terms of size x log x and r log r and loses all digits in float32 for large
    counts or sizes; here no term is much larger than the result or |x - mu|.

    Source: Loader 2000, "Fast and accurate computation of binomial probabilities", carried over to real r.

    Examples:
        >>> negative_binomial_log_prob(torch.tensor(2.0), torch.tensor(0.0), torch.tensor(0.0)).exp()  # geometric
        tensor(0.1250)
    """
    zero = x == 0
    positive = torch.where(zero, 1.0, x)  # a stand-in that is finite in value and gradient
    size = log_size.exp()
    total = x + size
    peak = 0.5 * (log_size - total.log() - positive.log()) - HALF_LOG_TWO_PI
    peak = peak + stirling_error(total) - stirling_error(size) - stirling_error(positive)
    inside = log_mean.clamp(-_LARGEST_LOG, _LARGEST_LOG)
    beyond = log_mean - inside  # D is linear in it
    mean = inside.exp()
    excess = mean - x
    # where an argument of log1p rounds to -1, the other term of D is larger by the inverse of the rounding
    least = torch.finfo(mean.dtype).eps - 1
    first = torch.log1p((excess / total).clamp_min(least)) + beyond.clamp_min(0)
    over_mean = -excess * torch.exp(-inside)  # a quotient's gradient squares the mean, which may be e^-60
    second = torch.log1p((over_mean * (size / total)).clamp_min(least)) - beyond.clamp_max(0)
    return torch.where(zero, 0.0, peak) - size * first - x * second


class _NegativeBinomial(NegativeBinomial):
    """torch's distribution with `negative_binomial_log_prob` in place of the textbook form."""

    def __init__(self, log_mean: Tensor, log_size: Tensor) -> None:
        self._log_mean, self._log_size = log_mean, log_size
        size = log_size.exp()
        super().__init__(size, logits=log_mean - size.log(), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> _NegativeBinomial:
        return _NegativeBinomial(self._log_mean.expand(batch_shape), self._log_size.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return negative_binomial_log_prob(value, self._log_mean, self._log_size)


class ZeroInflated(UncheckedDistribution):
    """0 with probability sigmoid(logits), else a draw of a law of counts.

    Source: Lambert 1992, "Zero-inflated Poisson regression".

    Args:
        base: Law of the counts, without event axes.
        logits: Of the added zeros, in the base's batch shape.
    """

    def __init__(self, base: Distribution, logits: Tensor) -> None:
        self.base, self.logits = base, logits
        super().__init__(base.batch_shape)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.nonnegative_integer

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> ZeroInflated:
        return ZeroInflated(self.base.expand(torch.Size(batch_shape)), self.logits.expand(batch_shape))

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(-self.logits) * self.base.mean

    @property
    def variance(self) -> Tensor:
        kept = torch.sigmoid(-self.logits)
        return kept * (self.base.variance + torch.sigmoid(self.logits) * self.base.mean.square())

    @property
    def mode(self) -> Tensor:
        mode = self.base.mode
        return mode.where(self.log_prob(mode) > self.log_prob(torch.zeros_like(mode)), 0)

    def log_prob(self, value: Tensor) -> Tensor:
        kept = F.logsigmoid(-self.logits) + self.base.log_prob(value)
        return torch.where(value == 0, torch.logaddexp(F.logsigmoid(self.logits), kept), kept)

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self.base.sample(torch.Size(sample_shape))
        return drawn.masked_fill(torch.rand_like(drawn) < torch.sigmoid(self.logits), 0)


class NegativeBinomialLikelihood(Likelihood):
    """p(x | eta) = prod_i NB(x_i; mu_i, r_i), mu_i = exp(eta_i) times the feature's training mean, r_i learned.

    The variance is mu + mu^2 / r: r is what torch calls total_count, many texts the size or inverse dispersion, and
    r = infinity is Poisson. `project_` keeps it between 1e-4 and 1e6.

    With `zero_inflated`, x_i is 0 with probability pi_i, else a draw of NB. The decoder returns the logit of pi_i
    behind eta_i, so that an added zero depends on the latents as the mean does.

    With the exposure "total", mu_i is also in proportion to s, the total of the row's counts. Where entries are
    unobserved, s is the observed total divided by the share that these features have of the training counts; a row of
    zeros counts as if they summed to 1/2. The encoder reads counts divided by s. So neither codes nor decoder need tell
    how much of a row was counted, such as the depth to which a cell was sequenced. p is then p(x | s, eta) with s
    taken as given: it sums to 1 over x for each fixed s, and `log_prob` is its value at the s of x itself. Compare it
    only with what has the same exposure, as the law of `fit_marginals_` has. An unobserved entry is marginalized
    exactly for given s. Where there are no data, as in `mean` and `sample` of the decoder's output, s is the median
    of the training totals.

    `initialize_`, `network_input` and `at_exposure` also take s over its reference as `scale`, (batch, 1), where it is
    known beside x: a column of a table, see `TableLikelihood`.

    Source: Lambert 1992, "Zero-inflated Poisson regression"; Lopez et al. 2018, "Deep generative modeling for
    single-cell transcriptomics" (logits from the decoder, the observed total as size factor; there shares sum to 1).

    Args:
        event_shape: As in `Likelihood`; at least two features with an exposure.
        zero_inflated: Whether zeros are added.
        exposure: "none" or "total".

    Attributes:
        log_size: log r, learned, (*event); starts at 0.
        log_start: Log of the training mean, (*event), with an exposure that at the reference; 0 before `initialize_`
            and where nothing was observed.
        standardizer: Location and scale of log(1 + x), for the encoder.
        reference: With an exposure, the median of the training totals, scalar.
        shares: With an exposure, each feature's share of the training counts, (*event).

    Examples:
        >>> likelihood = NegativeBinomialLikelihood((2,))
        >>> likelihood.distribution(torch.tensor([[0.0, 1.0]])).variance  # mu + mu^2
        tensor([[ 2.0000, 10.1073]], grad_fn=...)

        >>> likelihood = NegativeBinomialLikelihood((2,), exposure="total")
        >>> _ = likelihood.initialize_(torch.tensor([[10.0, 30.0], [20.0, 60.0]]))
        >>> likelihood.mean(likelihood.at_exposure(torch.zeros(1, 2), torch.tensor([[50.0, 50.0]])))
        tensor([[25.0000, 75.0000]])
    """

    log_start: Tensor
    reference: Tensor
    shares: Tensor

    fits_sparse = True

    def __init__(
        self,
        event_shape: Sequence[int],
        *,
        zero_inflated: bool = False,
        exposure: Literal["none", "total"] = "none",
    ) -> None:
        super().__init__(event_shape, 2 if zero_inflated else 1)
        if exposure not in ("none", "total"):
            repair = "Leave it out for none."
            raise InvalidInputError("exposure", "must be 'none' or 'total'", f"{exposure!r}"[:80], repair)
        if exposure == "total" and self.num_features < 2:
            rule, repair = "must be 'none' for one feature, which is its own total", "Leave it out."
            raise InvalidInputError("exposure", rule, "'total'", repair)
        self.zero_inflated, self.has_exposure = zero_inflated, exposure == "total"
        self.standardizer = Standardizer(self.event_shape)
        self.log_size = nn.Parameter(torch.zeros(self.event_shape))
        self.register_buffer("log_start", torch.zeros(self.event_shape))
        if self.has_exposure:
            self.register_buffer("reference", torch.tensor(float(self.num_features)))
            self.register_buffer("shares", torch.full(self.event_shape, 1 / self.num_features))

    def domain(self, *, exact: bool = False) -> Domain:
        return COUNTS

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
        """Take log(1 + x)'s statistics, the means and the moment estimate of r; return eta = 0 and logits of pi.

        A feature that is 0 throughout starts as if its n entries had summed to 1/2. r starts at
        mean^2 / (variance - mean), kept between 0.01 and 10^4, the upper end also where the data spread no more than
        Poisson's. Zero inflation alternates these moments with the share of zeros that are added ones, by expectation
        and maximization.
        """
        self.check(x, observed)
        if observed is not None:
            x = x.masked_fill(~observed, torch.nan)  # which marks a gap from here on
        if self.has_exposure:
            if isinstance(x, SparseRows) and bool(x.sums(0).isnan().any()):
                x = x[:]  # which has gaps
            shares, reference = fit_shares(x, self._half_count)
            self.shares.copy_(shares)
            self.reference.fill_(reference)
        if scale is not None:
            self.standardizer.fit_(x / scale, scale=torch.log1p)
        else:
            self.standardizer.fit_(x, scale=lambda rows: self._rates(rows, self.observed_mask(rows)).log1p())
            if self.has_exposure:
                mask = None if isinstance(x, SparseRows) else self.observed_mask(x)
                scale = self._log_exposure(x, mask).exp()
        if scale is None and not self.zero_inflated:
            moments = feature_moments(x)
            mean = moments.mean.maximum(self._half_count / moments.count)
            self.log_start.copy_(torch.where(moments.count > 0, mean, 1.0).log())
            spread = (moments.variance - moments.mean).clamp_min(0)
            size = torch.where(spread > 0, moments.mean.square() / spread, torch.inf)
            size = torch.where(moments.count > 0, size.clamp(_LEAST_START, _LARGEST_START), 1.0)
            self.log_size.copy_(size.log())
            return torch.zeros_like(self.log_start)
        scale = torch.ones(len(x), device="cpu") if scale is None else scale
        mean, size, zeros = count_moments(
            x, scale, zero_inflated=self.zero_inflated, half_count=self._half_count
        )
        self.log_start.copy_(mean.log())
        self.log_size.copy_(size.clamp(_LEAST_START, _LARGEST_START).log())
        start = torch.zeros_like(self.log_start)
        return torch.cat([start, zeros.logit().to(start)]) if self.zero_inflated else start

    def network_input(self, x: Tensor, observed: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
        """log(1 + x), standardized, (batch, *event); unobserved entries read as 0, the training mean.

        With an exposure, x is brought to the reference exposure first.
        """
        return self.standardizer(self._rates(x, observed, scale).log1p(), observed)

    def at_exposure(
        self, parameters: Tensor, x: Tensor, observed: Tensor | None = None, scale: Tensor | None = None
    ) -> Tensor:
        if not self.has_exposure and scale is None:
            return parameters
        axis = self._axis
        eta, *logits = self.unfold(parameters).split(1, axis)
        log_scale = self._log_exposure(x, observed) if scale is None else scale.log()
        eta = eta + log_scale.to(eta.dtype).unsqueeze(axis)
        return torch.cat([eta, *logits], axis).flatten(axis, axis + 1)

    def distribution(self, parameters: Tensor) -> NegativeBinomial | ZeroInflated:
        log_mean = self._log_mean(parameters)
        law = _NegativeBinomial(log_mean, self._log_size().to(log_mean.dtype).expand_as(log_mean))
        return ZeroInflated(law, self._logits(parameters)) if self.zero_inflated else law

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        if self.zero_inflated:
            return self.distribution(parameters).log_prob(x)
        return negative_binomial_log_prob(x, self._log_mean(parameters), self._log_size())

    def mean(self, parameters: Tensor) -> Tensor:
        mean = self._log_mean(parameters).exp()
        return torch.sigmoid(-self._logits(parameters)) * mean if self.zero_inflated else mean

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw counts from a Poisson distribution whose rate is drawn from a gamma distribution, (..., *event)."""
        self._drawable(self.unfold(parameters))
        mean = self._log_mean(parameters).exp()
        size = self._log_size().exp().to(mean.dtype).expand_as(mean)
        gamma = torch._standard_gamma(size, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
        rate = gamma * (mean / size)
        drawn = torch.poisson(rate.clamp_max(_LARGEST_RATE), generator=generator)
        drawn = torch.where(rate > _LARGEST_RATE, rate, drawn)
        if not self.zero_inflated:
            return drawn
        noise = torch.empty_like(drawn).uniform_(generator=generator)
        return drawn.masked_fill(noise < torch.sigmoid(self._logits(parameters)), 0)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring r back between 1e-4 and 1e6."""
        project_(self.log_size, math.log(_MIN_SIZE), math.log(_MAX_SIZE))

    def _log_mean(self, parameters: Tensor) -> Tensor:
        """log mu, (..., *event)."""
        eta = self.unfold(parameters).select(self._axis, 0) if self.zero_inflated else self._only(parameters)
        return (eta + self.log_start).to(eta.dtype)

    def _logits(self, parameters: Tensor) -> Tensor:
        """Logits of pi, (..., *event)."""
        return self.unfold(parameters).select(self._axis, 1)

    def _log_size(self) -> Tensor:
        log_size = self.log_size if self.log_size.dtype == torch.float64 else self.log_size.float()
        return bounded(log_size, math.log(_MIN_SIZE), math.log(_MAX_SIZE))

    def _log_exposure(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """log of s over the reference, (..., 1, ...) with an axis of length 1 for each of the event's."""
        if isinstance(x, SparseRows):  # of a feature axis alone, without gaps
            return (x.sums(1)[:, None].clamp_min(_LEAST_TOTAL) / self.reference).log()
        axes = tuple(range(-len(self.event_shape), 0))
        wide = x if x.dtype == torch.float64 else x.float()
        seen = wide if observed is None else wide.masked_fill(~observed, 0)
        total = seen.sum(axes, keepdim=True).clamp_min(_LEAST_TOTAL)
        if observed is None:
            return (total / self.reference).log()
        share = torch.where(observed, self.shares.to(wide.dtype), 0).sum(axes, keepdim=True)
        return (total / share / self.reference).log().masked_fill(share == 0, 0)

    def _rates(self, x: Tensor, observed: Tensor | None, scale: Tensor | None = None) -> Tensor:
        """Counts at the reference exposure, in the shape and dtype of x."""
        if scale is None and self.has_exposure:
            scale = self._log_exposure(x, observed).exp()
        return x if scale is None else (x / scale).to(x.dtype)


# Shares, exposures and moments, fitted to data.


def count_moments(
    x: Examples, scale: Tensor, zero_inflated: bool, half_count: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Fit x_i = 0 with probability pi_i, else negative binomial with mean e mu_i and size r_i, by moments.

    Given which zeros are added ones, mu = sum x / sum e and mu^2 / r = sum((x - e mu)^2 - e mu) / sum e^2 over the
    other entries. A zero is an added one with probability pi / (pi + (1 - pi) NB(0; e mu, r)); that and the moments
    are taken in turn, 30 times, as in expectation and maximization. A feature of zeros has a mean as if they summed to
    the half count, and no added zeros. Of x, (row, *event), NaN marks an unobserved entry; e is the scale, (row,).
    Where no zeros are added pi counts for nothing. The half count is 1/2 times the copies of a row (`set_copies`).

    Returns:
        mu, r, infinite where the data spread no more than Poisson's, and pi; (*event), float64, on the CPU; 1, 1 and
        1/2 where nothing was observed.
    """
    scale, rounds = scale.reshape(-1, 1).to("cpu", torch.float64), _ROUNDS if zero_inflated else 0
    parts = [_count_moments(rows, scale, rounds, half_count) for rows in column_blocks(x)]
    mean, size, zeros = (torch.cat(part).reshape(x.shape[1:]) for part in zip(*parts, strict=True))
    return mean, size, zeros


def _count_moments(x: Tensor, scale: Tensor, rounds: int, half: float) -> tuple[Tensor, Tensor, Tensor]:
    mask = ~x.isnan()
    x = x.masked_fill(~mask, 0)
    count, sums, squares, products = mask.sum(0), x.sum(0), x.square().sum(0), (scale * x).sum(0)

    def moments(added: Tensor | float) -> tuple[Tensor, Tensor]:
        kept = mask.double() - added
        first, second = (scale * kept).sum(0), (scale.square() * kept).sum(0)
        mean = sums.clamp_min(half) / first
        spread = squares - 2 * mean * products + mean.square() * second - mean * first
        return mean, torch.where(spread > 0, mean.square() * second / spread, torch.inf)

    mean, size = moments(0.0)
    zero = mask & (x == 0) & (sums > 0)
    share = 0.5 * (zero.sum(0) + 2 * half) / (count + 4 * half)
    for _ in range(rounds):
        size = size.clamp(_LEAST_START, _LARGEST_START)
        by_chance = (-size * (scale * mean / size).log1p()).exp()
        added = (share / (share + (1 - share) * by_chance)).masked_fill(~zero, 0)
        share = (added.sum(0) + half) / (count + 2 * half)
        mean, size = moments(added)
    known = count > 0
    return torch.where(known, mean, 1.0), torch.where(known, size, 1.0), torch.where(known, share, 0.5)


def fit_shares(x: Examples, half_count: float = 0.5) -> tuple[Tensor, float]:
    """Each feature's share of the counts of a row, and the median of the rows' totals.

    The shares f are those of highest likelihood if x_ni is Poisson with mean s_n f_i. Without gaps s_n is the total of
    a row; with gaps, NaN in x, (row, *event), it is the observed total over the share of the observed features, and
    both are fitted in turn.

    Returns:
        (*event) float64, with sum 1, on the CPU; and a total above 0. A feature that was never observed has the mean
        of the others' shares.

    Examples:
        >>> fit_shares(torch.tensor([[1.0, 3.0], [2.0, torch.nan]]))
        (tensor([0.2500, 0.7500], dtype=torch.float64), 4.0)
    """
    event = x.shape[1:]
    if isinstance(x, SparseRows):  # without gaps
        sums, totals = x.sums(0), x.sums(1)
        seen = torch.ones(1, dtype=torch.bool)
    else:
        x = x.detach().flatten(1).cpu()
        seen = ~x.isnan()
        x = x.masked_fill(~seen, 0)
        sums, totals = x.sum(0, dtype=torch.float64), x.sum(1, dtype=torch.float64)
    sums, totals = sums.clamp_min(half_count), totals.clamp_min(_LEAST_TOTAL)
    shares, parts = sums / sums.sum(), torch.ones_like(totals)
    if not bool(seen.all()):
        mask, known = seen.double(), seen.any(0)
        for _ in range(_ROUNDS):
            parts = mask @ shares
            exposures = totals / parts.masked_fill(parts == 0, 1)
            shares = torch.where(known, sums / (exposures @ mask), torch.nan)
            shares = shares.nan_to_num(float(shares.nanmean().nan_to_num(1.0)))
            shares = shares / shares.sum()
        parts = mask @ shares
    found = (totals / parts)[parts > 0]
    return shares.reshape(event), float(found.median()) if len(found) else float(len(sums))
