"""The mixture of ramps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from discrete_vae.smoothing.conditional_moments import ConditionalMoments
from discrete_vae.smoothing.overlapping import OverlappingSmoothing, Slopes, ends_excluded


class MixtureOfRamps(OverlappingSmoothing):
    """r(zeta|z=0) = 2 (1 - zeta) and r(zeta|z=1) = 2 zeta on [0, 1].

    With D = sqrt(p^2 (1 - rho) + q^2 rho) = p (1 - zeta) + q zeta: zeta = rho / (p + D), d zeta/d l =
    p q zeta (1 - zeta) / D, at most 1/8, and E[z | zeta, l] = q zeta / D.

    Source: Rolfe 2017, appendix two-sided-mixture, eq. probabilistic-encoder-two-sided. Deviation: the printed root,
    which cancels and divides by 2q - 1, is rationalized.

    Examples:
        >>> import torch
        >>> MixtureOfRamps().icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 3.0]))
        tensor([0.2000, 0.8892])
    """

    def _inverse(
        self, rho: Tensor, logits: Tensor, parameter: Tensor | None, *, differentiable: bool
    ) -> tuple[Tensor, Slopes | None]:
        p, q = torch.sigmoid(-logits), torch.sigmoid(logits)
        root = torch.hypot(p * (1 - rho).sqrt_(), q * rho.sqrt()).clamp_min_(torch.finfo(rho.dtype).tiny)
        zeta = (rho / (p + root)).clamp_max_(1)
        if not differentiable:
            return zeta, None
        by_logits = p * q * zeta * (1 - zeta) / root
        return zeta, Slopes(0.5 / root, by_logits, None)

    def _mean(
        self, zeta: Tensor, logits: Tensor, parameter: Tensor | None, *, differentiable: bool
    ) -> tuple[Tensor, Slopes]:
        p, q = torch.sigmoid(-logits), torch.sigmoid(logits)
        density = (p * (1 - zeta) + q * zeta).clamp_min(torch.finfo(zeta.dtype).tiny)
        off, on = p / density, q / density
        mean = on * zeta
        return mean, Slopes(off * on, mean * off * (1 - zeta), None)

    def _log_ratio(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        below, above = ends_excluded(zeta)
        return below.log() - above.log()

    def _log_density_of_zero(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        return math.log(2) + ends_excluded(zeta)[1].log()

    def _mixture_cdf(self, zeta: Tensor, p: Tensor, q: Tensor, parameter: Tensor | None) -> Tensor:
        return zeta * (p * (2 - zeta) + q * zeta)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        """See `Smoothing.conditional_moments`."""
        return ConditionalMoments(*torch.tensor([1 / 3, 1 / 18, 2 / 3, 1 / 18]).unbind())

    def _inverse_of_zero(self, rho: Tensor, parameter: Tensor | None) -> Tensor:
        return rho / (1 + (1 - rho).sqrt())
