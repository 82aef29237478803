"""Gaussian layers below the binary latents: their networks, priors with shared networks or not, the hierarchy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int, check_tensor
from discrete_vae.config import SharingConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.base import Gaussian, Hierarchy, HierarchySample, ManyDraws
from discrete_vae.kernels.registry import compiled_by
from discrete_vae.nets.mlp import MLP, NetworkFactory
from discrete_vae.numerics import HALF_LOG_TWO_PI, differentiable_once
from discrete_vae.rng import standard_normal

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
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
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
    """Gradient by the output from those by the results, at least one of which is not None."""
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


# Priors of the layers, by how they share networks.


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


class NoSharing(AutoregressiveGaussianPrior):
    """One network per layer, of the concatenation [zeta, h_1, ..., h_(m-1)]; the decoder reads [zeta, h_1, ..., h_M].

    Source: Rolfe 2017, sections continuous-hierarchy and architecture (dynamic MNIST).

    Args:
        num_latents: Length of the last axis of zeta.
        num_layers: M.
        num_units: Of each layer.
        hidden: Widths of each network's hidden layers.
        log_std_bound: See `GaussianNetwork`.

    Examples:
        >>> prior = NoSharing(num_latents=4, num_layers=3, num_units=2, hidden=(8,))
        >>> prior.sample(torch.zeros(10, 4)).shape, prior.decoder_size
        (torch.Size([10, 3, 2]), 10)
    """

    def __init__(
        self,
        num_latents: int,
        num_layers: int,
        num_units: int,
        hidden: Sequence[int],
        *,
        log_std_bound: float | None = 5.0,
    ) -> None:
        super().__init__(num_latents, num_layers, num_units)
        self.networks = nn.ModuleList(
            GaussianNetwork([num_latents + index * num_units], hidden, num_units, log_std_bound=log_std_bound)
            for index in range(num_layers)
        )

    @property
    def decoder_size(self) -> int:
        return self.num_latents + self.num_layers * self.num_units

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        return torch.cat([zeta, h.flatten(-2)], dim=-1)

    def next_layer(self, zeta: Tensor, earlier: Tensor) -> Gaussian:
        return self.networks[earlier.shape[-2]](self.decoder_input(zeta, earlier))

    def layers(self, zeta: Tensor, h: Tensor) -> Gaussian:
        joint = self.decoder_input(zeta, h[..., :-1, :])
        networks = gaussian_networks(self.networks)
        ends = range(self.num_latents, self.decoder_size, self.num_units)
        outputs = [network.output(joint[..., :end]) for network, end in zip(networks, ends, strict=True)]
        return networks[0].gaussian(torch.stack(outputs, dim=-2))


class GroupSharing(AutoregressiveGaussianPrior):
    """One network per group, of the running sum A zeta + h_1 + ... + h_(m-1); the decoder reads the sum of all layers.

    A, the paper's M, is a trained linear map. A network's batch norm takes its statistics over all layers of the
    group together, as the layers share everything else.

    Source: Rolfe 2017, section architecture (static MNIST, Omniglot). The paper leaves open what the groups after the
    first read; here every group reads the same running sum, with one map A.

    Args:
        num_latents: As in `NoSharing`, likewise what is not named here.
        num_layers: M, a multiple of num_groups.
        num_groups: Groups of consecutive layers.

    Examples:
        >>> prior = GroupSharing(num_latents=4, num_layers=6, num_units=2, hidden=(8,), num_groups=2)
        >>> prior.sample(torch.zeros(10, 4)).shape, prior.decoder_size
        (torch.Size([10, 6, 2]), 2)
    """

    def __init__(
        self,
        num_latents: int,
        num_layers: int,
        num_units: int,
        hidden: Sequence[int],
        *,
        num_groups: int,
        log_std_bound: float | None = 5.0,
    ) -> None:
        super().__init__(num_latents, num_layers, num_units)
        if num_layers % check_positive_int("num_groups", num_groups) != 0:
            rule = f"must divide the {num_layers} layers into groups of equal size"
            raise InvalidInputError("num_groups", rule, num_groups, "Change it or the number of layers.")
        self.group_size = num_layers // num_groups
        self.zeta_map = nn.Linear(num_latents, num_units, bias=False)
        self.networks = nn.ModuleList(
            GaussianNetwork([num_units], hidden, num_units, log_std_bound=log_std_bound)
            for _ in range(num_groups)
        )

    @property
    def decoder_size(self) -> int:
        return self.num_units

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        return self.zeta_map(zeta) + h.sum(-2)

    def next_layer(self, zeta: Tensor, earlier: Tensor) -> Gaussian:
        network = self.networks[earlier.shape[-2] // self.group_size]
        return network(self.decoder_input(zeta, earlier))

    def layers(self, zeta: Tensor, h: Tensor) -> Gaussian:
        """One call per group, with all of its layers at their own running sums."""
        start = self.zeta_map(zeta).unsqueeze(-2)
        sums = start + torch.cat([torch.zeros_like(start), h[..., :-1, :].cumsum(-2)], dim=-2)
        networks, parts = gaussian_networks(self.networks), sums.split(self.group_size, dim=-2)
        outputs = [network.output(part) for network, part in zip(networks, parts, strict=True)]
        return networks[0].gaussian(torch.cat(outputs, dim=-2))


class CompleteSharing(GroupSharing):
    """One network for all layers, of A zeta + h_1 + ... + h_(m-1): `GroupSharing` with a single group.

    The number of parameters does not depend on the number of layers.

    Source: Rolfe 2017, section architecture ("complete recurrent parameter sharing", Caltech-101 Silhouettes).
    """

    def __init__(
        self,
        num_latents: int,
        num_layers: int,
        num_units: int,
        hidden: Sequence[int],
        *,
        log_std_bound: float | None = 5.0,
    ) -> None:
        super().__init__(
            num_latents, num_layers, num_units, hidden, num_groups=1, log_std_bound=log_std_bound
        )


# The hierarchy.


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
        features, zeta = self._widened(features, zeta)
        shape = (*zeta.shape[:-1], self.num_layers, self.num_units)
        noise = standard_normal(zeta, shape=shape, generator=generator)
        joint, drawn, made = zeta, [], []
        for network, of_layer in zip(gaussian_networks(self.posterior), noise.unbind(-2), strict=True):
            layer, h = network.rsample(features, joint, noise=of_layer)
            joint = torch.cat([joint, h], dim=-1)
            drawn.append(h)
            made.append(layer)
        h = torch.stack(drawn, dim=-2)
        means, log_stds = ([getattr(layer, name) for layer in made] for name in ("mean", "log_std"))
        posterior = Gaussian(torch.stack(means, dim=-2), torch.stack(log_stds, dim=-2))
        return HierarchySample(h, posterior, self.prior.layers(zeta, h), self.decoder_input(zeta, h))

    def rsample_many(
        self, features: Tensor, zeta: Tensor, num_samples: int, *, generator: torch.Generator | None = None
    ) -> ManyDraws:
        """See `Hierarchy.rsample_many`.

        The first network, which reads nothing that differs between the samples of an example, runs once per example. In
        training the norms of all others take their statistics over the rows of all samples and examples together, as
        importance sampling in evaluation meets them.
        """
        features, zeta = self._widened(features, zeta)
        shape = (num_samples, len(zeta), self.num_layers, self.num_units)
        noise = standard_normal(zeta, shape=shape, generator=generator)
        joint, inputs, layers, drawn = zeta, [], [], []
        log_prob = (-0.5 * noise.square() - HALF_LOG_TWO_PI).sum((-2, -1))
        for network, eps in zip(self.posterior, noise.unbind(-2), strict=True):
            layer: Gaussian = network(features, joint)
            h = layer.mean + layer.log_std.exp() * eps
            log_prob = log_prob - layer.log_std.detach().sum(-1)
            inputs.append(joint)
            layers.append(layer)
            drawn.append(h)
            joint = torch.cat([joint.expand(num_samples, -1, -1), h], -1)
        return ManyDraws(torch.stack(drawn, -2), log_prob, noise, tuple(inputs), tuple(layers))

    def _widened(self, features: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        """The features, (batch, feature), and zeta, (..., latent), in the precision of the layers."""
        dtype = next(self.parameters()).dtype
        features = check_tensor("features", features, ("row", self.num_features))
        return features.to(dtype), check_tensor("zeta", zeta, (..., self.num_latents)).to(dtype)

    def prior_at(self, zeta: Tensor, h: Tensor) -> Gaussian:
        return self.prior.layers(zeta, h)

    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return self.prior.sample(zeta, generator=generator)

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        return self.prior.decoder_input(zeta, h)


def build_gaussian_hierarchy(
    *,
    num_features: int,
    posterior_hidden: Sequence[int],
    prior_hidden: Sequence[int],
    sharing: SharingConfig,
    log_std_bound: float | None,
    **sizes: int,
) -> GaussianHierarchy:
    """Build a hierarchy and its prior, of these sizes, from a config's fields."""
    prior = instantiate(sharing, hidden=prior_hidden, log_std_bound=log_std_bound, **sizes)
    return GaussianHierarchy(num_features, prior, posterior_hidden, log_std_bound=log_std_bound)
