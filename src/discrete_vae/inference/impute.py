"""Gaps in examples filled: by importance weights, or by chains."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
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
from discrete_vae.objectives.importance import ImportanceSampler, tempered, truncated, weighted_mean
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import key_to_seed, keyed_generator

_STREAM = 0x696D70
_ROUNDS, _PICKS, _FILLS, _MOVES, _NOISE, _LAYERS, _CLASS = range(7)  # keys of a row's noise
_DRAWS, _VALUES = 10, 11
_PRIOR = 1 << 63  # of the prior's draws, which is no row's
_PRIOR_DRAWS, _PRIOR_SWEEPS, _STARTS = 256, 200, 4
_MOST_STATISTICS = 64
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
        truncated: Truncate importance weights, see `discrete_vae.objectives.importance.truncated`, where draws have few
            effective samples.
        num_steps: Steps of the chains; the first fifth is left out of means.
        num_candidates: Candidates per step, at least 2.
    """

    method: Method = "importance"
    filling: PointEstimate | None = None
    num_draws: int = 0
    num_samples: int = 1000
    num_rounds: int = 10
    num_fills: int = 15
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
        chunk_size = samples_in_memory(model)
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
    rows = [row.of_class(y) for y in range(model.posterior.num_classes)] or [row]
    proposals = [Proposals(model, sampler, each, prior, settings, chunk_size) for each in rows]
    if settings.method == "importance":
        mean, error, ess, picks = _by_importance(proposals, row, settings)
    else:
        mean, error, ess, picks = _by_chains(proposals[0], settings)
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


def _by_importance(proposals: Sequence[Proposals], row: GappedRow, settings: ImputationSettings) -> _Estimate:
    """By proposals of the row, or of each class, whose weights estimate p(x_observed, y)."""
    log_weights, parameters, expected = map(torch.cat, zip(*(each.draw() for each in proposals), strict=True))
    if settings.truncated:
        log_weights = truncated(log_weights)
    picks = None
    if count := settings.num_draws:
        picks = parameters[_picked(log_weights[:, None].expand(-1, count), row.generator(_DRAWS))]
    return *weighted_mean(log_weights, expected), picks


def _by_chains(proposals: Proposals, settings: ImputationSettings) -> _Estimate:
    proposals.draw()  # the proposals learn
    num_chains, row = max(_FEWEST_CHAINS, settings.num_draws), proposals.row
    chains = IteratedResampling(proposals, num_chains=num_chains, num_candidates=settings.num_candidates)
    left_out, sums = settings.num_steps // 5, 0.0
    origin = torch.tensor(0.0)  # a value that occurs: sums about it lose no digits
    # of the new draws of each candidate's own proposal: their number, log of their total weight, weighted mean
    counts, totals, candidates = 0, torch.tensor(-math.inf, device=row.x.device), torch.tensor(0.0)
    for step in range(settings.num_steps):
        log_weights, values, fresh = chains.step()
        values = values.double()
        origin = values[0, 0] if step == 0 else origin
        values = values - origin
        drawn = log_weights.masked_fill(~fresh, -math.inf)
        counts, totals = counts + fresh.sum(0), torch.logaddexp(totals, drawn.logsumexp(0))
        shares = (drawn - totals).exp()  # 0 where a chain has kept its state
        new = torch.einsum("nk,nk...->k...", shares, values)
        kept = (1 - shares.sum(0)).reshape(-1, *[1] * (new.dim() - 1))
        candidates = kept * candidates + new
        if step >= left_out:
            powers = torch.stack([values, values.square()])
            sums = sums + torch.einsum("nk,pnk...->pn...", torch.softmax(log_weights, 1), powers)
    means, squares = torch.as_tensor(sums) / (settings.num_steps - left_out)
    mean, spread = means.mean(0), means.std(0) / math.sqrt(num_chains)
    pooled = torch.tensordot(torch.softmax(totals - torch.as_tensor(counts).double().log(), 0), candidates, 1)
    # chains that have not forgotten their start agree with each other, and not with all candidates weighted together
    error = torch.hypot(spread, mean - pooled)
    values_of = partial(proposals.likelihood.point_estimate, origin + mean, kind=settings.filling)
    variance, its_error = values_of(squares.mean(0) - mean.square())[1], values_of(error)[1]
    independent = (variance / its_error.square())[~row.observed[0]]
    effective = min([num_chains + chains.num_moves, *independent[independent.isfinite()].tolist()])
    picks = chains.parameters[: settings.num_draws] if settings.num_draws else None
    return origin + mean, error, float(effective), picks


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
    more, option = 4 * getattr(settings, name), name.replace("_", "-")
    warnings.warn(
        f"{len(few)} of {int(np.isfinite(effective).sum())} examples with gaps have fewer than {_FEW:g} effective "
        f"samples (example {number}: {effective[worst]:.1f}): their means are rough and their standard errors too "
        f"small. More draws help: --{option} {more}, in Python {name}={more}.",
        stacklevel=3,
    )


