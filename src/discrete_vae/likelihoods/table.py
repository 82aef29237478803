"""The likelihood of a table whose columns are of different kinds, and the kinds that only tables have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn import functional

from discrete_vae.checks import (
    ABOVE_MINUS_ONE,
    FINITE,
    POSITIVE,
    ColumnDomain,
    Domain,
    categories,
    values_are_readable,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import Likelihood, PointEstimate
from discrete_vae.likelihoods.families import CodesLikelihood, GaussianLikelihood
from discrete_vae.likelihoods.scaling import Standardizer, UncheckedDistribution

if TYPE_CHECKING:
    from discrete_vae.config.model import ColumnConfig


class OrdinalLikelihood(CodesLikelihood):
    """Codes in order: P(x_i <= k) = sigmoid(t_ik - eta_i), eta from the decoder, ascending thresholds t_ik learned.

    Source: McCullagh 1980, "Regression models for ordinal data", section 2.3.

    Attributes:
        first: t_i0, learned, (feature,).
        log_steps: log(t_ik - t_i(k-1)), learned, (largest K - 2, feature).

    Examples:
        >>> likelihood = OrdinalLikelihood((1,), (2,))
        >>> likelihood.distribution(torch.tensor([[0.0], [1.0]])).probs[..., 1]
        tensor([[0.5000],
                [0.7311]], grad_fn=...)
    """

    def __init__(self, event_shape: Sequence[int], num_categories: Sequence[int]) -> None:
        super().__init__(event_shape, num_categories, 1)
        self.first = nn.Parameter(torch.zeros(self.event_shape))
        self.log_steps = nn.Parameter(torch.zeros(len(self.has_code) - 2, *self.event_shape))

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Take the thresholds from the frequencies of the codes; return zeros."""
        self.check(x, observed)
        thresholds = self._shares(x, observed).cumsum(0)[:-1].logit()
        self.first.copy_(thresholds[0])
        self.log_steps.copy_(torch.where(self.has_code[2:], thresholds.diff(dim=0).log(), 0))
        return torch.zeros_like(self.first)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Codes evenly spaced from -1 to 1, (batch, feature); unobserved entries read as 0."""
        spaced = (2 * x / (self.has_code.sum(0) - 1) - 1).to(x.dtype)
        return spaced if observed is None else spaced.masked_fill(~observed, 0)

    def log_probs(self, parameters: Tensor) -> Tensor:
        """log P(x_i = k), (..., largest K, feature).

        With a = t_k - eta and b = t_(k-1) - eta, sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - e^(b - a)),
        which is accurate in both tails.
        """
        eta = self._only(parameters)[..., None, :]
        first, steps = self.first.to(eta.dtype)[None], self.log_steps.to(eta.dtype).exp()
        has_step, has_threshold = self.has_code[2:], self.has_code[1:]
        thresholds = torch.cat([first, first + steps.masked_fill(~has_step, 0).cumsum(0)])
        below = functional.logsigmoid(thresholds - eta).masked_fill(~has_threshold, 0)
        above = functional.logsigmoid(eta - thresholds).masked_fill(~has_threshold, -torch.inf)
        width = (-torch.expm1(-torch.where(has_step, steps, 1))).log().masked_fill(~has_step, 0)
        pads = (0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 1, 1)
        first, second, third = map(functional.pad, (below, above, width), pads)
        return first + second + third


class Log1p(nn.Module):
    """y = log(1 + x), for features above -1 that spread over orders of magnitude.

    It stands in the place of `discrete_vae.likelihoods.scaling.Tails` and has its methods.
    """

    def fit_(self, x: Tensor, observed: Tensor | None = None) -> None:
        """Nothing is fitted."""

    def forward(self, x: Tensor) -> Tensor:
        return x.log1p()

    def log_slope(self, x: Tensor) -> Tensor:
        """log dy/dx, nats, in the shape of x."""
        return -x.log1p()

    def invert(self, y: Tensor) -> Tensor:
        """x on its own scale, in its domain; y above 80 counts as that."""
        return y.clamp(_LEAST, _LARGEST).expm1()

    def mean_of(self, mean: Tensor, std: Tensor) -> Tensor:
        """E[x] where y is Normal(mean, std)."""
        return self.invert(mean + 0.5 * std.square())

    def mode_of(self, mean: Tensor, std: Tensor) -> Tensor:
        """The x of highest density where y is Normal(mean, std)."""
        return self.invert(mean - std.square())


_LEAST, _LARGEST = math.log(1.5e-6), 80.0  # e^y - 1 is in the domain, and finite in float32


class RealLikelihood(GaussianLikelihood):
    """Real features on one of three scales; log-densities are those of x on its own scale.

    Args:
        event_shape: (feature,).
        scale: "plain"; "log1p", for values above -1; or "asinh", fitted to features with long tails.
    """

    def __init__(self, event_shape: Sequence[int], *, scale: str = "plain") -> None:
        super().__init__(event_shape, shorten_tails=scale == "asinh")
        if scale == "log1p":
            self.tails = Log1p()

    def domain(self, *, exact: bool = False) -> Domain:
        return ABOVE_MINUS_ONE if isinstance(self.tails, Log1p) else FINITE


class ConstantLikelihood(Likelihood):
    """Features with one value: probability 1 whatever the decoder returns, which has one output for each."""

    def domain(self, *, exact: bool = False) -> Domain:
        return categories(1)

    def distribution(self, parameters: Tensor) -> Distribution:
        """A law of one value, batch shape (..., feature); of others too the log-probability is 0."""
        return _Given(self.mean(parameters))

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        return 0 * self._only(parameters)

    def mean(self, parameters: Tensor) -> Tensor:
        return torch.zeros_like(self._only(parameters))

    @property
    def point_estimates(self) -> tuple[PointEstimate, ...]:
        return ("mode", "mean")

    def mode(self, parameters: Tensor) -> Tensor:
        return self.mean(parameters)

    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return self.mean(parameters)


class ExposureLikelihood(ConstantLikelihood):
    """Exposures, which the laws of other features are given: probability 1 whatever they are; the decoder's are unused.

    Where there are no data, as in `mean` and `sample`, an exposure is its reference. The encoder reads its logarithm.

    Attributes:
        reference: Median of the training exposures, (feature,); 1 before `initialize_`.
        standardizer: Location and scale of log x, for the encoder.
    """

    stand_in = 1.0
    reference: Tensor

    def __init__(self, event_shape: Sequence[int]) -> None:
        super().__init__(event_shape)
        self.standardizer = Standardizer(self.event_shape)
        self.register_buffer("reference", torch.ones(self.event_shape))

    def domain(self, *, exact: bool = False) -> Domain:
        return POSITIVE

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Take the medians and log x's statistics."""
        self.check(x, observed)
        self.reference.copy_(x.median(0).values)
        self.standardizer.fit_(x, observed, scale=torch.log)
        return torch.zeros_like(self.reference)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        return self.standardizer(x.log(), observed)

    def mean(self, parameters: Tensor) -> Tensor:
        return self.reference.to(self._only(parameters)).expand_as(parameters)

    def point_estimate(
        self, expected: Tensor, error: Tensor, kind: PointEstimate | None = None
    ) -> tuple[Tensor, Tensor]:
        return expected, error


