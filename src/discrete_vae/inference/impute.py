"""Gaps in examples filled: by importance weights, or by chains."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import BINARY, check_positive_int
from discrete_vae.distributed import rank
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import samples_in_memory
from discrete_vae.inference.rows import Report, in_batches
from discrete_vae.likelihoods.base import Likelihood, validate_batch
from discrete_vae.likelihoods.families import CategoricalLikelihood
from discrete_vae.likelihoods.table import TableLikelihood
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.evaluation_mode import eval_mode
from discrete_vae.objectives.importance import ImportanceSampler, WeightedDraws
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import key_to_seed, keyed_generator

_STREAM = 0x696D70
_ROUNDS, _PICKS, _FILLS, _MOVES, _NOISE, _DRAWS, _VALUES = 0, 1, 2, 3, 4, 10, 11  # keys of a row's noise
_MAX_MEMORY = 512.0  # MiB of the networks' intermediate values
_FEWEST_CHAINS, _FEW = 4, 10.0

Method: TypeAlias = Literal["importance", "chains"]
Filling: TypeAlias = Literal["mean", "mode"]


@dataclass(frozen=True)
class ImputationSettings:
    """Settings of `impute`.

    Attributes:
        method: "importance" weighs draws of the latents, exact as num_samples grows; "chains" moves chains by iterated
            importance resampling, exact as num_steps grows.
        filling: "mean", E[x | observed entries], for bits a probability; "mode", the most probable value, for bits and
            codes alone. None is the mode for codes, which have no useful mean, and the mean for all others.
        num_draws: Draws of each example besides, from p(x | observed entries).
        num_samples: Draws of the latents per example, those of all rounds together. Chains start after them.
        num_rounds: Rounds in which proposals learn from earlier draws, see `Proposals`.
        num_fills: Ways in which a round's proposals read the gaps.
        truncated: Truncate importance weights, see `discrete_vae.inference.impute.truncated`, where draws have few
            effective samples. All draws of an example are then in memory.
        num_steps: Steps of the chains; the first fifth is left out of means.
        num_candidates: Candidates per step, at least 2.
    """

    method: Method = "importance"
    filling: Filling | None = None
    num_draws: int = 0
    num_samples: int = 1000
    num_rounds: int = 10
    num_fills: int = 5
    truncated: bool = False
    num_steps: int = 100
    num_candidates: int = 20

    def __post_init__(self) -> None:
        for name, words in (("method", get_args(Method)), ("filling", (None, *get_args(Filling)))):
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
    settings: ImputationSettings | None = None,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    report: Report | None = None,
) -> Imputed:
    """Fill gaps by p(x_gaps | x_observed), latents integrated out.

    With latents l = (z, zeta, h) this is the mean over p(l | x_observed) of p(x_gaps | l), since features are
    independent given l. The model may have been trained on examples without gaps: weights make up for what its
    posterior makes of them.

    Source: Rolfe 2017, section results (importance weights); Mattei & Frellsen 2019, "MIWAE" (imputation by them).

    Args:
        model: The model.
        x: (example, *event) or (example, feature), draws of the likelihood; NaN marks a gap.
        observed: Bool, of x's shape, False in gaps, whatever x holds there. None: entries that are not NaN.
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
    likelihood = model.likelihood
    filling = _filling(likelihood, settings)
    x, mask = validate_batch(x, observed, likelihood, like=model.prior.bias, missing=True, exact=True)
    x = x.to(torch.promote_types(model.dtype, torch.float32))
    gapped = x if mask is None else x.masked_fill(~mask, torch.nan)
    # log Z is a factor of all weights
    with eval_mode(model) as model, model.importance_sampler(0.0) as sampler:
        chunk_size = samples_in_memory(model, _MAX_MEMORY)

        def compute(row: Tensor, number: Sequence[int]) -> Mapping[str, Tensor]:
            one = GappedRow(row, ~row.isnan(), key_to_seed(seed, _STREAM, number[0]))
            return _fill_row(model, sampler, one, settings, filling, chunk_size)

        found = in_batches(model, gapped, compute, numbers=numbers, batch_size=1, report=report)
    _warn_if_few(found["effective_samples"], settings, numbers)
    return Imputed(**found)


def _fill_row(
    model: DiscreteVAE,
    sampler: ImportanceSampler,
    row: GappedRow,
    settings: ImputationSettings,
    filling: Filling,
    chunk_size: int,
) -> dict[str, Tensor]:
    """The fields of `Imputed` for one row, each with an axis of length 1 first."""
    x, num_draws = row.x, settings.num_draws
    if bool(row.observed.all()):
        whole = {"draws": x[:, None].expand(1, num_draws, *x.shape[1:])} if num_draws else {}
        nan = torch.full((1,), math.nan, dtype=torch.float64)
        return {"filled": x, "std_error": torch.zeros_like(x), "effective_samples": nan, **whole}
    proposals = Proposals(model, sampler, row, num_rounds=settings.num_rounds, num_fills=settings.num_fills)
    estimate = _by_importance if settings.method == "importance" else _by_chains
    mean, error, ess, picks = estimate(model, proposals, row, settings, chunk_size)
    if filling == "mode":
        mean, error = _mode(model.likelihood, mean, error)
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
"""Means and standard errors of `_summary`, effective samples, and the decoder's output for each draw."""


