"""Transformations of binary latents that depend on x."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from discrete_vae.smoothing.base import SmoothedDraw, Smoothing


class InputDependentSmoothing(Smoothing):
    """q(zeta | z, x) of the posterior, beside an r(zeta|z) of the prior of the same family.

    A law of the family has a logit and the parameters that `parameter_names` names, functions of x alone: the
    posterior's networks make numbers without bounds, and `constrain` makes parameters of them. Since r no longer
    cancels, the evidence bound has one more term, `kl`, and importance weights one more factor, `log_ratio`.

    Source: Rolfe 2017, appendix input-dependent-tranformation-section, eq. vae-loss-input-dependent-zeta.
    """

    @property
    @abstractmethod
    def prior_parameters(self) -> tuple[float, ...]:
        """The parameters at which q(zeta | z, x) is the prior's r(zeta|z)."""

    @abstractmethod
    def constrain(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Parameters of numbers without bounds; those of zeros are the prior's.

        Args:
            raw: One tensor for each parameter, (..., unit).

        Returns:
            The parameters, (..., unit) each.
        """

    @abstractmethod
    def kl(self, logits: Tensor, *parameters: Tensor) -> Tensor:
        """sum_z q(z) KL[q(zeta | z, x) || r(zeta|z)] of each unit, differentiable in all arguments.

        Args:
            logits: (..., unit), log-odds of z.
            parameters: (..., unit) each; broadcast with logits.

        Returns:
            (..., unit), nats, at least 0.
        """

    @abstractmethod
    def log_ratio(self, zeta: Tensor, *parameters: Tensor) -> Tensor:
        """log r(zeta|z) - log q(zeta | z, x) of each unit at a draw, as importance weights need it.

        Args:
            zeta: (..., unit), from q.
            parameters: Those that it was drawn with, (..., unit) each; broadcast with zeta.

        Returns:
            (..., unit), nats.
        """

    @abstractmethod
    def draw(
        self,
        rho: Tensor,
        logits: Tensor,
        *parameters: Tensor,
        generator: torch.Generator | None = None,
    ) -> SmoothedDraw:
        """See `Smoothing.draw`; parameters broadcast with rho."""
