"""The spike-and-slab transformation."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.smoothing.conditional_moments import ConditionalMoments
from discrete_vae.smoothing.spike import SpikeSmoothing


class SpikeSlab(SpikeSmoothing):
    """r(zeta|z=1) is uniform on (0, 1]; zeta = 0 when z = 0.

    With v = (1 - rho)/q: zeta = 1 - v if v < 1, else 0. This is spike-and-exponential in the limit beta -> 0.

    Source: Rolfe 2017, appendix spike-and-slab.

    Examples:
        >>> import torch
        >>> SpikeSlab().icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0000, 0.6000])
    """

    def inverse_survival(self, v: Tensor, parameter: Tensor | None) -> Tensor:
        """See `SpikeSmoothing.inverse_survival`."""
        return 1 - v

    def slopes(self, v: Tensor, zeta: Tensor, parameter: Tensor | None) -> tuple[Tensor, None]:
        """See `SpikeSmoothing.slopes`."""
        return torch.ones_like(v), None

    def log_density_of_one(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        """See `SpikeSmoothing.log_density_of_one`."""
        return torch.zeros_like(zeta)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        """See `Smoothing.conditional_moments`."""
        return ConditionalMoments(*torch.tensor([0.0, 0.0, 1 / 2, 1 / 12]).unbind())

    def survival(self, zeta: Tensor) -> Tensor:
        """See `SpikeSmoothing.survival`."""
        return 1 - zeta
