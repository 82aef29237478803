"""The limit of infinitely sharp smoothing."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.smoothing.spike import SpikeSmoothing


class SharpLimit(SpikeSmoothing):
    """zeta = z: the limit beta -> infinity of the exponentials and b -> infinity of the power functions.

    It passes no gradient to the logits through zeta; it serves models that are trained, see `DiscreteVAE.discretized`.

    Source: Rolfe 2017, footnote in section spike-and-exponential.

    Examples:
        >>> import torch
        >>> SharpLimit().icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0., 1.])
    """

    def inverse_survival(self, v: Tensor, parameter: Tensor | None) -> Tensor:
        """See `SpikeSmoothing.inverse_survival`."""
        return 1 + 0 * v  # keeps a NaN

    def slopes(self, v: Tensor, zeta: Tensor, parameter: Tensor | None) -> tuple[Tensor, None]:
        """See `SpikeSmoothing.slopes`."""
        return torch.zeros_like(v), None

    def survival(self, zeta: Tensor) -> Tensor:
        """See `SpikeSmoothing.survival`."""
        return (zeta < 1).to(zeta.dtype)
