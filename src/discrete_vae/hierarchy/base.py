"""What a hierarchy of latents below the binary ones offers, its Gaussians, and the hierarchy without layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.registry import compiled_by
from discrete_vae.numerics import HALF_LOG_TWO_PI
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import standard_normal


@dataclass(frozen=True, eq=False, repr=False)
class Gaussian(ShowsShapes):
    """Independent normal variables; the mean and the log standard deviations have the same shape."""

    mean: Tensor
    log_std: Tensor

    def rsample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw by h = mean + std * epsilon, which carries the gradient of both parameters."""
        noise = standard_normal(self.mean, shape=self.mean.shape, generator=generator)
        return self.mean + self.log_std.exp() * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density of each element of value, nats."""
        scaled = (value - self.mean) * torch.exp(-self.log_std)
        return -0.5 * scaled.square() - self.log_std - HALF_LOG_TWO_PI

    def kl_to(self, other: Gaussian) -> Tensor:
        """KL[self || other] of each element, nats, at least 0; by expm1, which keeps digits where the two are alike.

        (e^(2r) - 1 - 2r + d^2) / 2, with r = log(std / other.std) and d = (mean - other.mean) / other.std.
        """
        twice = 2 * (self.log_std - other.log_std)
        distance = (self.mean - other.mean) * torch.exp(-other.log_std)
        return 0.5 * (torch.expm1(twice) - twice + distance.square())

    def joint_kl_to(self, other: Gaussian) -> Tensor:
        """`kl_to`, summed over layers and units, the last two axes; (...), nats."""
        return _joint_kl(self.mean, self.log_std, other.mean, other.log_std)


@compiled_by("distributions.joint_kl")
def _joint_kl(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    other = Gaussian(other_mean, other_log_std)
    return Gaussian(mean, log_std).kl_to(other).sum((-2, -1))


@dataclass(frozen=True, eq=False, repr=False)
class HierarchySample(ShowsShapes):
    """A draw from q(h | zeta, x) with both distributions at it."""

    h: Tensor  # (..., batch, layer, unit)
    posterior: Gaussian  # q(h_m | h_<m, zeta, x), likewise
    prior: Gaussian  # p(h_m | h_<m, zeta), likewise
    decoder_input: Tensor  # what p(x | zeta, h) reads, (..., batch, decoder_size)

    def kl(self) -> Tensor:
        """sum_m KL[q(h_m | h_<m, zeta, x) || p(h_m | h_<m, zeta)], each in closed form, (..., batch), nats.

        Its expectation over q is the KL of the whole hierarchy.

        Source: Rolfe 2017, eq. vae-loss-input-dependent-zeta-hierarchical.
        """
        return self.posterior.joint_kl_to(self.prior)

    def log_ratio(self) -> Tensor:
        """log p(h | zeta) - log q(h | zeta, x) at this draw, (..., batch), nats, as importance weights need it."""
        return (self.prior.log_prob(self.h) - self.posterior.log_prob(self.h)).sum((-2, -1))


@dataclass(frozen=True, eq=False, repr=False)
class ManyDraws(ShowsShapes):
    """Draws of all layers from q(h | zeta, x), several for the one zeta of each example."""

    h: Tensor  # (sample, batch, layer, unit), carrying the gradients of the reparameterization
    log_prob: Tensor  # log q(h | zeta, x), (sample, batch), nats; without gradient
    noise: Tensor  # standard normal, (sample, batch, layer, unit), of which h is made
    inputs: Sequence[Tensor]  # of each layer's network beside the features: [zeta, h_1, ..., h_(m-1)]
    layers: Sequence[Gaussian]  # of each layer, what its network gave; the first one's has no sample axis

    def path_gradient(self, weights: Tensor) -> Tensor:
        """Gradient of sum weights * log q(h | zeta, x) by h, with the parameters of q, zeta and x held fixed.

        A layer h_m moves its own factor by -epsilon_m / sigma_m, and those of later layers by what their networks read
        of it. The latter is one backward pass through each network, to its input alone. Weights are (sample, batch),
        the gradient (sample, batch, layer, unit), both without gradient; it is zero where h has none.
        """
        if not self.h.requires_grad:
            return torch.zeros_like(self.h)
        weights, parts = weights[..., None], []
        for index, layer in enumerate(self.layers):
            noise, precision = self.noise[..., index, :], torch.exp(-layer.log_std.detach())
            pull = weights * noise * precision
            parts.append(-pull)
            read = self.inputs[index]
            by_layer = ((layer.mean, pull), (layer.log_std, weights * (noise.square() - 1)))
            reads = [(value, by_value) for value, by_value in by_layer if value.requires_grad]
            if index == 0 or not read.requires_grad or not reads:
                continue
            values, pulls = zip(*reads, strict=True)
            (by_input,) = torch.autograd.grad(values, read, pulls, retain_graph=True, allow_unused=True)
            if by_input is None:
                continue
            earlier = by_input[..., by_input.shape[-1] - index * noise.shape[-1] :]
            for place, share in enumerate(earlier.chunk(index, -1)):
                parts[place] = parts[place] + share
        return torch.stack(parts, -2)


class Hierarchy(nn.Module, ABC):
    """Layers h of continuous latents given zeta: their prior, their posterior, and what the decoder reads of them.

    Everything here reads zeta and never z. Of a model with a condition c, zeta stands throughout for [zeta, e(c)], as
    `with_condition` joins them: so prior, posterior and decoder read c.
    """

    num_latents: int  # length of the last axis of zeta, and of the condition's features behind it
    num_features: int  # length of the last axis of the encoder's features
    num_layers: int
    num_units: int  # of each layer
    decoder_size: int  # length of the last axis of `decoder_input`

    def with_condition(self, zeta: Tensor, features: Tensor) -> Tensor:
        """[zeta, e(c)], (..., batch, latent), of zeta, (..., batch, unit); zeta itself where there is no condition.

        e(c) is the end of the features, (batch, feature) or (1, feature): those of `DiscreteVAE.read`, or e(c) alone.
        """
        size = self.num_latents - zeta.shape[-1]
        if size == 0:
            return zeta
        of_condition = features[..., features.shape[-1] - size :].to(zeta.dtype)
        return torch.cat([zeta, of_condition.expand(*zeta.shape[:-1], size)], -1)

    @abstractmethod
    def rsample(
        self, features: Tensor, zeta: Tensor, *, generator: torch.Generator | None = None
    ) -> HierarchySample:
        """Draw h from q(h | zeta, x), layer after layer, and evaluate the prior at it.

        Features are (batch, feature), what the encoder makes of x; zeta is (..., batch, latent).
        """

    def rsample_many(
        self, features: Tensor, zeta: Tensor, num_samples: int, *, generator: torch.Generator | None = None
    ) -> ManyDraws:
        """Draw h from q(h | zeta, x) many times for each zeta, as `discrete_vae.objectives.importance` needs it.

        A hierarchy without Gaussian layers, or of another kind, leaves it out. Here zeta is (batch, latent).
        """
        raise _without_importance_samples(self)

    def prior_at(self, zeta: Tensor, h: Tensor) -> Gaussian:
        """p(h_m | h_<m, zeta) of all layers at a sample of all of them; goes with `rsample_many`."""
        raise _without_importance_samples(self)

    @abstractmethod
    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw h, (..., layer, unit), from p(h | zeta), given zeta, (..., latent)."""

    @abstractmethod
    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        """Input of p(x | zeta, h), (..., decoder_size), from zeta, (..., latent), and h, (..., layer, unit)."""


