"""Noise of single examples, and none, in the place of a generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import keyed_generator, open_uniform, standard_normal
from discrete_vae.prepared_noise import NoiseSource


class RowNoise(NoiseSource):
    """Noise of a batch in which each example's depends on the seed, the key and its own number alone.

    It is drawn on the CPU, so that it is the same on every device.

    Args:
        numbers: Numbers of the batch's examples, in its order.
        seed: Integer from 0 to 2^64 - 1.
        key: Further integers: what the noise is for, the number of the draw.

    Examples:
        >>> both, second = RowNoise([4, 7], 0), RowNoise([7], 0)
        >>> drawn = open_uniform(torch.zeros(2, 3), generator=both)
        >>> torch.equal(drawn[1:], open_uniform(torch.zeros(1, 3), generator=second))
        True
    """

    def __init__(self, numbers: Sequence[int], seed: int, *key: int) -> None:
        self._generators = [keyed_generator(seed, *key, number) for number in numbers]

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        """See `NoiseSource.take`; the first axis is the batch.

        Raises:
            InvalidInputError: If that axis has another length.
        """
        first, *rest = shape
        if first != len(self._generators):
            received = f"a request for {tuple(shape)}"
            repair = f"Give one number for each of the {first} examples."
            raise InvalidInputError(
                "numbers", "must be as many as the examples of the batch", received, repair
            )
        host = torch.empty(0, dtype=like.dtype, device="cpu")
        rows = [draw(host, shape=rest, generator=generator) for generator in self._generators]
        return torch.stack(rows).to(like.device)


class CentralNoise(NoiseSource):
    """The median in the place of each draw: 1/2 for uniform numbers, 0 for normal ones.

    Examples:
        >>> open_uniform(torch.zeros(2), generator=CentralNoise()), standard_normal(
        ...     torch.zeros(2), shape=(2,), generator=CentralNoise()
        ... )
        (tensor([0.5000, 0.5000]), tensor([0., 0.]))
    """

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        """See `NoiseSource.take`."""
        value = {open_uniform: 0.5, standard_normal: 0.0}[draw]
        return like.new_full(tuple(shape), value)
