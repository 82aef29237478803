"""Estimates over a data set: log-likelihood, ELBO, and the baseline of independent features."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int, check_tensor
from discrete_vae.data.splits import check_weights, effective_number, rescaled
from discrete_vae.distributed import all_reduce_shards, shard_indices, world_size
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import Likelihood, fitted_to, set_copies
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.mlp import MLP
from discrete_vae.nets.modes import eval_mode
from discrete_vae.objectives.importance import importance_weighted
from discrete_vae.records import ShowsShapes, ShowsTable
from discrete_vae.rng import key_to_seed, keyed_generator
from discrete_vae.sparse import Examples, SparseRows, check_rows, select

PART_SIZE = 200
"""Examples whose means are taken together, so that an evaluation in parts has the digits of one that is not."""

_STREAM = 0x6C6C
_MOST_TOGETHER = 64  # examples; a batch that is not full costs as much as a full one


@dataclass(frozen=True, eq=False, repr=False)
class ExampleLogLikelihoods(ShowsShapes):
    """log p(x) of each example; all are (example,), float64 but for the index."""

    index: Tensor  # number of the example in its data set, int64
    value: Tensor  # log (1/K) sum_k w_k, nats
    std_error: Tensor  # from the importance samples, nats
    ess: Tensor  # effective number of samples
    weight: Tensor | None = None  # in the mean, positive; None where all count alike


@dataclass(frozen=True, eq=False, repr=False)
class ExampleValues(ShowsShapes):
    """A value of each example, (example,), nats, and its weight in the mean; None where all count alike."""

    value: Tensor
    weight: Tensor | None = None

    def std_error_of_gain(self, other: Tensor | None) -> float:
        """Standard error of the mean of other values of these examples less that of these; NaN of none."""
        return math.nan if other is None else float(standard_error(other.cpu() - self.value, self.weight))


@dataclass(frozen=True)
class MeanLogLikelihood(ShowsTable):
    """Mean over examples of log (1/K) sum_k w_k, nats: a lower bound of mean log p(x) in expectation given log Z."""

    value: float
    std_error: float  # over examples: which data were drawn
    monte_carlo_std_error: float  # of value from the importance samples alone
    min_ess: float  # smallest effective number of samples of an example
    median_ess: float
    doubling_gain: float  # mean gain by the last doubling, to K; value is low by about as much or more
    num_examples: int
    num_samples: int  # K
    log_partition_std_error: float = 0.0  # an error of log Z shifts value by minus itself
    # of which value is the mean, `statistics.fmean` to the last digit
    examples: ExampleLogLikelihoods | None = field(default=None, compare=False, repr=False)
    # `effective_number` of a weighted mean; None where all count alike
    effective_examples: float | None = None

    def weighted(self, weights: Tensor) -> MeanLogLikelihood:
        """The same with a weighted mean over the examples, (example,) positive; doubling_gain stays unweighted."""
        assert self.examples is not None
        examples = replace(self.examples, weight=weights)
        return _mean(examples, self.doubling_gain, self.num_samples, self.log_partition_std_error)


@torch.no_grad()
def evaluate_log_likelihood(
    model: DiscreteVAE,
    x: Examples,
    *,
    log_partition: float,
    num_samples: int,
    condition: Tensor | None = None,
    log_partition_std_error: float = 0.0,
    max_memory: float = 512.0,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    report: Callable[[int, float], None] | None = None,
) -> MeanLogLikelihood:
    """Average the importance-weighted log-likelihood over examples.

    The noise is keyed by (seed, index), so an example's estimate does not depend on the others, nor on how examples
    are divided among the processes of torchrun. Samples are streamed in chunks that fit the memory budget, and where
    there are few of them several examples go together. Where a model's parts are drawn by the modules (see
    `ImportanceSampler`) a budget so small that it shortens the chunks changes the noise.

    Source: Rolfe 2017, section results.

    Args:
        model: The model.
        x: (example, feature) or in the event's shape, draws of the likelihood; NaN marks missing values.
        log_partition: log Z of the prior, nats.
        num_samples: Importance samples per example.
        condition: c of p(x | c), (example, column), or (1, column) for all, of a model that has one.
        log_partition_std_error: Its standard error, nats; carried into the result.
        max_memory: Budget for the intermediate values of the networks, MiB.
        seed: Seed of the noise.
        indices: Numbers of the examples in their data set; None means from 0.
        report: Called after each example of this process with the number done by all and the running mean of its own.
    """
    check_rows("x", x)
    indices = range(len(x)) if indices is None else indices
    if len(indices) != len(x):
        rule, repair = f"must be the {len(x)} numbers of the examples", "Give one per row of x."
        raise InvalidInputError("indices", rule, f"{len(indices)} numbers", repair)
    check_positive_int("num_samples", num_samples)
    check_number("max_memory", max_memory, above=0, repair="Give mebibytes, for example 512.")
    chunk_size = samples_in_memory(model, max_memory)
    c = model.check_condition(condition, len(x))
    parts = torch.zeros(len(x), 4, dtype=torch.float64, device="cpu")
    total = 0.0
    own = list(shard_indices(len(x)))
    with model.importance_sampler(log_partition) as sampler:
        most = _MOST_TOGETHER if sampler.takes_batches else 1
        together = max(1, min(most, chunk_size // num_samples))
        for first in range(0, len(own), together):
            rows = own[first : first + together]
            # always as many, so that no digit depends on who the others are
            filled = rows + rows[-1:] * (together - len(rows))
            noise = [key_to_seed(seed, _STREAM, indices[row]) for row in filled]
            of_rows = None if c is None else c[filled]
            batch = model.check_batch(x[filled], condition=of_rows, exact=True, keys=noise)
            estimate = importance_weighted(sampler.log_weights(batch, num_samples, chunk_size))
            values = estimate.value, estimate.std_error, estimate.ess, estimate.doubling_gain
            parts[rows] = torch.stack(values, 1)[: len(rows)].cpu()
            for done, row in enumerate(rows, start=first + 1):
                total += float(parts[row, 0])
                if report is not None:
                    report(min(done * world_size(), len(x)), total / done)
    found: list[MeanLogLikelihood] = []
    numbers = torch.tensor(list(indices), device="cpu").split(PART_SIZE)
    for index, rows in zip(numbers, all_reduce_shards(parts).split(PART_SIZE), strict=True):
        *columns, doubling_gain = rows.unbind(1)
        examples = ExampleLogLikelihoods(index, *columns)
        found.append(_mean(examples, float(doubling_gain.mean()), num_samples, log_partition_std_error))
    return join_log_likelihoods(found)


def join_log_likelihoods(parts: Sequence[MeanLogLikelihood]) -> MeanLogLikelihood:
    """`evaluate_log_likelihood` of all examples, from that of some after others, of one model and log Z."""
    if len(parts) == 1:
        return parts[0]
    found = [part.examples for part in parts if part.examples is not None]
    columns = zip(*((each.index, each.value, each.std_error, each.ess) for each in found), strict=True)
    examples = ExampleLogLikelihoods(*map(torch.cat, columns))
    gain = math.fsum(part.doubling_gain * part.num_examples for part in parts) / len(examples.value)
    return _mean(examples, gain, parts[0].num_samples, parts[0].log_partition_std_error)


def _mean(
    examples: ExampleLogLikelihoods, doubling_gain: float, num_samples: int, log_partition_std_error: float
) -> MeanLogLikelihood:
    value, weights = examples.value, examples.weight
    scaled = torch.ones_like(value) if weights is None else rescaled(weights)
    of_samples = (scaled * examples.std_error).square().sum().sqrt() / scaled.sum()
    return MeanLogLikelihood(
        value=fmean(value.tolist()) if weights is None else float(weighted_mean(value, weights)),
        std_error=float(standard_error(value, weights)),
        monte_carlo_std_error=float(of_samples),
        min_ess=float(examples.ess.min()),
        median_ess=float(examples.ess.median()),
        doubling_gain=doubling_gain,
        num_examples=len(value),
        num_samples=num_samples,
        log_partition_std_error=log_partition_std_error,
        examples=examples,
        effective_examples=None if weights is None else effective_number(weights),
    )


_LARGEST_CHUNK = 5000  # of the CPU: fewer leave the time to the calls, more to the memory
_LIVE = 6  # arrays as wide as the widest layer that are alive at once, at most


def samples_in_memory(model: DiscreteVAE, max_memory: float = 512.0) -> int:
    """Samples of one example, at least 1, whose intermediate values of the networks fit a budget in MiB.

    On the CPU they are 5000 at most. Weights and data come on top.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    widths = [layer.in_features + layer.out_features for layer in layers]
    floats = _LIVE * max([*widths, math.prod(model.likelihood.parameter_shape) + model.prior.num_units])
    # each network beside the features has its inputs in a row
    floats += sum(sum(part.input_sizes[1:]) for part in model.modules() if isinstance(part, MLP))
    floats *= max(1, model.posterior.num_classes)  # a sample without a label is a draw of each class
    fitting = max(1, int(max_memory * 2**20 / (4 * floats)))
    return min(_LARGEST_CHUNK, fitting) if model.prior.bias.device.type == "cpu" else fitting


