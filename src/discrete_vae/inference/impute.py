"""Gaps in examples filled: by importance weights, or by chains."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.distributed import rank
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import samples_in_memory
from discrete_vae.inference.rows import Report, in_batches
from discrete_vae.likelihoods.base import Likelihood, PointEstimate, validate_batch
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import eval_mode
from discrete_vae.objectives.elbo import Batch
from discrete_vae.objectives.importance import ImportanceSampler, WeightedDraws
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import key_to_seed, keyed_generator

_STREAM = 0x696D70
_ROUNDS, _PICKS, _FILLS, _MOVES, _NOISE, _LAYERS, _CLASS, _DRAWS, _VALUES = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    10,
    11,
)  # keys of a row's noise
_PRIOR = 1 << 63  # key of the prior's draws, which is none of a row
_PRIOR_DRAWS, _PRIOR_SWEEPS, _STARTS = 256, 200, 4
_MAX_MEMORY = 512.0  # MiB of the networks' intermediate values
_MOST_STATISTICS = 64
_CACHED = 1 << 16  # numbers that stay in the cache while draws are averaged
_FEWEST_CHAINS, _FEW = 4, 10.0

Method: TypeAlias = Literal["importance", "chains"]


@dataclass(frozen=True)
class ImputationSettings:
    """Settings of `impute`.

    Attributes:
        method: "importance" weighs draws of the latents, exact as num_samples grows; "chains" moves chains by iterated
            importance resampling, exact as num_steps grows.
        filling: "mean", E[x | observed entries], for bits a probability; "mode", the most probable value, for bits and
            codes alone. None is the mode for codes, which have no mean, and for binary columns of tables, and the mean
            for all others.
        num_draws: Draws of each example besides, from p(x | observed entries).
        num_samples: Draws of the latents per example, those of all rounds together, which are in memory. Chains start
            after them.
        num_rounds: Rounds in which proposals learn from earlier draws, see `Proposals`; draws of the first do not count
            where there are more.
        num_fills: Ways in which a round's proposals read the gaps.
        truncated: Truncate importance weights, see `discrete_vae.inference.impute.truncated`, where draws have few
            effective samples.
        num_steps: Steps of the chains; the first fifth is left out of means.
        num_candidates: Candidates per step, at least 2.
    """

    method: Method = "importance"
    filling: PointEstimate | None = None
    num_draws: int = 0
    num_samples: int = 1000
    num_rounds: int = 10
    num_fills: int = 5
    truncated: bool = False
    num_steps: int = 100
    num_candidates: int = 20

    def __post_init__(self) -> None:
        for name, words in (("method", get_args(Method)), ("filling", (None, *get_args(PointEstimate)))):
            if (given := getattr(self, name)) not in words:
                rule = f"must be one of {', '.join(map(str, words))}"
                raise InvalidInputError(name, rule, repr(given)[:80], "Leave it out for the default.")
        for name in ("num_samples", "num_rounds", "num_fills", "num_steps", "num_candidates"):
            check_positive_int(name, getattr(self, name))
        if self.num_draws != 0:
            check_positive_int("num_draws", self.num_draws)
        if self.truncated and self.method != "importance":
            rule = "must be left out for chains, which have no weights of their own"
            raise InvalidInputError("truncated", rule, True, "Leave it out.")
        if self.num_candidates < 2:
            raise InvalidInputError("num_candidates", "must be at least 2", self.num_candidates, "Give 20.")
        if self.num_rounds > self.num_samples:
            rule = f"must be at most num_samples, {self.num_samples}"
            repair = "Give more samples, or fewer rounds."
            raise InvalidInputError("num_rounds", rule, self.num_rounds, repair)


@dataclass(frozen=True, eq=False, repr=False)
class Imputed(ShowsShapes):
    """Examples with their gaps filled.

    Attributes:
        filled: (example, *event); observed entries as they were.
        std_error: Monte-Carlo standard error of what stands in the gaps, (example, *event): of the mean, or of the
            probability of the mode; of chains, with their distance from the weighted mean of all candidates. 0 where an
            entry was observed. Too small where effective_samples is.
        effective_samples: (example,): (sum w)^2 / sum w^2 of the importance weights; of chains, how many independent
            draws would have the error of the least certain gap, and at most how many different states they passed
            through. NaN for an example without gaps.
        draws: Draws of the whole example given its observed entries, (example, draw, *event); None if none were wanted.
    """

    filled: np.ndarray
    std_error: np.ndarray
    effective_samples: np.ndarray
    draws: np.ndarray | None = None


@torch.no_grad()
def impute(
    model: DiscreteVAE,
    x: Tensor,
    *,
    observed: Tensor | None = None,
    condition: Tensor | None = None,
    settings: ImputationSettings | None = None,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    report: Report | None = None,
) -> Imputed:
    """Fill gaps by p(x_gaps | x_observed), latents integrated out.

    With latents l = (z, zeta, h) this is the mean over p(l | x_observed) of p(x_gaps | l), since features are
    independent given l. The model may have been trained on examples without gaps: weights make up for what its
    posterior makes of them. A label is not known: draws of each class are weighted by p(x_observed, y).

    Source: Rolfe 2017, section results (importance weights); Mattei & Frellsen 2019, "MIWAE" (imputation by them).

    Args:
        model: The model.
        x: (example, *event) or (example, feature), draws of the likelihood; NaN marks a gap.
        observed: Bool, of x's shape, False in gaps, whatever x holds there. None: entries that are not NaN.
        condition: c of p(x | c), (example, column), or (1, column) for all, of a model that has one; all is given c.
        settings: How; None takes the defaults.
        seed: Seed of the noise, from 0 to 2^64 - 1.
        numbers: Numbers of the examples, which key the noise: what fills an example does not depend on the others.
            None means from 0.
        report: Called after each example with the number done.

    Raises:
        InvalidInputError: If x is no draw of the likelihood, it has no such filling, or a weight is not finite.

    Warns:
        UserWarning: If the effective samples of an example are few.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=3, prior=RBMConfig(num_left=2, num_right=2)))
        >>> impute(model, torch.tensor([[1.0, torch.nan, 0.0]])).filled.shape
        (1, 3)
    """
    settings = ImputationSettings() if settings is None else settings
    if settings.method == "chains" and model.posterior.num_classes:
        rule = "must be 'importance' for a model with classes, from one of which to another chains do not go"
        raise InvalidInputError("method", rule, repr("chains"), "Leave it out.")
    likelihood = model.likelihood
    likelihood.check_point_estimate(settings.filling)
    x, mask = validate_batch(x, observed, likelihood, like=model.prior.bias, missing=True, exact=True)
    x = x.to(torch.promote_types(model.dtype, torch.float32))
    gapped = x if mask is None else x.masked_fill(~mask, torch.nan)
    # log Z is a factor of all weights
    with eval_mode(model) as model, model.importance_sampler(0.0) as sampler:
        chunk_size = samples_in_memory(model, _MAX_MEMORY)
        prior = prior_draws(model, seed)

        def compute(row: Tensor, number: Sequence[int], c: Tensor | None) -> Mapping[str, Tensor]:
            one = GappedRow(row, ~row.isnan(), key_to_seed(seed, _STREAM, number[0]), c)
            return _fill_row(model, sampler, one, settings, prior, chunk_size)

        found = in_batches(
            model, gapped, compute, conditions=[condition], numbers=numbers, batch_size=1, report=report
        )
    _warn_if_few(found["effective_samples"], settings, numbers)
    return Imputed(**found)


def _fill_row(
    model: DiscreteVAE,
    sampler: ImportanceSampler,
    row: GappedRow,
    settings: ImputationSettings,
    prior: PriorDraws,
    chunk_size: int,
) -> dict[str, Tensor]:
    """The fields of `Imputed` for one row, each with an axis of length 1 first."""
    x, num_draws = row.x, settings.num_draws
    if bool(row.observed.all()):
        whole = {"draws": x[:, None].expand(1, num_draws, *x.shape[1:])} if num_draws else {}
        nan = torch.full((1,), math.nan, dtype=torch.float64)
        return {"filled": x, "std_error": torch.zeros_like(x), "effective_samples": nan, **whole}
    rounds = {"num_rounds": settings.num_rounds, "num_fills": settings.num_fills}
    rows = [row.of_class(y) for y in range(model.posterior.num_classes)] or [row]
    proposals = [Proposals(model, sampler, each, prior, **rounds) for each in rows]
    if settings.method == "importance":
        mean, error, ess, picks = _by_importance(model, proposals, row, settings, chunk_size)
    else:
        mean, error, ess, picks = _by_chains(model, proposals[0], row, settings, chunk_size)
    mean, error = model.likelihood.point_estimate(mean[None], error[None], settings.filling)
    mean = model._check_finite("the imputed values", mean.to(x.dtype))
    result = {
        "filled": torch.where(row.observed, x, mean),
        "std_error": error.to(x.dtype).masked_fill(row.observed, 0),
        "effective_samples": torch.tensor([ess], dtype=torch.float64),
    }
    if picks is not None:
        drawn = model.likelihood.sample(picks, generator=row.generator(_VALUES)).to(x.dtype)
        result["draws"] = torch.where(row.observed, x, drawn)[None]
    return result


_Estimate: TypeAlias = tuple[Tensor, Tensor, float, Tensor | None]
"""E[T(x) | observed entries], (*statistic_shape), its standard errors, effective samples, and the decoder's output for
each draw."""


def _by_importance(
    model: DiscreteVAE,
    proposals: Sequence[Proposals],  # for each class, whose weights estimate p(x_observed, y), or for the row
    row: GappedRow,
    settings: ImputationSettings,
    chunk_size: int,
) -> _Estimate:
    moments, wanted = WeightedMoments(), settings.num_draws
    picks = Resampled(wanted, row.generator(_DRAWS)) if wanted else None
    found = [each.draw(settings.num_samples, chunk_size) for each in proposals]
    log_weights, parameters, expected = map(torch.cat, zip(*found, strict=True))
    if settings.truncated:
        log_weights = truncated(log_weights)
    at_once = max(1, _CACHED // max(1, expected[0].numel()))
    chunks = (part.split(at_once) for part in (log_weights, parameters, expected))
    for weights, outputs, statistics in zip(*chunks, strict=True):
        moments.add(weights, statistics)
        if picks is not None:
            picks.add(weights, outputs)
    values = None if picks is None else picks.values
    return moments.mean, moments.std_error, moments.effective_samples, values


def _by_chains(
    model: DiscreteVAE, proposals: Proposals, row: GappedRow, settings: ImputationSettings, chunk_size: int
) -> _Estimate:
    proposals.draw(settings.num_samples, chunk_size)  # the proposals learn
    num_chains = max(_FEWEST_CHAINS, settings.num_draws)
    sizes = {"num_candidates": settings.num_candidates, "chunk_size": chunk_size}
    chains = IteratedResampling(proposals, row, num_chains=num_chains, **sizes)
    left_out, sums, pooled = settings.num_steps // 5, 0.0, WeightedMoments()
    for step in range(settings.num_steps):
        log_weights, values, fresh = chains.step()
        values = values.double()
        pooled.add(log_weights[fresh], values[fresh])
        if step >= left_out:
            weights = torch.softmax(log_weights, 1)
            powers = torch.stack([values, values.square()])
            sums = sums + torch.einsum("nk,pnk...->pn...", weights.double(), powers)
    means, squares = torch.as_tensor(sums) / (settings.num_steps - left_out)
    mean, spread = means.mean(0), means.std(0) / math.sqrt(num_chains)
    # chains that have not forgotten their start agree with each other, and not with all candidates weighted together
    error = torch.hypot(spread, mean - pooled.mean)
    values_of = partial(model.likelihood.point_estimate, mean, kind=settings.filling)
    variance, its_error = values_of(squares.mean(0) - mean.square())[1], values_of(error)[1]
    independent = (variance / its_error.square())[~row.observed[0]]
    effective = min([num_chains + chains.num_moves, *independent[independent.isfinite()].tolist()])
    picks = chains.parameters[: settings.num_draws] if settings.num_draws else None
    return mean, error, float(effective), picks


def _warn_if_few(
    effective: np.ndarray, settings: ImputationSettings, numbers: Sequence[int] | np.ndarray | None
) -> None:
    """Say which examples rest on few draws, and what helps."""
    few = np.flatnonzero(effective < _FEW)  # NaN is not
    if not len(few) or rank() > 0:
        return
    worst = few[effective[few].argmin()]
    number = worst if numbers is None else numbers[worst]
    name = "num_samples" if settings.method == "importance" else "num_steps"
    warnings.warn(
        f"{len(few)} of {int(np.isfinite(effective).sum())} examples with gaps have fewer than {_FEW:g} effective "
        f"samples (example {number}: {effective[worst]:.1f}): their means are rough and their standard errors too "
        f"small. More draws help: {name}={4 * getattr(settings, name)}.",
        stacklevel=3,
    )


# Proposals of the latents of a row, and what weighs them.


@dataclass(frozen=True, eq=False, repr=False)
class GappedRow(ShowsShapes):
    """A row with gaps, as the estimators take it.

    Attributes:
        x: (1, *event), checked.
        observed: (1, *event), bool.
        seed: Key of all noise of the row, from `discrete_vae.rng.key_to_seed`.
        condition: (1, column), checked; None for a model without one.
        label: The class that all latents are of, of a model with classes, (1,); None for a model without.
    """

    x: Tensor
    observed: Tensor
    seed: int
    condition: Tensor | None = None
    label: Tensor | None = None

    def of_class(self, y: int) -> GappedRow:
        """The row as one of a class, with noise of its own."""
        label = torch.full((1,), y, device=self.x.device)
        return replace(self, seed=key_to_seed(self.seed, _CLASS, y), label=label)

    def generator(self, *key: int) -> torch.Generator:
        """A source of noise of its own."""
        return keyed_generator(self.seed, *key, device=self.x.device)


PriorDraws: TypeAlias = Callable[[GappedRow], Tensor]
"""What the decoder makes of draws from the prior under the condition of a row, (draw, *parameter_shape)."""


def prior_draws(model: DiscreteVAE, seed: int) -> PriorDraws:
    """Draws from the prior, of which some start as fills: the same z and zeta for every row.

    Chains need not have forgotten their start: whatever fills a gap, the weights are right.
    """
    noise = keyed_generator(seed, _STREAM, _PRIOR, device=model.prior.bias.device)
    unknown = None if model.condition is None else model.condition.unknown
    drawn = model.sample(_PRIOR_DRAWS, condition=unknown, num_sweeps=_PRIOR_SWEEPS, generator=noise)
    if model.condition is None:
        parameters = model.parameters_of(model.hierarchy.decoder_input(drawn.zeta, drawn.h))
        return lambda row: parameters

    def under(row: GappedRow) -> Tensor:
        zeta = model.with_condition(drawn.zeta, row.condition)
        h = model.hierarchy.sample(zeta, generator=row.generator(_LAYERS))
        return model.parameters_of(model.hierarchy.decoder_input(zeta, h))

    return under


class Partition:
    """Shares of several proposals in each draw of the latents, which sum to 1.

    For any f_k(l) >= 0 that sum to 1 over the proposals q_k at every l, draws l_ki of q_k, i = 1, ..., n_k, estimate
    p(x_observed) together without bias by the sum of their weights

        f_k(l_ki) p(x_observed, l_ki) / (n_k q_k(l_ki)).

    With f_k ~ n_k instead, each proposal has to estimate all of p(x_observed) alone. One that stays in one of two modes
    then estimates the part of that mode, so each mode counts as often as proposals stay in it. f_k ~ n_k q_k(l), the
    balance heuristic, has nearly the least variance, but runs all networks for each k. Here

        f_k(l) ~ n_k exp(-(d_k(l) - c_k) / 2),    d_k(l) = mean over i of (E[T_i | l] - T_i(x_k))^2 / s_i^2,

    where q_k reads the row x_k, and T_i are the statistics of the likelihood that differ between these rows, at most 64
    with the widest spread for their s_i. s_i^2 is the mean of (E[T_i | l] - T_i(x_k))^2 over the first proposals and
    their draws, and c_k the median of d_k over the draws of q_k. So modes between which proposals hardly go are parted,
    and proposals that heed no gap share all draws evenly.

    Source: Veach & Guibas 1995, "Optimally combining sampling techniques for Monte Carlo rendering", sections 3.1 and
    3.2 (f_k); the d_k are ours.

    Args:
        likelihood: The likelihood.
        rows: Rows x_k, (proposal, *event), at least 2; more may follow by `add`.
        expected: E[T | l] of draws of each, (draw, proposal, *statistic_shape).
    """

    def __init__(self, likelihood: Likelihood, rows: Tensor, expected: Tensor) -> None:
        self._likelihood = likelihood
        statistics = likelihood.statistics(rows).flatten(1)
        spread = statistics.std(0)
        noise = (expected.flatten(2) - statistics).square().mean((0, 1)).sqrt().maximum(1e-6 * spread)
        differing = int((statistics != statistics[0]).any(0).sum())
        # 0 / 0 where all rows are alike
        self._places = (spread / noise).nan_to_num(0).topk(min(differing, _MOST_STATISTICS)).indices
        self._center = statistics[:, self._places].mean(0)
        self._scale = noise[self._places] * math.sqrt(max(1, len(self._places)))
        self._rows = self._center.new_zeros(0, len(self._places))
        self._offsets = self._center.new_zeros(0, dtype=torch.float64)  # log n_k + c_k / 2
        self._typical = self._offsets
        self.add(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Tensor) -> None:
        """Take rows that more proposals read."""
        self._rows = torch.cat([self._rows, self.coordinates(self._likelihood.statistics(rows))])

    def coordinates(self, expected: Tensor) -> Tensor:
        """E[T | l], (draw, *statistic_shape), in units in which d_k is a square distance, (draw, statistic)."""
        return (expected.flatten(1)[:, self._places] - self._center) / self._scale

    def nearness(self, coordinates: Tensor, number: int) -> Tensor:
        """-d_k(l) / 2 of draws for the last proposals, but for a term of l alone, (draw, number) float64."""
        rows = self._rows[-number:]
        return (coordinates @ rows.T - 0.5 * rows.square().sum(1)).double()

    def settle(self, coordinates: Tensor, nearness: Tensor) -> Tensor:
        """Set c_k and n_k of the proposals that have none, from the draws of each.

        Args:
            coordinates: Of these draws, (draw, proposal, statistic).
            nearness: Of each draw for the proposal that it is of, (draw, proposal).

        Returns:
            -(d_k(l) - c_k) / 2 of each draw for its own proposal, but for that term, (draw, proposal).
        """
        typical = (nearness - 0.5 * coordinates.square().sum(2)).median(0).values
        self._typical = torch.cat([self._typical, typical])
        self._offsets = torch.cat([self._offsets, math.log(len(nearness)) - typical])
        return nearness - typical

    def log_sum(self, coordinates: Tensor, number: int) -> Tensor:
        """log sum_k n_k exp(-(d_k(l) - c_k) / 2) over the last proposals, but for the same term of l, (draw,)."""
        return torch.logsumexp(self.nearness(coordinates, number) + self._offsets[-number:], 1)

    def log_shares(self, expected: Tensor, chosen: Tensor) -> Tensor:
        """log f_k(l) of draws for chosen proposals, as if these were all and had one draw each, (draw, chosen)."""
        logits = self.nearness(self.coordinates(expected), len(self)) - self._typical
        return logits[:, chosen].log_softmax(1)


class Proposals:
    """q(. | the observed entries), from which the latents of a row are proposed, round after round.

    In the first round the posterior reads in the gaps what it reads there in training: nothing but the mask, or the
    training mean where the model knows no gaps. In each later round it reads the row filled in several ways: each a
    draw of p(x_gaps | latents), the latents picked among all draws so far by their weights. In the second round most of
    these latents are draws of the prior, picked by p(x_observed | latents), since draws of the posterior may all lie in
    one of several modes. The draws of all rounds but the first are pooled, with the weights of `Partition`.

    Source: Rubin 1987 (importance resampling); Cappe, Guillin, Marin & Robert 2004 (population Monte Carlo).

    Args:
        model: The model.
        sampler: Of that model, open.
        row: The row.
        prior: Of `prior_draws`.
        num_rounds: Rounds; one is the first alone.
        num_fills: Ways in which the row is filled in a later round; in the second there are more.

    Attributes:
        features: What the posterior reads, (proposal, feature), of all proposals but the first.
    """

    def __init__(
        self,
        model: DiscreteVAE,
        sampler: ImportanceSampler,
        row: GappedRow,
        prior: PriorDraws,
        *,
        num_rounds: int,
        num_fills: int,
    ) -> None:
        self._model, self._sampler, self._row, self._prior = model, sampler, row, prior
        self.likelihood = model.likelihood
        self._num_rounds, self._num_fills = num_rounds, num_fills
        self._partition: Partition | None = None
        self.features = self._read(row.x, row.observed)

    def _read(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """What the posterior reads of x, (proposal, *event), with the row's condition and its label."""
        c, label = (
            None if each is None else each.expand(len(x), *each.shape[1:])
            for each in (self._row.condition, self._row.label)
        )
        features = self._model.features_of(x, observed, c)
        return features if label is None else self._model.with_label(features, label)

    def draw(self, num_samples: int, chunk_size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draws of all rounds that count.

        Returns:
            Log-weights, (draw,) float64, nats, whose sum, of one round whose mean, estimates p(x_observed); what the
            decoder makes of the draws, (draw, *parameter_shape); and the expected statistics of the likelihood there,
            (draw, *statistic_shape).
        """
        per_round = -(-num_samples // self._num_rounds)
        found, rows, width = _Found(self.likelihood), None, 1
        for number in range(self._num_rounds):
            if number:
                rows = self._filled(number, self._picked(number, found))
                width, features = len(rows), self._read(rows, None)
                self.features = features if number == 1 else torch.cat([self.features, features])
            count = -(-per_round // width)
            drawn = list(self.propose((_ROUNDS, number), self.features[-width:], count, chunk_size))
            log_weights = torch.cat([part.log_weights for part in drawn])
            found.add(rows, log_weights, torch.cat([part.parameters for part in drawn]))
        self._partition = found.partition
        return found.log_weights, torch.cat(found.parameters), torch.cat(found.expected)

    def log_shares(self, expected: Tensor, chosen: Tensor) -> Tensor:
        """log f_k(l) for chosen proposals, as if these were all, (draw, chosen); all alike after one round."""
        if self._partition is None:
            return expected.new_zeros(len(expected), len(chosen))
        return self._partition.log_shares(expected, chosen)

    def propose(
        self, key: tuple[int, ...], features: Tensor, count: int, chunk_size: int
    ) -> Iterator[WeightedDraws]:
        """Weighted draws, (draw, proposal), from the posteriors that read (proposal, feature), without shares."""
        row, width = self._row, len(features)
        keys = [key_to_seed(row.seed, *key, place) for place in range(width)]
        size = (width, *row.x.shape[1:])
        batch = Batch(row.x.expand(size), row.observed.expand(size), keys=keys)
        return self._sampler.draws(features, batch, count, max(1, chunk_size // width))

    def _picked(self, number: int, found: _Found) -> Tensor:
        """The decoder's output at latents that fill the gaps in a later round."""
        row = self._row
        picked = found.pick(self._num_fills, row.generator(_PICKS, number))
        if number > 1:
            return picked
        prior = self._prior(row)
        size = (len(prior), *row.x.shape[1:])
        x, observed = row.x.expand(size), row.observed.expand(size)
        log_prob = self.likelihood.log_prob(prior, x, observed)
        powers = torch.linspace(0, 1, _STARTS * self._num_fills, device=log_prob.device)
        logits = log_prob.double()[:, None] * powers
        starts = (logits + _gumbel(tuple(logits.shape), row.generator(_PICKS, 0))).argmax(0)
        exposed = self.likelihood.at_exposure(prior, x, observed)
        return torch.cat([picked, exposed[starts]])

    def _filled(self, number: int, latents: Tensor) -> Tensor:
        """The row with its gaps drawn at each of some latents."""
        row = self._row
        drawn = self._model.likelihood.sample(latents, generator=row.generator(_FILLS, number))
        return torch.where(row.observed, row.x, drawn.to(row.x.dtype))


class _Found:
    """The draws of `Proposals` so far: those of the first round, until there are others.

    Attributes:
        partition: Among the proposals; None in the first round.
        log_weights: Of all draws, (draw,) float64, nats.
        parameters: What the decoder makes of the draws, (draw, *parameter_shape), of each round.
        expected: Expected statistics there, (draw, *statistic_shape), of each round.
    """

    partition: Partition | None = None
    log_weights: Tensor

    def __init__(self, likelihood: Likelihood) -> None:
        self._likelihood = likelihood
        self.parameters: list[Tensor] = []
        self.expected: list[Tensor] = []
        self._coordinates: list[Tensor] = []
        self._log_sums: Tensor  # over the proposals so far, (draw,)

    def add(self, rows: Tensor | None, log_weights: Tensor, parameters: Tensor) -> None:
        """Take draws of more proposals.

        Args:
            rows: What they read, (proposal, *event); None in the first round.
            log_weights: (draw, proposal) float64, nats, without shares.
            parameters: (draw, proposal, *parameter_shape).
        """
        parameters, (count, width) = parameters.flatten(0, 1), log_weights.shape
        expected = self._likelihood.expected_statistics(parameters)
        if rows is not None and self.partition is None:
            self.partition = Partition(self._likelihood, rows, expected.unflatten(0, (count, width)))
            self.parameters, self.expected = [], []
            self.log_weights = self._log_sums = self.log_weights.new_zeros(0)
        elif rows is not None and self.partition is not None:
            self.partition.add(rows)
        self.parameters.append(parameters)
        self.expected.append(expected)
        if self.partition is None:
            self.log_weights = log_weights.flatten()
            return
        coordinates = self.partition.coordinates(expected)
        nearness = self.partition.nearness(coordinates, width).unflatten(0, (count, width))
        own = nearness.diagonal(dim1=1, dim2=2)
        weights = log_weights + self.partition.settle(coordinates.unflatten(0, (count, width)), own)
        if self._coordinates:
            more = self.partition.log_sum(torch.cat(self._coordinates), width)
            more = torch.logaddexp(self._log_sums, more)
            self.log_weights = self.log_weights + (self._log_sums - more)
            self._log_sums = more
        self._coordinates.append(coordinates)
        log_sums = self.partition.log_sum(coordinates, len(self.partition))
        self.log_weights = torch.cat([self.log_weights, weights.flatten() - log_sums])
        self._log_sums = torch.cat([self._log_sums, log_sums])

    def pick(self, number: int, generator: torch.Generator) -> Tensor:
        """The decoder's output at independent picks by weight, (pick, *parameter_shape)."""
        noise = _gumbel((len(self.log_weights), number), generator)
        picked, firsts = (self.log_weights[:, None] + noise).argmax(0).tolist(), [0]
        for part in self.parameters:
            firsts.append(firsts[-1] + len(part))
        rounds = [bisect_right(firsts, place) - 1 for place in picked]
        return torch.stack(
            [self.parameters[each][place - firsts[each]] for each, place in zip(rounds, picked, strict=True)]
        )


class IteratedResampling:
    """Chains that are moved by iterated importance resampling.

    A chain's state is one of K draws, each from a proposal of its own that stands still: q(latents | the row as filled
    in the k-th way). A step draws the other K - 1 anew, then picks one of the K with a probability proportional to its
    weight w_k = f_k(latents_k) p(x_observed, latents_k) / q_k(latents_k), with the shares of `Partition`. That is block
    Gibbs on (k, all draws) under the law

        f_k(latents_k) p(latents_k | x_observed) prod_{j != k} q_j(latents_j),

    in which the picked draw has the law p(latents | x_observed) whatever the q_j are, since the f_k sum to 1.

    Source: Tjelmeland 2004 ("Using all Metropolis-Hastings proposals to estimate mean values"); Andrieu, Lee & Vihola
    2018, "Uniform ergodicity of the iterated conditional SMC"; here the proposals differ from draw to draw.

    Args:
        proposals: Of the row, after its rounds (`Proposals.draw`).
        row: The row.
        num_chains: Chains. The first step picks their first states among K draws.
        num_candidates: K.
        chunk_size: Draws that the networks compute at a time.

    Attributes:
        num_steps: Steps so far.
        num_moves: How often a chain has left its state, of all chains and steps.
    """

    def __init__(
        self, proposals: Proposals, row: GappedRow, *, num_chains: int, num_candidates: int, chunk_size: int
    ) -> None:
        self._proposals, self._num_chains, self._chunk_size = proposals, num_chains, chunk_size
        number = len(
            proposals.features
        )  # of all rounds, since later ones read modes as often as they are likely
        self._chosen = torch.arange(num_candidates, device=row.x.device) * number // num_candidates
        self._features = proposals.features[self._chosen]
        self._noise = row.generator(_NOISE)
        self._expected = proposals.likelihood.expected_statistics
        self._kept: tuple[Tensor, ...] | None = None
        self.num_steps = self.num_moves = 0

    @property
    def parameters(self) -> Tensor:
        """Output of the decoder at the states, (chain, *parameter_shape)."""
        assert self._kept is not None
        return self._kept[2]

    def step(self) -> tuple[Tensor, Tensor, Tensor]:
        """Move all chains once.

        Returns:
            The log-weights of the candidates that each chain picked among, (chain, candidate), their expected
            statistics, (chain, candidate, *statistic_shape), and which of them were drawn anew. Weighted means over
            them have the expectation of the next state, and less noise.
        """
        key = (_MOVES, self.num_steps)
        drawn = list(self._proposals.propose(key, self._features, self._num_chains, self._chunk_size))
        log_weights = torch.cat([part.log_weights for part in drawn])
        parameters = torch.cat([part.parameters for part in drawn])
        shape = log_weights.shape
        expected = self._expected(parameters.flatten(0, 1))
        shares = self._proposals.log_shares(expected, self._chosen)
        shares = shares.unflatten(0, shape).diagonal(dim1=1, dim2=2)
        log_weights, expected = log_weights + shares, expected.unflatten(0, shape)
        chains = torch.arange(self._num_chains, device=log_weights.device)
        fresh = torch.ones_like(log_weights, dtype=torch.bool)
        if self._kept is not None:
            slots, of_state, state, statistics = self._kept
            log_weights[chains, slots], parameters[chains, slots] = of_state, state
            expected[chains, slots] = statistics
            fresh[chains, slots] = False
        picked = (log_weights + _gumbel(tuple(log_weights.shape), self._noise)).argmax(1)
        if self._kept is not None:
            self.num_moves += int((picked != self._kept[0]).sum())
        self._kept = (picked, *(each[chains, picked] for each in (log_weights, parameters, expected)))
        self.num_steps += 1
        return log_weights, expected, fresh


# Means and picks of weighted draws that come in chunks, without keeping them.


def _gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise, float64, on the generator's device."""
    noise = torch.empty(shape, dtype=torch.float64, device=generator.device)
    return -noise.exponential_(generator=generator).log()


class Resampled:
    """Independent picks among weighted draws, each draw with a probability proportional to its weight.

    The largest of log-weight plus Gumbel noise is such a pick, and a running maximum needs no weight of the past.

    Source: Efraimidis & Spirakis 2006, "Weighted random sampling with a reservoir"; Gumbel 1954 (the maximum).
    """

    def __init__(self, num_picks: int, generator: torch.Generator) -> None:
        self._generator = generator
        self._best = torch.full((num_picks,), -torch.inf, dtype=torch.float64, device=generator.device)
        self._values: Tensor | None = None

    def add(self, log_weights: Tensor, values: Tensor) -> None:
        """Take more draws: finite log-weights (draw,), nats, and what to pick from, (draw, ...)."""
        noise = _gumbel((len(log_weights), len(self._best)), self._generator)
        best, index = (log_weights.double()[:, None] + noise).max(0)
        picked = values[index]
        if self._values is not None:
            shape = (-1, *[1] * (values.dim() - 1))
            picked = torch.where((best > self._best).reshape(shape), picked, self._values)
        self._best, self._values = self._best.maximum(best), picked

    @property
    def values(self) -> Tensor:
        """The picks, (pick, ...)."""
        assert self._values is not None
        return self._values


def truncated(log_weights: Tensor) -> Tensor:
    """Weights no larger than the root of their number times their mean, which lets no few of them decide alone.

    The bias goes to zero as draws grow; the variance is finite whatever the law of the weights.

    Source: Ionides 2008, "Truncated importance sampling".

    Examples:
        >>> truncated(torch.tensor([0.0, 0.0, 0.0, 9.0])).exp().round().tolist()  # mean 2026.5, root 2
        [1.0, 1.0, 1.0, 4053.0]
    """
    mean = torch.logsumexp(log_weights, 0) - math.log(len(log_weights))
    return log_weights.minimum(mean + math.log(len(log_weights)) / 2)


class WeightedMoments:
    """sum_k w_k f_k / sum_k w_k with its standard error, in one pass, in float64, in units of the largest weight."""

    def __init__(self) -> None:
        self._unit = -math.inf
        self._sums: Tensor  # of weights and of their squares
        self._products: Tensor  # of those with f about a value, and of the squares with its square
        self._about: Tensor | None = None

    def add(self, log_weights: Tensor, values: Tensor) -> None:
        """Take more draws: finite log-weights (draw,), nats, and f, (draw, ...)."""
        values = values.double()
        if self._about is None:
            self._about = values[0]  # sums about a value that occurs lose no digits
            self._sums, self._products = values.new_zeros(2), values.new_zeros(3, values[0].numel())
        log_weights = log_weights.double()
        unit = max(self._unit, float(log_weights.max()))
        weights = torch.exp(log_weights - unit)
        old = math.exp(self._unit - unit)
        away = (values - self._about).flatten(1)
        squares = weights.square()
        self._sums = self._sums * self._sums.new_tensor([old, old**2])
        self._sums += torch.stack([weights.sum(), squares.sum()])
        scale = self._products.new_tensor([[old], [old**2], [old**2]])
        new = torch.stack([weights @ away, squares @ away, squares @ away.square()])
        self._products = self._products * scale + new
        self._unit = unit

    @property
    def mean(self) -> Tensor:
        """The self-normalized mean, (...), consistent, with a bias of the order of 1 / effective_samples."""
        assert self._about is not None
        return self._about + (self._products[0] / self._sums[0]).reshape(self._about.shape)

    @property
    def std_error(self) -> Tensor:
        """sqrt(sum_k w_k^2 (f_k - mean)^2) / sum_k w_k, (...), by the delta method; too small where samples are few.

        Source: Owen 2013, "Monte Carlo theory, methods and examples", section 9.2.
        """
        assert self._about is not None
        away = self._products[0] / self._sums[0]
        spread = self._products[2] - 2 * away * self._products[1] + away.square() * self._sums[1]
        return (spread.clamp_min(0).sqrt() / self._sums[0]).reshape(self._about.shape)

    @property
    def effective_samples(self) -> float:
        """(sum w)^2 / sum w^2, between 1 and the number of draws."""
        total, squares = self._sums.tolist()
        return total**2 / squares
