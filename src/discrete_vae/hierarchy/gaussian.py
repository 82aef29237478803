"""Layers of Gaussian latents below the binary ones: distribution, networks, prior, hierarchy."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int, check_tensor
from discrete_vae.config import SharingConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.registry import compiled_by
from discrete_vae.nets.mlp import MLP, NetworkFactory
from discrete_vae.numerics import differentiable_once
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import standard_normal


class AutoregressiveGaussianPrior(nn.Module, ABC):
    """p(h_1, ..., h_M | zeta) = prod_m p(h_m | h_<m, zeta), each factor a diagonal Gaussian.

    A kind of sharing says which networks there are, what they read, and what the decoder reads.

    Source: Rolfe 2017, eq. continuous-hierarchy and section architecture.
    """

    def __init__(self, num_latents: int, num_layers: int, num_units: int) -> None:
        super().__init__()
        self.num_latents = check_positive_int("num_latents", num_latents)
        self.num_layers = check_positive_int("num_layers", num_layers)
        self.num_units = check_positive_int("num_units", num_units)

    @property
    @abstractmethod
    def decoder_size(self) -> int:
        """Length of the last axis of `decoder_input`."""

    @abstractmethod
    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        """Input of p(x | zeta, h), (..., decoder_size), from zeta, (..., latent), and h, (..., layer, unit)."""

    @abstractmethod
    def next_layer(self, zeta: Tensor, earlier: Tensor) -> Gaussian:
        """p(h_m | h_<m, zeta) of one layer, (..., unit), of zeta, (..., latent), and h_<m, (..., m - 1, unit)."""

    @abstractmethod
    def layers(self, zeta: Tensor, h: Tensor) -> Gaussian:
        """p(h_m | h_<m, zeta) of all layers, (..., layer, unit), at zeta, (..., latent), and a sample h of all of them.

        No layer waits for another, so kinds that share networks pass many layers through one call.
        """

    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw h, (..., layer, unit), layer after layer, given zeta, (..., latent)."""
        like = next(self.parameters())
        zeta = check_tensor("zeta", zeta, (..., self.num_latents)).to(like.dtype)
        h = zeta.new_zeros(*zeta.shape[:-1], 0, self.num_units)
        for _ in range(self.num_layers):
            drawn = self.next_layer(zeta, h).rsample(generator=generator)
            h = torch.cat([h, drawn.unsqueeze(-2)], dim=-2)
        return h


@dataclass(frozen=True, eq=False, repr=False)
class HierarchySample(ShowsShapes):
    """A draw from q(h | zeta, x) with both distributions at it.

    Attributes:
        h: (..., batch, layer, unit).
        posterior: q(h_m | h_<m, zeta, x), (..., batch, layer, unit).
        prior: p(h_m | h_<m, zeta), (..., batch, layer, unit).
        decoder_input: What p(x | zeta, h) reads, (..., batch, decoder_size).
    """

    h: Tensor
    posterior: Gaussian
    prior: Gaussian
    decoder_input: Tensor

    def kl(self) -> Tensor:
        """sum_m KL[q(h_m | h_<m, zeta, x) || p(h_m | h_<m, zeta)], each in closed form, (..., batch), nats.

        Its expectation over q is the KL of the whole hierarchy.

        Source: Rolfe 2017, eq. vae-loss-input-dependent-zeta-hierarchical.
        """
        return self.posterior.joint_kl_to(self.prior, 2)

    def log_ratio(self) -> Tensor:
        """log p(h | zeta) - log q(h | zeta, x) at this draw, (..., batch), nats, as importance weights need it."""
        return (self.prior.log_prob(self.h) - self.posterior.log_prob(self.h)).sum((-2, -1))


class Hierarchy(nn.Module, ABC):
    """Layers h of continuous latents given zeta: their prior, their posterior, and what the decoder reads of them.

    Everything here reads zeta and never z.

    Attributes:
        num_latents: Length of the last axis of zeta.
        num_features: Length of the last axis of the encoder's features.
        num_layers: Layers of h.
        num_units: Units of each layer.
        decoder_size: Length of the last axis of `decoder_input`.
    """

    num_latents: int
    num_features: int
    num_layers: int
    num_units: int
    decoder_size: int

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


