"""The two overlapping power functions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.checks import check_number
from discrete_vae.smoothing.conditional_moments import ConditionalMoments
from discrete_vae.smoothing.overlapping import OverlappingSmoothing, Slopes, ends_excluded
from discrete_vae.smoothing.sharp_limit import SharpLimit

_MAX_B = 100.0  # the largest b for which the numbers of Newton steps were checked
_STEPS = {torch.float32: 6, torch.float64: 9}
_LOG_HALF = -math.log(2.0)


class OverlappingPower(OverlappingSmoothing):
    """r(zeta|z=0) = s(zeta) = zeta^(1/b - 1) / b on [0, 1], r(zeta|z=1) = s(1 - zeta).

    F(zeta) = p zeta^a + q (1 - (1 - zeta)^a) = rho, a = 1/b, has no closed solution. It is brought to zeta <= 1/2 by
    the mirror image (l, rho, zeta -> -l, 1 - rho, 1 - zeta) and solved for w = log zeta, where log F is increasing and
    convex, a sum of functions whose logarithms are: Newton's method in w falls monotonically to the root from any
    start above it. The start is the smaller one of the roots of either term alone; there F is at most 2 rho. The
    gradient is that of the implicit function.

    zeta comes very close to 0 and 1: 1 - zeta is below 2^-24, where float32 has no number but 1, in the share
    2^(-24/b) of the draws of z = 1. What is returned is zeta to its last digit, which F resolves as far as it can;
    below the smallest normal number it is 0.

    Source: Vahdat, Andriyash & Macready 2018, DVAE#, section 3.1; the solution is ours.

    Args:
        b: From above 1 to 100; as it grows zeta approaches z. Values of 20 to 40 are in use.

    Attributes:
        b: As given.

    Raises:
        InvalidInputError: If b is not such a number.

    Examples:
        >>> OverlappingPower(b=4.0).icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0241, 0.9759])
    """

    def __init__(self, b: float = 30.0) -> None:
        super().__init__()
        repair = "Values of 20 to 40 are in use."
        self.b = check_number("b", b, above=1, at_most=_MAX_B, repair=repair)

    def extra_repr(self) -> str:
        """b."""
        return f"b={self.b:.4g}"

    def sharp_limit(self) -> SharpLimit:
        """zeta = z, where b is infinite."""
        return SharpLimit()

    def _inverse(
        self, rho: Tensor, logits: Tensor, parameter: Tensor | None, *, differentiable: bool
    ) -> tuple[Tensor, Slopes | None]:
        a, tiny = 1 / self.b, torch.finfo(rho.dtype).tiny
        log_tiny = math.log(tiny)
        log_p, log_q = F.logsigmoid(-logits), F.logsigmoid(logits)
        p, q = log_p.exp(), log_q.exp()
        half = 0.5**a
        mirrored = rho > p * half + q * (1 - half)
        near, far = torch.where(mirrored, q, p), torch.where(mirrored, p, q)
        log_near = torch.where(mirrored, log_q, log_p)
        log_level = torch.where(mirrored, 1 - rho, rho).clamp_min_(tiny).log_()
        share = (log_level.exp() / far.clamp_min(tiny)).clamp_max_(1)
        w = torch.minimum(
            self.b * (log_level - log_near), torch.log(-torch.expm1(self.b * torch.log1p(-share)))
        ).clamp_max_(_LOG_HALF)
        for _ in range(_STEPS[rho.dtype]):
            # below this x adds nothing, and the functions of it take ten times as long
            x, first = w.clamp_min(0.3 * log_tiny).exp_(), near * torch.exp(a * w)
            log_rest = torch.log1p(-x)
            value = first - far * torch.expm1(a * log_rest)
            slope = a * (first + far * x * torch.exp((a - 1) * log_rest))
            w = (w - (value.log() - log_level) * value / slope).clamp_max_(_LOG_HALF)
        x = w.exp().masked_fill_(w < log_tiny, 0)
        zeta = torch.where(mirrored, 1 - x, x)
        if not differentiable:
            return zeta, None
        power, log_rest = torch.exp(a * w), torch.log1p(-x.clamp_min(tiny**0.3))
        # x F_zeta: x alone may be 0
        steepness = a * (near * power + far * x * torch.exp((a - 1) * log_rest)).clamp_min_(tiny)
        by_logits = p * q * x * (power + torch.expm1(a * log_rest)) / steepness
        return zeta, Slopes(x / steepness, by_logits, None)

    def _mean(
        self, zeta: Tensor, logits: Tensor, parameter: Tensor | None, *, differentiable: bool
    ) -> tuple[Tensor, Slopes]:
        sharpness, largest = 1 - 1 / self.b, torch.finfo(zeta.dtype).max
        rest = 1 - zeta
        # where zeta is rounded to 0 or 1, z is known: the logarithms may be infinite there, the logits not
        inside = logits.clamp(-largest, largest) + sharpness * (zeta.log() - rest.log())
        mean = torch.sigmoid(inside)
        variance = mean * torch.sigmoid(-inside)
        # where zeta is rounded to 0 or 1 it has no slope left
        product = zeta * rest
        by_zeta = sharpness * variance / torch.where(product > 0, product, 1.0)
        return mean, Slopes(by_zeta, variance, None)

    def _log_ratio(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        below, above = ends_excluded(zeta)
        return (1 - 1 / self.b) * (below.log() - above.log())

    def _log_density_of_zero(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        return (1 / self.b - 1) * ends_excluded(zeta)[0].log() - math.log(self.b)

    def _mixture_cdf(self, zeta: Tensor, p: Tensor, q: Tensor, parameter: Tensor | None) -> Tensor:
        a = 1 / self.b
        below = torch.where(zeta < 1, zeta, 0.5)  # the logarithm of what is left must have a slope
        mirrored = torch.where(zeta < 1, -torch.expm1(a * torch.log1p(-below)), 1.0)
        return p * zeta**a + q * mirrored

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        """See `Smoothing.conditional_moments`: those of the law Beta(1/b, 1) and of its mirror image."""
        a = 1 / self.b
        mean, variance = a / (a + 1), a / ((a + 1) ** 2 * (a + 2))
        return ConditionalMoments(*torch.tensor([mean, variance, 1 - mean, variance]).unbind())

    def _inverse_of_zero(self, rho: Tensor, parameter: Tensor | None) -> Tensor:
        return rho**self.b
