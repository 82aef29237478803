"""The spike-and-Gaussian transformation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.checks import check_binary, check_number, check_tensor, values_are_readable
from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import standard_normal
from discrete_vae.smoothing.base import SmoothedDraw
from discrete_vae.smoothing.conditional_moments import ConditionalMoments
from discrete_vae.smoothing.input_dependent import InputDependentSmoothing
from discrete_vae.smoothing.spike_at_zero import SpikeAtZero
from discrete_vae.smoothing.spike_gaussian_passes import DrawGaussian, ExpectedKL, never_zero
from discrete_vae.smoothing.widened import widened


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

    Raises:
        InvalidInputError: If a number breaks its rule.

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
        self.log_scale_bound = check_number(
            "log_scale_bound", log_scale_bound, above=0, at_most=20, repair="The default is 5."
        )
        self.prior_loc = check_number("prior_loc", prior_loc, repair="The default is 0.")
        if not abs(self.prior_loc) < self.max_ratio:
            rule = f"must lie between -{self.max_ratio:g} and {self.max_ratio:g}, the bounds of loc / scale"
            raise InvalidInputError("prior_loc", rule, prior_loc, "Bring it nearer to 0, or raise max_ratio.")
        self.shifted = bool(shifted)

    def extra_repr(self) -> str:
        """The prior's mean, the bound, and the form."""
        form = ", shifted=True" if self.shifted else ""
        return f"prior_loc={self.prior_loc:g}, max_ratio={self.max_ratio:g}{form}"

    @property
    def prior_parameters(self) -> tuple[float, float]:
        """The prior's mean and 1."""
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
        """q KL[N(loc, scale^2) || N(m, 1)]; see `InputDependentSmoothing.kl`."""
        return ExpectedKL.apply(*widened(logits, *parameters)[0], self.prior_loc)

    def log_ratio(self, zeta: Tensor, *parameters: Tensor) -> Tensor:
        """log N(zeta; m, 1) - log N(zeta; loc, scale^2) where zeta is not 0, else 0; see the base class."""
        loc, scale = parameters
        from_prior, from_loc = zeta - self.prior_loc, (zeta - loc) / scale
        ratio = (from_loc.square() - from_prior.square()) / 2 + scale.log()
        return torch.where(zeta == 0, 0.0, ratio)

    def sample_zeta(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw zeta from r(zeta|z), N(m, 1) or 0; see `Smoothing.sample_zeta`.

        Raises:
            InvalidInputError: If z is not a floating-point tensor of zeros and ones.
        """
        check_binary("z", check_tensor("z", z, (...,)))
        normal = standard_normal(z, shape=z.shape, generator=generator) + self.prior_loc
        return never_zero(normal).masked_fill(z == 0, 0)

    def draw(
        self,
        rho: Tensor,
        logits: Tensor,
        *parameters: Tensor,
        generator: torch.Generator | None = None,
    ) -> SmoothedDraw:
        """Zeta, z and its bits in one step with one backward pass; see `Smoothing.draw`."""
        (rho, *law), dtype = widened(rho, logits, *parameters)
        zeta, bits = (value.to(dtype) for value in DrawGaussian.apply(rho, *law, self.shifted))
        return SmoothedDraw(bits.detach(), zeta, bits)

    def _icdf(self, rho: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (rho, logits, *law), dtype = widened(rho, logits, *parameters)
        # minus infinity at 0, which stands for draws below half of their resolution
        rho = rho.masked_fill(rho == 0, torch.finfo(rho.dtype).eps / 4)
        return self.draw(rho, logits, *law).zeta.to(dtype)

    def _cdf(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (zeta, logits, loc, scale), dtype = widened(zeta, logits, *parameters)
        spike = torch.where(zeta < 0, 0.0, torch.sigmoid(-logits))
        return (spike + torch.sigmoid(logits) * torch.special.ndtr((zeta - loc) / scale)).to(dtype)

    def _log_prob(self, zeta: Tensor, logits: Tensor, *parameters: Tensor) -> Tensor:
        (zeta, logits, loc, scale), dtype = widened(zeta, logits, *parameters)
        density = -((zeta - loc) / scale).square() / 2 - scale.log() - math.log(2 * math.pi) / 2
        spike = (zeta == 0) & ~density.isnan()  # a broken network's NaN comes out at the spike too
        return torch.where(spike, F.logsigmoid(-logits), F.logsigmoid(logits) + density).to(dtype)

    def conditional_moments(self, *parameters: Tensor) -> ConditionalMoments:
        """See `Smoothing.conditional_moments`."""
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
