"""Transformations with a spike at 0: exponential, slab, Gaussian, and the sharp limit."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.checks import (
    check_binary,
    check_number,
    check_tensor,
    values_are_known,
    values_are_readable,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.registry import compiled_by
from discrete_vae.numerics import (
    HALF_LOG_TWO_PI,
    bounded,
    differentiable_once,
    project_,
    replace_gradient,
    softplus,
)
from discrete_vae.rng import open_uniform, standard_normal
from discrete_vae.smoothing.base import (
    ConditionalMoments,
    InputDependentSmoothing,
    SmoothedDraw,
    Smoothing,
    truncated_exponential,
)


def widened(*tensors: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """Tensors broadcast to one shape and one dtype, float32 or wider; and the dtype of results.

    The latter is the tensors' own, promoted. In bfloat16 an inverse CDF would lose z itself.
    """
    dtype = reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
    wide = torch.promote_types(dtype, torch.float32)
    return tuple(tensor.to(wide) for tensor in torch.broadcast_tensors(*tensors)), dtype


class SpikeAtZero(Smoothing):
    """r(zeta|z=0) is a point mass at 0, r(zeta|z=1) a density: z is read off zeta.

    What is read off zeta needs no parameters of x.
    """

    def sample_z(
        self, zeta: Tensor, logits: Tensor, *parameters: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        self._check_pair("zeta", zeta, logits)
        return read_z(zeta.detach())

    def _bits(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        # value z; backward (1-z)/(1-q) dq/dl = (1-z) q, and softplus(l) is the function with slope q.
        # Written so, there is no division by 1-q and nothing to clamp (eq. J-gradient-z-0).
        z = read_z(zeta.detach()).to(logits.dtype)
        slope = softplus(logits)
        return z + (1 - z) * (slope - slope.detach())


def read_z(zeta: Tensor) -> Tensor:
    """1 where zeta is not 0; a NaN comes out, or a broken network would look like z = 1."""
    return torch.where(zeta.abs() > 0, 1.0, zeta)


class SpikeSmoothing(SpikeAtZero):
    """r(zeta|z=0) is a point mass at 0, r(zeta|z=1) a density on (0, 1].

    A transformation of your own with such a spike gives the density's survival function 1 - F(zeta | z=1), its inverse,
    the inverse's slope and, for a marginal density, the log density. All else is here, with gradients that stay finite
    at every logit: it is written in v = (1 - rho) / q, where z = 1 exactly when v < 1. Unlike rho + q - 1, v does not
    cancel in float32 when q is small. `discrete_vae.testing.check_smoothing` has what a transformation must obey.

    One with a trained scalar returns it from `_bounded_parameter`; the methods read it as their parameter, and `slopes`
    gives its gradient.

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
        check_binary("z", check_tensor("z", z, (...,)))
        zeta = self.inverse_survival(open_uniform(z, generator=generator), self._bounded_parameter())
        return zeta.to(z.dtype) * z

    def draw(self, rho: Tensor, logits: Tensor, *, generator: torch.Generator | None = None) -> SmoothedDraw:
        (rho, logits), dtype = widened(rho, logits)
        zeta, bits = (value.to(dtype) for value in self._zeta_and_bits(rho, logits))
        return SmoothedDraw(bits.detach(), zeta, bits)

    def _zeta_and_bits(self, rho: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Both, of tensors of one shape and dtype; a subclass may have a faster way."""
        return PlainDraw.apply(rho, logits, self._bounded_parameter(), self)

    @abstractmethod
    def inverse_survival(self, v: Tensor, parameter: Any) -> Tensor:
        """zeta in (0, 1] at which 1 - F(zeta | z=1) = v, as a new tensor without gradient; NaN where v is.

        v is in [0, 1), float32 or wider, and 0 where z = 0 too; the parameter is the transformation's own inside its
        bounds, a scalar, or None where it has none.
        """

    @abstractmethod
    def slopes(self, v: Tensor, zeta: Tensor, parameter: Any) -> tuple[Tensor, Tensor | None]:
        """d zeta/d(-v) and d zeta/d(parameter) of `inverse_survival`, which gave zeta.

        Both are (..., unit) and finite; the latter is 0 at zeta = 0, and None without a parameter.
        """

    @abstractmethod
    def survival(self, zeta: Tensor) -> Tensor:
        """1 - F(zeta | z=1), differentiable, for zeta in [0, 1]."""

    def log_density_of_one(self, zeta: Tensor, parameter: Any) -> Tensor:
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
    (1 - z)/(1 - q) dq/dl = (1 - z) q (eq. J-gradient-z-0). v is finite wherever z = 1: there e^-l is below
    rho / (1 - rho).
    """

    @staticmethod
    def forward(
        ctx: Any, rho: Tensor, logits: Tensor, parameter: Tensor | None, smoothing: SpikeSmoothing
    ) -> tuple[Tensor, Tensor]:
        odds, survival = torch.exp(-logits), 1 - rho  # p / q
        inverse_q = odds + 1
        v = survival * inverse_q
        # the *rounded* v decides; a NaN fails the comparison, so it comes out and is not taken for z = 0
        spike = v >= 1
        v.masked_fill_(spike, 0)
        # a new tensor: torch.compile of torch 2.11 loses the gradients of results that were written in place
        zeta = smoothing.inverse_survival(v, parameter).masked_fill(spike, 0)
        bits = zeta.ceil()  # zeta is in (0, 1] where z = 1; a NaN comes out here too
        ctx.set_materialize_grads(False)
        if any(ctx.needs_input_grad):
            slope, by_parameter = smoothing.slopes(v, zeta, parameter)
            ctx.save_for_backward(
                survival.mul_(odds).masked_fill_(spike, 0).mul_(slope),  # v p = (1 - rho) p / q
                (slope * inverse_q).masked_fill_(spike, 0) if ctx.needs_input_grad[0] else None,
                by_parameter if ctx.needs_input_grad[2] else None,
                inverse_q.reciprocal_().mul_(spike),
            )
        return zeta, bits

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        of_zeta, of_bits = gradients
        by_logits, by_rho, by_parameter, bits_by_logits = ctx.saved_tensors
        of_rho = of_logits = of_parameter = None
        if of_zeta is not None:
            of_logits = of_zeta * by_logits
            of_rho = None if by_rho is None else of_zeta * by_rho
            of_parameter = None if by_parameter is None else (of_zeta * by_parameter).sum()
        if of_bits is not None:
            through_bits = of_bits * bits_by_logits
            of_logits = through_bits if of_logits is None else of_logits.add_(through_bits)
        return of_rho, of_logits, of_parameter, None


@compiled_by("distributions.spike_exponential")
def _draw(
    rho: Tensor,
    logits: Tensor,
    parameter: Tensor,
    bounds: tuple[Tensor, Tensor] | None,
    smoothing: SpikeSmoothing,
) -> tuple[Tensor, Tensor]:
    inside = parameter if bounds is None else bounded(parameter, *bounds)
    return PlainDraw.apply(rho, logits, inside, smoothing)


# The spike-and-exponential transformation.


_MIN_BETA = 0.01  # the smallest beta at which float32 was checked
_NO_BOUND = torch.finfo(torch.float32).max  # of beta; finite, since averages of buffers read it


class BetaSmoothing(Smoothing):
    """A transformation with an inverse width beta, one for all units; as it grows zeta approaches z."""

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
        known = values_are_known(self.beta) and not self.beta.is_meta
        beta = f"{self.beta.item():.4g}" if known else "unknown"
        return f"beta={beta}, trainable={isinstance(self.beta, nn.Parameter)}"

    def sharp_limit(self) -> SharpLimit:
        return SharpLimit()

    def bound_sharpness_(self, limit: float) -> None:
        if not isinstance(limit, float) or limit != math.inf:
            check_number("max_beta", limit, at_least=_MIN_BETA, repair="Leave it out for no bound.")
        self._limits[1] = min(limit, _NO_BOUND)

    @property
    def max_beta(self) -> float:
        """The present upper bound of beta, as float32 has it."""
        limit = float(self._limits[1])
        return limit if limit < _NO_BOUND else math.inf

    @max_beta.setter
    def max_beta(self, limit: float) -> None:
        self.bound_sharpness_(limit)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring a trained beta back between 0.01 and the bound; a constant one stays."""
        if (bounds := self._bounds()) is not None:
            project_(self.beta, *bounds)

    def _bounds(self) -> tuple[Tensor, Tensor] | None:
        return (self._limits[0], self._limits[1]) if "beta" in self._parameters else None

    def _bounded_parameter(self) -> Tensor:
        bounds = self._bounds()
        return self.beta if bounds is None else bounded(self.beta, *bounds)


class SpikeExponential(BetaSmoothing, SpikeSmoothing):
    """r(zeta|z=1) = beta e^(beta zeta) / (e^beta - 1) on (0, 1]; zeta = 0 when z = 0.

    With v = (1 - rho)/q and c = 1 - e^-beta: zeta = 1 + log(1 - v c) / beta if v < 1, else 0. As beta grows zeta
    approaches z, and the gradient's second moment grows like e^beta / beta^2, hence the bound on beta.

    Source: Rolfe 2017, section spike-and-exponential, eq. probabilistic-encoder, with rho + q - 1 rewritten by v.

    Args:
        beta: Inverse width, at least 0.01.
        trainable: Whether beta is a parameter (one for all units) or a constant.
        max_beta: Upper bound of a trained beta; the training loop moves it.

    Examples:
        >>> smoothing = SpikeExponential(beta=3.0, trainable=False)
        >>> smoothing.icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0000, 0.8406])
    """

    def __init__(self, beta: float = 3.0, trainable: bool = True, max_beta: float = math.inf) -> None:
        super().__init__(beta, trainable, max_beta, repair="The paper's figures use 1 to 5.")

    def _zeta_and_bits(self, rho: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        return _draw(rho, logits, self.beta, self._bounds(), self)

    def inverse_survival(self, v: Tensor, parameter: Tensor) -> Tensor:
        zeta = (torch.log1p(v * torch.expm1(-parameter)) / parameter).add_(1)
        # v a rounding below 1 can round zeta to 0 or less, but z is read back as zeta != 0
        return zeta.clamp_min(torch.finfo(zeta.dtype).tiny)

    def slopes(self, v: Tensor, zeta: Tensor, parameter: Tensor) -> tuple[Tensor, Tensor]:
        # by -v: c / (beta (1 - v c)); by beta: ((1 - e^(-beta zeta)) / c - zeta) / beta, between 0 and 1/8
        minus = -parameter
        minus_c = torch.expm1(minus)
        slope = minus_c / minus / (v * minus_c).add_(1)
        by_beta = (zeta * minus).expm1_().div_(minus_c).sub_(zeta).div_(parameter)
        return slope, by_beta

    def log_density_of_one(self, zeta: Tensor, parameter: Tensor) -> Tensor:
        return truncated_exponential(parameter)[0].to(zeta.dtype) + parameter * (zeta - 1)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        beta = self._bounded_parameter()
        zero, (_, mean, variance) = beta.new_zeros(()), truncated_exponential(beta)
        return ConditionalMoments(zero, zero, mean.to(beta), variance.to(beta))

    def survival(self, zeta: Tensor) -> Tensor:
        # (e^beta - e^(beta zeta)) / (e^beta - 1), by expm1 of negative arguments alone
        beta = self._bounded_parameter()
        return torch.expm1(-beta * (1 - zeta)) / torch.expm1(-beta)


class SpikeSlab(SpikeSmoothing):
    """r(zeta|z=1) is uniform on (0, 1]; zeta = 0 when z = 0.

    With v = (1 - rho)/q: zeta = 1 - v if v < 1, else 0. This is spike-and-exponential in the limit beta -> 0.

    Source: Rolfe 2017, appendix spike-and-slab.

    Examples:
        >>> SpikeSlab().icdf(torch.tensor([0.2, 0.8]), torch.tensor([0.0, 0.0]))
        tensor([0.0000, 0.6000])
    """

    def inverse_survival(self, v: Tensor, parameter: Any) -> Tensor:
        return 1 - v

    def slopes(self, v: Tensor, zeta: Tensor, parameter: Any) -> tuple[Tensor, None]:
        return torch.ones_like(v), None

    def log_density_of_one(self, zeta: Tensor, parameter: Any) -> Tensor:
        return torch.zeros_like(zeta)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        return ConditionalMoments(*torch.tensor([0.0, 0.0, 1 / 2, 1 / 12], dtype=torch.float64).unbind())

    def survival(self, zeta: Tensor) -> Tensor:
        return 1 - zeta


_ROOT_TWO_PI = math.sqrt(2 * math.pi)


def never_zero(zeta: Tensor) -> Tensor:
    """Zeta of z = 1, from which z is read back."""
    return zeta.masked_fill(zeta == 0, torch.finfo(zeta.dtype).tiny)


class DrawGaussian(torch.autograd.Function):
    """zeta and the bits of z by u = rho / q and v = (1 - rho) / q, of tensors of one shape and dtype.

    On the lower tail, with y = Phi^-1(u): d zeta/d l = -scale u p / phi(y); on the upper, with y = Phi^-1(v):
    scale v p / phi(y), where u p = rho e^-l and v p = (1 - rho) e^-l. u is at least rho and v at least 1 - rho, so that
    y and 1 / phi(y) are finite in float32. The bits have the value z and the gradient (1 - z)/(1 - q) dq/dl = (1 - z) q
    (eq. J-gradient-z-0).
    """

    @staticmethod
    def forward(
        ctx: Any, rho: Tensor, logits: Tensor, loc: Tensor, scale: Tensor, shifted: bool
    ) -> tuple[Tensor, Tensor]:
        odds, survival = torch.exp(-logits), 1 - rho  # p / q
        inverse_q = odds + 1
        u, v = rho * inverse_q, survival * inverse_q
        # asked so that a NaN is no spike: it must come out, or a broken network would look like z = 0
        if shifted:
            spike = v >= 1
            y = torch.special.ndtri(v)
            zeta = never_zero(loc - scale * y)
            tail, minus_y = survival, -y
        else:
            ratio = loc / scale
            below, above = torch.special.ndtr(-ratio), torch.special.ndtr(ratio)
            # a unit that is on for sure has no spike, though below + above may round to less than 1
            lower, spike = u < below, (u >= below) & (v > above) & ~(inverse_q == 1)
            y = torch.special.ndtri(torch.where(lower, u, v))
            tail, minus_y = torch.where(lower, -rho, survival), torch.where(lower, y, -y)
            zeta = loc + scale * minus_y
            tiny = torch.finfo(zeta.dtype).tiny  # a rounding can bring zeta to 0, or across it
            zeta = torch.where(lower, zeta.clamp_max(-tiny), zeta.clamp_min(tiny))
        zeta = zeta.masked_fill(spike, 0)  # a new tensor, see `PlainDraw`
        bits = read_z(zeta)
        ctx.set_materialize_grads(False)
        if any(ctx.needs_input_grad):
            inverse_density = y.square().mul_(0.5).exp_().mul_(scale).mul_(_ROOT_TWO_PI)
            saved = [
                (tail * odds).mul_(inverse_density).masked_fill_(spike, 0),
                inverse_q.reciprocal().mul_(spike),
                spike,
                minus_y.masked_fill(spike, 0),
            ]
            if ctx.needs_input_grad[0]:
                saved.append(inverse_density.mul_(inverse_q).masked_fill_(spike, 0))
            ctx.save_for_backward(*saved)
        return zeta, bits

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        of_zeta, of_bits = gradients
        by_logits, bits_by_logits, spike, by_scale, *by_rho = ctx.saved_tensors
        if of_zeta is None:
            return None, None if of_bits is None else of_bits * bits_by_logits, None, None, None
        of_logits = of_zeta * by_logits
        if of_bits is not None:
            of_logits.addcmul_(of_bits, bits_by_logits)
        _, _, wants_loc, wants_scale, _ = ctx.needs_input_grad
        return (
            of_zeta * by_rho[0] if by_rho else None,
            of_logits,
            of_zeta.masked_fill(spike, 0) if wants_loc else None,
            of_zeta * by_scale if wants_scale else None,
            None,
        )


class ExpectedKL(torch.autograd.Function):
    """q k with k = ((scale - 1)(scale + 1) + (loc - m)^2) / 2 - log scale, of tensors of one shape.

    d/dl = q p k, d/d loc = q (loc - m), d/d scale = q (scale - 1) (scale + 1) / scale.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, loc: Tensor, scale: Tensor, prior_loc: float) -> Tensor:
        mean, distance, excess = torch.sigmoid(logits), loc - prior_loc, (scale - 1) * (scale + 1)
        divergence = (distance.square() + excess).mul_(0.5).sub_(scale.log())
        value = divergence * mean  # a new tensor, see `PlainDraw`
        if any(ctx.needs_input_grad):
            by_logits = torch.sigmoid(-logits).mul_(value)
            ctx.save_for_backward(by_logits, distance.mul_(mean), excess.mul_(mean).div_(scale))
        return value

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *(gradients[0] * derivative for derivative in ctx.saved_tensors), None