class _Given(UncheckedDistribution):
    """A value that is taken as given."""

    def __init__(self, value: Tensor) -> None:
        self._value = value
        super().__init__(value.shape)

    @property
    def mean(self) -> Tensor:
        return self._value

    @property
    def mode(self) -> Tensor:
        return self._value

    def log_prob(self, value: Tensor) -> Tensor:
        return torch.zeros_like(self._value + value)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._value.expand(*sample_shape, *self._value.shape)


class TableLikelihood(Likelihood):
    """p(x | parameters) of a row of a table: columns of different kinds, independent given the parameters.

    Columns of one kind are one likelihood of their own, computed at once; the decoder's output is cut into a slice for
    each kind, and the encoder reads what each kind reads, one after the other.

    Counts may have another column as their exposure e: their means are then e / reference times what the decoder's
    output stands for. e is given, as log p(x | e): it has probability 1, must be there in each row, and is no variable.

    Args:
        event_shape: (column,).
        columns: Kind and settings of each column, in the order of x.

    Attributes:
        kinds: The likelihood of each kind, over its columns.

    Examples:
        >>> from discrete_vae.config import BinaryColumnConfig, RealColumnConfig
        >>> likelihood = TableLikelihood((2,), [RealColumnConfig(name="age"), BinaryColumnConfig(name="smokes")])
        >>> likelihood.log_prob(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]])).item()  # -log(2) - log(2 pi) / 2
        -1.6120...
    """

    kinds: Sequence[Likelihood]
    by_kind: Tensor
    order: Tensor

    def __init__(self, event_shape: Sequence[int], columns: Sequence[ColumnConfig]) -> None:
        super().__init__(event_shape)
        if self.event_shape != (len(columns),):
            repair = "Give one for each column of the table."
            raise InvalidInputError("columns", f"must be as many as {event_shape} says", len(columns), repair)
        groups: dict[object, list[int]] = {}
        # exposures first: others are fitted given them
        for place in sorted(range(len(columns)), key=lambda place: columns[place].kind != "exposure"):
            groups.setdefault(columns[place].group, []).append(place)
        kinds = [columns[own[0]].build([columns[place] for place in own]) for own in groups.values()]
        self.kinds = nn.ModuleList(kinds)  # pyright: ignore[reportAttributeAccessIssue]
        by_kind = [place for places in groups.values() for place in places]
        self._is_sorted = by_kind == sorted(by_kind)
        self.register_buffer("by_kind", torch.tensor(by_kind), persistent=False)
        self.register_buffer("order", torch.tensor(by_kind).argsort(), persistent=False)
        self._names = [columns[own[0]].kind for own in groups.values()]
        self._sizes = [kind.parameter_shape[0] for kind in self.kinds]
        self._exposures = {each.name: place for place, each in enumerate(columns) if each.kind == "exposure"}
        self._exposed = [getattr(columns[own[0]], "exposure_column", None) for own in groups.values()]
        given = {name for name in self._exposed if name is not None}
        if given != self._exposures.keys():
            name = sorted(given ^ self._exposures.keys())[0]
            rule = "must have one of kind exposure for each name that counts have as theirs, and no others"
            raise InvalidInputError("columns", rule, repr(name)[:80], "Correct the name, or add the column.")
        self.has_exposure = bool(given) or any(kind.has_exposure for kind in self.kinds)

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        return (sum(self._sizes),)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (sum(kind.input_shape[0] for kind in self.kinds),)

    def domain(self, *, exact: bool = False) -> Domain:
        domains: list[Domain] = []
        for kind in self.kinds:
            domain = kind.domain(exact=exact)
            domains += domain.columns if isinstance(domain, ColumnDomain) else [domain] * kind.num_features
        return ColumnDomain.of([domains[place] for place in self.order.tolist()])

    def distribution(self, parameters: Tensor) -> Distribution:
        parts = zip(self.kinds, self._cut(parameters), strict=True)
        return _Columns([kind.distribution(part) for kind, part in parts], self)

    def check(self, x: Tensor, observed: Tensor | None = None, *, exact: bool = False) -> Tensor:
        super().check(x, observed, exact=exact)
        for name, place in self._exposures.items() if values_are_readable(x) else ():
            there = ~x[:, place].isnan() if observed is None else observed[:, place]
            if not bool(there.all()):
                rule, repair = f"must have the exposure, column {name!r}, in each row", "Give it."
                raise InvalidInputError("x", rule, "a row without", repair)
        return x

    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Initialize each kind on its columns; return their starts, one after the other."""
        self.check(x, observed)
        parts = self._given(x, observed)
        return torch.cat([kind.initialize_(own, seen, **e) for kind, own, seen, e in parts])

    def fit_marginals_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        self.check(x, observed)
        found = []
        for kind, own, seen, e in self._given(x, observed):
            found.append((kind.initialize_ if e else kind.fit_marginals_)(own, seen, **e))
        return torch.cat(found)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """What the kinds read, one after the other, (batch, *input_shape)."""
        parts = self._given(x, observed)
        return torch.cat([kind.network_input(own, seen, **e) for kind, own, seen, e in parts], -1)

    def at_exposure(self, parameters: Tensor, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Each kind's parameters at the exposure of its own columns of x, or at that which is a column."""
        parts = zip(self._given(x, observed), self._cut(parameters), strict=True)
        return torch.cat([kind.at_exposure(part, own, seen, **e) for (kind, own, seen, e), part in parts], -1)

    def with_exposure(self, values: Tensor, x: Tensor) -> Tensor:
        if not self._exposures:
            return values
        places = torch.tensor([*self._exposures.values()], device=x.device)
        return values.index_copy(-1, places, x.index_select(-1, places).to(values.dtype))

    def joint_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        parts = zip(self._of(x), self._cut(parameters), strict=True)
        first, *rest = [kind.joint_log_prob(part, own) for (kind, own), part in parts]
        return sum(rest, first)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        parts = zip(self._of(x), self._cut(parameters), strict=True)
        return self._join([kind.feature_log_prob(part, own) for (kind, own), part in parts])

    def mean(self, parameters: Tensor) -> Tensor:
        return self._each(parameters, lambda kind, part: kind.mean(part))

    def mode(self, parameters: Tensor) -> Tensor:
        return self._each(parameters, lambda kind, part: kind.mode(part))

    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return self._each(parameters, lambda kind, part: kind.sample(part, generator=generator))

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (sum(math.prod(kind.statistic_shape) for kind in self.kinds),)

    @property
    def statistic_columns(self) -> list[tuple[int, int | None]]:
        """The column of each statistic, and the code that it is 1 at; None where it is the value itself."""
        found: list[tuple[int, int | None]] = []
        widths = [kind.num_features for kind in self.kinds]
        for kind, places in zip(self.kinds, self.by_kind.split(widths), strict=True):
            is_code = kind.statistic_shape != kind.event_shape
            codes = range(kind.statistic_shape[0]) if is_code else (None,)
            found += [(place, code) for code in codes for place in places.tolist()]
        return found

    def statistics(self, x: Tensor) -> Tensor:
        """Those of the kinds, one after the other, (..., statistic)."""
        return self._in_a_row([kind.statistics(own) for kind, own in self._of(x)])

    def expected_statistics(self, parameters: Tensor) -> Tensor:
        parts = zip(self.kinds, self._cut(parameters), strict=True)
        return self._in_a_row([kind.expected_statistics(part) for kind, part in parts])

    @property
    def point_estimates(self) -> tuple[PointEstimate, ...]:
        """The values that all kinds give; the default is each kind's own, the mode where it has one."""
        first, *rest = (kind.point_estimates for kind in self.kinds)
        return tuple(each for each in first if all(each in others for others in rest))

    def check_point_estimate(self, kind: PointEstimate | None) -> None:
        names = zip(self._names, self.kinds, strict=True)
        without = sorted({name for name, own in names if kind not in (None, *own.point_estimates)})
        if without:
            rule = f"must be left out for a table with {' and '.join(without)} columns, which have no {kind}"
            raise InvalidInputError("filling", rule, repr(kind), "Leave it out, or take draws.")

    def point_estimate(
        self, expected: Tensor, error: Tensor, kind: PointEstimate | None = None
    ) -> tuple[Tensor, Tensor]:
        """Without a kind modes of binary columns and of codes, and means of all others."""
        sizes = [math.prod(own.statistic_shape) for own in self.kinds]
        parts = zip(self.kinds, expected.split(sizes, -1), error.split(sizes, -1), strict=True)
        found = []
        for own, *of_kind in parts:
            suits: PointEstimate = kind or ("mode" if "mode" in own.point_estimates else "mean")
            mean, its_error = (each.unflatten(-1, own.statistic_shape) for each in of_kind)
            found.append(own.point_estimate(mean, its_error, suits))
        values, errors = map(self._join, zip(*found, strict=True))
        return values, errors

    def _in_a_row(self, parts: Sequence[Tensor]) -> Tensor:
        """Statistics of all kinds, one after the other, from those of each."""
        pairs = zip(self.kinds, parts, strict=True)
        return torch.cat([part.flatten(-len(kind.statistic_shape)) for kind, part in pairs], -1)

    def _each(self, parameters: Tensor, call: Callable[[Likelihood, Tensor], Tensor]) -> Tensor:
        """What a call gives for each kind's slice, its columns in the table's order."""
        return self._join([call(*each) for each in zip(self.kinds, self._cut(parameters), strict=True)])

    def _cut(self, parameters: Tensor) -> tuple[Tensor, ...]:
        return parameters.split(self._sizes, -1)

    def _of(self, x: Tensor) -> list[tuple[Likelihood, Tensor]]:
        """Each kind with its columns of x, or of a mask."""
        columns = x if self._is_sorted else x.index_select(-1, self.by_kind)
        widths = [kind.num_features for kind in self.kinds]
        return list(zip(self.kinds, columns.split(widths, -1), strict=True))

    def _given(
        self, x: Tensor, observed: Tensor | None
    ) -> Iterator[tuple[Any, Tensor, Tensor | None, dict[str, Tensor]]]:
        """`_of` and the mask, with a keyword where a column is a kind's exposure: that over its reference, (..., 1).

        The first kind, that of the exposures, may take its references before the next one is asked for.
        """
        names = [*self._exposures]
        masks = [None] * len(self.kinds) if observed is None else [seen for _, seen in self._of(observed)]
        for (kind, own), seen, name in zip(self._of(x), masks, self._exposed, strict=True):
            given = {}
            if name is not None:
                reference = self.kinds[0].get_buffer("reference")[names.index(name)]
                given["scale"] = x[..., self._exposures[name], None] / reference.to(x.dtype)
            yield kind, own, seen, given

    def _join(self, parts: Sequence[Tensor]) -> Tensor:
        """Columns in the table's order from those of each kind."""
        joined = torch.cat(list(parts), -1) if len(parts) > 1 else parts[0]
        return joined if self._is_sorted else joined.index_select(-1, self.order)


class _Columns(UncheckedDistribution):
    """The laws of the columns of a table, batch shape (..., column)."""

    def __init__(self, parts: Sequence[Distribution], table: TableLikelihood) -> None:
        self._parts, self._table = parts, table
        first = parts[0].batch_shape
        super().__init__(torch.Size([*first[:-1], len(table.order)]))

    @property
    def mean(self) -> Tensor:
        return self._table._join([part.mean for part in self._parts])

    @property
    def mode(self) -> Tensor:
        return self._table._join([part.mode for part in self._parts])

    def log_prob(self, value: Tensor) -> Tensor:
        values = [own for _, own in self._table._of(value)]
        return self._table._join([part.log_prob(own) for part, own in zip(self._parts, values, strict=True)])

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        return self._table._join([part.sample(shape) for part in self._parts])
