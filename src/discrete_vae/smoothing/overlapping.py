"""Transformations without a spike: both values of z can lie behind each zeta."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.bounds import clamped, not_outward
from discrete_vae.checks import check_binary, check_tensor
from discrete_vae.noise import open_uniform
from discrete_vae.numerics import differentiable_once
from discrete_vae.smoothing.base import SmoothedDraw
from discrete_vae.smoothing.parameter import OneParameterSmoothing
from discrete_vae.smoothing.widened import widened


class Slopes(NamedTuple):
    """Derivatives of a function of (an element, a logit, the transformation's parameter), elementwise."""

    by_element: Tensor
    by_logits: Tensor
    by_parameter: Tensor | None


class OverlappingSmoothing(OneParameterSmoothing):
    """r(zeta|z=0) = s(zeta) and r(zeta|z=1) = s(1 - zeta), densities on all of [0, 1].

    Subclasses give the inverse of the mixture's CDF F(zeta) = p S(zeta) + q (1 - S(1 - zeta)), with q = sigmoid(l) and
    p = sigmoid(-l), and its derivatives d zeta/d l = -F_l / F_zeta and d zeta/d rho = 1 / F_zeta. zeta leaves z open:

        E[z | zeta, l] = sigmoid(l + g(zeta)),    g(zeta) = log r(zeta|1) - log r(zeta|0),

    which depends on l both directly and through zeta, and on the parameter likewise; all of these gradients are kept.

    Everything is computed in float32 or wider, whatever the arguments are.

    Source: Vahdat et al. 2018, DVAE++, section 3; for ramps Rolfe 2017, appendix two-sided-mixture.
    """

    def log_ratio(self, zeta: Tensor, *, fixed: bool = False) -> Tensor:
        """g(zeta) = log r(zeta|1) - log r(zeta|0): what zeta adds to the log-odds of z; finite everywhere.

        Args:
            zeta: (..., unit), in [0, 1]; what is rounded to an end counts as half a digit inside.
            fixed: Whether the transformation's own parameter gets no gradient.

        Returns:
            (..., unit), nats.
        """
        (zeta,), _ = widened(zeta)
        return self._log_ratio(zeta, self._used_parameter(fixed))

    def log_density_of_zero(self, zeta: Tensor) -> Tensor:
        """log r(zeta|0), finite everywhere.

        Args:
            zeta: (..., unit), in [0, 1], as in `log_ratio`.

        Returns:
            (..., unit), nats.
        """
        (zeta,), _ = widened(zeta)
        return self._log_density_of_zero(zeta, self._bounded_parameter())

    def _used_parameter(self, fixed: bool) -> Tensor | None:
        parameter = self._bounded_parameter()
        return parameter.detach() if fixed and parameter is not None else parameter

    @abstractmethod
    def _log_ratio(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        """`log_ratio` of a tensor in float32 or wider."""

    @abstractmethod
    def _log_density_of_zero(self, zeta: Tensor, parameter: Tensor | None) -> Tensor:
        """`log_density_of_zero` of a tensor in float32 or wider."""

    def sample_z(self, zeta: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw z from Bernoulli(E[z | zeta, l]); see `Smoothing.sample_z`."""
        return _draw_bits(self.bits(zeta, logits), generator)

    def sample_zeta(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw zeta from r(zeta|z); see `Smoothing.sample_zeta`.

        Raises:
            InvalidInputError: If z is not a floating-point tensor of zeros and ones.
        """
        check_binary("z", check_tensor("z", z, (...,)))
        (wide,), dtype = widened(z)
        zeta = self._inverse_of_zero(open_uniform(wide, generator=generator), self._bounded_parameter())
        return torch.where(wide == 1, 1 - zeta, zeta).to(dtype)

    def draw(self, rho: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> SmoothedDraw:
        """Zeta, z given zeta, and the bits; see `Smoothing.draw`."""
        zeta = self._icdf(rho, logits)
        bits = self._bits(zeta, logits)
        return SmoothedDraw(_draw_bits(bits, generator), zeta, bits)

    @abstractmethod
    def _inverse(
        self, rho: Tensor, logits: Tensor, parameter: Tensor | None, *, differentiable: bool
    ) -> tuple[Tensor, Slopes | None]:
        """zeta, in [0, 1], at which F(zeta) = rho, and its derivatives by rho, l and the parameter."""

    @abstractmethod
    def _mean(
        self, zeta: Tensor, logits: Tensor, parameter: Tensor | None, *, differentiable: bool
    ) -> tuple[Tensor, Slopes | None]:
        """E[z | zeta, l] and its partial derivatives by zeta, l and the parameter, finite everywhere."""

    @abstractmethod
    def _mixture_cdf(self, zeta: Tensor, p: Tensor, q: Tensor, parameter: Tensor | None) -> Tensor:
        """F(zeta), differentiable, for zeta in [0, 1]."""

    @abstractmethod
    def _inverse_of_zero(self, rho: Tensor, parameter: Tensor | None) -> Tensor:
        """zeta at which S(zeta) = rho, differentiable in the parameter."""

    def _icdf(self, rho: Tensor, logits: Tensor) -> Tensor:
        (rho, logits), dtype = widened(rho, logits)
        return _WithSlopes.apply(rho, logits, self._parameter(), self, self._inverse).to(dtype)

    def _log_prob(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (zeta, logits), dtype = widened(zeta, logits)
        inside, parameter = zeta.clamp(0, 1), self._bounded_parameter()
        of_one = F.logsigmoid(logits) + self._log_ratio(inside, parameter)
        mixed = torch.logaddexp(F.logsigmoid(-logits), of_one)
        density = self._log_density_of_zero(inside, parameter) + mixed
        return torch.where((zeta >= 0) & (zeta <= 1), density, -torch.inf).to(dtype)

    def _cdf(self, zeta: Tensor, logits: Tensor) -> Tensor:
        (zeta, logits), dtype = widened(zeta, logits)
        p, q = torch.sigmoid(-logits), torch.sigmoid(logits)
        inside = self._mixture_cdf(zeta.clamp(0, 1), p, q, self._bounded_parameter())
        return torch.where(zeta < 0, 0.0, torch.where(zeta > 1, 1.0, inside)).to(dtype)

    def _bits(self, zeta: Tensor, logits: Tensor) -> Tensor:
        (zeta, logits), dtype = widened(zeta, logits)
        return _WithSlopes.apply(zeta, logits, self._parameter(), self, self._mean).to(dtype)


def ends_excluded(zeta: Tensor) -> tuple[Tensor, Tensor]:
    """zeta and 1 - zeta, for logarithms: where one is rounded to 0, half of what it is rounded to."""
    numbers = torch.finfo(zeta.dtype)
    return zeta.clamp_min(numbers.tiny), (1 - zeta).clamp_min(numbers.eps / 4)


def _draw_bits(mean: Tensor, generator: torch.Generator | None) -> Tensor:
    """z of these means; a NaN comes out, or a broken network would look like z = 0."""
    mean = mean.detach()
    return (open_uniform(mean, generator=generator) < mean).to(mean.dtype).add_(mean * 0)


class _WithSlopes(torch.autograd.Function):
    """A function of (an element, a logit, the transformation's parameter) whose derivatives come with its value.

    The last argument is `_inverse` or `_mean` of the transformation before it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        element: Tensor,
        logits: Tensor,
        parameter: Tensor | None,
        smoothing: OverlappingSmoothing,
        evaluate: Callable[..., tuple[Tensor, Slopes | None]],
    ) -> Tensor:
        """The value; what the backward pass multiplies is worked out here too."""
        inside, excess = _inside(parameter, smoothing)
        value, slopes = evaluate(element, logits, inside, differentiable=any(ctx.needs_input_grad))
        if slopes is not None:
            _save(ctx, slopes, excess)
        return value

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Times the derivatives."""
        return _times_slopes(ctx, gradient)


def _inside(parameter: Tensor | None, smoothing: OverlappingSmoothing) -> tuple[Tensor | None, Tensor | None]:
    """The parameter inside its bounds, and by how much it exceeds them."""
    bounds = smoothing._bounds()
    if parameter is None or bounds is None:
        return parameter, None
    return clamped(parameter, *bounds)


def _save(ctx: Any, slopes: Slopes, excess: Tensor | None) -> None:
    kept = [slope if needed else None for slope, needed in zip(slopes, ctx.needs_input_grad[:3], strict=True)]
    ctx.present = [slope is not None for slope in (*kept, excess)]
    ctx.save_for_backward(*(slope for slope in (*kept, excess) if slope is not None))


def _times_slopes(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    saved = iter(ctx.saved_tensors)
    by_element, by_logits, by_parameter, excess = (next(saved) if here else None for here in ctx.present)
    of_parameter = None
    if by_parameter is not None:
        of_parameter = (gradient * by_parameter).sum()
        if excess is not None:
            of_parameter = not_outward(of_parameter, excess)
    of_element, of_logits = (None if slope is None else gradient * slope for slope in (by_element, by_logits))
    return of_element, of_logits, of_parameter, None, None
