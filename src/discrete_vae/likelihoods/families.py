"""The likelihoods: Bernoulli, categorical, Gaussian, negative binomial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    NegativeBinomial,
    Normal,
    constraints,
)

from discrete_vae.checks import (
    BINARY,
    COUNTS,
    FINITE,
    UNIT_INTERVAL,
    Domain,
    categories,
    check_number,
    check_positive_int,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import Likelihood, PointEstimate
from discrete_vae.likelihoods.scaling import (
    LEAST_TOTAL,
    LongTailedNormal,
    Standardizer,
    Tails,
    count_moments,
    feature_moments,
    fit_shares,
    grid_widths,
    row_blocks,
)
from discrete_vae.numerics import bernoulli_log_prob, joint_bernoulli_log_prob, project_
from discrete_vae.sparse import SparseRows, dense_if_gaps


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
        self.check(x, observed)
        moments = feature_moments(x, observed)
        self.training_mean.copy_(torch.where(moments.count > 0, moments.mean, 0.5))
        return torch.logit(self.training_mean, eps=1e-3)

    @torch.no_grad()
    def fit_marginals_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Log-odds of the means, with half a count for each value, which keeps them finite for constant features.

        Source: Krichevsky & Trofimov 1981 (the half counts).
        """
        self.check(x, observed)
        moments = feature_moments(x, observed)
        ones = moments.mean * moments.count
        return (ones + 0.5).log() - (moments.count - ones + 0.5).log()

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


