"""Draws from weighted draws that come in chunks, without keeping them."""

from __future__ import annotations

import torch
from torch import Tensor


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise, float64, on the generator's device.

    Args:
        shape: Of the noise.
        generator: Its source.
    """
    noise = torch.empty(shape, dtype=torch.float64, device=generator.device)
    return -noise.exponential_(generator=generator).log()


class Resampled:
    """Independent picks among weighted draws, each draw with a probability proportional to its weight.

    The largest of log-weight plus Gumbel noise is such a pick, and a running maximum needs no weight of the past.

    Source: Efraimidis & Spirakis 2006, "Weighted random sampling with a reservoir"; Gumbel 1954 (the maximum).

    Args:
        num_picks: How many picks.
        generator: Source of the noise.

    Examples:
        >>> picks = Resampled(2, torch.Generator().manual_seed(0))
        >>> picks.add(torch.tensor([0.0, -900.0]), torch.tensor([[1.0], [5.0]]))
        >>> picks.values.flatten().tolist()
        [1.0, 1.0]
    """

    def __init__(self, num_picks: int, generator: torch.Generator) -> None:
        self._generator = generator
        self._best = torch.full((num_picks,), -torch.inf, dtype=torch.float64, device=generator.device)
        self._values: Tensor | None = None

    def add(self, log_weights: Tensor, values: Tensor) -> None:
        """Take more draws.

        Args:
            log_weights: (draw,), finite, nats.
            values: What to pick from, (draw, ...).
        """
        noise = gumbel((len(log_weights), len(self._best)), self._generator)
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
