"""Gaps in examples filled by a trained model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from discrete_vae.distributed import rank
from discrete_vae.evaluation.memory import samples_in_memory
from discrete_vae.importance_sampling import Weigher
from discrete_vae.inference.batches import Report, in_batches
from discrete_vae.inference.conditional_draws import Chunk, GappedRow, Proposals
from discrete_vae.inference.imputation_settings import Filling, ImputationSettings, filling_for
from discrete_vae.inference.iterated_resampling import IteratedResampling
from discrete_vae.inference.resampled import Resampled
from discrete_vae.inference.weighted_moments import WeightedMoments, truncated
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.categorical import CategoricalLikelihood
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.noise import key_to_seed
from discrete_vae.reading import open_batch
from discrete_vae.records import ShowsShapes

_STREAM, _PICKS, _VALUES = 0x696D70, 10, 11
_MAX_MEMORY = 512.0  # MiB of the networks' intermediate values
_FEWEST_CHAINS, _FEW = 4, 10.0


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
    independent given l. The model may have been trained on examples without gaps: the likelihood sums over what is
    observed whatever the posterior has learned, and weights make up for what the posterior makes of gaps.

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

    Returns:
        The examples with their gaps filled.

    Raises:
        InvalidInputError: If x is no draw of the likelihood or has another shape, the likelihood has no such filling,
            or a weight of the model is not finite.

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
    filling = filling_for(likelihood, settings)
    x, mask = open_batch(x, observed, likelihood, like=model.prior.bias, missing=True, exact=True)
    x = x.to(torch.promote_types(model.dtype, torch.float32))
    gapped = x if mask is None else x.masked_fill(~mask, torch.nan)
    with eval_mode(model) as model, model.weigher(0.0) as weigher:  # log Z is a factor of all weights
        chunk_size = samples_in_memory(model, _MAX_MEMORY)

        def compute(row: Tensor, number: Sequence[int]) -> Mapping[str, Tensor]:
            one = GappedRow(row, ~row.isnan(), key_to_seed(seed, _STREAM, number[0]))
            return _fill(model, weigher, one, settings, filling, chunk_size)

        found = in_batches(model, gapped, compute, numbers=numbers, batch_size=1, report=report)
    _warn_if_few(found["effective_samples"], settings, numbers)
    return Imputed(**found)


def _fill(
    model: DiscreteVAE,
    weigher: Weigher,
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
    proposals = Proposals(model, weigher, row, num_rounds=settings.num_rounds, num_fills=settings.num_fills)
    estimate = _by_importance if settings.method == "importance" else _by_chains
    mean, error, ess, picks = estimate(model, proposals, row, settings, chunk_size)
    if filling == "mode":
        mean, error = _mode(model.likelihood, mean, error)
    mean = model._finite("the imputed values", mean.to(x.dtype))
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
    picks = Resampled(wanted, row.generator(_PICKS)) if wanted else None
    draws = proposals.draw(settings.num_samples, chunk_size)
    for log_weights, parameters in _truncated(draws) if settings.truncated else draws:
        moments.add(log_weights, _summary(model.likelihood, parameters))
        if picks is not None:
            picks.add(log_weights, parameters)
    values = None if picks is None else picks.values
    return moments.mean, moments.std_error, moments.effective_samples, values


def _truncated(draws: Iterable[Chunk]) -> Iterator[Chunk]:
    """All draws together, with truncated weights."""
    chunks = list(draws)
    log_weights = truncated(torch.cat([chunk[0] for chunk in chunks]))
    return zip(
        log_weights.split([len(chunk[0]) for chunk in chunks]), (chunk[1] for chunk in chunks), strict=True
    )


def _by_chains(
    model: DiscreteVAE, proposals: Proposals, row: GappedRow, settings: ImputationSettings, chunk_size: int
) -> _Estimate:
    for _ in proposals.draw(settings.num_samples, chunk_size):
        pass  # the proposals learn
    num_chains = max(_FEWEST_CHAINS, settings.num_draws)
    chains = IteratedResampling(
        proposals,
        row,
        num_chains=num_chains,
        num_candidates=settings.num_candidates,
        chunk_size=chunk_size,
    )
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
    """What is averaged: the mean of p(x | latents), or of codes the probability of each, (draw, [code,] *event)."""
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
    more = (
        f"num_samples={4 * settings.num_samples}"
        if settings.method == "importance"
        else f"num_steps={4 * settings.num_steps}"
    )
    warnings.warn(
        f"{len(few)} of {int(np.isfinite(effective).sum())} examples with gaps have fewer than {_FEW:g} effective "
        f"samples (example {number}: {effective[worst]:.1f}): their means are rough and their standard errors too "
        f"small. More draws help: {more}.",
        stacklevel=3,
    )