class NoHierarchy(Hierarchy):
    """A hierarchy of zero layers, whose KL is 0.

    Source: Rolfe 2017, section supplementary-results (the simplified models).
    """

    def __init__(self, *, num_latents: int, num_features: int) -> None:
        super().__init__()
        self.num_latents = check_positive_int("num_latents", num_latents)
        self.num_features = check_positive_int("num_features", num_features)
        self.num_layers = self.num_units = 0
        self.decoder_size = num_latents

    def rsample(
        self, features: Tensor, zeta: Tensor, *, generator: torch.Generator | None = None
    ) -> HierarchySample:
        h = self.sample(zeta)
        empty = Gaussian(h, h)
        return HierarchySample(h, empty, empty, zeta)

    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return zeta.new_zeros(*zeta.shape[:-1], 0, 0)

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        return zeta


def _without_importance_samples(hierarchy: Hierarchy) -> InvalidInputError:
    name = type(hierarchy).__name__
    if hierarchy.num_layers == 0:
        rule = "must be 1 for a model without Gaussian layers whose transformation has a spike"
        repair = "Give the model layers (--model.hierarchy gaussian), or no spike (--model.smoothing ramps)."
    else:
        rule = "must be 1 for a hierarchy without rsample_many and prior_at"
        repair = "Leave it out, or give the hierarchy these methods."
    return InvalidInputError("num_importance_samples", rule, f"more, and a {name}", repair)
