"""Weighted draws of the latents given the entries of a row that are observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from discrete_vae.importance_sampling import Weigher, WeightedDraws
from discrete_vae.inference.resampled import Resampled
from discrete_vae.model import DiscreteVAE
from discrete_vae.noise import key_to_seed, keyed_generator
from discrete_vae.records import ShowsShapes

_ROUNDS, _PICKS, _FILLS = 0, 1, 2

Chunk: TypeAlias = tuple[Tensor, Tensor]
"""Log-weights, (draw,), nats, and what the decoder makes of the draws, (draw, *parameter_shape)."""


@dataclass(frozen=True, eq=False, repr=False)
class GappedRow(ShowsShapes):
    """A row with gaps, as the estimators take it.

    Attributes:
        x: (1, *event), checked.
        observed: (1, *event), bool.
        seed: Key of all noise of the row, from `discrete_vae.noise.key_to_seed`.
    """

    x: Tensor
    observed: Tensor
    seed: int

    def generator(self, *key: int) -> torch.Generator:
        """A source of noise of its own."""
        return keyed_generator(self.seed, *key, device=self.x.device)


class Proposals:
    """q(. | the observed entries), from which the latents of a row are proposed, round after round.

    What the posterior reads in the gaps is, in the first round, what it reads there in training: nothing but the mask,
    or the training mean where the model knows no gaps. That is far from any example, so the draws are poor. In each
    later round the posterior reads the row filled in several ways: each a draw of p(x_gaps | latents), the latents
    picked among all draws so far by their weights. A draw's weight is p(x_observed, latents) / q(latents | the row as
    it was read), whatever was read: its expectation is p(x_observed) in every round, given all earlier ones, and so
    rounds are pooled.

    Source: Rubin 1987 (importance resampling); Cappe, Guillin, Marin & Robert 2004 (population Monte Carlo).

    Args:
        model: The model.
        weigher: Of that model, open.
        row: The row.
        num_rounds: Rounds, at least 1.
        num_fills: Ways in which the row is filled in a later round.
    """

    def __init__(
        self, model: DiscreteVAE, weigher: Weigher, row: GappedRow, *, num_rounds: int, num_fills: int
    ) -> None:
        self._model, self._weigher, self._row = model, weigher, row
        self._num_rounds, self._num_fills = num_rounds, num_fills
        self._picks = Resampled(num_fills, row.generator(_PICKS))
        self.features = model.read(row.x, row.observed)

    def draw(self, num_samples: int, chunk_size: int) -> Iterator[Chunk]:
        """The draws of all rounds together; `features` is then what the last round read.

        Args:
            num_samples: Draws, divided among the rounds and there among the fills, rounded up.
            chunk_size: Draws that are in memory at a time.
        """
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
        """Weighted draws from the posterior.

        Args:
            key: Of the noise.
            features: What it reads, (proposal, feature), such as rows of `features`.
            count: Draws from each.
            chunk_size: Draws that are in memory at a time.

        Yields:
            Log-weights (draw, proposal) and the decoder's output.
        """
        row, width = self._row, len(features)
        keys = [key_to_seed(row.seed, *key, place) for place in range(width)]
        size = (width, *row.x.shape[1:])
        x, observed = row.x.expand(size), row.observed.expand(size)
        return self._weigher.draws(features, x, observed, count, max(1, chunk_size // width), keys=keys)

    def _fill(self, key: int) -> None:
        """Let the posterior read the row with its gaps drawn anew."""
        row = self._row
        drawn = self._model.likelihood.sample(self._picks.values, generator=row.generator(_FILLS, key))
        filled = torch.where(row.observed, row.x, drawn.to(row.x.dtype))
        self.features = self._model.read(filled, None)
