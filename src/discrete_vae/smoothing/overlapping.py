"""Transformations without a spike, both of whose z can lie behind each zeta: ramps, exponentials, power functions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.checks import check_binary, check_number, check_tensor
from discrete_vae.numerics import differentiable_once
from discrete_vae.rng import open_uniform
from discrete_vae.smoothing.base import (
    ConditionalMoments,
    SmoothedDraw,
    Smoothing,
    truncated_exponential,
)
from discrete_vae.smoothing.spike import BetaSmoothing, SharpLimit, widened

WithSlopes = tuple[Tensor, tuple[Tensor, Tensor, Tensor | None] | None]
"""A function of (an element, a logit, the transformation's parameter), and its derivatives by each, elementwise."""


class OverlappingSmoothing(Smoothing):
    """r(zeta|z=0) = s(zeta) and r(zeta|z=1) = s(1 - zeta), densities on all of [0, 1].

    Subclasses give the inverse of the mixture's CDF F(zeta) = p S(zeta) + q (1 - S(1 - zeta)), with q = sigmoid(l) and
    p = sigmoid(-l), and its derivatives d zeta/d l = -F_l / F_zeta and d zeta/d rho = 1 / F_zeta. The parameter is the
    transformation's own inside its bounds, a scalar, or None where it has none. zeta leaves z open:

        E[z | zeta, l] = sigmoid(l + g(zeta)),    g(zeta) = log r(zeta|1) - log r(zeta|0),

    which depends on l both directly and through zeta, and on the parameter likewise; all of these gradients are kept.

    Everything is computed in float32 or wider, whatever the arguments are.

    Source: Vahdat et al. 2018, DVAE++, section 3; for ramps Rolfe 2017, appendix two-sided-mixture.
    """

    has_densities = True

    def log_ratio(self, zeta: Tensor, *, fixed: bool = False) -> Tensor:
        """g(zeta) = log r(zeta|1) - log r(zeta|0), nats: what zeta adds to the log-odds of z; finite everywhere.

        What is rounded to an end counts as half a digit inside; the parameter gets no gradient where it is fixed.
        """
        (zeta,), _ = widened(zeta)
        parameter = self._bounded_parameter()
        return self._log_ratio(zeta, parameter.detach() if fixed and parameter is not None else parameter)

    def log_density_of_zero(self, zeta: Tensor) -> Tensor:
        """log r(zeta|0), nats; zeta as in `log_ratio`. Finite everywhere."""
        (zeta,), _ = widened(zeta)
        return self._log_density_of_zero(zeta, self._bounded_parameter())

    # the same of a tensor in float32 or wider

    @abstractmethod
    def _log_ratio(self, zeta: Tensor, parameter: Any) -> Tensor: ...

    @abstractmethod
    def _log_density_of_zero(self, zeta: Tensor, parameter: Any) -> Tensor: ...

    def sample_z(self, zeta: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return _draw_bits(self.bits(zeta, logits), generator)

    def sample_zeta(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        check_binary("z", check_tensor("z", z, (...,)))
        (wide,), dtype = widened(z)
        zeta = self._inverse_of_zero(open_uniform(wide, generator=generator), self._bounded_parameter())
        return torch.where(wide == 1, 1 - zeta, zeta).to(dtype)

    def draw(self, rho: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> SmoothedDraw:
        zeta = self._icdf(rho, logits)
        bits = self._bits(zeta, logits)
        return SmoothedDraw(_draw_bits(bits, generator), zeta, bits)

    @abstractmethod
    def _inverse(self, rho: Tensor, logits: Tensor, parameter: Any, differentiable: bool) -> WithSlopes:
        """zeta, in [0, 1], at which F(zeta) = rho, and where asked for its derivatives by rho, l and the parameter."""

    @abstractmethod
    def _mean(self, zeta: Tensor, logits: Tensor, parameter: Any, differentiable: bool) -> WithSlopes:
        """E[z | zeta, l] and its partial derivatives by zeta, l and the parameter, finite everywhere."""

    @abstractmethod
    def _mixture_cdf(self, zeta: Tensor, p: Tensor, q: Tensor, parameter: Any) -> Tensor:
        """F(zeta), differentiable, for zeta in [0, 1]."""

    @abstractmethod
    def _inverse_of_zero(self, rho: Tensor, parameter: Any) -> Tensor:
        """zeta at which S(zeta) = rho, differentiable in the parameter."""

    def _parameter_like(self, x: Tensor) -> Tensor | None:
        """The parameter in the dtype of the arguments: numbers made of a scalar alone would be rounded to its own."""
        parameter = self._bounded_parameter()
        return None if parameter is None else parameter.to(x.dtype)

    def _icdf(self, rho: Tensor, logits: Tensor) -> Tensor:
        (rho, logits), dtype = widened(rho, logits)
        return _WithSlopes.apply(rho, logits, self._parameter_like(rho), self._inverse).to(dtype)

    def _log_prob(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (zeta, logits), dtype = widened(zeta, logits)
        inside, parameter = zeta.clamp(0, 1), self._parameter_like(zeta)
        of_one = F.logsigmoid(logits) + self._log_ratio(inside, parameter)
        mixed = torch.logaddexp(F.logsigmoid(-logits), of_one)
        density = self._log_density_of_zero(inside, parameter) + mixed
        return torch.where((zeta >= 0) & (zeta <= 1), density, -torch.inf).to(dtype)

    def _cdf(self, zeta: Tensor, logits: Tensor) -> Tensor:
        (zeta, logits), dtype = widened(zeta, logits)
        p, q = torch.sigmoid(-logits), torch.sigmoid(logits)
        inside = self._mixture_cdf(zeta.clamp(0, 1), p, q, self._parameter_like(zeta))
        return torch.where(zeta < 0, 0.0, torch.where(zeta > 1, 1.0, inside)).to(dtype)

    def _bits(self, zeta: Tensor, logits: Tensor) -> Tensor:
        (zeta, logits), dtype = widened(zeta, logits)
        return _WithSlopes.apply(zeta, logits, self._bounded_parameter(), self._mean).to(dtype)


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

    The last argument is `_inverse` or `_mean` of a transformation.
    """

    @staticmethod
    def forward(
        ctx: Any,
        element: Tensor,
        logits: Tensor,
        parameter: Any,
        evaluate: Callable[[Tensor, Tensor, Any, bool], WithSlopes],
    ) -> Tensor:
        value, slopes = evaluate(element, logits, parameter, any(ctx.needs_input_grad))
        if slopes is not None:
            needed = zip(slopes, ctx.needs_input_grad[:3], strict=True)
            ctx.save_for_backward(*(slope if needs else None for slope, needs in needed))
        return value

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *slopes, by_parameter = ctx.saved_tensors
        of_element, of_logits = (None if slope is None else gradient * slope for slope in slopes)
        of_parameter = None if by_parameter is None else (gradient * by_parameter).sum()
        return of_element, of_logits, of_parameter, None


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

    def _inverse(self, rho: Tensor, logits: Tensor, parameter: Any, differentiable: bool) -> WithSlopes:
        p, q = torch.sigmoid(-logits), torch.sigmoid(logits)
        root = torch.hypot(p * (1 - rho).sqrt_(), q * rho.sqrt()).clamp_min_(torch.finfo(rho.dtype).tiny)
        zeta = (rho / (p + root)).clamp_max_(1)
        if not differentiable:
            return zeta, None
        by_logits = p * q * zeta * (1 - zeta) / root
        return zeta, (0.5 / root, by_logits, None)

    def _mean(self, zeta: Tensor, logits: Tensor, parameter: Any, differentiable: bool) -> WithSlopes:
        p, q = torch.sigmoid(-logits), torch.sigmoid(logits)
        density = (p * (1 - zeta) + q * zeta).clamp_min(torch.finfo(zeta.dtype).tiny)
        off, on = p / density, q / density
        mean = (on * zeta).clamp_max(1)  # which rounding may exceed
        return mean, (off * on, mean * off * (1 - zeta), None)

    def _log_ratio(self, zeta: Tensor, parameter: Any) -> Tensor:
        below, above = ends_excluded(zeta)
        return below.log() - above.log()

    def _log_density_of_zero(self, zeta: Tensor, parameter: Any) -> Tensor:
        return math.log(2) + ends_excluded(zeta)[1].log()

    def _mixture_cdf(self, zeta: Tensor, p: Tensor, q: Tensor, parameter: Any) -> Tensor:
        return zeta * (p * (2 - zeta) + q * zeta)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        return ConditionalMoments(*torch.tensor([1 / 3, 1 / 18, 2 / 3, 1 / 18], dtype=torch.float64).unbind())

    def _inverse_of_zero(self, rho: Tensor, parameter: Any) -> Tensor:
        return rho / (1 + (1 - rho).sqrt())


class OverlappingExponential(BetaSmoothing, OverlappingSmoothing):
    """r(zeta|z=0) = beta e^(-beta zeta) / (1 - e^-beta) on [0, 1], r(zeta|z=1) its mirror image.

    With c = 1 - e^-beta, k = p - q e^-beta - rho c and S = sqrt(k^2 + 4 p q e^-beta), the numbers u = e^(-beta zeta) =
    (S + k) / (2p) and 1 - u = 2 rho c / (p + q e^-beta + rho c + S) give zeta where k >= 0, and the same formulas of
    -l and 1 - rho give 1 - zeta where k < 0. As beta grows zeta approaches z, and the gradient's second moment grows
    like e^(beta/2) / beta^2, hence the bound on a trained beta.

    Source: Vahdat et al. 2018, DVAE++, section 3. Deviation: the root is taken on the side where nothing cancels.

    Args:
        beta: As in `SpikeExponential`, likewise trainable and max_beta.

    Examples:
        >>> OverlappingExponential(beta=8.0).icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0638, 0.9362])
    """

    def __init__(self, beta: float = 8.0, trainable: bool = False, max_beta: float = math.inf) -> None:
        super().__init__(beta, trainable, max_beta, repair="Values of 8 to 14 are in use.")

    def _inverse(self, rho: Tensor, logits: Tensor, parameter: Tensor, differentiable: bool) -> WithSlopes:
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
        return zeta, (by_rho, by_logits, by_beta / density / beta)

    def _mean(self, zeta: Tensor, logits: Tensor, parameter: Tensor, differentiable: bool) -> WithSlopes:
        centred = 2 * zeta - 1
        inside = torch.addcmul(logits, parameter, centred)
        mean = torch.sigmoid(inside)
        variance = mean * torch.sigmoid(-inside)
        return mean, (2 * parameter * variance, variance, centred * variance)

    def _log_ratio(self, zeta: Tensor, parameter: Tensor) -> Tensor:
        return parameter * (2 * zeta - 1)

    def _log_density_of_zero(self, zeta: Tensor, parameter: Tensor) -> Tensor:
        return torch.log(-parameter / torch.expm1(-parameter)) - parameter * zeta

    def _mixture_cdf(self, zeta: Tensor, p: Tensor, q: Tensor, parameter: Tensor) -> Tensor:
        below = torch.expm1(-parameter * zeta) / torch.expm1(-parameter)
        return below * (p + q * torch.exp(-parameter * (1 - zeta)))

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        beta = self._bounded_parameter()
        mean, variance = (value.to(beta) for value in truncated_exponential(beta)[1:])
        return ConditionalMoments(1 - mean, variance, mean, variance)

    def _inverse_of_zero(self, rho: Tensor, parameter: Tensor) -> Tensor:
        return (torch.log1p(rho * torch.expm1(-parameter)) / -parameter).clamp(0, 1)


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

    Examples:
        >>> OverlappingPower(b=4.0).icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0241, 0.9759])
    """

    def __init__(self, b: float = 30.0) -> None:
        super().__init__()
        repair = "Values of 20 to 40 are in use."
        self.b = check_number("b", b, above=1, at_most=_MAX_B, repair=repair)

    def extra_repr(self) -> str:
        return f"b={self.b:.4g}"

    def sharp_limit(self) -> SharpLimit:
        return SharpLimit()

    def _inverse(self, rho: Tensor, logits: Tensor, parameter: Any, differentiable: bool) -> WithSlopes:
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
            # below this x adds nothing, and the functions of it are slow
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
        return zeta, (x / steepness, by_logits, None)

    def _mean(self, zeta: Tensor, logits: Tensor, parameter: Any, differentiable: bool) -> WithSlopes:
        sharpness, largest = 1 - 1 / self.b, torch.finfo(zeta.dtype).max
        rest = 1 - zeta
        # where zeta is rounded to 0 or 1, z is known: the logarithms may be infinite there, the logits not
        inside = logits.clamp(-largest, largest) + sharpness * (zeta.log() - rest.log())
        mean = torch.sigmoid(inside)
        variance = mean * torch.sigmoid(-inside)
        # where zeta is rounded to 0 or 1 it has no slope left
        product = zeta * rest
        by_zeta = sharpness * variance / torch.where(product > 0, product, 1.0)
        return mean, (by_zeta, variance, None)

    def _log_ratio(self, zeta: Tensor, parameter: Any) -> Tensor:
        below, above = ends_excluded(zeta)
        return (1 - 1 / self.b) * (below.log() - above.log())

    def _log_density_of_zero(self, zeta: Tensor, parameter: Any) -> Tensor:
        return (1 / self.b - 1) * ends_excluded(zeta)[0].log() - math.log(self.b)

    def _mixture_cdf(self, zeta: Tensor, p: Tensor, q: Tensor, parameter: Any) -> Tensor:
        a = 1 / self.b
        below = torch.where(zeta < 1, zeta, 0.5)  # the logarithm of what is left must have a slope
        mirrored = torch.where(zeta < 1, -torch.expm1(a * torch.log1p(-below)), 1.0)
        return p * zeta**a + q * mirrored

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        a = 1 / self.b
        mean, variance = a / (a + 1), a / ((a + 1) ** 2 * (a + 2))
        moments = torch.tensor([mean, variance, 1 - mean, variance], dtype=torch.float64)
        return ConditionalMoments(*moments.unbind())

    def _inverse_of_zero(self, rho: Tensor, parameter: Any) -> Tensor:
        return rho**self.b
