"""The log-likelihood or ELBO of each example as an anomaly score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.data.splits import effective_number
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import (
    evaluate_log_likelihood,
    samples_in_memory,
    standard_error,
    weighted_mean,
)
from discrete_vae.inference.rows import LARGEST_BATCH, Report, RowNoise, check_numbers, in_batches
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import eval_mode
from discrete_vae.objectives.elbo import Batch, loss_terms
from discrete_vae.posterior import rows_of_labels
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import key_to_seed
from discrete_vae.sparse import Examples, check_rows

_STREAM = 0x73636F72
_REPAIR = "Give log Z in nats, from estimate_log_partition."
_FEATURE_STREAM, _CHUNK = 0x66656174, 10  # draws in memory at a time
_REFERENCE = 1 << 48  # added to the numbers of reference rows


# log p(x) or the ELBO of each example, and p-values of either.


@dataclass(frozen=True, eq=False, repr=False)
class Scores(ShowsShapes):
    """Scores of examples, in nats; std_error leaves out that of log Z, which shifts all of them alike.

    Attributes:
        value: An estimate of log p(x), or of the ELBO, (row,) float64.
        std_error: Its standard error from the draws, (row,) float64; NaN where there was one.
        num_samples: Draws per example.
        is_bound: True of the ELBO.
        ess: Effective number of importance samples, (row,) float64; None for the ELBO.
        weights: How often the population has each example, (row,) above 0, for the mean; None counts all alike.
    """

    value: np.ndarray
    std_error: np.ndarray
    num_samples: int
    is_bound: bool
    ess: np.ndarray | None = None
    weights: Tensor | None = None

    @property
    def name(self) -> str:
        """The name of value in files."""
        return "elbo" if self.is_bound else "log_likelihood"

    @property
    def mean(self) -> float:
        """Mean over the examples, weighted where they have weights."""
        if self.weights is None:
            return math.fsum(self.value) / len(self.value)
        return float(weighted_mean(torch.from_numpy(self.value), self.weights))

    @property
    def mean_std_error(self) -> float:
        """Its standard error over the examples; NaN for one."""
        return float(standard_error(torch.from_numpy(self.value), self.weights))

    @property
    def effective_examples(self) -> float | None:
        """`effective_number` of a weighted mean; None where all count alike."""
        return None if self.weights is None else effective_number(self.weights)


def score_rows(
    model: DiscreteVAE,
    x: Examples,
    *,
    log_partition: float,
    condition: Tensor | None = None,
    num_samples: int = 100,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    report: Report | None = None,
) -> Scores:
    """log p(x) of each example by importance samples from its posterior.

    An example's score depends on the seed and its number, not on the other examples: it is what
    `discrete_vae.evaluation.evaluate.evaluate_log_likelihood` averages.

    Args:
        model: The model.
        x: (row, feature) or (row, *event), draws of the likelihood; NaN marks missing values, which do not count.
        log_partition: log Z of the prior, nats.
        condition: c of p(x | c), (row, column), or (1, column) for all rows, of a model that has one.
        num_samples: Importance samples per example; value is a lower bound in expectation that rises with them.
        seed: Seed of the noise.
        numbers: Numbers of the examples, which key the noise; None means from 0.
        report: Called with the number of examples done.

    Examples:
        >>> from discrete_vae import exact_log_partition
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> log_z = exact_log_partition(model.prior).value
        >>> score_rows(model, torch.eye(6), log_partition=log_z).value.shape
        (6,)
    """
    check_rows("x", x)
    check_number("log_partition", log_partition, repair=_REPAIR)
    device = model.prior.bias.device
    found = evaluate_log_likelihood(
        model,
        x.to(device),
        condition=None if condition is None else condition.to(device),
        log_partition=log_partition,
        num_samples=num_samples,
        seed=seed,
        indices=check_numbers(numbers, len(x)),
        report=None if report is None else lambda done, _: report(done),
    ).examples
    assert found is not None
    return Scores(found.value.numpy(), found.std_error.numpy(), num_samples, False, found.ess.numpy())


def elbo_rows(
    model: DiscreteVAE,
    x: Examples,
    *,
    log_partition: float,
    condition: Tensor | None = None,
    num_samples: int = 10,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> Scores:
    """The ELBO of each example, which lies below log p(x) and costs few draws; labels are left unknown.

    The arguments are those of `score_rows`, with ``num_samples`` draws per example, which are averaged, and the batches
    of `discrete_vae.inference.rows.in_batches`.
    """
    check_positive_int("num_samples", num_samples)
    check_number("log_partition", log_partition, repair=_REPAIR)
    num_classes = model.posterior.num_classes
    with eval_mode(model) as model:

        def compute(batch: Tensor, rows: Sequence[int], c: Tensor | None) -> dict[str, Tensor]:
            opened, observed = model.preprocess(batch, None, exact=True)
            labels = model.check_labels(None, len(rows)) if num_classes else None
            # of an example each class has a row
            numbers_of_rows = [row * num_classes + y for row in rows for y in range(num_classes)] or rows
            draws = []
            for number in range(num_samples):
                noise: Any = RowNoise(numbers_of_rows, seed, _STREAM, number)
                given = Batch(opened, observed, generator=noise, condition=c, labels=labels)
                bound = loss_terms(model, given)
                reconstruction, relative, continuous = (part.double() for part in bound)
                draws.append(reconstruction - relative - continuous - log_partition)
            values = torch.stack(draws)
            error = values.std(0) / math.sqrt(num_samples) if num_samples > 1 else values[0] * math.nan
            return {"value": model._check_finite("the model's ELBO", values.mean(0)), "std_error": error}

        found = in_batches(
            model, x, compute, conditions=[condition], numbers=numbers, batch_size=batch_size, report=report
        )
    return Scores(found["value"], found["std_error"], num_samples, True)


def score_features(
    model: DiscreteVAE,
    x: Examples,
    *,
    condition: Tensor | None = None,
    num_samples: int = 100,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> np.ndarray:
    """log p(x_i | the other features) of each value: which of them make an example strange.

    Features are independent given the latents l, so p(x without x_i) = p(x) E[1 / p(x_i | l)] over p(l | x); the ratio
    of both is the conditional predictive ordinate. The mean is over importance samples with normalized weights, so
    log Z is not needed. The values of a row do not add up to log p(x).

    Source: Geisser 1980; Gelfand & Dey 1994, "Bayesian model choice", section 2.

    The arguments are those of `score_rows`, with the batches of `discrete_vae.inference.rows.in_batches`. Few
    importance samples flatter a strange value. Where modules draw the latents, a batch so large that fewer than 10
    draws of it fit the memory changes the noise.

    Returns:
        (row, *event), nats; NaN where a value is missing.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> score_features(model, torch.eye(6)).shape
        (6, 6)
    """
    check_positive_int("num_samples", num_samples)
    likelihood, num_classes = model.likelihood, model.posterior.num_classes
    most = samples_in_memory(model)
    size = min(LARGEST_BATCH, most) if batch_size is None else check_positive_int("batch_size", batch_size)
    chunk = max(1, min(_CHUNK, most // size))
    with eval_mode(model) as model, model.importance_sampler(0.0) as sampler:

        def compute(batch: Tensor, rows: Sequence[int], c: Tensor | None) -> dict[str, Tensor]:
            opened, observed = model.preprocess(batch, None, exact=True)
            features = model.features_of(opened, observed, c)
            keys = [key_to_seed(seed, _FEATURE_STREAM, row) for row in rows]
            if num_classes:  # a row for each class of an example
                example, label = rows_of_labels(model.check_labels(None, len(rows)), num_classes)
                features = model.with_label(features[example], label)
                opened, observed = opened[example], None if observed is None else observed[example]
                pairs = zip(example.tolist(), label.tolist(), strict=True)
                keys = [key_to_seed(keys[row], y) for row, y in pairs]
            total = opened.new_full((len(opened),), -math.inf, dtype=torch.float64)
            inverse = torch.full_like(opened, -math.inf, dtype=torch.float64)
            examples = Batch(opened, observed, keys=keys)
            for drawn in sampler.draws(features, examples, num_samples, chunk):
                of_features = likelihood.feature_log_prob(drawn.parameters, opened).double()
                weights = drawn.log_weights.reshape(*drawn.log_weights.shape, *[1] * (opened.dim() - 1))
                inverse = torch.logaddexp(inverse, (weights - of_features).logsumexp(0))
                total = torch.logaddexp(total, drawn.log_weights.logsumexp(0))
            of_classes = max(1, num_classes)
            total = total.view(-1, of_classes).logsumexp(1).reshape(-1, *[1] * (opened.dim() - 1))
            found = total - inverse.unflatten(0, (-1, of_classes)).logsumexp(1)
            if observed is not None:
                found = found.masked_fill(~observed[::of_classes], math.nan)
            return {"value": found}

        found = in_batches(
            model, x, compute, conditions=[condition], numbers=numbers, batch_size=size, report=report
        )
    return found["value"]


def p_values(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """P-values of scores under those of a reference: (1 + #{reference <= score}) / (1 + #reference).

    Where an example is exchangeable with those of the reference, its p-value is at most a with a probability of at
    most a, for every a. The reference must not be what the model was trained on.

    Source: Vovk, Gammerman & Shafer 2005 (conformal p-values).

    Args:
        scores: (row,), nats.
        reference: (reference row,), scores of the same kind; at least one, and none NaN.

    Returns:
        (row,), in [1 / (1 + #reference), 1].

    Examples:
        >>> p_values(np.array([-5.0, -1.0, 0.0]), np.array([-3.0, -2.0, -1.0]))
        array([0.25, 1.  , 1.  ])
    """
    known = np.sort(_checked("reference", reference, at_least=1))
    return (1 + np.searchsorted(known, _checked("scores", scores), side="right")) / (1 + len(known))


def _checked(name: str, values: np.ndarray, *, at_least: int = 0) -> np.ndarray:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError, RuntimeError):
        found = np.zeros(())
    if found.ndim != 1 or len(found) < at_least or np.isnan(found).any():
        received, repair = f"{values!r}"[:80].replace("\n", " "), "Give the values of score_rows."
        rule = f"must be (row,) numbers, none of them NaN{', of at least one example' * at_least}"
        raise InvalidInputError(name, rule, received, repair)
    return found


def reference_numbers(index: np.ndarray) -> np.ndarray:
    """Numbers that key the noise of reference rows, none of which are those of the rows that they judge."""
    return index + _REFERENCE


@dataclass(frozen=True)
class RocArea:
    """The area under a ROC curve.

    Attributes:
        value: The probability that a strange example has a lower score than a familiar one, ties counted by half.
        std_error: Its standard error over both kinds of examples; NaN where there is but one of a kind.
    """

    value: float
    std_error: float


def roc_area(familiar: np.ndarray, strange: np.ndarray) -> RocArea:
    """The area under the ROC curve of low scores as a sign of what is strange.

    Its error is unknown, NaN, where all examples of a kind are told apart from as many of the other.

    Source: DeLong, DeLong & Clarke-Pearson 1988, by ranks as in Sun & Xu 2014.

    Args:
        familiar: Scores of examples like those of training, (row,).
        strange: Scores of the others, (row,).

    Examples:
        >>> roc_area(np.array([-1.0, -2.0, -3.0]), np.array([-2.5, -4.0])).value
        0.8333333333333334
    """
    familiar, strange = _checked("familiar", familiar, at_least=1), _checked("strange", strange, at_least=1)
    many, few = len(familiar), len(strange)
    both = rankdata(np.concatenate([familiar, strange]))
    # of each example, the share of the other kind that it is told apart from
    of_familiar = (both[:many] - rankdata(familiar)) / few
    of_strange = 1 - (both[many:] - rankdata(strange)) / many
    error = math.nan
    if min(many, few) > 1:
        error = math.sqrt(of_familiar.var(ddof=1) / many + of_strange.var(ddof=1) / few) or math.nan
    return RocArea(float(of_familiar.mean()), error)


def share_error(share: float, count: float) -> float:
    """Binomial standard error of a share of examples, at (right + 1) / (examples + 2): not 0 where all agree."""
    inner = (share * count + 1) / (count + 2)
    return math.sqrt(inner * (1 - inner) / count)


def mean_error(truth: np.ndarray, guess: np.ndarray, *, is_share: bool) -> tuple[float, float]:
    """Compare guesses with what was observed, (row, ...) each; NaN in the truth does not count.

    Returns:
        The root mean square error in standard deviations of each feature, those left out that do not vary, or the share
        of wrong values where these are names, such as bits, to which means are rounded; and its standard error over
        examples. NaN where there is none, such as an error of one example.

    Examples:
        >>> mean_error(np.array([[0.0, 1.0], [1.0, np.nan]]), np.array([[0.2, 0.3], [0.9, 0.0]]), is_share=True)[0]
        0.3333333333333333
    """
    if truth.shape[:1] != guess.shape[:1] or truth.size != guess.size or np.isnan(truth).all():
        received = f"shapes {truth.shape} and {guess.shape}"
        raise InvalidInputError("guess", "must be of the truth's shape", received, "Give one per value.")
    rows, flat = len(truth), truth.reshape(len(truth), -1).astype(np.float64)
    seen, guesses = ~np.isnan(flat), guess.reshape(rows, -1)
    if is_share:
        losses = np.rint(guesses) != flat
    else:
        count = np.maximum(seen.sum(0), 1)
        mean = np.where(seen, flat, 0.0).sum(0) / count
        scale = np.sqrt((np.where(seen, flat - mean, 0.0) ** 2).sum(0) / count)
        seen = seen & (scale > 0)
        losses = ((guesses - flat) / np.where(scale > 0, scale, 1.0)) ** 2
        if not seen.any():
            return math.nan, math.nan
    per_row, weights = np.where(seen, losses, 0.0).sum(1), seen.sum(1)
    value = per_row.sum() / weights.sum()
    # of a ratio of sums over rows
    informative = int((weights > 0).sum())
    error = math.nan
    if informative > 1:
        variance = ((per_row - value * weights) ** 2).sum() * informative / (informative - 1)
        error = float(math.sqrt(variance) / weights.sum())
    if is_share:
        return float(value), error or share_error(float(value), informative)
    root = math.sqrt(value)
    return root, error / (2 * root) if root > 0 else 0.0
