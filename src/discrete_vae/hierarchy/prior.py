"""What every prior over the Gaussian layers offers; the kinds differ in how their networks share parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int, check_tensor
from discrete_vae.hierarchy.gaussian import Gaussian


class AutoregressiveGaussianPrior(nn.Module, ABC):
    """p(h_1, ..., h_M | zeta) = prod_m p(h_m | h_<m, zeta), each factor a diagonal Gaussian.

    A kind of sharing says which networks there are, what they read, and what the decoder reads.

    Source: Rolfe 2017, eq. continuous-hierarchy and section architecture.

    Args:
        num_latents: Length of the last axis of zeta.
        num_layers: M.
        num_units: Units of each layer.

    Attributes:
        num_latents: Length of the last axis of zeta.
        num_layers: M.
        num_units: Units of each layer.

    Raises:
        InvalidInputError: If a size is not a positive integer.
    """

    def __init__(self, num_latents: int, num_layers: int, num_units: int) -> None:
        super().__init__()
        self.num_latents = check_positive_int("num_latents", num_latents)
        self.num_layers = check_positive_int("num_layers", num_layers)
        self.num_units = check_positive_int("num_units", num_units)

    @property
    @abstractmethod
    def decoder_size(self) -> int:
        """Length of the last axis of `decoder_input`."""

    @abstractmethod
    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        """What p(x | zeta, h) reads.

        Args:
            zeta: (..., latent).
            h: (..., layer, unit), all layers.

        Returns:
            (..., decoder_size).
        """

    @abstractmethod
    def next_layer(self, zeta: Tensor, earlier: Tensor) -> Gaussian:
        """p(h_m | h_<m, zeta) of one layer.

        Args:
            zeta: (..., latent).
            earlier: h_<m, (..., m - 1, unit); without a layer it asks for the first one.

        Returns:
            (..., unit).
        """

    @abstractmethod
    def layers(self, zeta: Tensor, h: Tensor) -> Gaussian:
        """p(h_m | h_<m, zeta) of all layers at a sample of all of them.

        No layer waits for another, so kinds that share networks pass many layers through one call.

        Args:
            zeta: (..., latent).
            h: (..., layer, unit).

        Returns:
            (..., layer, unit).
        """

    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw layer after layer.

        Args:
            zeta: (..., latent).
            generator: Source of the noise; None means torch's global generator.

        Returns:
            h, (..., layer, unit).

        Raises:
            InvalidInputError: If zeta has another shape or is not floating-point.
        """
        like = next(self.parameters())
        zeta = check_tensor("zeta", zeta, (..., self.num_latents)).to(like.dtype)
        h = zeta.new_zeros(*zeta.shape[:-1], 0, self.num_units)
        for _ in range(self.num_layers):
            drawn = self.next_layer(zeta, h).rsample(generator=generator)
            h = torch.cat([h, drawn.unsqueeze(-2)], dim=-2)
        return h
