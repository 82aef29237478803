"""What every smoothing transformation r(zeta|z) offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType

import torch
from torch import Tensor, nn

from discrete_vae.checks import Axis, check_tensor, check_unit_interval, values_are_readable
from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import open_uniform
from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class SmoothedDraw(ShowsShapes):
    """A draw of units and what the objective needs of it; all tensors (..., unit).

    Attributes:
        z: In {0,1}, without gradient.
        zeta: From its marginal, with the gradient of the inverse CDF.
        bits: E[z | zeta, l], see `Smoothing.bits`.
    """

    z: Tensor
    zeta: Tensor
    bits: Tensor


class Smoothing(nn.Module, ABC):
    """A transformation r(zeta|z) from a binary z to a continuous zeta, applied to each unit on its own.

    With q(z = 1) = sigmoid(l), the marginal q(zeta) = sum_z q(z) r(zeta|z) has an inverse CDF that is
    differentiable in l almost everywhere, so that gradients flow through zeta = F^-1(rho), rho ~ U(0,1).

    Source: Rolfe 2017, section continuous-variable, eq. discrete-VAE-approx-zeta.

    """

    def bound_sharpness_(self, limit: float) -> None:
        """Set the upper bound of a trained parameter that brings zeta closer to z; others ignore it."""

    def sharp_limit(self) -> Smoothing | None:
        """zeta = z, if there is a limit of this transformation's parameter in which zeta becomes z; else None."""
        return None

    def icdf(self, rho: Tensor, logits: Tensor) -> Tensor:
        """The marginal inverse CDF, differentiable in the logits and the transformation's parameters.

        Args:
            rho: (..., unit), in [0, 1).
            logits: (..., unit), log-odds of z; broadcast with rho.

        Returns:
            zeta, (..., unit).

        Raises:
            InvalidInputError: If an argument is not a floating-point tensor, the shapes do not broadcast, or rho
                lies outside [0, 1).
        """
        self._check_pair("rho", rho, logits)
        check_unit_interval("rho", rho)
        if values_are_readable(rho) and bool((rho == 1).any()):
            raise InvalidInputError("rho", "must be below 1", "a value of 1", "Draw it with torch.rand.")
        return self._icdf(rho, logits)

    def cdf(self, zeta: Tensor, logits: Tensor) -> Tensor:
        """The marginal CDF F(zeta), differentiable in all of its arguments.

        Args:
            zeta: (..., unit), any number; F is 0 below the domain of zeta and 1 above it.
            logits: (..., unit), log-odds of z; broadcast with zeta.

        Returns:
            (..., unit), in [0, 1].

        Raises:
            InvalidInputError: If an argument is not a floating-point tensor, the shapes do not broadcast, or zeta holds
                NaN.
        """
        self._check_pair("zeta", zeta, logits)
        if values_are_readable(zeta) and bool(zeta.isnan().any()):
            raise InvalidInputError(
                "zeta", "must hold numbers", "a value of nan", "Look at where zeta is made."
            )
        return self._cdf(zeta, logits)

    def rsample(self, logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw zeta from its marginal by the inverse CDF.

        Args:
            logits: (..., unit), log-odds of z.
            generator: Source of rho; None means torch's global generator.

        Returns:
            zeta, (..., unit), carrying the gradient of the inverse CDF.

        Raises:
            InvalidInputError: If logits is not a floating-point tensor.
        """
        check_tensor("logits", logits, (...,))
        return self._icdf(open_uniform(logits, generator=generator), logits)

    def bits(self, zeta: Tensor, logits: Tensor) -> Tensor:
        """E[z | zeta, l], with the gradient that a pair term of the prior's energy needs.

        Args:
            zeta: (..., unit), as `rsample` or `icdf` returned it for these logits.
            logits: (..., unit).

        Returns:
            (..., unit), in [0, 1]; exactly z where zeta determines it.

        Raises:
            InvalidInputError: If an argument is not a floating-point tensor or the shapes do not broadcast.
        """
        self._check_pair("zeta", zeta, logits)
        return self._bits(zeta, logits)

    def draw(self, rho: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> SmoothedDraw:
        """`icdf`, `sample_z` and `bits` together, of checked arguments, as posteriors draw.

        Args:
            rho: (..., unit), in the open unit interval.
            logits: (..., unit), of rho's shape and dtype.
            generator: Source of further noise, where zeta leaves z open.
        """
        zeta = self._icdf(rho, logits)
        return SmoothedDraw(self.sample_z(zeta, logits, generator=generator), zeta, self._bits(zeta, logits))

    @abstractmethod
    def sample_z(self, zeta: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw z from q(z | zeta, l); deterministic where zeta determines z.

        Args:
            zeta: (..., unit).
            logits: (..., unit).
            generator: Source of the noise, if any is needed.

        Returns:
            (..., unit), in {0,1}, without gradient.
        """

    @abstractmethod
    def sample_zeta(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw zeta from r(zeta|z), as generation from the prior needs it.

        Args:
            z: (..., unit), in {0,1}.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            (..., unit), carrying the gradient for the transformation's own parameters.
        """

    @abstractmethod
    def _icdf(self, rho: Tensor, logits: Tensor) -> Tensor:
        """`icdf` of checked arguments."""

    @abstractmethod
    def _cdf(self, zeta: Tensor, logits: Tensor) -> Tensor:
        """`cdf` of checked arguments."""

    @abstractmethod
    def _bits(self, zeta: Tensor, logits: Tensor) -> Tensor:
        """`bits` of checked arguments."""

    def check_zeta(self, zeta: object, shape: Sequence[Axis | EllipsisType]) -> Tensor:
        """Return zeta if it is a floating-point tensor of that shape inside the transformation's domain, [0, 1].

        Raises:
            InvalidInputError: If it is anything else.
        """
        repair = "Draw it with encode, or with the smoothing's rsample or sample_zeta."
        return check_unit_interval("zeta", check_tensor("zeta", zeta, shape), repair=repair)

    @staticmethod
    def _check_pair(name: str, value: Tensor, logits: Tensor) -> None:
        """Check that two tensors are floating-point and broadcast."""
        check_tensor(name, value, (...,))
        check_tensor("logits", logits, (...,))
        try:
            torch.broadcast_shapes(value.shape, logits.shape)
        except RuntimeError:
            received = f"{tuple(value.shape)} and {tuple(logits.shape)}"
            raise InvalidInputError(
                name, "must broadcast with logits", received, "Give both (..., unit)."
            ) from None
