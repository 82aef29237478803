"""The paper's decoder."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from discrete_vae.nets.mlp import MLP


class MLPDecoder(nn.Module):
    """An MLP from the latents to the likelihood's parameters; without hidden layers a linear map.

    Source: Rolfe 2017, eq. final-decoder and section architecture (linear on three of four data sets).

    Args:
        num_latents: Length of the last axis of what it reads.
        parameter_shape: Shape of the likelihood's parameters of one example.
        hidden: Widths of the hidden layers.

    Raises:
        InvalidInputError: If a size is not a positive integer.

    Examples:
        >>> import torch
        >>> MLPDecoder(4, (1, 8, 8))(torch.zeros(10, 4)).shape
        torch.Size([10, 1, 8, 8])
    """

    def __init__(self, num_latents: int, parameter_shape: Sequence[int], hidden: Sequence[int] = ()) -> None:
        super().__init__()
        self.parameter_shape = tuple(parameter_shape)
        self.network = MLP([num_latents], math.prod(self.parameter_shape), hidden)

    def forward(self, latents: Tensor) -> Tensor:
        """Map (row, latent) to (row, *parameter_shape)."""
        return self.network(latents).unflatten(-1, self.parameter_shape)

    def initialize_output_(self, start: Tensor) -> None:
        """Let the output start near given parameters, (*parameter_shape)."""
        self.network.initialize_output_(start.flatten())
