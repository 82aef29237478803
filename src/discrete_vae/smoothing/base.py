"""Smoothing transformations r(zeta|z): what every one offers, and what several share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import ClassVar

import torch
from torch import Tensor, nn

from discrete_vae.checks import (
    Axis,
    check_finite,
    check_tensor,
    check_unit_interval,
    values_are_readable,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import open_uniform

CERTAIN = 45.0  # a logit at which sigmoid is 0 or 1 to the last digit of float64


@dataclass(frozen=True, eq=False, repr=False)
class SmoothedDraw(ShowsShapes):
    """A draw of units, as the objective needs it; all tensors (..., unit)."""

    z: Tensor  # in {0,1}, without gradient
    zeta: Tensor  # from its marginal, with the gradient of the inverse CDF
    bits: Tensor  # E[z | zeta, l], see `Smoothing.bits`


class Smoothing(nn.Module, ABC):
    """A transformation r(zeta|z) from a binary z to a continuous zeta, applied to each unit on its own.

    With q(z = 1) = sigmoid(l), the marginal q(zeta) = sum_z q(z) r(zeta|z) has an inverse CDF that is
    differentiable in l almost everywhere, so that gradients flow through zeta = F^-1(rho), rho ~ U(0,1).

    Most are the same for every x. One that is not, an `InputDependentSmoothing`, names the parameters
    of each unit that it takes after the logits.

    For one of your own with a spike at 0 derive from `discrete_vae.SpikeSmoothing`, which needs the least. Others
    define `sample_z`, `sample_zeta`, and `_icdf`, `_cdf` and `_bits`, which are `icdf`, `cdf` and `bits` of checked
    arguments. Whatever it derives from, `discrete_vae.testing.check_smoothing` says whether training can use it.

    Source: Rolfe 2017, section continuous-variable, eq. discrete-VAE-approx-zeta.

    Attributes:
        support: The least and the greatest zeta; zeta has all values between them, or only some.
        parameter_names: What a unit's law has of x beside its logit, in the order of the arguments.
        has_densities: Whether r(zeta|0) and r(zeta|1) are densities on one interval, as an `OverlappingSmoothing` has.
    """

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    parameter_names: ClassVar[tuple[str, ...]] = ()
    has_densities: ClassVar[bool] = False

    @property
    def prior_parameters(self) -> tuple[float, ...]:
        """The parameters of r(zeta|z), in the order of `parameter_names`."""
        return ()

    def bound_sharpness_(self, limit: float) -> None:
        """Set the upper bound of a trained parameter that brings zeta closer to z; others ignore it."""

    def sharp_limit(self) -> Smoothing | None:
        """zeta = z, if there is a limit of this transformation's parameter in which zeta becomes z; else None."""
        return None

    def icdf(self, rho: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        """The marginal inverse CDF, zeta, differentiable in the logits and the transformation's parameters.

        Args:
            rho: (..., unit), in [0, 1).
            logits: (..., unit), log-odds of z; broadcast with rho.
            parameters: What `parameter_names` names, (..., unit) each; broadcast with logits.
        """
        self._check_arguments("rho", rho, logits, parameters)
        check_unit_interval("rho", rho)
        if values_are_readable(rho) and bool((rho == 1).any()):
            raise InvalidInputError("rho", "must be below 1", "a value of 1", "Draw it with torch.rand.")
        return self._icdf(rho, logits, *parameters)

    def cdf(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        """The marginal CDF F(zeta), differentiable in all of its arguments, which are as in `icdf`.

        zeta is any number: F is 0 below the domain of zeta and 1 above it.
        """
        self._check_arguments("zeta", zeta, logits, parameters)
        return self._cdf(zeta, logits, *parameters)

    def log_prob(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        """Log density of the marginal at zeta, nats, differentiable in all of its arguments.

        Where there is a spike the density is that with respect to the sum of a point mass at 0 and the Lebesgue
        measure: at zeta = 0 it is log q(z = 0), elsewhere log q(z = 1) + log r(zeta | z=1).

        Raises:
            InvalidInputError: As `cdf`, and if zeta has no density, as in the limit zeta = z.

        Examples:
            >>> from discrete_vae import SpikeSlab
            >>> SpikeSlab().log_prob(torch.tensor([0.0, 0.3, 1.5]), torch.zeros(3)).exp()
            tensor([0.5000, 0.5000, 0.0000])
        """
        self._check_arguments("zeta", zeta, logits, parameters)
        return self._log_prob(zeta, logits, *parameters)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        """Mean and variance of r(zeta|z), differentiable in the transformation's parameters, as `icdf` takes them."""
        raise self._unknown("conditional_moments")

    def _log_prob(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        raise self._unknown("a density")

    def _unknown(self, what: str) -> InvalidInputError:
        repair = "Give the transformation a method for it, or choose another one."
        return InvalidInputError("smoothing", f"must have {what}", f"a {type(self).__name__}", repair)

    def rsample(
        self, logits: Tensor, *parameters: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw zeta, (..., unit), from its marginal by `icdf`, whose gradient it carries."""
        check_tensor("logits", logits, (...,))
        self._check_parameters(logits.shape, parameters)
        shape = torch.broadcast_shapes(logits.shape, *(each.shape for each in parameters))
        rho = open_uniform(logits.expand(shape), generator=generator)
        return self._icdf(rho, logits, *parameters).to(logits.dtype)

    def bits(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        """E[z | zeta, l], with the gradient that a pair term of the prior's energy needs.

        It is exactly z where zeta determines it. zeta is as `rsample` or `icdf` returned it for these logits;
        parameters may be left out where it determines z.
        """
        shape = self._check_pair("zeta", zeta, logits)
        if parameters:
            self._check_parameters(shape, parameters)
        return self._bits(zeta, logits, *parameters)

    def draw(self, rho: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> SmoothedDraw:
        """`icdf`, `sample_z` and `bits` together, of checked arguments of one shape and dtype, as posteriors draw.

        The generator is the source of further noise, where zeta leaves z open.
        """
        zeta = self._icdf(rho, logits)
        return SmoothedDraw(self.sample_z(zeta, logits, generator=generator), zeta, self._bits(zeta, logits))

    def draw_zeta(self, rho: Tensor, z: Tensor, *parameters: Tensor) -> Tensor:
        """zeta of r(zeta|z), (..., unit), for z in {0,1}, of checked arguments: at logits that leave no other z.

        It carries the gradient for the transformation's parameters.
        """
        return self._icdf(rho, (z - 0.5) * (2 * CERTAIN), *parameters)

    def _bounded_parameter(self) -> Tensor | None:
        """The one scalar parameter that a law may have for all units, kept inside its bounds."""
        return None

    @abstractmethod
    def sample_z(self, zeta: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw z from q(z | zeta, l), (..., unit), in {0,1}, without gradient; zeta determines it where it can."""

    @abstractmethod
    def sample_zeta(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw zeta from r(zeta|z) for z in {0,1}, (..., unit), with the gradient for the own parameters."""

    # `icdf`, `cdf` and `bits` of checked arguments

    @abstractmethod
    def _icdf(self, rho: Tensor, logits: Tensor) -> Tensor: ...

    @abstractmethod
    def _cdf(self, zeta: Tensor, logits: Tensor) -> Tensor: ...

    @abstractmethod
    def _bits(self, zeta: Tensor, logits: Tensor) -> Tensor: ...

    def check_zeta(self, zeta: object, shape: Sequence[Axis | EllipsisType]) -> Tensor:
        """Return zeta if it is a floating-point tensor of that shape inside the transformation's `support`."""
        repair = "Draw it with encode, or with the smoothing's rsample or sample_zeta."
        checked = check_tensor("zeta", zeta, shape)
        if self.support == (0.0, 1.0):
            return check_unit_interval("zeta", checked, repair=repair)
        return check_finite("zeta", checked, repair=repair) if values_are_readable(checked) else checked

    def _check_arguments(
        self, name: str, value: Tensor, logits: Tensor, parameters: Sequence[Tensor]
    ) -> None:
        self._check_parameters(self._check_pair(name, value, logits), parameters)
        if name == "zeta" and values_are_readable(value) and bool(value.isnan().any()):
            raise InvalidInputError(name, "must hold numbers", "a value of nan", "Look at where it is made.")

    def _check_parameters(self, shape: torch.Size, parameters: Sequence[Tensor]) -> None:
        """Check that there is one tensor per named parameter, and that all of them broadcast with a shape."""
        names = self.parameter_names
        if len(parameters) != len(names):
            rule = f"must be {' and '.join(names)}, after logits" if names else "must be left out"
            repair = f"{type(self).__name__} takes {len(names) or 'no'} parameters of x."
            raise InvalidInputError("parameters", rule, f"{len(parameters)} tensors", repair)
        for name, value in zip(names, parameters, strict=True):
            shape = _broadcast(name, check_tensor(name, value, (...,)).shape, shape)

    @staticmethod
    def _check_pair(name: str, value: Tensor, logits: Tensor) -> torch.Size:
        """Check that two tensors are floating-point; return the shape to which they broadcast."""
        check_tensor(name, value, (...,))
        check_tensor("logits", logits, (...,))
        return _broadcast(name, value.shape, logits.shape)


def _broadcast(name: str, shape: torch.Size, other: torch.Size) -> torch.Size:
    try:
        return torch.broadcast_shapes(shape, other)
    except RuntimeError:
        received, repair = f"{tuple(shape)} and {tuple(other)}", "Give both (..., unit)."
        raise InvalidInputError(name, "must broadcast with logits", received, repair) from None


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalMoments(ShowsShapes):
    """Mean and variance of zeta given z; scalars, or of the shape of the parameters of x."""

    mean_of_zero: Tensor
    variance_of_zero: Tensor
    mean_of_one: Tensor
    variance_of_one: Tensor


def truncated_exponential(beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The density beta e^(beta (x - 1)) / (1 - e^-beta) on [0, 1]: its log at 1, mean and variance, float64 scalars.

    They are differentiable in beta. The latter are differences of terms as large as 1 / beta and 1 / beta^2.
    """
    wide = beta.double()
    minus_c = torch.expm1(-wide)  # -(1 - e^-beta)
    mean = -1 / minus_c - 1 / wide
    variance = 1 / wide.square() - torch.exp(-wide) / minus_c.square()
    return torch.log(-wide / minus_c), mean, variance


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
        """Parameters, (..., unit) each, of numbers without bounds; those of zeros are the prior's."""

    @abstractmethod
    def kl(self, logits: Tensor, *parameters: Tensor) -> Tensor:
        """sum_z q(z) KL[q(zeta | z, x) || r(zeta|z)], (..., unit), nats, differentiable in all arguments."""

    @abstractmethod
    def log_ratio(self, zeta: Tensor, *parameters: Tensor) -> Tensor:
        """log r(zeta|z) - log q(zeta | z, x), (..., unit), nats, at a draw of q with these parameters."""

    @abstractmethod
    def draw(
        self, rho: Tensor, logits: Tensor, *parameters: Tensor, generator: torch.Generator | None = None
    ) -> SmoothedDraw: ...