_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False, repr=False)
class ManyDraws(ShowsShapes):
    """Draws h_1, ..., h_k of all layers from q(h | zeta, x), for each example the same zeta.

    Attributes:
        h: (sample, batch, layer, unit), carrying the gradients of the reparameterization.
        log_prob: log q(h | zeta, x), (sample, batch), nats; without gradient.
        noise: Standard normal, (sample, batch, layer, unit), of which h is made.
        inputs: Of each layer, what its network read beside the features: [zeta, h_1, ..., h_(m-1)].
        layers: Of each layer, what its network gave; the first one's has no sample axis.
    """

    h: Tensor
    log_prob: Tensor
    noise: Tensor
    inputs: Sequence[Tensor]
    layers: Sequence[Gaussian]

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
            if index == 0 or not read.requires_grad:
                continue
            by_layer = (pull, weights * (noise.square() - 1))
            (by_input,) = torch.autograd.grad((layer.mean, layer.log_std), read, by_layer, retain_graph=True)
            earlier = by_input[..., by_input.shape[-1] - index * noise.shape[-1] :]
            for place, share in enumerate(earlier.chunk(index, -1)):
                parts[place] = parts[place] + share
        return torch.stack(parts, -2)


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
        return -0.5 * scaled.square() - self.log_std - _HALF_LOG_TWO_PI

    def kl_to(self, other: Gaussian) -> Tensor:
        """KL[self || other] of each element, nats, at least 0; by expm1, which keeps digits where the two are alike."""
        return _KL.apply(self.mean, self.log_std, other.mean, other.log_std)

    def joint_kl_to(self, other: Gaussian, num_axes: int) -> Tensor:
        """`kl_to`, summed over the last axes, of which there is one or more; (...), nats."""
        return _joint_kl(self.mean, self.log_std, other.mean, other.log_std, num_axes)


@compiled_by("distributions.joint_kl")
def _joint_kl(
    mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor, num_axes: int
) -> Tensor:
    return _KL.apply(mean, log_std, other_mean, other_log_std).sum(tuple(range(-num_axes, 0)))


class _KL(torch.autograd.Function):
    """The divergence of each element, with a closed gradient.

    With r the difference of log standard deviations and d that of means over the other's standard deviation s:
    KL = (e^(2r) - 1 - 2r + d^2) / 2, so by the first mean d/s, by its log standard deviation e^(2r) - 1, by the other
    mean -d/s, by its log standard deviation 1 - e^(2r) - d^2. It can be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
        twice = (log_std - other_log_std).mul_(2)
        precision = torch.exp(-other_log_std)
        distance, rise = (mean - other_mean).mul_(precision), torch.expm1(twice)
        squared = distance.square()
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(distance.mul_(precision), rise, rise + squared)
        return (rise - twice).add_(squared).mul_(0.5)

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        by_mean, by_log_std, minus_by_other = ctx.saved_tensors
        (gradient,) = gradients
        of_mean = gradient * by_mean
        return of_mean, gradient * by_log_std, -of_mean, gradient * -minus_by_other


_HEAD_SCALE = 0.01  # of torch's start: prior and posterior begin near the standard normal, their KL near 0


class GaussianNetwork(nn.Module):
    """Hidden layers of linear -> L1 batch norm -> ReLU, then a linear layer for mean and log standard deviation.

    Source: Rolfe 2017, section results. Deviation: the paper states no bound on the log standard deviation s; here it
    is b tanh(s / b), near s for small s, so that a KL, which holds exp(2 s_q - 2 s_p), stays finite. The paper does not
    say where weights start; the output's do at a hundredth of torch's, so that layers start near the standard normal.

    Args:
        input_sizes: Length of the last axis of each input.
        hidden: Widths of the hidden layers; empty makes the network linear.
        num_units: Units of the layer.
        log_std_bound: b, above 0; None leaves the network's output as it is.
        network: Makes the network, in place of the MLP that hidden describes; its output should start near 0.
    """

    def __init__(
        self,
        input_sizes: Sequence[int],
        hidden: Sequence[int],
        num_units: int,
        *,
        log_std_bound: float | None,
        network: NetworkFactory | None = None,
    ) -> None:
        super().__init__()
        check_positive_int("num_units", num_units)
        if log_std_bound is not None:
            repair = "The default is 5; None is no bound."
            check_number("log_std_bound", log_std_bound, above=0, repair=repair)
        self.log_std_bound = log_std_bound
        if network is None:
            self.network: nn.Module = MLP(input_sizes, 2 * num_units, hidden)
            self.network.initialize_output_(0.0, _HEAD_SCALE)
        else:
            self.network = network(input_sizes, 2 * num_units)

    def forward(self, *inputs: Tensor) -> Gaussian:
        """The layer's Gaussian, (..., unit), in the parameters' precision, also under autocast."""
        return self.gaussian(self.output(*inputs))

    def rsample(self, *inputs: Tensor, noise: Tensor) -> tuple[Gaussian, Tensor]:
        """Return the layer's Gaussian and a draw h = mean + std * noise, (..., unit), with the gradient of both."""
        output = self.output(*inputs)
        if torch.is_grad_enabled():
            mean, log_std, h = _Head.apply(output, noise, self.log_std_bound)
            return Gaussian(mean, log_std), h
        of_layer = self.gaussian(output)
        return of_layer, torch.exp(of_layer.log_std).mul_(noise.contiguous()).add_(of_layer.mean)

    def output(self, *inputs: Tensor) -> Tensor:
        """Output of the network, (..., 2 unit), at least in the parameters' precision."""
        # under autocast the output is rounded, but latents and KL terms keep the parameters' precision
        output = self.network(*inputs)
        own = next(self.network.parameters(), output)
        return output.to(torch.promote_types(output.dtype, own.dtype))

    def gaussian(self, output: Tensor) -> Gaussian:
        """The Gaussian that an output stands for; one call serves the outputs of many layers with the same bound."""
        if torch.is_grad_enabled():
            mean, log_std, _ = _Head.apply(output, None, self.log_std_bound)
            return Gaussian(mean, log_std)
        mean, raw = output.chunk(2, -1)
        bound = self.log_std_bound
        return Gaussian(mean, raw if bound is None else (raw / bound).tanh_().mul_(bound))


