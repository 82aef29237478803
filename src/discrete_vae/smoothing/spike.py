"""Transformations with a spike: zeta = 0 exactly when z = 0."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from discrete_vae.checks import check_binary, check_tensor
from discrete_vae.noise import open_uniform
from discrete_vae.numerics import softplus
from discrete_vae.smoothing.base import Smoothing


class SpikeSmoothing(Smoothing):
    """r(zeta|z=0) is a point mass at 0, r(zeta|z=1) a density on (0, 1].

    Subclasses give the density's survival function and its inverse; everything is written in
    v = (1 - rho) / q, where z = 1 exactly when v < 1. Unlike rho + q - 1, v does not cancel in float32 when q is
    small.
    """

    def sample_z(self, zeta: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Read z off zeta; see `Smoothing.sample_z`."""
        self._check_pair("zeta", zeta, logits)
        return _read_z(zeta.detach())

    def sample_zeta(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw zeta from r(zeta|z); see `Smoothing.sample_zeta`.

        Raises:
            InvalidInputError: If z is not a floating-point tensor of zeros and ones.
        """
        check_binary("z", check_tensor("z", z, (...,)))
        return self._inverse_survival(open_uniform(z, generator=generator)) * z

    @abstractmethod
    def _inverse_survival(self, v: Tensor) -> Tensor:
        """zeta > 0 at which 1 - F(zeta | z=1) = v, for v in (0, 1)."""

    @abstractmethod
    def _survival(self, zeta: Tensor) -> Tensor:
        """1 - F(zeta | z=1), for zeta in [0, 1]."""

    def _icdf(self, rho: Tensor, logits: Tensor) -> Tensor:
        # log v is finite for every finite logit, so no branch can turn a masked infinity into a NaN gradient
        log_v = torch.log1p(-rho) + softplus(-logits)
        # the *rounded* v decides: a log just below 0 rounds to v = 1, where the density's inverse is singular
        # (asked so that a NaN is no spike: it must come out, or a broken network would look like z = 0)
        spike = torch.exp(log_v.detach()) >= 1
        v = torch.exp(torch.where(spike, -1.0, log_v))
        return torch.where(spike, 0.0, self._inverse_survival(v))

    def _cdf(self, zeta: Tensor, logits: Tensor) -> Tensor:
        inside = torch.sigmoid(-logits) + torch.sigmoid(logits) * (1 - self._survival(zeta.clamp(0, 1)))
        return torch.where(zeta < 0, 0.0, inside)

    def _bits(self, zeta: Tensor, logits: Tensor) -> Tensor:
        # value z; backward (1-z)/(1-q) dq/dl = (1-z) q, and softplus(l) is the function with slope q.
        # Written so, there is no division by 1-q and nothing to clamp (eq. J-gradient-z-0).
        z = _read_z(zeta.detach()).to(logits.dtype)
        slope = softplus(logits)
        return z + (1 - z) * (slope - slope.detach())


def _read_z(zeta: Tensor) -> Tensor:
    """1 where zeta is not 0; a NaN comes out, or a broken network would look like z = 1."""
    return torch.where(zeta.abs() > 0, 1.0, zeta)