def weighted_mean(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """sum_i w_i v_i / sum_i w_i over the first axis, the only one where there are weights; None counts all alike."""
    if weights is None:
        return values.mean(0)
    weights = rescaled(weights)
    return weights @ values / weights.sum()


def standard_error(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Standard error of `weighted_mean` over draws of the examples; NaN for a single value.

    The weighted mean m is a ratio of two sums over examples, so its variance is, to first order,
    n / (n - 1) sum_i w_i^2 (v_i - m)^2 / (sum_i w_i)^2, with equal weights that of the plain mean.

    Source: Cochran 1977, "Sampling Techniques", section 6.3 (ratio estimates).
    """
    count = len(values)
    if count < 2:
        return torch.full_like(values[0], math.nan)
    if weights is None:
        return values.std(0) / math.sqrt(count)
    weights = rescaled(weights)
    residuals = weights * (values - weighted_mean(values, weights))
    return residuals.square().sum().mul(count / (count - 1)).sqrt() / weights.sum()


def positive_weights(
    weights: np.ndarray | Tensor | None, num_examples: int, argument: str = "weights"
) -> Tensor | None:
    """Weights of examples, (example,) float64, above 0, for a mean; None where there are none or all are equal."""
    if weights is None:
        return None
    found = torch.from_numpy(check_weights(argument, weights, num_examples))
    if not bool(found.all()):
        raise InvalidInputError(argument, "must be above 0", "a weight of 0", "Leave those examples out.")
    return None if bool((found == found[0]).all()) else found


# The ELBO.


_BATCH_SIZE = 500
_ELBO_STREAM = 0x656C626F


@dataclass(frozen=True)
class MeanElbo(ShowsTable):
    """Means over examples, in nats."""

    elbo: float
    elbo_std_error: float  # over examples, given log Z
    reconstruction: float  # log p(x | zeta)
    kl_discrete: float  # of the binary latents
    kl_continuous: float  # of the Gaussian layers
    num_examples: int
    num_samples: int  # draws per example
    log_partition_std_error: float = 0.0  # an error of log Z shifts elbo by minus itself
    effective_examples: float | None = None  # where the means are weighted; None where all count alike
    reconstruction_std_error: float = math.nan  # NaN in records that have none
    kl_discrete_std_error: float = math.nan
    kl_continuous_std_error: float = math.nan

    @property
    def total_std_error(self) -> float:
        """Standard error of elbo with that of log Z, in quadrature."""
        return math.hypot(self.elbo_std_error, self.log_partition_std_error)


@torch.no_grad()
def evaluate_elbo(
    model: DiscreteVAE,
    x: Examples,
    *,
    log_partition: float,
    condition: Tensor | None = None,
    log_partition_std_error: float = 0.0,
    num_samples: int = 1,
    num_importance_samples: int = 1,
    seed: int = 0,
    weights: np.ndarray | Tensor | None = None,
) -> MeanElbo:
    """Average the ELBO over examples, with the networks' running statistics.

    Under torchrun the examples are divided among the processes, and every process has the whole result. Its error comes
    from the spread over examples, which contains that over draws.

    The arguments are those of `evaluate_log_likelihood`, with ``num_samples`` draws of the posterior per example. More
    than one importance sample give a bound between the ELBO and log p(x). Every model of which 500 examples fit the
    memory has the same noise of a seed. Weights, (example,) above 0, make the means weighted ones.
    """
    counts = {"num_samples": num_samples, "num_importance_samples": num_importance_samples, "seed": seed}
    parts = elbo_parts(model, x, condition=condition, log_partition=log_partition, **counts)
    return mean_elbo(
        parts, num_samples=num_samples, log_partition_std_error=log_partition_std_error, weights=weights
    )


@torch.no_grad()
def elbo_parts(
    model: DiscreteVAE,
    x: Examples,
    *,
    log_partition: float,
    condition: Tensor | None = None,
    num_samples: int = 1,
    num_importance_samples: int = 1,
    seed: int = 0,
) -> Tensor:
    """Reconstruction, discrete and continuous KL of each example, (example, 3) float64, nats; see `evaluate_elbo`."""
    check_rows("x", x)
    check_positive_int("num_samples", num_samples)
    c = model.check_condition(condition, len(x))
    parts = torch.zeros(len(x), 3, dtype=torch.float64, device="cpu")
    size = min(_BATCH_SIZE, samples_in_memory(model))
    with eval_mode(model) as model:
        for draw, block in product(range(num_samples), shard_indices(math.ceil(len(x) / size))):
            first = block * size
            rows = slice(first, first + size)
            elbo = model.elbo(
                x[rows],
                condition=None if c is None else c[rows],
                log_partition=log_partition,
                num_importance_samples=num_importance_samples,
                generator=keyed_generator(seed, _ELBO_STREAM, draw, first, device=x.device),
            )
            terms = torch.stack([elbo.reconstruction, elbo.kl_discrete, elbo.kl_continuous], -1)
            parts[rows] += terms.double().cpu() / num_samples
    return all_reduce_shards(parts)


def bounds(parts: Tensor) -> Tensor:
    """The ELBO of each example, (example,), of what `elbo_parts` gives."""
    return parts[:, 0] - parts[:, 1] - parts[:, 2]


def mean_elbo(
    parts: Tensor,
    *,
    num_samples: int = 1,
    log_partition_std_error: float = 0.0,
    weights: np.ndarray | Tensor | None = None,
) -> MeanElbo:
    """The mean over examples of what `elbo_parts` gives, weighted where there are weights."""
    given = positive_weights(weights, len(parts))
    reconstruction, discrete, continuous = parts.unbind(1)
    terms = {"reconstruction": reconstruction, "kl_discrete": discrete, "kl_continuous": continuous}
    terms["elbo"] = bounds(parts)
    means = {name: float(weighted_mean(values, given)) for name, values in terms.items()}
    errors = {f"{name}_std_error": float(standard_error(values, given)) for name, values in terms.items()}
    return MeanElbo(
        **means,
        **errors,
        num_examples=len(parts),
        num_samples=num_samples,
        log_partition_std_error=log_partition_std_error,
        effective_examples=None if given is None else effective_number(given),
    )


# Independent features: the log-likelihood that a model has to beat.


_ROWS, _VALUES = 4096, 1 << 22  # in double precision at a time, fewer rows of many parameters
_REPEATS, _MOST_BYTES = 8, 1 << 31


@dataclass(frozen=True)
class IndependentFeatures(ShowsTable):
    """Mean log-likelihood of examples whose features are independent, nats, and its standard error over examples.

    effective_examples is their effective number where the mean is weighted, None where all count alike. examples are
    the log-likelihoods themselves.
    """

    value: float
    std_error: float
    num_examples: int
    effective_examples: float | None = None
    examples: ExampleValues | None = field(default=None, repr=False, compare=False)


@torch.no_grad()
def independent_features(
    likelihood: Likelihood,
    train: Examples,
    x: Examples,
    *,
    train_weights: np.ndarray | Tensor | None = None,
    weights: np.ndarray | Tensor | None = None,
) -> IndependentFeatures:
    """Log-likelihood of the observed values if features are independent, each with the law that fits the training data.

    The law is the likelihood's own with the same parameters for every example, `Likelihood.fit_marginals_`; missing
    values count nowhere. A model that stays below has learned less than that. Examples are (example, feature) or in the
    event's shape. Weights are (example,), above 0: the law is fitted to examples that are repeated in proportion, see
    `repeated_by_weight`, and the mean is a weighted one.

    Examples:
        >>> from discrete_vae.likelihoods import BernoulliLikelihood
        >>> coin = BernoulliLikelihood((1,))
        >>> found = independent_features(coin, torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [0.0], [1.0]]))
        >>> round(found.value, 3), found.std_error
        (-0.693, 0.0)
    """
    law = deepcopy(likelihood).cpu().double()
    given = positive_weights(weights, len(x))
    train, _ = by_weight(law, train, None, train_weights)
    parameters = law.fit_marginals_(_examples("train", train, law)).double()
    parts = []
    size = max(1, min(_ROWS, _VALUES // math.prod(law.parameter_shape)))
    for rows in _examples("x", x, law).split(size):
        observed = law.observed_mask(law.check(rows))
        every = parameters.expand(len(rows), *law.parameter_shape)
        parts.append(law.log_prob(every, rows.double(), observed))
    value = torch.cat(parts)
    return IndependentFeatures(
        float(weighted_mean(value, given)),
        float(standard_error(value, given)),
        len(value),
        None if given is None else effective_number(given),
        ExampleValues(value, given),
    )


def by_weight(
    likelihood: Likelihood, train: Examples, condition: Tensor | None, weights: np.ndarray | Tensor | None
) -> tuple[Examples, Tensor | None]:
    """Training examples and their conditions, each as often as its weight says, for fits that count all alike.

    Sets the likelihood's half counts accordingly (`set_copies`).
    """
    if (given := positive_weights(weights, len(train), "train_weights")) is None:
        set_copies(likelihood, 1.0)
        return train, condition
    rows, copies = repeated_by_weight(given, train.nbytes)
    set_copies(likelihood, copies)
    return select(train, rows.numpy()), None if condition is None else condition[rows]


def repeated_by_weight(weights: Tensor, num_bytes: int = 1) -> tuple[Tensor, float]:
    """Indices of examples, ascending, each as often as its weight says, for fits that count all rows alike.

    Where the weights are small whole multiples of the least, they are the counts. Else up to eight times as many
    indices as examples are drawn systematically, fewer where the repeated examples would take more than 2 GiB, twice as
    many at least: the share of an example is off by less than one over their number. Beside them stands the number of
    indices per example, on average; 1 where they are the counts.

    Examples:
        >>> repeated_by_weight(torch.tensor([0.5, 1.0, 0.5]))
        (tensor([0, 1, 1, 2]), 1.0)
    """
    weights = rescaled(weights)
    multiples = weights / weights.min()
    counts, copies = multiples.round(), 1.0
    most = max(2, min(_REPEATS, _MOST_BYTES // num_bytes)) * len(weights)
    if not torch.allclose(multiples, counts, rtol=1e-9) or counts.sum() > most:
        ends = (weights * (most / weights.sum())).cumsum(0).round()
        counts = ends.diff(prepend=ends.new_zeros(1))
        copies = float(counts.sum()) / len(weights)
    return torch.arange(len(weights), device=weights.device).repeat_interleave(counts.long()), copies


def _examples(name: str, x: Examples, law: Likelihood) -> Tensor:
    """Flat or not, in the event's shape, on the CPU; sparse where the law can be fitted to such."""
    rows = fitted_to(law, x)
    if isinstance(rows, SparseRows):
        return rows
    flat = check_tensor(name, rows.flatten(1), ("example", law.num_features))
    return flat.cpu().reshape(-1, *law.event_shape)
