"""Schedules along a run: the step size, warm-up of the KL, the bound of beta, importance samples."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from discrete_vae.config import BetaBoundConfig, OptimizerConfig, TrainingConfig, WarmUpConfig, instantiate

# Shapes of the step size along a run: called with a share of the run they give the share of
# the largest one, both from 0 to 1.


class ConstantRate:
    """1 throughout."""

    def __call__(self, progress: float) -> float:
        return 1.0


@dataclass(frozen=True)
class ExponentialRate:
    """f^t after a share t of the run."""

    final_fraction: float  # f, what is left at the end

    def __call__(self, progress: float) -> float:
        return self.final_fraction**progress


@dataclass(frozen=True)
class CosineRate:
    """f + (1 - f) (1 + cos pi t) / 2 after a share t of the run."""

    final_fraction: float  # f, what is left at the end

    def __call__(self, progress: float) -> float:
        return self.final_fraction + (1 - self.final_fraction) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class StepRate:
    """factor^n after n drops, which lie at shares of the run.

    Examples:
        >>> [StepRate((0.6, 0.75), 0.5)(t) for t in (0.5, 0.6, 1.0)]
        [1.0, 0.5, 0.25]
    """

    at: Sequence[float]
    factor: float

    def __call__(self, progress: float) -> float:
        return self.factor ** sum(progress >= share for share in self.at)


def kl_weights(config: WarmUpConfig, epoch: float) -> tuple[float, float]:
    """Weights at a time, in the training loss, of the KL of the binary latents and of that of the Gaussian layers.

    Every KL's weight rises linearly from 1 / strength to 1; the discrete KL's carries a further such factor.

    Source: Rolfe 2017, section architecture, which names strengths and epochs; the linear rise is ours.
    """
    common = _rise(1 / config.strength, config.epochs, epoch)
    return common * _rise(1 / config.prior_strength, config.prior_epochs, epoch), common


def max_beta(config: BetaBoundConfig, epoch: float) -> float:
    """The upper bound of beta at a time, a line; Rolfe 2017, section architecture."""
    return config.start + config.slope * epoch


def learning_rate(config: OptimizerConfig, progress: float) -> float:
    """The step size after a share of the run, from 0 to 1: its shape, times a line from 0 to 1 at the start."""
    shape: Callable[[float], float] = instantiate(config.rate)
    return config.learning_rate * shape(progress) * _rise(0.0, config.rise, progress)


def num_importance_samples(config: TrainingConfig, progress: float) -> int:
    """Importance samples of the Gaussian layers, without layers of zeta, after a share of the run."""
    return config.num_importance_samples if progress >= config.importance_start else 1


def first_importance_step(config: TrainingConfig, num_steps: int) -> int | None:
    """The steps before those with importance samples; None if no step has them.

    Examples:
        >>> first_importance_step(TrainingConfig(num_importance_samples=10, importance_start=0.5), 101)
        51
        >>> first_importance_step(TrainingConfig(), 101)
    """
    steps = range(num_steps)
    first = bisect_left(steps, True, key=lambda step: num_importance_samples(config, step / num_steps) > 1)
    return first if first < num_steps else None


def _rise(start: float, epochs: float, epoch: float) -> float:
    if epoch >= epochs:
        return 1.0
    return start + (1 - start) * epoch / epochs
