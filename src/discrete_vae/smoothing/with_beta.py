"""The inverse width beta of exponential transformations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from discrete_vae.bounds import project_
from discrete_vae.checks import check_number, values_are_known
from discrete_vae.compiled.choice import fuses
from discrete_vae.smoothing.parameter import OneParameterSmoothing

if TYPE_CHECKING:
    from discrete_vae.smoothing.sharp_limit import SharpLimit

_MIN_BETA = 0.01  # the smallest beta at which float32 was checked


class BetaSmoothing(OneParameterSmoothing):
    """A transformation with an inverse width beta, one for all units; as it grows zeta approaches z.

    Args:
        beta: Inverse width, at least 0.01.
        trainable: Whether beta is a parameter or a constant.
        max_beta: Upper bound of a trained beta; the training loop moves it.

    Attributes:
        beta: Scalar tensor.
        max_beta: The present bound.

    Raises:
        InvalidInputError: If beta or max_beta is not such a number.
    """

    beta: Tensor
    _limits: Tensor

    def __init__(self, beta: float, trainable: bool, max_beta: float, repair: str) -> None:
        super().__init__()
        value = torch.tensor(check_number("beta", beta, at_least=_MIN_BETA, repair=repair))
        # a tensor, so that a recorded or compiled step reads the bound that there is
        self.register_buffer("_limits", torch.tensor([_MIN_BETA, math.inf]), persistent=False)
        self.bound_sharpness_(max_beta)
        if trainable:
            self.beta = nn.Parameter(value)
        else:
            self.register_buffer("beta", value)

    def extra_repr(self) -> str:
        """beta and whether it trains."""
        known = values_are_known(self.beta) and not self.beta.is_meta
        beta = f"{self.beta.item():.4g}" if known else "unknown"
        return f"beta={beta}, trainable={isinstance(self.beta, nn.Parameter)}"

    def sharp_limit(self) -> SharpLimit:
        """zeta = z, where beta is infinite."""
        from discrete_vae.smoothing.sharp_limit import SharpLimit  # here, since it is a transformation itself

        return SharpLimit()

    def bound_sharpness_(self, limit: float) -> None:
        """Set the upper bound of beta.

        Raises:
            InvalidInputError: If limit is not a number of at least 0.01, or infinite.
        """
        if not isinstance(limit, float) or limit != math.inf:
            check_number("max_beta", limit, at_least=_MIN_BETA, repair="Leave it out for no bound.")
        self._limits[1] = limit

    @property
    def max_beta(self) -> float:
        """The present upper bound of beta, as float32 has it."""
        return float(self._limits[1])

    @max_beta.setter
    def max_beta(self, limit: float) -> None:
        self.bound_sharpness_(limit)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the parameter beta back between 0.01 and the bound."""
        low, high = self._limits.unbind()
        if fuses(self.beta, self._limits):
            from discrete_vae.compiled import projection

            if projection.works():
                projection.project_(self.beta, low, high)
                return
        project_(self.beta, low, high)

    def _parameter(self) -> Tensor:
        return self.beta

    def _bounds(self) -> tuple[Tensor, Tensor] | None:
        return (self._limits[0], self._limits[1]) if self.beta.requires_grad else None
