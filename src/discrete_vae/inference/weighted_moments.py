"""Self-normalized means of weighted draws that come in chunks."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def truncated(log_weights: Tensor) -> Tensor:
    """Weights no larger than the root of their number times their mean, which lets no few of them decide alone.

    What is lost is some of the largest weights' share, a bias that goes to zero as draws grow; what is gained is a
    variance that is finite whatever the law of the weights.

    Source: Ionides 2008, "Truncated importance sampling".

    Args:
        log_weights: (draw,), nats.

    Examples:
        >>> truncated(torch.tensor([0.0, 0.0, 0.0, 9.0])).exp().round().tolist()  # mean 2026.5, root 2
        [1.0, 1.0, 1.0, 4053.0]
    """
    mean = torch.logsumexp(log_weights, 0) - math.log(len(log_weights))
    return log_weights.minimum(mean + math.log(len(log_weights)) / 2)


class WeightedMoments:
    """sum_k w_k f_k / sum_k w_k with its standard error, in one pass, in float64.

    Weights are known up to a common factor; the largest log-weight so far is their unit.

    Examples:
        >>> moments = WeightedMoments()
        >>> moments.add(torch.tensor([0.0, 0.0]), torch.tensor([[1.0], [3.0]]))
        >>> moments.mean.item(), moments.effective_samples
        (2.0, 2.0)
    """

    def __init__(self) -> None:
        self._unit = -math.inf
        self._sums = torch.zeros(2, dtype=torch.float64)
        self._products: Tensor | None = None
        self._about: Tensor | None = None

    def add(self, log_weights: Tensor, values: Tensor) -> None:
        """Take more draws.

        Args:
            log_weights: (draw,), finite, nats.
            values: f, (draw, ...).
        """
        values = values.double()
        if self._about is None or self._products is None:
            self._about = values[0]  # sums about a value that occurs lose no digits
            self._products = values.new_zeros(3, values[0].numel())
            self._sums = self._sums.to(values.device)
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
        assert self._products is not None
        return self._about + (self._products[0] / self._sums[0]).reshape(self._about.shape)

    @property
    def std_error(self) -> Tensor:
        """sqrt(sum_k w_k^2 (f_k - mean)^2) / sum_k w_k, (...), by the delta method; too small where samples are few.

        Source: Owen 2013, "Monte Carlo theory, methods and examples", section 9.2.
        """
        assert self._about is not None
        assert self._products is not None
        away = self._products[0] / self._sums[0]
        spread = self._products[2] - 2 * away * self._products[1] + away.square() * self._sums[1]
        return (spread.clamp_min(0).sqrt() / self._sums[0]).reshape(self._about.shape)

    @property
    def effective_samples(self) -> float:
        """(sum w)^2 / sum w^2, between 1 and the number of draws."""
        total, squares = self._sums.tolist()
        return total**2 / squares