def _by_importance(
    model: DiscreteVAE, proposals: Proposals, row: GappedRow, settings: ImputationSettings, chunk_size: int
) -> _Estimate:
    moments, wanted = WeightedMoments(), settings.num_draws
    picks = Resampled(wanted, row.generator(_DRAWS)) if wanted else None
    draws: Iterable[Chunk] = proposals.draw(settings.num_samples, chunk_size)
    if settings.truncated:  # by the weights of all
        weights, outputs = zip(*draws, strict=True)
        draws = zip(
            truncated(torch.cat(weights)).split([len(each) for each in weights]), outputs, strict=True
        )
    for log_weights, parameters in draws:
        moments.add(log_weights, _summary(model.likelihood, parameters))
        if picks is not None:
            picks.add(log_weights, parameters)
    values = None if picks is None else picks.values
    return moments.mean, moments.std_error, moments.effective_samples, values


def _by_chains(
    model: DiscreteVAE, proposals: Proposals, row: GappedRow, settings: ImputationSettings, chunk_size: int
) -> _Estimate:
    for _ in proposals.draw(settings.num_samples, chunk_size):
        pass  # the proposals learn
    num_chains = max(_FEWEST_CHAINS, settings.num_draws)
    sizes = {"num_candidates": settings.num_candidates, "chunk_size": chunk_size}
    chains = IteratedResampling(proposals, row, num_chains=num_chains, **sizes)
    left_out, sums, pooled = settings.num_steps // 5, 0.0, WeightedMoments()
    for step in range(settings.num_steps):
        log_weights, parameters, fresh = chains.step()
        values = _summary(model.likelihood, parameters.flatten(0, 1)).double()
        pooled.add(log_weights[fresh], values[fresh.flatten()])
        if step >= left_out:
            weights, values = torch.softmax(log_weights, 1), values.unflatten(0, fresh.shape)
            powers = torch.stack([values, values.square()])
            sums = sums + torch.einsum("nk,pnk...->pn...", weights.double(), powers)
    means, squares = torch.as_tensor(sums) / (settings.num_steps - left_out)
    mean, spread = means.mean(0), means.std(0) / math.sqrt(num_chains)
    # chains that have not forgotten their start agree with each other, and not with all candidates weighted together
    error = torch.hypot(spread, mean - pooled.mean)
    independent = ((squares.mean(0) - mean.square()) / error.square())[..., ~row.observed[0]]
    effective = min([num_chains + chains.num_moves, *independent[independent.isfinite()].tolist()])
    picks = chains.parameters[: settings.num_draws] if settings.num_draws else None
    return mean, error, float(effective), picks


def _summary(likelihood: Likelihood, parameters: Tensor) -> Tensor:
    """The mean of p(x | latents), or of codes the probability of each, (draw, [code,] *event)."""
    if isinstance(likelihood, CategoricalLikelihood):
        return likelihood.probabilities(parameters)
    return likelihood.mean(parameters)


