"""The hierarchy of Gaussian layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int, check_tensor
from discrete_vae.config import SharingConfig, instantiate
from discrete_vae.hierarchy.base import Hierarchy, HierarchySample
from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.hierarchy.gaussian_network import GaussianNetwork, gaussian_networks
from discrete_vae.hierarchy.many_draws import ManyDraws, draw_many
from discrete_vae.hierarchy.prior import AutoregressiveGaussianPrior
from discrete_vae.nets.network import NetworkFactory
from discrete_vae.noise import standard_normal


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

    Raises:
        InvalidInputError: If a size is not a positive integer or the bound not above 0.

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
        """Draw h from q(h | zeta, x), layer after layer, and evaluate the prior at it.

        Args:
            features: (batch, feature), what the encoder makes of x.
            zeta: (..., batch, latent).
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The sample, carrying the gradients of the reparameterization.

        Raises:
            InvalidInputError: If features or zeta has another shape.
        """
        dtype = next(self.parameters()).dtype
        features = check_tensor("features", features, ("batch", self.num_features)).to(dtype)
        zeta = check_tensor("zeta", zeta, (..., len(features), self.num_latents)).to(dtype)
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
        """Draw h from q(h | zeta, x) many times for each zeta.

        In training the norms of all networks but the first take their statistics over the rows of all samples and
        examples together, as importance sampling in evaluation meets them.

        Args:
            features: (batch, feature), what the encoder makes of x.
            zeta: (batch, latent).
            num_samples: Draws per example.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The draws.

        Raises:
            InvalidInputError: If features or zeta has another shape, or num_samples is not a positive integer.
        """
        check_positive_int("num_samples", num_samples)
        dtype = next(self.parameters()).dtype
        features = check_tensor("features", features, ("batch", self.num_features)).to(dtype)
        zeta = check_tensor("zeta", zeta, (len(features), self.num_latents)).to(dtype)
        return draw_many(
            tuple(self.posterior), features, zeta, num_samples, num_units=self.num_units, generator=generator
        )

    def prior_at(self, zeta: Tensor, h: Tensor) -> Gaussian:
        """p(h_m | h_<m, zeta) of all layers at a sample of all of them.

        Args:
            zeta: (..., latent).
            h: (..., layer, unit).

        Returns:
            (..., layer, unit).
        """
        return self.prior.layers(zeta, h)

    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw h from p(h | zeta), layer after layer.

        Args:
            zeta: (..., latent).
            generator: Source of the noise; None means torch's global generator.

        Returns:
            (..., layer, unit).
        """
        return self.prior.sample(zeta, generator=generator)

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        """What p(x | zeta, h) reads, as the kind of sharing says.

        Args:
            zeta: (..., latent).
            h: (..., layer, unit).

        Returns:
            (..., decoder_size).
        """
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
    """Build a hierarchy from its config's fields.

    Args:
        num_features: Length of the last axis of the encoder's features.
        num_latents: Length of the last axis of zeta.
        num_layers: Layers of h.
        num_units: Units of each layer.
        posterior_hidden: Widths of the hidden layers of each layer's posterior network.
        prior_hidden: Widths of the hidden layers of a prior network.
        sharing: Which layers share a prior network.
        log_std_bound: Bound of the log standard deviations; None is no bound.

    Raises:
        InvalidInputError: As `GaussianHierarchy` and the sharing that is asked for.
    """
    prior = instantiate(
        sharing,
        num_latents=num_latents,
        num_layers=num_layers,
        num_units=num_units,
        hidden=prior_hidden,
        log_std_bound=log_std_bound,
    )
    return GaussianHierarchy(num_features, prior, posterior_hidden, log_std_bound=log_std_bound)