def gaussian_networks(modules: nn.ModuleList) -> list[GaussianNetwork]:
    """Gaussian networks of a list of modules."""
    return [module for module in modules if isinstance(module, GaussianNetwork)]


class _Head(torch.autograd.Function):
    """Mean m and log standard deviation s = b tanh(u / b) of an output [m, u], and a draw h = m + e^s noise.

    ds/du = 1 - tanh(u / b)^2, dh/ds = e^s noise. It can be differentiated once.
    """

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, noise: Tensor | None, bound: float | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        mean, log_std, h, slope, spread = _head(output, noise, bound)
        ctx.save_for_backward(slope, spread)
        return mean, log_std, h

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor | None
    ) -> tuple[Tensor | None, None, None]:
        if all(gradient is None for gradient in gradients):
            return None, None, None
        return _head_gradient(*gradients, *ctx.saved_tensors), None, None


@compiled_by("distributions.head")
def _head(
    output: Tensor, noise: Tensor | None, bound: float | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Mean, log standard deviation, draw, ds/du (None without a bound) and dh/ds (None without noise)."""
    # copies, since what a function returns must not be a view of what it was given
    mean, raw = (part.clone(memory_format=torch.contiguous_format) for part in output.chunk(2, -1))
    slope = spread = h = None
    if bound is None:
        log_std = raw
    else:
        bent = (raw / bound).tanh_()
        log_std, slope = bent * bound, bent.square_().neg_().add_(1)
    if noise is not None:
        spread = torch.exp(log_std).mul_(noise)
        h = mean + spread
    return mean, log_std, h, slope, spread


@compiled_by("distributions.head_backward")
def _head_gradient(
    of_mean: Tensor | None,
    of_log_std: Tensor | None,
    of_h: Tensor | None,
    slope: Tensor | None,
    spread: Tensor | None,
) -> Tensor:
    """The gradient by the output, of which at least one of the three by the results is there."""
    if of_h is not None:
        assert spread is not None
        of_mean = of_h if of_mean is None else of_mean + of_h
        through_h = of_h * spread
        of_log_std = through_h if of_log_std is None else through_h.add_(of_log_std)
    if of_mean is None:
        assert of_log_std is not None
        of_mean = torch.zeros_like(of_log_std)
    of_log_std = torch.zeros_like(of_mean) if of_log_std is None else of_log_std
    return torch.cat([of_mean, of_log_std if slope is None else of_log_std * slope], -1)


class GaussianHierarchy(Hierarchy):
    """Layers h_1, ..., h_M of Gaussian latents, autoregressive in the same order in prior and posterior.

    q(h | zeta, x) = prod_m q(h_m | h_<m, zeta, x), each factor with a network of its own that reads the encoder's
    features and the concatenation [zeta, h_1, ..., h_(m-1)]; there is no bottom-up pass. One pass down the posterior
    samples all layers; the prior is then evaluated at that sample, all layers together.

    Source: Rolfe 2017, section continuous-hierarchy, eq. continuous-hierarchy, and section architecture. The
    posterior's networks are never shared.

    Args:
        num_features: Length of the last axis of the encoder's features.
        prior: p(h | zeta), one of the kinds of parameter sharing.
        posterior_hidden: Widths of the hidden layers of each posterior network; the paper has two of 2000.
        log_std_bound: See `GaussianNetwork`; of the posterior's networks.
        network: Makes the network of each posterior layer, in place of the MLPs that posterior_hidden describes.

    Examples:
        >>> from discrete_vae import NoSharing
        >>> prior = NoSharing(num_latents=4, num_layers=3, num_units=2, hidden=(8,))
        >>> hierarchy = GaussianHierarchy(5, prior, (8,))
        >>> sample = hierarchy.rsample(torch.zeros(10, 5), torch.rand(10, 4))
        >>> sample.h.shape, sample.kl().shape
        (torch.Size([10, 3, 2]), torch.Size([10]))
    """

    def __init__(
        self,
        num_features: int,
        prior: AutoregressiveGaussianPrior,
        posterior_hidden: Sequence[int],
        *,
        log_std_bound: float | None = 5.0,
        network: NetworkFactory | None = None,
    ) -> None:
        super().__init__()
        self.num_features = check_positive_int("num_features", num_features)
        self.num_latents, self.num_layers = prior.num_latents, prior.num_layers
        self.num_units, self.decoder_size = prior.num_units, prior.decoder_size
        self.prior = prior
        self.posterior = nn.ModuleList(
            GaussianNetwork(
                [num_features, prior.num_latents + index * prior.num_units],
                posterior_hidden,
                prior.num_units,
                log_std_bound=log_std_bound,
                network=network,
            )
            for index in range(prior.num_layers)
        )

    def rsample(
        self, features: Tensor, zeta: Tensor, *, generator: torch.Generator | None = None
    ) -> HierarchySample:
        dtype = next(self.parameters()).dtype
        features, zeta = features.to(dtype), zeta.to(dtype)
        shape = (*zeta.shape[:-1], self.num_layers, self.num_units)
        noise = standard_normal(zeta, shape=shape, generator=generator)
        joint, drawn, made = zeta, [], []
        for network, of_layer in zip(gaussian_networks(self.posterior), noise.unbind(-2), strict=True):
            layer, h = network.rsample(features, joint, noise=of_layer)
            joint = torch.cat([joint, h], dim=-1)
            drawn.append(h)
            made.append(layer)
        h = torch.stack(drawn, dim=-2)
        posterior = Gaussian(
            torch.stack([layer.mean for layer in made], dim=-2),
            torch.stack([layer.log_std for layer in made], dim=-2),
        )
        return HierarchySample(h, posterior, self.prior.layers(zeta, h), self.decoder_input(zeta, h))

    def rsample_many(
        self, features: Tensor, zeta: Tensor, num_samples: int, *, generator: torch.Generator | None = None
    ) -> ManyDraws:
        """See `Hierarchy.rsample_many`.

        The first network, which reads nothing that differs between the samples of an example, runs once per example. In
        training the norms of all others take their statistics over the rows of all samples and examples together, as
        importance sampling in evaluation meets them.
        """
        dtype = next(self.parameters()).dtype
        features, zeta = features.to(dtype), zeta.to(dtype)
        shape = (num_samples, len(zeta), self.num_layers, self.num_units)
        noise = standard_normal(zeta, shape=shape, generator=generator)
        joint, inputs, layers, drawn = zeta, [], [], []
        log_prob = (-0.5 * noise.square() - _HALF_LOG_TWO_PI).sum((-2, -1))
        for network, eps in zip(self.posterior, noise.unbind(-2), strict=True):
            layer: Gaussian = network(features, joint)
            h = layer.mean + layer.log_std.exp() * eps
            log_prob = log_prob - layer.log_std.detach().sum(-1)
            inputs.append(joint)
            layers.append(layer)
            drawn.append(h)
            joint = torch.cat([joint.expand(num_samples, -1, -1), h], -1)
        return ManyDraws(torch.stack(drawn, -2), log_prob, noise, tuple(inputs), tuple(layers))

    def prior_at(self, zeta: Tensor, h: Tensor) -> Gaussian:
        return self.prior.layers(zeta, h)

    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return self.prior.sample(zeta, generator=generator)

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        return self.prior.decoder_input(zeta, h)


def build_gaussian_hierarchy(
    *,
    num_features: int,
    num_latents: int,
    num_layers: int,
    num_units: int,
    posterior_hidden: Sequence[int],
    prior_hidden: Sequence[int],
    sharing: SharingConfig,
    log_std_bound: float | None,
) -> GaussianHierarchy:
    """Build a hierarchy and its prior from a config's fields."""
    prior = instantiate(
        sharing,
        num_latents=num_latents,
        num_layers=num_layers,
        num_units=num_units,
        hidden=prior_hidden,
        log_std_bound=log_std_bound,
    )
    return GaussianHierarchy(num_features, prior, posterior_hidden, log_std_bound=log_std_bound)