def _mode(likelihood: Likelihood, mean: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """The most probable value of each entry, and the standard error of its probability."""
    if not isinstance(likelihood, CategoricalLikelihood):
        return (mean > 0.5).to(mean.dtype), error
    code = mean.argmax(0, keepdim=True)
    return code[0].to(mean.dtype), error.gather(0, code)[0]


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


def _filling(likelihood: Likelihood, settings: ImputationSettings) -> Filling:
    """The statistic that fills gaps."""
    if isinstance(likelihood, TableLikelihood):  # an average of its codes is no value
        repair = "Draw from likelihood.sample, or decode its mode."
        raise InvalidInputError("model", "must have features of one kind to be imputed", "a table", repair)
    codes = isinstance(likelihood, CategoricalLikelihood)
    if codes and settings.filling == "mean":
        rule = "must be 'mode' or draws for codes, which have no mean"
        raise InvalidInputError("filling", rule, "'mean'", "Leave it out.")
    if settings.filling == "mode" and not codes and likelihood.domain(exact=True) != BINARY:
        rule = "must be left out for values that are neither bits nor codes"
        raise InvalidInputError("filling", rule, "'mode'", "Leave it out, or take draws.")
    return settings.filling or ("mode" if codes else "mean")


# Proposals of the latents of a row, and what weighs them.


Chunk: TypeAlias = tuple[Tensor, Tensor]
"""Log-weights, (draw,), nats, and what the decoder makes of the draws, (draw, *parameter_shape)."""


@dataclass(frozen=True, eq=False, repr=False)
class GappedRow(ShowsShapes):
    """A row with gaps, as the estimators take it.

    Attributes:
        x: (1, *event), checked.
        observed: (1, *event), bool.
        seed: Key of all noise of the row, from `discrete_vae.rng.key_to_seed`.
    """

    x: Tensor
    observed: Tensor
    seed: int

    def generator(self, *key: int) -> torch.Generator:
        """A source of noise of its own."""
        return keyed_generator(self.seed, *key, device=self.x.device)


class Proposals:
    """q(. | the observed entries), from which the latents of a row are proposed, round after round.

    In the first round the posterior reads in the gaps what it reads there in training: nothing but the mask, or the
    training mean where the model knows no gaps. In each later round it reads the row filled in several ways: each a
    draw of p(x_gaps | latents), the latents picked among all draws so far by their weights. A draw's weight is
    p(x_observed, latents) / q(latents | the row as it was read): its expectation is p(x_observed) in every round, given
    all earlier ones, and so rounds are pooled.

    Source: Rubin 1987 (importance resampling); Cappe, Guillin, Marin & Robert 2004 (population Monte Carlo).

    Args:
        model: The model.
        sampler: Of that model, open.
        row: The row.
        num_rounds: Rounds.
        num_fills: Ways in which the row is filled in a later round.
    """

    def __init__(
        self,
        model: DiscreteVAE,
        sampler: ImportanceSampler,
        row: GappedRow,
        *,
        num_rounds: int,
        num_fills: int,
    ) -> None:
        self._model, self._sampler, self._row = model, sampler, row
        self._num_rounds, self._num_fills = num_rounds, num_fills
        self._picks = Resampled(num_fills, row.generator(_PICKS))
        self.features = model.read(row.x, row.observed)

    def draw(self, num_samples: int, chunk_size: int) -> Iterator[Chunk]:
        """The draws of all rounds, of which chunks are in memory; `features` is then what the last round read."""
        per_round = -(-num_samples // self._num_rounds)
        for number in range(self._num_rounds):
            if number:
                self._fill(number)
            count = -(-per_round // len(self.features))
            for drawn in self.propose((_ROUNDS, number), self.features, count, chunk_size):
                chunk = drawn.log_weights.flatten(), drawn.parameters.flatten(0, 1)
                self._picks.add(*chunk)
                yield chunk

    def propose(
        self, key: tuple[int, ...], features: Tensor, count: int, chunk_size: int
    ) -> Iterator[WeightedDraws]:
        """Weighted draws, (draw, proposal), from the posteriors that read (proposal, feature)."""
        row, width = self._row, len(features)
        keys = [key_to_seed(row.seed, *key, place) for place in range(width)]
        size = (width, *row.x.shape[1:])
        x, observed = row.x.expand(size), row.observed.expand(size)
        return self._sampler.draws(features, x, observed, count, max(1, chunk_size // width), keys=keys)

    def _fill(self, key: int) -> None:
        """Let the posterior read the row with its gaps drawn anew."""
        row = self._row
        drawn = self._model.likelihood.sample(self._picks.values, generator=row.generator(_FILLS, key))
        filled = torch.where(row.observed, row.x, drawn.to(row.x.dtype))
        self.features = self._model.read(filled, None)


class IteratedResampling:
    """Chains that are moved by iterated importance resampling.

    A chain's state is one of K draws, each from a proposal of its own that stands still: q(latents | the row as filled
    in the k-th way). A step draws the other K - 1 anew, then picks one of the K with a probability proportional to its
    weight w_k = p(x_observed, latents_k) / q_k(latents_k). That is block Gibbs on (k, all draws) under the law

        (1 / K) p(latents_k | x_observed) prod_{j != k} q_j(latents_j),

    in which the picked draw has the law p(latents | x_observed) whatever the q_j are.

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
        fills = torch.arange(num_candidates, device=row.x.device) % len(proposals.features)
        self._features = proposals.features[fills]
        self._noise = row.generator(_NOISE)
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None
        self.num_steps = self.num_moves = 0

    @property
    def parameters(self) -> Tensor:
        """Output of the decoder at the states, (chain, *parameter_shape)."""
        assert self._kept is not None
        return self._kept[2]

    def step(self) -> tuple[Tensor, Tensor, Tensor]:
        """Move all chains once.

        Returns:
            The log-weights of the candidates that each chain picked among, (chain, candidate), what the decoder makes
            of them, (chain, candidate, *parameter_shape), and which of them were drawn anew. Weighted means over them
            have the expectation of the next state, and less noise.
        """
        key = (_MOVES, self.num_steps)
        drawn = list(self._proposals.propose(key, self._features, self._num_chains, self._chunk_size))
        log_weights = torch.cat([part.log_weights for part in drawn])
        parameters = torch.cat([part.parameters for part in drawn])
        chains = torch.arange(self._num_chains, device=log_weights.device)
        fresh = torch.ones_like(log_weights, dtype=torch.bool)
        if self._kept is not None:
            slots, of_state, state = self._kept
            log_weights[chains, slots], parameters[chains, slots] = of_state, state
            fresh[chains, slots] = False
        picked = (log_weights + _gumbel(tuple(log_weights.shape), self._noise)).argmax(1)
        if self._kept is not None:
            self.num_moves += int((picked != self._kept[0]).sum())
        self._kept = picked, log_weights[chains, picked], parameters[chains, picked]
        self.num_steps += 1
        return log_weights, parameters, fresh


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
