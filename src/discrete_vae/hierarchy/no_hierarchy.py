"""No continuous layers: the decoder reads zeta alone."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.hierarchy.base import Hierarchy, HierarchySample
from discrete_vae.hierarchy.gaussian import Gaussian


class NoHierarchy(Hierarchy):
    """A hierarchy of zero layers, whose KL is 0.

    Source: Rolfe 2017, section supplementary-results (the simplified models).

    Args:
        num_latents: Length of the last axis of zeta.
        num_features: Length of the last axis of the encoder's features; nothing reads them.

    Raises:
        InvalidInputError: If a size is not a positive integer.
    """

    def __init__(self, *, num_latents: int, num_features: int) -> None:
        super().__init__()
        self.num_latents = check_positive_int("num_latents", num_latents)
        self.num_features = check_positive_int("num_features", num_features)
        self.num_layers = self.num_units = 0
        self.decoder_size = num_latents

    def rsample(
        self, features: Tensor, zeta: Tensor, *, generator: torch.Generator | None = None
    ) -> HierarchySample:
        """Nothing to draw."""
        h = self.sample(zeta)
        empty = Gaussian(h, h)
        return HierarchySample(h, empty, empty, zeta)

    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """No layer, (..., 0, 0)."""
        return zeta.new_zeros(*zeta.shape[:-1], 0, 0)

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        """Zeta itself."""
        return zeta