class SpikeGaussian(SpikeAtZero, InputDependentSmoothing):
    """q(zeta | z=1, x) = N(loc, scale^2), whose loc and scale depend on x; zeta = 0 when z = 0; r has N(m, 1).

    With u = rho / q and v = (1 - rho) / q: zeta = loc + scale Phi^-1(u) if u < Phi(-loc/scale), loc - scale Phi^-1(v)
    if v <= Phi(loc/scale), else 0. So z = 1 on both tails, zeta rises in rho without a jump, and its gradients are
    unbiased. The evidence bound has the further term sum_i q_i KL[N(loc_i, scale_i^2) || N(m, 1)].

    The shifted form moves the spike to the front, zeta = 0 if v >= 1, else loc - scale Phi^-1(v). zeta has the same
    law, but the shift depends on q, and zeta jumps from 0 to minus infinity where it ends: the values of reconstruction
    and KL stay right, and their gradients for the logits of this and of earlier groups are **biased**. It is there for
    comparison. Then `icdf` is no longer the inverse of `cdf`.

    Source: Rolfe 2017, section sec:spike-and-gaussian, and eq. vae-loss-input-dependent-zeta for the further term.
    Deviations: the paper goes on to the shifted form, taking a permutation of rho that depends on q to leave
    expectations as they are, which holds for values and not for gradients; loc / scale is bounded, since
    abs(d zeta / d l) is up to scale p / phi(loc/scale).

    Args:
        prior_loc: m, mean of the prior's Gaussian; smaller in size than max_ratio.
        max_ratio: Bound on abs(loc / scale) in what `constrain` makes.
        log_scale_bound: Bound on abs(log scale) likewise.
        shifted: Whether to use the paper's shifted form.

    Examples:
        >>> loc, scale = torch.tensor([0.5, 0.5, 0.5]), torch.ones(3)
        >>> SpikeGaussian().icdf(torch.tensor([0.1, 0.4, 0.8]), torch.zeros(3), loc, scale)
        tensor([-0.3416,  0.0000,  0.7533])
    """

    support: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    parameter_names: ClassVar[tuple[str, ...]] = ("loc", "scale")

    def __init__(
        self,
        prior_loc: float = 0.0,
        max_ratio: float = 3.0,
        log_scale_bound: float = 5.0,
        shifted: bool = False,
    ) -> None:
        super().__init__()
        repair = "The default is 3: the slope of zeta is then up to 226 scale."
        self.max_ratio = check_number("max_ratio", max_ratio, above=0, at_most=10, repair=repair)
        bounds, repair = {"above": 0, "at_most": 20}, "The default is 5."
        self.log_scale_bound = check_number("log_scale_bound", log_scale_bound, **bounds, repair=repair)
        self.prior_loc = check_number("prior_loc", prior_loc, repair="The default is 0.")
        if not abs(self.prior_loc) < self.max_ratio:
            rule = f"must lie between -{self.max_ratio:g} and {self.max_ratio:g}, the bounds of loc / scale"
            raise InvalidInputError("prior_loc", rule, prior_loc, "Bring it nearer to 0, or raise max_ratio.")
        self.shifted = bool(shifted)

    def extra_repr(self) -> str:
        form = ", shifted=True" if self.shifted else ""
        return f"prior_loc={self.prior_loc:g}, max_ratio={self.max_ratio:g}{form}"

    @property
    def prior_parameters(self) -> tuple[float, float]:
        return self.prior_loc, 1.0

    def constrain(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """loc and scale; see `InputDependentSmoothing.constrain`.

        scale = e^(b tanh(s/b)) and loc = scale R tanh(t/R + artanh(m/R)) of raw numbers t and s, with the bounds R on
        loc / scale and b on log scale.
        """
        ratio, log_scale = raw
        scale = (torch.tanh(log_scale / self.log_scale_bound) * self.log_scale_bound).exp()
        start = math.atanh(self.prior_loc / self.max_ratio)
        return torch.tanh(ratio / self.max_ratio + start) * self.max_ratio * scale, scale

    def kl(self, logits: Tensor, *parameters: Tensor) -> Tensor:
        return ExpectedKL.apply(*widened(logits, *parameters)[0], self.prior_loc)

    def log_ratio(self, zeta: Tensor, *parameters: Tensor) -> Tensor:
        loc, scale = parameters
        from_prior, from_loc = zeta - self.prior_loc, (zeta - loc) / scale
        ratio = (from_loc.square() - from_prior.square()) / 2 + scale.log()
        return torch.where(zeta == 0, 0.0, ratio)

    def sample_zeta(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        check_binary("z", check_tensor("z", z, (...,)))
        normal = standard_normal(z, shape=z.shape, generator=generator) + self.prior_loc
        return never_zero(normal).masked_fill(z == 0, 0)

    def draw(
        self, rho: Tensor, logits: Tensor, *parameters: Tensor, generator: torch.Generator | None = None
    ) -> SmoothedDraw:
        (rho, *law), dtype = widened(rho, logits, *parameters)
        zeta, bits = (value.to(dtype) for value in DrawGaussian.apply(rho, *law, self.shifted))
        return SmoothedDraw(bits.detach(), zeta, bits)

    def _icdf(self, rho: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (rho, logits, *law), dtype = widened(rho, logits, *parameters)
        # minus infinity at 0, which stands for draws below their resolution, as in `open_uniform`
        rho = rho.masked_fill(rho == 0, torch.finfo(rho.dtype).eps / 2)
        return self.draw(rho, logits, *law).zeta.to(dtype)

    def _cdf(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (zeta, logits, loc, scale), dtype = widened(zeta, logits, *parameters)
        spike = torch.where(zeta < 0, 0.0, torch.sigmoid(-logits))
        return (spike + torch.sigmoid(logits) * torch.special.ndtr((zeta - loc) / scale)).to(dtype)

    def _log_prob(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (zeta, logits, loc, scale), dtype = widened(zeta, logits, *parameters)
        density = -((zeta - loc) / scale).square() / 2 - scale.log() - HALF_LOG_TWO_PI
        spike = (zeta == 0) & ~density.isnan()  # a broken network's NaN comes out at the spike too
        return torch.where(spike, F.logsigmoid(-logits), F.logsigmoid(logits) + density).to(dtype)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        self._check_parameters(torch.Size(), parameters)
        loc, scale = parameters
        zero = loc.new_zeros(())
        return ConditionalMoments(zero, zero, loc, scale.square())

    def _check_parameters(self, shape: torch.Size, parameters: Sequence[Tensor]) -> None:
        super()._check_parameters(shape, parameters)
        scale = parameters[1]
        if values_are_readable(scale) and bool((scale <= 0).any()):
            received = f"a value of {scale[scale <= 0].flatten()[0].item():g}"
            raise InvalidInputError("scale", "must be above 0", received, "Take log_scale.exp().")


class SharpLimit(SpikeSmoothing):
    """zeta = z: the limit beta -> infinity of the exponentials and b -> infinity of the power functions.

    It passes no gradient to the logits through zeta; it serves models that are trained, see `DiscreteVAE.discretized`.

    Source: Rolfe 2017, footnote in section spike-and-exponential.
    """

    def inverse_survival(self, v: Tensor, parameter: Any) -> Tensor:
        return 1 + 0 * v  # keeps a NaN

    def slopes(self, v: Tensor, zeta: Tensor, parameter: Any) -> tuple[Tensor, None]:
        return torch.zeros_like(v), None

    def survival(self, zeta: Tensor) -> Tensor:
        return (zeta < 1).to(zeta.dtype)


class StraightThrough(SharpLimit):
    """zeta = z, with the slope 1 of zeta by q in the backward pass: **biased gradients**, for comparisons.

    What reads zeta is differentiated at z as if z were q. The mean gradient is right where the loss is linear in each
    unit, and wrong elsewhere.

    Source: Bengio, Leonard & Courville 2013, section 4, with the slope of the mean.
    """

    def _zeta_and_bits(self, rho: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        zeta, bits = super()._zeta_and_bits(rho, logits)
        return replace_gradient(zeta, torch.sigmoid(logits)), bits
