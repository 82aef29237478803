"""The importance-weighted log-likelihood over a data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.model import DiscreteVAE
from discrete_vae.noise import keyed_generator

_CHUNK_SIZE = 1000  # samples in memory at a time; part of the noise's key, so it is no setting
_STREAM = 0x6C6C


@dataclass(frozen=True)
class LogLikelihoodEstimate:
    """Mean log p(x) over examples, in nats.

    Attributes:
        value: Mean over examples of log (1/K) sum_k w_k, a lower bound in expectation given log Z.
        std_error: Standard error of value over examples (which data were drawn).
        monte_carlo_std_error: Standard error of value from the importance samples alone.
        min_ess: Smallest effective number of samples of an example.
        median_ess: Median of it.
        num_examples: Examples.
        num_samples: K.
    """

    value: float
    std_error: float
    monte_carlo_std_error: float
    min_ess: float
    median_ess: float
    num_examples: int
    num_samples: int


@torch.no_grad()
def evaluate_log_likelihood(
    model: DiscreteVAE,
    x: Tensor,
    *,
    log_partition: float,
    num_samples: int,
    seed: int = 0,
    report: Callable[[int, float], None] | None = None,
) -> LogLikelihoodEstimate:
    """Average the importance-weighted log-likelihood over examples, zeta sampled as in training.

    Examples go one by one, so that what depends on x alone is computed once for all of its samples. The noise is
    keyed by (seed, example), so an example's estimate does not depend on the others.

    Source: Rolfe 2017, section results.

    Args:
        model: The model.
        x: (example, feature), in {0,1}.
        log_partition: log Z of the prior, nats.
        num_samples: Importance samples an example.
        seed: Seed of the noise.
        report: Called after each example with the number done and the running mean.

    Returns:
        The estimate.

    Raises:
        InvalidInputError: If x or num_samples breaks its rule.
    """
    values, errors, sizes = [], [], []
    total = 0.0
    for index in range(len(x)):
        estimate = model.log_likelihood(
            x[index : index + 1],
            num_samples,
            log_partition=log_partition,
            chunk_size=_CHUNK_SIZE,
            generator=keyed_generator(seed, _STREAM, index, device=x.device),
        )
        values.append(estimate.value)
        errors.append(estimate.std_error)
        sizes.append(estimate.ess)
        total += float(estimate.value)
        if report is not None:
            report(index + 1, total / (index + 1))
    value, error, ess = (torch.cat(parts) for parts in (values, errors, sizes))
    return LogLikelihoodEstimate(
        value=float(value.mean()),
        std_error=float(value.std()) / math.sqrt(len(value)) if len(value) > 1 else math.nan,
        monte_carlo_std_error=float(error.square().sum().sqrt()) / len(value),
        min_ess=float(ess.min()),
        median_ess=float(ess.median()),
        num_examples=len(value),
        num_samples=num_samples,
    )
