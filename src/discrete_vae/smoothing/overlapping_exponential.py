"""The two overlapping exponentials."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from discrete_vae.smoothing.conditional_moments import ConditionalMoments, truncated_exponential
from discrete_vae.smoothing.overlapping import OverlappingSmoothing, Slopes
from discrete_vae.smoothing.with_beta import BetaSmoothing


class OverlappingExponential(BetaSmoothing, OverlappingSmoothing):
    """r(zeta|z=0) = beta e^(-beta zeta) / (1 - e^-beta) on [0, 1], r(zeta|z=1) its mirror image.

    With c = 1 - e^-beta, k = p - q e^-beta - rho c and S = sqrt(k^2 + 4 p q e^-beta), the numbers u = e^(-beta zeta) =
    (S + k) / (2p) and 1 - u = 2 rho c / (p + q e^-beta + rho c + S) give zeta where k >= 0, and the same formulas of
    -l and 1 - rho give 1 - zeta where k < 0. As beta grows zeta approaches z, and the gradient's second moment grows
    like e^(beta/2) / beta^2, hence the bound on a trained beta.

    Source: Vahdat et al. 2018, DVAE++, section 3. Deviation: the root is taken on the side where nothing cancels.

    Args:
        beta: Inverse width, at least 0.01.
        trainable: Whether beta is a parameter (one for all units) or a constant.
        max_beta: Upper bound of a trained beta; the training loop moves it.

    Attributes:
        beta: Scalar tensor.
        max_beta: The present bound.

    Raises:
        InvalidInputError: If beta or max_beta is not such a number.

    Examples:
        >>> OverlappingExponential(beta=8.0).icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0638, 0.9362])
    """

    def __init__(self, beta: float = 8.0, trainable: bool = False, max_beta: float = math.inf) -> None:
        super().__init__(beta, trainable, max_beta, repair="Values of 8 to 14 are in use.")

    def _inverse(
        self, rho: Tensor, logits: Tensor, parameter: Tensor | None, *, differentiable: bool
    ) -> tuple[Tensor, Slopes | None]:
        assert parameter is not None
        beta, tiny = parameter, torch.finfo(rho.dtype).tiny
        minus_c, overlap = torch.expm1(-beta), torch.exp(-beta)
        p, q = torch.sigmoid(-logits), torch.sigmoid(logits)
        # k is taken from the side of the less probable value, whose terms are the smaller ones
        off_is_rare = logits > 0
        of_rare = torch.where(off_is_rare, rho, 1 - rho)
        k_of_rare = torch.minimum(p, q) - torch.maximum(p, q) * overlap + of_rare * minus_c
        k = torch.where(off_is_rare, k_of_rare, -k_of_rare)
        root = torch.hypot(k, 2 * torch.exp(-beta / 2) * (p * q).sqrt_()).clamp_min_(tiny)
        from_zero = ~(k < 0)  # a NaN comes out on either side
        near, far = torch.where(from_zero, p, q), torch.where(from_zero, q, p)
        level = torch.where(from_zero, rho, 1 - rho)
        # two forms of u = e^(-beta x), x being zeta or 1 - zeta: each is exact where the other one cancels
        u = (root + k.abs()) / (2 * near)
        complement = level * (-2 * minus_c) / (near + far * overlap - level * minus_c + root)
        log_u = torch.where(complement < 0.5, torch.log1p(-complement.clamp_max(0.5)), torch.log(u))
        distance = (log_u / -beta).clamp_(0, 1)
        zeta = torch.where(from_zero, distance, 1 - distance)
        if not differentiable:
            return zeta, None
        e0, e1 = torch.exp(-beta * zeta), torch.exp(-beta * (1 - zeta))
        density = (p * e0 + q * e1).clamp_min_(tiny)
        by_logits = (p * q) * torch.expm1(-beta * zeta) * torch.expm1(-beta * (1 - zeta)) / density / beta
        by_rho = -minus_c / density / beta
        by_beta = q * (1 - zeta) * e1 - p * zeta * e0 - overlap * (q - rho)
        return zeta, Slopes(by_rho, by_logits, by_beta / density / beta)

    def _mean(
        self, zeta: Tensor, logits: Tensor, parameter: Tensor | None, *, differentiable: bool
    ) -> tuple[Tensor, Slopes]:
        assert parameter is not None
        centred = 2 * zeta - 1
        inside = torch.addcmul(logits, parameter, centred)
        mean = torch.sigmoid(inside)
        variance = mean * torch.sigmoid(-inside)
        return mean, Slopes(2 * parameter * variance, variance, centred * variance)

    def _log_ratio(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        assert parameter is not None
        return parameter * (2 * zeta - 1)

    def _log_density_of_zero(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        assert parameter is not None
        return torch.log(-parameter / torch.expm1(-parameter)) - parameter * zeta

    def _mixture_cdf(self, zeta: Tensor, p: Tensor, q: Tensor, parameter: Tensor | None) -> Tensor:
        assert parameter is not None
        below = torch.expm1(-parameter * zeta) / torch.expm1(-parameter)
        return below * (p + q * torch.exp(-parameter * (1 - zeta)))

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        """See `Smoothing.conditional_moments`."""
        beta = self._bounded_parameter()
        assert beta is not None
        mean, variance = (value.to(beta.dtype) for value in truncated_exponential(beta)[1:])
        return ConditionalMoments(1 - mean, variance, mean, variance)

    def _inverse_of_zero(self, rho: Tensor, parameter: Tensor | None) -> Tensor:
        assert parameter is not None
        return (torch.log1p(rho * torch.expm1(-parameter)) / -parameter).clamp(0, 1)