# Proposals of the latents of a row, and what weighs them.


@dataclass(frozen=True, eq=False, repr=False)
class GappedRow(ShowsShapes):
    """A row with gaps, as the estimators take it."""

    x: Tensor  # (1, *event), checked
    observed: Tensor  # (1, *event), bool
    seed: int  # key of all noise of the row, from `discrete_vae.rng.key_to_seed`
    condition: Tensor | None = None  # (1, column), checked; None for a model without one
    label: Tensor | None = None  # the class that all latents are of, (1,); None for a model without classes

    def of_class(self, y: int) -> GappedRow:
        """The row as one of a class, with noise of its own."""
        label = torch.full((1,), y, device=self.x.device)
        return replace(self, seed=key_to_seed(self.seed, _CLASS, y), label=label)

    def generator(self, *key: int) -> torch.Generator:
        """A source of noise of its own."""
        return keyed_generator(self.seed, *key, device=self.x.device)

    def repeated(self, count: int) -> tuple[Tensor, Tensor]:
        """x and the mask as so many rows, (count, *event) each."""
        size = (count, *self.x.shape[1:])
        return self.x.expand(size), self.observed.expand(size)


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
        self._typical = self._log_counts = self._center.new_zeros(0, dtype=torch.float64)  # c_k, log n_k

    def add(self, rows: Tensor, coordinates: Tensor) -> None:
        """Take the rows x_k, (proposal, *event), of more proposals, and `coordinates` of draws of each.

        The draws are in order: the first of each proposal, then the second of each, and so on.
        """
        width = len(rows)
        self._rows = torch.cat([self._rows, self.coordinates(self._likelihood.statistics(rows))])
        own = self._distances(coordinates)[:, -width:].unflatten(0, (-1, width)).diagonal(dim1=1, dim2=2)
        self._typical = torch.cat([self._typical, own.median(0).values])
        self._log_counts = torch.cat([self._log_counts, own.new_full((width,), math.log(len(own)))])

    def coordinates(self, expected: Tensor) -> Tensor:
        """E[T | l], (draw, *statistic_shape), in units in which d_k is a squared distance, (draw, statistic)."""
        return (expected.flatten(1)[:, self._places] - self._center) / self._scale

    def log_shares(self, coordinates: Tensor) -> Tensor:
        """log(f_k(l) / n_k), (draw, proposal) float64."""
        logits = self._logits(coordinates)
        return logits - torch.logsumexp(logits + self._log_counts, 1, keepdim=True)

    def log_shares_of(self, chosen: Tensor, coordinates: Tensor) -> Tensor:
        """log f_k(l) as if the chosen proposals were all and had one draw each, (draw, chosen) float64."""
        return self._logits(coordinates)[:, chosen].log_softmax(1)

    def _logits(self, coordinates: Tensor) -> Tensor:
        return (self._typical - self._distances(coordinates)) / 2

    def _distances(self, coordinates: Tensor) -> Tensor:
        """d_k(l), (draw, proposal) float64."""
        return torch.cdist(coordinates.double(), self._rows.double()).square()