class CategoricalLikelihood(Likelihood):
    """p(x | l) = prod_i softmax(l_i)_(x_i): one of K codes 0, ..., K - 1 per feature, K logits per feature.

    x holds the codes as floats. Logits and the encoder's one-hot input have K blocks of the event's first axis:
    the logit of code k of feature (c, ...) stands at (k * event[0] + c, ...).

    Args:
        event_shape: As in `Likelihood`.
        num_categories: K, at least 2, the same for every feature.

    Attributes:
        frequencies: Relative frequency of each code in the training data, (K, *event), each count raised by one
            half; the encoder reads it for unobserved entries. 1 / K before `initialize_`.

    Examples:
        >>> likelihood = CategoricalLikelihood((2,), num_categories=3)
        >>> likelihood.parameter_shape, likelihood.input_shape
        ((6,), (6,))
        >>> likelihood.network_input(torch.tensor([[0.0, 2.0]]))
        tensor([[1., 0., 0., 0., 0., 1.]])
    """

    frequencies: Tensor
    fits_sparse = True

    def __init__(self, event_shape: Sequence[int], num_categories: int) -> None:
        super().__init__(event_shape, check_positive_int("num_categories", num_categories))
        if num_categories < 2:
            repair = "Drop a feature with one value."
            raise InvalidInputError("num_categories", "must be at least 2", num_categories, repair)
        self.num_categories = num_categories
        shape = (num_categories, *self.event_shape)
        self.register_buffer("frequencies", torch.full(shape, 1 / num_categories))

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.parameter_shape

    def domain(self, *, exact: bool = False) -> Domain:
        return categories(self.num_categories)

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Keep the frequencies of the codes; return their logarithms as logits, (*parameter_shape)."""
        self.check(x, observed)
        codes = range(self.num_categories)
        counts = torch.full(self.frequencies.shape, 0.5, dtype=torch.float64)
        for rows, seen in row_blocks(x, observed):
            counts += torch.stack([((rows == code) & seen).sum(0, dtype=torch.float64) for code in codes])
        self.frequencies.copy_(counts / counts.sum(0))
        return self.frequencies.log().flatten(0, 1)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """One-hot codes, (batch, *input_shape); unobserved entries read as the training frequencies."""
        axis = self._axis
        hot = self.statistics(x)
        if observed is not None:
            hot = torch.where(observed.unsqueeze(axis), hot, self.frequencies.to(x.dtype))
        return hot.flatten(axis, axis + 1)

    def distribution(self, parameters: Tensor) -> Categorical:
        """Categorical(logits), batch shape (..., *event); it draws and takes int64 codes."""
        logits = self.unfold(parameters).movedim(self._axis, -1)
        return Categorical(logits=logits, validate_args=False)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Log-softmax of the logits at the given codes, (..., *event); -inf where x is no code, NaN where it is NaN."""
        log_probs = self.unfold(parameters).log_softmax(self._axis)
        shape = list(log_probs.shape)
        shape[self._axis] = 1
        is_code = self.domain().contains(x)
        codes = x.masked_fill(~is_code, 0).long().unsqueeze(self._axis).expand(shape)
        found = log_probs.gather(self._axis, codes).squeeze(self._axis)
        return torch.where(is_code, found, torch.where(x.isnan(), torch.nan, -torch.inf))

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.num_categories, *self.event_shape)

    def statistics(self, x: Tensor) -> Tensor:
        """1 at the code and 0 at the others, (..., K, *event)."""
        codes = torch.arange(self.num_categories, dtype=x.dtype, device=x.device)
        return (x.unsqueeze(self._axis) == codes.reshape(-1, *[1] * len(self.event_shape))).to(x.dtype)

    def probabilities(self, parameters: Tensor) -> Tensor:
        """Probability of each code, (..., K, *event)."""
        return self.unfold(parameters).softmax(self._axis)

    def expected_statistics(self, parameters: Tensor) -> Tensor:
        return self.probabilities(parameters)

    @property
    def point_estimates(self) -> tuple[PointEstimate, ...]:
        return ("mode",)

    def point_estimate(
        self, expected: Tensor, error: Tensor, kind: PointEstimate | None = None
    ) -> tuple[Tensor, Tensor]:
        return most_probable_code(expected, error, self._axis)

    def mean(self, parameters: Tensor) -> Tensor:
        """The expected code, (..., *event): meaningful for ordered codes; `mode` is for the others."""
        probabilities = self.probabilities(parameters).movedim(self._axis, -1)
        codes = torch.arange(self.num_categories, dtype=probabilities.dtype, device=probabilities.device)
        return (probabilities * codes).sum(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        logits = self._drawable(self.unfold(parameters))
        return logits.argmax(self._axis).to(logits.dtype)

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw codes, (..., *event).

        The first of K exponential clocks rings, each at the rate of its code's probability: accurate for rare codes,
        where Gumbel noise from float32 uniforms is not, and without the wait that torch.multinomial brings.
        """
        logits = self._drawable(self.unfold(parameters))
        clocks = torch.empty_like(logits).exponential_(generator=generator)
        return (logits - clocks.log()).argmax(self._axis).to(logits.dtype)

    @property
    def _axis(self) -> int:
        """The axis of the codes in unfolded parameters."""
        return -len(self.event_shape) - 1


def most_probable_code(probabilities: Tensor, error: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The code of the highest probability along an axis, and the standard error of that probability."""
    code = probabilities.argmax(axis, keepdim=True)
    return code.squeeze(axis).to(probabilities.dtype), error.gather(axis, code).squeeze(axis)


_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_NARROW = 1e-15  # stands for 0, which is no standard deviation


class GaussianLikelihood(Likelihood):
    """p(x | m) = prod_i Normal(x_i; a_i + s_i m_i, s_i sigma_i), the mean from the decoder, sigma learned.

    a and s are the training mean and standard deviation of each feature, so the decoder works in standard units.
    sigma_i = min_scale + exp(log_scale_i) in these units: it never falls below the floor, so the log-density of a
    feature is at most -log(sqrt(2 pi) s_i min_scale).

    With `grid_floor`, sigma_i of a feature of few values, see `discrete_vae.likelihoods.scaling.grid_widths`, has a
    floor of d_i / (sqrt(2 pi) s_i), where d_i is their least distance. Its density is then at most 1 / d_i, as if a
    probability of at most 1 were spread over the distance: a narrow peak on a value gains nothing.

    A feature with one value in the training data has no density. It counts as unobserved: it adds nothing to log p(x),
    whatever x holds there, and its mean, mode and draws are that value.

    With `shorten_tails` features with long tails, logarithms of which would be taken by hand, have this law on a scale
    of asinh that is fitted to the training data, see `discrete_vae.likelihoods.scaling.Tails`. Densities, means, modes
    and draws are those of x all the same.

    Args:
        event_shape: As in `Likelihood`.
        min_scale: Floor of sigma, in standard deviations of the feature, above 0 and below 1.
        shorten_tails: Whether features with long tails are read on a scale of asinh.
        grid_floor: Whether features of few values have a floor of their own.

    Attributes:
        log_scale: Learned, (*event).
        floor: With `grid_floor`, the floors of sigma, (*event).
        standardizer: Holds a and s.
        tails: The scales; None without `shorten_tails`.

    Examples:
        >>> likelihood = GaussianLikelihood((2,))
        >>> likelihood.log_prob(torch.zeros(1, 2), torch.zeros(1, 2)).item()  # -log(2 pi)
        -1.8378...
    """

    floor: Tensor

    def __init__(
        self,
        event_shape: Sequence[int],
        *,
        min_scale: float = 1e-3,
        shorten_tails: bool = False,
        grid_floor: bool = False,
    ) -> None:
        super().__init__(event_shape)
        self.fits_sparse = not grid_floor
        repair = "The default is 1e-3."
        self.min_scale = check_number("min_scale", min_scale, above=0, at_most=0.999, repair=repair)
        self.tails = Tails(self.event_shape) if shorten_tails else None
        self.standardizer = Standardizer(self.event_shape)
        self.grid_floor = grid_floor
        if grid_floor:
            self.register_buffer("floor", torch.full(self.event_shape, self.min_scale))
        self.log_scale = nn.Parameter(torch.full(self.event_shape, math.log1p(-self.min_scale)))

    def domain(self, *, exact: bool = False) -> Domain:
        return FINITE

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Take a and s from the data, start sigma at 1; return zeros, the training mean in standard units.

        Where a floor is above 0.999, sigma starts 0.001 above it.
        """
        self.check(x, observed)
        if self.tails is not None:
            self.tails.fit_(x, observed)
        return self._standardize_(x, observed)

    @torch.no_grad()
    def fit_marginals_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """As `initialize_`, but on the scales of asinh that there are, once there have been data."""
        if not self.standardizer.is_fitted:
            return self.initialize_(x, observed)
        self.check(x, observed)
        return self._standardize_(x, observed)

    def _standardize_(self, x: Tensor, observed: Tensor | None) -> Tensor:
        self.standardizer.fit_(x, observed, scale=self._shortened)
        self.log_scale.fill_(math.log1p(-self.min_scale))
        if self.grid_floor:
            width = grid_widths(self._shortened(x), observed).to(self.floor) / self.standardizer.divisor
            self.floor.copy_((width * math.exp(-_HALF_LOG_TWO_PI)).clamp_min(self.min_scale))
            self.log_scale.copy_((1 - self.floor).clamp_min(1e-3).log())
        return torch.zeros_like(self.log_scale)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        return self.standardizer(self._shortened(x), observed)

    def distribution(self, parameters: Tensor) -> Normal | LongTailedNormal:
        """The law in the data's units, batch shape (..., *event); of a constant feature one far narrower than any."""
        mean, std = self._moments(parameters)
        std = std.masked_fill(self.standardizer.constant, _NARROW)
        if self.tails is not None:
            return LongTailedNormal(mean, std, self.tails)
        return Normal(mean, std, validate_args=False)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        scale = self._scale()
        scaled = (self.standardizer(self._shortened(x)) - self._only(parameters)) / scale
        found = -0.5 * scaled.square() - (scale * self.standardizer.divisor).log() - _HALF_LOG_TWO_PI
        found = found.masked_fill(self.standardizer.constant, 0.0)
        return found if self.tails is None else found + self.tails.log_slope(x)

    def mean(self, parameters: Tensor) -> Tensor:
        """E[x] in the data's units, (..., *event): a + s m, or what it comes to from a scale of asinh."""
        mean, std = self._moments(parameters)
        return mean if self.tails is None else self.tails.mean_of(mean, std)

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        mean, std = self._moments(parameters)
        x = mean + std * torch.randn(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator)
        return x if self.tails is None else self.tails.invert(x)

    def _shortened(self, x: Tensor) -> Tensor:
        return x if self.tails is None else self.tails(x)

    def _moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean a + s m and standard deviation s sigma of what has the Gaussian law, (..., *event); s may be 0."""
        mean = self._only(parameters)
        mean = (self.standardizer.location + self.standardizer.scale * mean).to(mean.dtype)
        std = self.standardizer.scale * self._scale()
        return mean, std.to(mean.dtype).expand_as(mean)

    def _scale(self) -> Tensor:
        """Sigma in standard units, (*event), float32 or wider."""
        log_scale = self.log_scale if self.log_scale.dtype == torch.float64 else self.log_scale.float()
        if self.grid_floor:
            return self.floor.to(log_scale.dtype) + log_scale.exp()
        return self.min_scale + log_scale.exp()


_MIN_SIZE, _MAX_SIZE = 1e-4, 1e6
_LARGEST_LOG = 60.0  # e^60, and counts times e^60, are finite in float32


def stirling_error(z: Tensor) -> Tensor:
    """log Gamma(z + 1) - ((z + 1/2) log z - z + log sqrt(2 pi)), what Stirling's formula lacks."""
    small = z < 8
    near = torch.where(small, z, 1.0)
    direct = torch.lgamma(near + 1) - (near + 0.5) * near.log() + near - _HALF_LOG_TWO_PI
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
    peak = 0.5 * (log_size - total.log() - positive.log()) - _HALF_LOG_TWO_PI
    peak = peak + stirling_error(total) - stirling_error(size) - stirling_error(positive)
    inside = log_mean.clamp(-_LARGEST_LOG, _LARGEST_LOG)
    beyond = log_mean - inside  # D is linear in it
    mean = inside.exp()
    excess = mean - x
    # where an argument of log1p rounds to -1, the other term of D is larger by the inverse of the rounding
    least = torch.finfo(mean.dtype).eps - 1
    first = torch.log1p((excess / total).clamp_min(least)) + beyond.clamp_min(0)
    second = torch.log1p((-excess / mean * (size / total)).clamp_min(least)) - beyond.clamp_max(0)
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


class ZeroInflated(Distribution):
    """0 with probability sigmoid(logits), else a draw of a law of counts.

    Source: Lambert 1992, "Zero-inflated Poisson regression".

    Args:
        base: Law of the counts, without event axes.
        logits: Of the added zeros, in the base's batch shape.
    """

    def __init__(self, base: Distribution, logits: Tensor) -> None:
        self.base, self.logits = base, logits
        super().__init__(base.batch_shape, validate_args=False)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """None: nothing is checked, which would wait for an accelerator."""
        return {}

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
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Take log(1 + x)'s statistics, the means and the moment estimate of r; return eta = 0 and logits of pi.

        A feature that is 0 throughout starts as if its n entries had summed to 1/2. r starts at
        mean^2 / (variance - mean), kept between 0.01 and 10^4, the upper end also where the data spread no more than
        Poisson's. Zero inflation alternates these moments with the share of zeros that are added ones, by expectation
        and maximization.
        """
        self.check(x, observed)
        if self.zero_inflated or self.has_exposure:  # moments read gaps off the values
            x = dense_if_gaps(x)
            observed = None if isinstance(x, SparseRows) else self.observed_mask(x, observed)
        if self.has_exposure:
            shares, reference = fit_shares(x, observed)
            self.shares.copy_(shares)
            self.reference.fill_(reference)
        if self.zero_inflated or self.has_exposure:
            if isinstance(x, SparseRows):
                self.standardizer.fit_(x, scale=lambda rows: self._rates(rows, None).log1p())
            else:
                self.standardizer.fit_(self._rates(x, observed).log1p(), observed)
            return self._fit_moments(x, observed)
        self.standardizer.fit_(x, observed, scale=torch.log1p)
        moments = feature_moments(x, observed)
        mean = moments.mean.maximum(0.5 / moments.count)
        self.log_start.copy_(torch.where(moments.count > 0, mean, 1.0).log())
        spread = (moments.variance - moments.mean).clamp_min(0)
        size = torch.where(spread > 0, moments.mean.square() / spread, torch.inf).clamp(1e-2, 1e4)
        self.log_size.copy_(torch.where(moments.count > 0, size, 1.0).log())
        return torch.zeros_like(self.log_start)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log(1 + x), standardized, (batch, *event); unobserved entries read as 0, the training mean.

        With an exposure, x is brought to the reference exposure first.
        """
        return self.standardizer(self._rates(x, observed).log1p(), observed)

    def at_exposure(self, parameters: Tensor, x: Tensor, observed: Tensor | None = None) -> Tensor:
        if not self.has_exposure:
            return parameters
        axis = -len(self.event_shape) - 1
        blocks = self.unfold(parameters)
        eta, *logits = blocks.split(1, axis)
        eta = eta + self._log_exposure(x, observed).to(blocks.dtype).unsqueeze(axis)
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
        mean = self._log_mean(self._drawable(parameters)).exp()
        size = self._log_size().exp().to(mean.dtype).expand_as(mean)
        gamma = torch._standard_gamma(size, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
        drawn = torch.poisson(gamma * (mean / size), generator=generator)
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
        axis = -len(self.event_shape) - 1
        eta = self.unfold(parameters).select(axis, 0) if self.zero_inflated else self._only(parameters)
        return (eta + self.log_start).to(eta.dtype)

    def _logits(self, parameters: Tensor) -> Tensor:
        """Logits of pi, (..., *event)."""
        return self.unfold(parameters).select(-len(self.event_shape) - 1, 1)

    def _log_size(self) -> Tensor:
        return self.log_size if self.log_size.dtype == torch.float64 else self.log_size.float()

    def _log_exposure(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """log of s over the reference, (..., 1, ...) with an axis of length 1 for each of the event's."""
        total, share = self._total_and_share(x, observed)
        return (total.clamp_min(LEAST_TOTAL) / share / self.reference).log().masked_fill(share == 0, 0)

    def _total_and_share(self, x: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor]:
        """The observed total of each row, and the share of the training counts that its observed features have."""
        if isinstance(x, SparseRows):  # of a feature axis alone, without gaps
            total = x.sums(1)[:, None]
            return total, torch.ones_like(total)
        axes = tuple(range(-len(self.event_shape), 0))
        wide = x if x.dtype == torch.float64 else x.float()
        if observed is None:
            total = wide.sum(axes, keepdim=True)
            return total, torch.ones_like(total)
        share = torch.where(observed, self.shares.to(wide.dtype), 0).sum(axes, keepdim=True)
        return wide.masked_fill(~observed, 0).sum(axes, keepdim=True), share

    def _rates(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """Counts at the reference exposure, in the shape and dtype of x."""
        if not self.has_exposure:
            return x
        return (x / self._log_exposure(x, observed).exp()).to(x.dtype)

    def _fit_moments(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """Take log_start and log_size, given the exposures; return the start."""
        scale = self._log_exposure(x, observed).exp() if self.has_exposure else torch.ones(len(x))
        found = count_moments(x, observed, scale, zero_inflated=self.zero_inflated)
        self.log_start.copy_(found.mean.log())
        self.log_size.copy_(found.size.clamp(1e-2, 1e4).log())
        start = torch.zeros_like(self.log_start)
        return torch.cat([start, found.zeros.logit().to(start)]) if self.zero_inflated else start
