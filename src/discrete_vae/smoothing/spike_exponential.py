"""The spike-and-exponential transformation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from discrete_vae.compiled.choice import fuses
from discrete_vae.smoothing.conditional_moments import ConditionalMoments, truncated_exponential
from discrete_vae.smoothing.spike import SpikeSmoothing
from discrete_vae.smoothing.with_beta import BetaSmoothing


class SpikeExponential(BetaSmoothing, SpikeSmoothing):
    """r(zeta|z=1) = beta e^(beta zeta) / (e^beta - 1) on (0, 1]; zeta = 0 when z = 0.

    With v = (1 - rho)/q and c = 1 - e^-beta: zeta = 1 + log(1 - v c) / beta if v < 1, else 0. As beta grows zeta
    approaches z, and the gradient's second moment grows like e^beta / beta^2, hence the bound on beta.

    Source: Rolfe 2017, section spike-and-exponential, eq. probabilistic-encoder, with rho + q - 1 rewritten by v.

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
        >>> smoothing = SpikeExponential(beta=3.0, trainable=False)
        >>> smoothing.icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0000, 0.8406])
    """

    def __init__(self, beta: float = 3.0, trainable: bool = True, max_beta: float = math.inf) -> None:
        super().__init__(beta, trainable, max_beta, repair="The paper's figures use 1 to 5.")

    def _zeta_and_bits(self, rho: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        if (
            type(self) is SpikeExponential  # a subclass may have another density
            and rho.dim()
            and not rho.requires_grad
            and fuses(rho, logits, self.beta, self._limits)
        ):
            from discrete_vae.smoothing.fused_spike_exponential import FusedDraw, works

            if works():
                return FusedDraw.apply(rho, logits, self.beta, self._bounds())
        return super()._zeta_and_bits(rho, logits)

    def inverse_survival(self, v: Tensor, parameter: Tensor | None) -> Tensor:
        """See `SpikeSmoothing.inverse_survival`."""
        assert parameter is not None
        zeta = (torch.log1p(v * torch.expm1(-parameter)) / parameter).add_(1)
        # v a rounding below 1 can round zeta to 0 or less, but z is read back as zeta != 0
        return zeta.clamp_min(torch.finfo(zeta.dtype).tiny)

    def slopes(self, v: Tensor, zeta: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `SpikeSmoothing.slopes`."""
        # by -v: c / (beta (1 - v c)); by beta: ((1 - e^(-beta zeta)) / c - zeta) / beta, between 0 and 1/8
        assert parameter is not None
        minus = -parameter
        minus_c = torch.expm1(minus)
        slope = minus_c / minus / (v * minus_c).add_(1)
        by_beta = (zeta * minus).expm1_().div_(minus_c).sub_(zeta).div_(parameter)
        return slope, by_beta

    def log_density_of_one(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        """See `SpikeSmoothing.log_density_of_one`."""
        assert parameter is not None
        return truncated_exponential(parameter).log_scale.to(zeta.dtype) + parameter * (zeta - 1)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        """See `Smoothing.conditional_moments`."""
        beta = self._bounded_parameter()
        assert beta is not None
        of_one, zero = truncated_exponential(beta), beta.new_zeros(())
        return ConditionalMoments(zero, zero, of_one.mean.to(beta.dtype), of_one.variance.to(beta.dtype))

    def survival(self, zeta: Tensor) -> Tensor:
        """See `SpikeSmoothing.survival`."""
        # (e^beta - e^(beta zeta)) / (e^beta - 1), by expm1 of negative arguments alone
        beta = self._bounded_parameter()
        assert beta is not None
        return torch.expm1(-beta * (1 - zeta)) / torch.expm1(-beta)