class Proposals:
    """q(. | the observed entries), from which the latents of a row are proposed, round after round.

    In the first round the posterior reads in the gaps what it reads there in training: nothing but the mask, or the
    training mean where the model knows no gaps. In each later round it reads the row filled in several ways: each a
    draw of p(x_gaps | latents), the latents picked among all draws so far by their weights, tempered so that no few of
    them are picked again and again. In the second round most of these latents are draws of the prior, picked by
    p(x_observed | latents), since draws of the posterior may all lie in one of several modes. The draws of all rounds
    but the first are pooled, with the weights of `Partition`: these are right whatever fills the gaps.

    Source: Rubin 1987 (importance resampling); Cappe, Guillin, Marin & Robert 2004 (population Monte Carlo).
    """

    def __init__(
        self,
        model: DiscreteVAE,
        sampler: ImportanceSampler,  # of that model, open
        row: GappedRow,
        prior: PriorDraws,
        settings: ImputationSettings,  # the fills are those of a later round; in the second there are more
        chunk_size: int,  # draws that the networks compute at a time
    ) -> None:
        self._model, self._sampler, self._prior = model, sampler, prior
        self.row, self.likelihood = row, model.likelihood
        self._settings, self._chunk_size = settings, chunk_size
        # after `draw`, of all proposals but the first; None where that is the only one
        self.partition: Partition | None = None
        # what the posterior reads, (proposal, feature), likewise of all proposals but the first
        self.features = self._read(row.x, row.observed)

    def _read(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """What the posterior reads of x, (proposal, *event), with the row's condition and its label."""
        c, label = self.row.condition, self.row.label
        features = self._model.features_of(x, observed, None if c is None else c.expand(len(x), -1))
        return features if label is None else self._model.with_label(features, label.expand(len(x)))

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Draws of all rounds that count.

        Returns:
            Log-weights, (draw,) float64, nats, whose sum, of one round whose mean, estimates p(x_observed); what the
            decoder makes of the draws, (draw, *parameter_shape); and the expected statistics of the likelihood there,
            (draw, *statistic_shape).
        """
        num_rounds = self._settings.num_rounds
        per_round = -(-self._settings.num_samples // num_rounds)
        weights, outputs = (each[:, 0] for each in self.propose((_ROUNDS, 0), self.features, per_round))
        expected, raw, own, places = self.likelihood.expected_statistics(outputs), [], [], []
        for number in range(1, num_rounds):
            rows = self._filled(number, self._picked(number, weights, outputs))
            width, features = len(rows), self._read(rows, None)
            self.features = features if number == 1 else torch.cat([self.features, features])
            drawn, parameters = self.propose((_ROUNDS, number), features, -(-per_round // width))
            statistics = self.likelihood.expected_statistics(parameters.flatten(0, 1))
            if self.partition is None:  # the first round has told how to fill the gaps
                self.partition = Partition(self.likelihood, rows, statistics.unflatten(0, drawn.shape))
                outputs, expected = outputs[:0], expected[:0]
            outputs = torch.cat([outputs, parameters.flatten(0, 1)])
            expected = torch.cat([expected, statistics])
            places.append(self.partition.coordinates(statistics))
            self.partition.add(rows, places[-1])
            raw.append(drawn.flatten())
            own.append(torch.arange(-width, 0, device=drawn.device).repeat(len(drawn)) + len(self.features))
            shares = self.partition.log_shares(torch.cat(places)).gather(1, torch.cat(own)[:, None])
            weights = torch.cat(raw) + shares[:, 0]
        return weights, outputs, expected

    def propose(self, key: tuple[int, ...], features: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Draws from the posteriors that read (proposal, feature), `count` of each.

        Returns:
            Log-weights without shares, (draw, proposal), and the decoder's output, (draw, proposal, *parameter_shape).
        """
        row, width = self.row, len(features)
        keys = [key_to_seed(row.seed, *key, place) for place in range(width)]
        batch = Batch(*row.repeated(width), keys=keys)
        chunks = self._sampler.draws(features, batch, count, max(1, self._chunk_size // width))
        weights, parameters = zip(*((each.log_weights, each.parameters) for each in chunks), strict=True)
        return torch.cat(weights), torch.cat(parameters)

    def _picked(self, number: int, log_weights: Tensor, parameters: Tensor) -> Tensor:
        """The decoder's output at latents that fill the gaps in a later round."""
        row, num_fills = self.row, self._settings.num_fills
        logits = tempered(log_weights, 2 * num_fills)[:, None].expand(-1, num_fills)
        picked = parameters[_picked(logits, row.generator(_PICKS, number))]
        if number > 1:
            return picked
        prior = self._prior(row)
        x, observed = row.repeated(len(prior))
        log_prob = self.likelihood.log_prob(prior, x, observed)
        powers = torch.linspace(0, 1, _STARTS * num_fills, device=log_prob.device)
        starts = _picked(log_prob.double()[:, None] * powers, row.generator(_PICKS, 0))
        return torch.cat([picked, self.likelihood.at_exposure(prior, x, observed)[starts]])

    def _filled(self, number: int, latents: Tensor) -> Tensor:
        """The row with its gaps drawn at each of some latents."""
        row = self.row
        drawn = self.likelihood.sample(latents, generator=row.generator(_FILLS, number))
        return torch.where(row.observed, row.x, drawn.to(row.x.dtype))


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
    """

    def __init__(
        self,
        proposals: Proposals,  # of the row, after its rounds (`Proposals.draw`)
        *,
        num_chains: int,  # the first step picks their first states among K draws
        num_candidates: int,  # K
    ) -> None:
        self._proposals, self._num_chains = proposals, num_chains
        # of all rounds, since later ones read modes as often as they are likely
        every = torch.arange(num_candidates, device=proposals.row.x.device) * len(proposals.features)
        self._chosen = every // num_candidates
        self._features = proposals.features[self._chosen]
        self._noise = proposals.row.generator(_NOISE)
        self._kept: tuple[Tensor, ...] | None = None
        self.num_steps = self.num_moves = 0  # of steps; how often a chain has left its state, of all chains

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
        key, proposals = (_MOVES, self.num_steps), self._proposals
        log_weights, parameters = proposals.propose(key, self._features, self._num_chains)
        expected = proposals.likelihood.expected_statistics(parameters.flatten(0, 1))
        if proposals.partition is not None:
            coordinates = proposals.partition.coordinates(expected)
            shares = proposals.partition.log_shares_of(self._chosen, coordinates)
            log_weights = log_weights + shares.unflatten(0, log_weights.shape).diagonal(dim1=1, dim2=2)
        expected = expected.unflatten(0, log_weights.shape)
        chains = torch.arange(self._num_chains, device=log_weights.device)
        fresh = torch.ones_like(log_weights, dtype=torch.bool)
        if self._kept is not None:
            slots, of_state, state, statistics = self._kept
            log_weights[chains, slots], parameters[chains, slots] = of_state, state
            expected[chains, slots] = statistics
            fresh[chains, slots] = False
        picked = _picked(log_weights, self._noise, 1)
        if self._kept is not None:
            self.num_moves += int((picked != self._kept[0]).sum())
        self._kept = (picked, *(each[chains, picked] for each in (log_weights, parameters, expected)))
        self.num_steps += 1
        return log_weights, expected, fresh


def _picked(logits: Tensor, generator: torch.Generator, dim: int = 0) -> Tensor:
    """Places of independent picks along an axis, by probabilities softmax(logits): the largest with Gumbel noise added.

    Source: Gumbel 1954, "Statistical theory of extreme values and some practical applications".
    """
    noise = torch.empty(logits.shape, dtype=torch.float64, device=generator.device)
    return (logits - noise.exponential_(generator=generator).log()).argmax(dim)
