"""Noise that is drawn before it is asked for, so that a compiled step draws nothing itself.

A compiled graph has a stream of random numbers of its own. To compute with the numbers of an uncompiled step, one call
is made with `NotedNoise`, which hands on to a generator and notes what is asked of it. From then on the same draws are
made outside in the same order, from any generator, and the graph takes them as arguments through `DrawnNoise`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError


class NoiseSource(ABC):
    """What stands in the place of a generator where noise is drawn by `discrete_vae.noise`."""

    @abstractmethod
    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        """The next noise.

        Args:
            draw: The function that was asked, `open_uniform` or `standard_normal`.
            like: Gives dtype and device.
            shape: Shape of the draws.
        """


@dataclass(frozen=True)
class NoiseRequest:
    """One draw that was made.

    Attributes:
        draw: `open_uniform` or `standard_normal`.
        shape: Of the draws.
        dtype: Of the draws.
        device: Where they were drawn.
    """

    draw: Callable[..., Tensor]
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def repeat(self, generator: torch.Generator | None) -> Tensor:
        """Draw as much of the same kind."""
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        return self.draw(like, shape=self.shape, generator=generator)


class NotedNoise(NoiseSource):
    """Draws from a generator, and notes what is drawn.

    Args:
        generator: The generator; None means torch's global one.

    Attributes:
        requests: What was drawn so far.

    Examples:
        >>> from discrete_vae.noise import keyed_generator, open_uniform
        >>> noted = NotedNoise(keyed_generator(0))
        >>> drawn = open_uniform(torch.zeros(3), generator=noted)
        >>> torch.equal(noted.requests[0].repeat(keyed_generator(0)), drawn)
        True
    """

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator = generator
        self.requests: list[NoiseRequest] = []

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        """See `NoiseSource.take`."""
        self.requests.append(NoiseRequest(draw, tuple(shape), like.dtype, like.device))
        return draw(like, shape=shape, generator=self._generator)


class DrawnNoise(NoiseSource):
    """Hands out tensors that were drawn before, in their order.

    Args:
        draws: The tensors.
    """

    def __init__(self, draws: Sequence[Tensor]) -> None:
        self._left = list(draws)

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        """See `NoiseSource.take`.

        Raises:
            InvalidInputError: If the next tensor has another shape, or none is left.
        """
        if not self._left or self._left[0].shape != torch.Size(shape):
            repair = "Draw in the same order, and as much, at each call."
            received = f"a request for {tuple(shape)}"
            raise InvalidInputError("noise", "must be asked for as it was drawn", received, repair)
        return self._left.pop(0)
