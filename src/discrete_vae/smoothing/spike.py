"""Transformations with a spike at 0 and a density on (0, 1]."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.bounds import clamped, not_outward
from discrete_vae.checks import check_binary, check_tensor
from discrete_vae.noise import open_uniform
from discrete_vae.numerics import differentiable_once
from discrete_vae.smoothing.base import SmoothedDraw
from discrete_vae.smoothing.parameter import OneParameterSmoothing
from discrete_vae.smoothing.spike_at_zero import SpikeAtZero
from discrete_vae.smoothing.widened import widened


class SpikeSmoothing(SpikeAtZero, OneParameterSmoothing):
    """r(zeta|z=0) is a point mass at 0, r(zeta|z=1) a density on (0, 1].

    A transformation of your own with such a spike gives the density's survival function 1 - F(zeta | z=1), its
    inverse, the inverse's slope and, for a marginal density, the log density. All else is here, with gradients that
    stay finite at every logit: it is written in v = (1 - rho) / q, where z = 1 exactly when v < 1. Unlike
    rho + q - 1, v does not cancel in float32 when q is small. `discrete_vae.testing.contracts.check_smoothing` has what
    a transformation must obey.

    Examples:
        >>> class Ramp(SpikeSmoothing):  # r(zeta|z=1) = 2 zeta
        ...     def inverse_survival(self, v, parameter):
        ...         return (1 - v).sqrt()
        ...
        ...     def slopes(self, v, zeta, parameter):
        ...         return 0.5 / (1 - v).sqrt(), None
        ...
        ...     def survival(self, zeta):
        ...         return 1 - zeta.square()
        >>> Ramp().icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0000, 0.7746])
    """

    def sample_zeta(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw zeta from r(zeta|z); see `Smoothing.sample_zeta`.

        Raises:
            InvalidInputError: If z is not a floating-point tensor of zeros and ones.
        """
        check_binary("z", check_tensor("z", z, (...,)))
        zeta = self.inverse_survival(open_uniform(z, generator=generator), self._bounded_parameter())
        return zeta.to(z.dtype) * z

    def draw(self, rho: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> SmoothedDraw:
        """Zeta, z and its bits in one step with one backward pass; see `Smoothing.draw`."""
        (rho, logits), dtype = widened(rho, logits)
        zeta, bits = (value.to(dtype) for value in self._zeta_and_bits(rho, logits))
        return SmoothedDraw(bits.detach(), zeta, bits)

    def _zeta_and_bits(self, rho: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Both, of tensors of one shape and dtype; a subclass may have a faster way."""
        return PlainDraw.apply(rho, logits, self._parameter(), self)

    @abstractmethod
    def inverse_survival(self, v: Tensor, parameter: Tensor | None) -> Tensor:
        """zeta in (0, 1] at which 1 - F(zeta | z=1) = v, without gradient.

        Args:
            v: (..., unit), in [0, 1), float32 or wider; it is 0 where z = 0 too.
            parameter: The transformation's own, a scalar; None where it has none.

        Returns:
            (..., unit), a new tensor; NaN where v is.
        """

    @abstractmethod
    def slopes(self, v: Tensor, zeta: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Derivatives of `inverse_survival` by -v and by the parameter.

        Args:
            v: As in `inverse_survival`.
            zeta: What that gave; 0 where z = 0.
            parameter: As in `inverse_survival`.

        Returns:
            Both (..., unit) and finite; the latter is 0 at zeta = 0, and None without a parameter.
        """

    @abstractmethod
    def survival(self, zeta: Tensor) -> Tensor:
        """1 - F(zeta | z=1), differentiable, for zeta in [0, 1]."""

    def log_density_of_one(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        """log r(zeta|z=1), differentiable, for zeta in (0, 1]; without it there is no `log_prob`."""
        raise self._unknown("a density")

    def _log_prob(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (zeta, logits), dtype = widened(zeta, logits)
        density = self.log_density_of_one(zeta.clamp(0, 1), self._bounded_parameter())
        inside = torch.where((zeta > 0) & (zeta <= 1), F.logsigmoid(logits) + density, -torch.inf)
        return torch.where(zeta == 0, F.logsigmoid(-logits), inside).to(dtype)

    def _icdf(self, rho: Tensor, logits: Tensor) -> Tensor:
        (rho, logits), dtype = widened(rho, logits)
        return self._zeta_and_bits(rho, logits)[0].to(dtype)

    def _cdf(self, zeta: Tensor, logits: Tensor) -> Tensor:
        (zeta, logits), dtype = widened(zeta, logits)
        inside = torch.sigmoid(-logits) + torch.sigmoid(logits) * (1 - self.survival(zeta.clamp(0, 1)))
        return torch.where(zeta < 0, 0.0, inside).to(dtype)


class PlainDraw(torch.autograd.Function):
    """zeta and the bits of z by v = (1 - rho)/q, where z = 1 exactly when v < 1.

    With p = 1 - q: d v/d l = -v p, so d zeta/d l = v p d zeta/d(-v). The bits have the value z and the gradient
    (1 - z)/(1 - q) dq/dl = (1 - z) q (eq. J-gradient-z-0). v is finite wherever z = 1: there e^-l is at most 1/rho.
    """

    @staticmethod
    def forward(
        ctx: Any, rho: Tensor, logits: Tensor, parameter: Tensor | None, smoothing: SpikeSmoothing
    ) -> tuple[Tensor, Tensor]:
        """The values; what the backward pass multiplies is worked out here too."""
        bounds = smoothing._bounds()
        inside, excess = parameter, None
        if parameter is not None and bounds is not None:
            inside, excess = clamped(parameter, *bounds)
        odds, survival = torch.exp(-logits), 1 - rho  # p / q
        inverse_q = odds + 1
        v = survival * inverse_q
        # the *rounded* v decides; asked so that a NaN is no spike: it must come out, or a broken network would look
        # like z = 0
        spike = v >= 1
        v.masked_fill_(spike, 0)
        zeta = smoothing.inverse_survival(v, inside).masked_fill_(spike, 0)
        bits = zeta.ceil()  # zeta is in (0, 1] where z = 1; a NaN comes out here too
        ctx.set_materialize_grads(False)
        if any(ctx.needs_input_grad):
            slope, by_parameter = smoothing.slopes(v, zeta, inside)
            saved = [survival.mul_(odds).masked_fill_(spike, 0).mul_(slope)]  # v p = (1 - rho) p / q
            if ctx.needs_input_grad[0]:
                saved.append((slope * inverse_q).masked_fill_(spike, 0))
            ctx.has_parameter = ctx.needs_input_grad[2] and by_parameter is not None
            if ctx.has_parameter:
                assert by_parameter is not None
                saved += [by_parameter, excess]
            ctx.save_for_backward(*saved, inverse_q.reciprocal_().mul_(spike))
        return zeta, bits

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """See the class."""
        of_zeta, of_bits = gradients
        by_logits, *more, bits_by_logits = ctx.saved_tensors
        parts = []
        if of_zeta is not None:
            parts.append(of_zeta * by_logits)
        if of_bits is not None:
            parts.append(of_bits * bits_by_logits)
        of_logits = parts[0] if len(parts) == 1 else parts[0].add_(parts[1])
        of_rho = of_parameter = None
        if of_zeta is not None:
            if ctx.needs_input_grad[0]:
                of_rho = of_zeta * more[0]
            if ctx.has_parameter:
                by_parameter, excess = more[-2:]
                of_parameter = (of_zeta * by_parameter).sum()
                if excess is not None:
                    of_parameter = not_outward(of_parameter, excess)
        return of_rho, of_logits, of_parameter, None
