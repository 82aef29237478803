"""Transformations whose zeta is 0 exactly when z is."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.numerics import softplus
from discrete_vae.smoothing.base import Smoothing


class SpikeAtZero(Smoothing):
    """r(zeta|z=0) is a point mass at 0, r(zeta|z=1) a density: z is read off zeta.

    What is read off zeta needs no parameters of x.
    """

    def sample_z(
        self, zeta: Tensor, logits: Tensor, *parameters: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Read z off zeta; see `Smoothing.sample_z`."""
        self._check_pair("zeta", zeta, logits)
        return read_z(zeta.detach())

    def _bits(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        # value z; backward (1-z)/(1-q) dq/dl = (1-z) q, and softplus(l) is the function with slope q.
        # Written so, there is no division by 1-q and nothing to clamp (eq. J-gradient-z-0).
        z = read_z(zeta.detach()).to(logits.dtype)
        slope = softplus(logits)
        return z + (1 - z) * (slope - slope.detach())


def read_z(zeta: Tensor) -> Tensor:
    """1 where zeta is not 0; a NaN comes out, or a broken network would look like z = 1."""
    return torch.where(zeta.abs() > 0, 1.0, zeta)
