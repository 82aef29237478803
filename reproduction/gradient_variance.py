"""The variance of a stochastic gradient, by pairs of draws."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import keyed_generator

_STREAM = 0x67726164


@dataclass(frozen=True, eq=False, repr=False)
class GradientVariance(ShowsShapes):
    """The variance and the mean of a stochastic gradient, from repeated draws."""

    variance: float  # trace of the covariance of one draw, unbiased
    std_error: float  # of the variance
    mean: Tensor  # of the draws, (parameter,) float64
    squared_norm: float  # of the expectation, unbiased, so that it may be negative
    num_draws: int
    seconds: float  # of the processor per draw, gradient included

    def distance(self, other: GradientVariance) -> float:
        """Squared distance of the two means, in units of what it is on average if both expectations are one.

        Near 1, above it only by chance, for two unbiased estimators of one gradient from independent draws; it grows
        with the number of draws where one is biased.
        """
        chance = self.variance / self.num_draws + other.variance / other.num_draws
        apart = float((self.mean - other.mean).square().sum())
        return apart / chance if chance else math.inf if apart else 0.0


def gradient_variance(
    loss: Callable[[torch.Generator], Tensor],
    parameters: Sequence[Tensor],
    *,
    num_draws: int,
    seed: int = 0,
) -> GradientVariance:
    """Estimate tr Cov[g] and |E g|^2 of the gradient g of a stochastic loss.

    Draws are taken in pairs: |g - g'|^2 / 2 has the expectation tr Cov[g], and pairs are independent, so their spread
    is the error; there is an even number of at least 4. Only sums are kept, whatever the number of draws.

    ``loss`` draws a scalar whose gradient by the parameters is g, with the noise of a generator, which is keyed by the
    draw's number. Parameters that a loss does not reach count as zeros.
    """
    if check_positive_int("num_draws", num_draws) < 4 or num_draws % 2:
        repair = "Draws come in pairs, whose spread is the error: give 100, say."
        raise InvalidInputError("num_draws", "must be an even number of at least 4", num_draws, repair)
    wanted = list(parameters)
    if not wanted:
        repair = "Give model.posterior.parameters()."
        raise InvalidInputError("parameters", "must hold at least one tensor", "none", repair)
    device = wanted[0].device
    start = time.process_time()
    halves: list[float] = []
    total = torch.zeros(sum(each.numel() for each in wanted), dtype=torch.float64, device=device)
    squares = 0.0
    for pair in range(num_draws // 2):
        first, second = (
            _gradient(loss(keyed_generator(seed, _STREAM, 2 * pair + half, device=device)), wanted)
            for half in (0, 1)
        )
        halves.append(float((first - second).square().sum()) / 2)
        squares += float(first.square().sum() + second.square().sum())
        total += first
        total += second
    seconds = (time.process_time() - start) / num_draws
    if not math.isfinite(squares):
        repair = "Look at the loss of single draws."
        raise InvalidInputError("the gradient", "must be finite", "a draw that is not", repair)
    pairs = torch.tensor(halves, dtype=torch.float64)
    # the products of different draws, whose expectation is |E g|^2
    crossed = (float(total.square().sum()) - squares) / (num_draws * (num_draws - 1))
    error = float(pairs.std()) / math.sqrt(len(pairs))
    return GradientVariance(float(pairs.mean()), error, total / num_draws, crossed, num_draws, seconds)


def _gradient(loss: Tensor, parameters: list[Tensor]) -> Tensor:
    """The gradient as one vector, (parameter,) float64."""
    found = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return torch.cat([each.reshape(-1).double() for each in found])
