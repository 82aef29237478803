"""The likelihoods of codes and of real values: categorical, Gaussian."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from discrete_vae.checks import (
    FINITE,
    ColumnDomain,
    Domain,
    categories,
    check_number,
    check_positive_int,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import BernoulliLikelihood as BernoulliLikelihood  # pickles look here
from discrete_vae.likelihoods.base import Likelihood, PointEstimate
from discrete_vae.likelihoods.scaling import (
    LongTailedNormal,
    Standardizer,
    Tails,
    grid_widths,
    row_blocks,
)
from discrete_vae.numerics import HALF_LOG_TWO_PI


class CodesLikelihood(Likelihood):
    """p(x | parameters) of codes 0, ..., K_i - 1 of each feature i, which x holds as floats; the base of such kinds.

    The arguments are those of `CategoricalLikelihood`, and P, which is the largest K_i where it is None.
    """

    has_code: Tensor
    fits_sparse = True

    def __init__(
        self,
        event_shape: Sequence[int],
        num_categories: int | Sequence[int],
        parameters_per_feature: int | None = None,
    ) -> None:
        listed = list(num_categories) if isinstance(num_categories, list | tuple) else None
        sizes = tuple(check_positive_int("num_categories", size) for size in listed or [num_categories])
        largest = max(sizes)
        super().__init__(event_shape, largest if parameters_per_feature is None else parameters_per_feature)
        fits = listed is None or self.event_shape == (len(listed),)
        if not fits or min(sizes) < 2:
            rule = f"must be a number from 2, or one for each feature of {self.event_shape}"
            repair = "A feature with one value carries nothing: drop it."
            raise InvalidInputError("num_categories", rule, num_categories, repair)
        self.num_categories = num_categories
        self._sizes, self._all_alike = sizes, len(set(sizes)) == 1
        of_feature = torch.tensor(sizes).expand(self.num_features).reshape(self.event_shape)
        codes = torch.arange(largest).reshape(-1, *[1] * len(self.event_shape))
        self.register_buffer("has_code", codes < of_feature, persistent=False)

    @abstractmethod
    def log_probs(self, parameters: Tensor) -> Tensor:
        """log P(x_i = k), (..., largest K, *event); -inf for codes that a feature does not have."""

    def domain(self, *, exact: bool = False) -> Domain:
        alike = self._all_alike
        return categories(self._sizes[0]) if alike else ColumnDomain.of([*map(categories, self._sizes)])

    def distribution(self, parameters: Tensor) -> Categorical:
        """Categorical(logits), batch shape (..., *event); it draws and takes int64 codes."""
        logits = self._scores(parameters).movedim(self._axis, -1)
        return Categorical(logits=logits, validate_args=False)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log P of the given codes, (..., *event); -inf where x is no code, NaN where it is NaN."""
        log_probs = self.log_probs(parameters)
        shape = list(log_probs.shape)
        shape[self._axis] = 1
        is_code = categories(len(self.has_code)).contains(x)
        codes = x.masked_fill(~is_code, 0).long().unsqueeze(self._axis).expand(shape)
        found = log_probs.gather(self._axis, codes).squeeze(self._axis)
        return torch.where(is_code, found, torch.where(x.isnan(), torch.nan, -torch.inf))

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return self.has_code.shape

    def statistics(self, x: Tensor) -> Tensor:
        """1 at the code and 0 at the others, (..., largest K, *event)."""
        codes = torch.arange(len(self.has_code), dtype=x.dtype, device=x.device)
        return (x.unsqueeze(self._axis) == codes.reshape(-1, *[1] * len(self.event_shape))).to(x.dtype)

    def probabilities(self, parameters: Tensor) -> Tensor:
        """Probability of each code, (..., largest K, *event)."""
        return self.log_probs(parameters).exp()

    def expected_statistics(self, parameters: Tensor) -> Tensor:
        return self.probabilities(parameters)

    @property
    def point_estimates(self) -> tuple[PointEstimate, ...]:
        return ("mode",)

    def point_estimate(
        self, expected: Tensor, error: Tensor, kind: PointEstimate | None = None
    ) -> tuple[Tensor, Tensor]:
        """The code of the highest probability, and the standard error of that probability."""
        code = expected.argmax(self._axis, keepdim=True)
        error = error.gather(self._axis, code).squeeze(self._axis)
        return code.squeeze(self._axis).to(expected.dtype), error

    def mean(self, parameters: Tensor) -> Tensor:
        """The expected code, (..., *event): meaningful for ordered codes; `mode` is for the others."""
        probabilities = self.probabilities(parameters).movedim(self._axis, -1)
        codes = torch.arange(len(self.has_code), dtype=probabilities.dtype, device=probabilities.device)
        return (probabilities * codes).sum(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        scores = self._drawable(self._scores(parameters))
        return scores.argmax(self._axis).to(scores.dtype)

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw codes, (..., *event).

        The first of K exponential clocks rings, each at the rate of its code's probability: accurate for rare codes,
        where Gumbel noise from float32 uniforms is not, and without the wait that torch.multinomial brings.
        """
        scores = self._drawable(self._scores(parameters))
        clocks = torch.empty_like(scores).exponential_(generator=generator)
        return (scores - clocks.log()).argmax(self._axis).to(scores.dtype)

    def _scores(self, parameters: Tensor) -> Tensor:
        """`log_probs` up to a constant of each feature."""
        return self.log_probs(parameters)

    def _shares(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """Frequencies of the codes, (largest K, *event) float64, with half a count added for each code."""
        counts = torch.full(self.has_code.shape, self._half_count, dtype=torch.float64, device="cpu")
        for rows, seen in row_blocks(x, observed):
            counts.scatter_add_(0, rows.masked_fill(~seen, 0).long(), seen.double())
        counts = counts * self.has_code.cpu()
        return counts / counts.sum(0)


class CategoricalLikelihood(CodesLikelihood):
    """p(x | l) = prod_i softmax(l_i)_(x_i): one of K_i codes 0, ..., K_i - 1 per feature, a logit for each.

    Logits and the encoder's one-hot input have K blocks of the event's first axis, K the largest K_i: the logit of code
    k of feature (c, ...) stands at (k * event[0] + c, ...). Those of codes that a feature does not have are ignored.

    Args:
        event_shape: As in `Likelihood`; one axis where the numbers differ.
        num_categories: K, at least 2, of every feature, or a number for each of them.

    Attributes:
        frequencies: Relative frequency of each code in the training data, (K, *event), each count raised by one
            half; the encoder reads it for unobserved entries. 1 / K_i before `initialize_`.

    Examples:
        >>> likelihood = CategoricalLikelihood((2,), num_categories=3)
        >>> likelihood.parameter_shape, likelihood.input_shape
        ((6,), (6,))
        >>> likelihood.network_input(torch.tensor([[0.0, 2.0]]))
        tensor([[1., 0., 0., 0., 0., 1.]])
        >>> CategoricalLikelihood((2,), (2, 3)).distribution(torch.zeros(1, 6)).probs
        tensor([[[0.5000, 0.5000, 0.0000],
                 [0.3333, 0.3333, 0.3333]]])
    """

    frequencies: Tensor

    def __init__(self, event_shape: Sequence[int], num_categories: int | Sequence[int]) -> None:
        super().__init__(event_shape, num_categories)
        self.register_buffer("frequencies", self.has_code / self.has_code.sum(0))

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.parameter_shape

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Keep the frequencies of the codes; return their logarithms as logits, (*parameter_shape)."""
        self.check(x, observed)
        self.frequencies.copy_(self._shares(x, observed))
        return self.frequencies.log().masked_fill(~self.has_code, 0).flatten(0, 1)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """One-hot codes, (batch, *input_shape); unobserved entries read as the training frequencies."""
        axis = self._axis
        hot = self.statistics(x)
        if observed is not None:
            hot = torch.where(observed.unsqueeze(axis), hot, self.frequencies.to(x.dtype))
        return hot.flatten(axis, axis + 1)

    def log_probs(self, parameters: Tensor) -> Tensor:
        return self._scores(parameters).log_softmax(self._axis)

    def probabilities(self, parameters: Tensor) -> Tensor:
        return self._scores(parameters).softmax(self._axis)

    def _scores(self, parameters: Tensor) -> Tensor:
        logits = self.unfold(parameters)
        return logits if self._all_alike else logits.masked_fill(~self.has_code, -torch.inf)


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
        min_scale: Floor of sigma, in standard deviations of the feature, above 0, at most 0.999.
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
            self.floor.copy_((width * math.exp(-HALF_LOG_TWO_PI)).clamp_min(self.min_scale))
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
        found = -0.5 * scaled.square() - (scale * self.standardizer.divisor).log() - HALF_LOG_TWO_PI
        found = found if self.tails is None else found + self.tails.log_slope(x)
        return found.masked_fill(self.standardizer.constant, 0.0)

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
        floor = self.floor.to(log_scale.dtype) if self.grid_floor else self.min_scale
        return floor + log_scale.exp()
