"""Each Gaussian layer with a prior network of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.hierarchy.gaussian_network import GaussianNetwork, gaussian_networks
from discrete_vae.hierarchy.prior import AutoregressiveGaussianPrior


class NoSharing(AutoregressiveGaussianPrior):
    """One network per layer, of the concatenation [zeta, h_1, ..., h_(m-1)]; the decoder reads [zeta, h_1, ..., h_M].

    Source: Rolfe 2017, sections continuous-hierarchy and architecture (dynamic MNIST).

    Args:
        num_latents: Length of the last axis of zeta.
        num_layers: M.
        num_units: Units of each layer.
        hidden: Widths of each network's hidden layers.
        log_std_bound: See `GaussianNetwork`.

    Raises:
        InvalidInputError: If a size is not a positive integer or the bound not above 0.

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
        """Units of zeta and of all layers."""
        return self.num_latents + self.num_layers * self.num_units

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        """[zeta, h_1, ..., h_M]."""
        return torch.cat([zeta, h.flatten(-2)], dim=-1)

    def next_layer(self, zeta: Tensor, earlier: Tensor) -> Gaussian:
        """The network of that layer at [zeta, h_<m]."""
        return self.networks[earlier.shape[-2]](torch.cat([zeta, earlier.flatten(-2)], dim=-1))

    def layers(self, zeta: Tensor, h: Tensor) -> Gaussian:
        """Each network at its own part of the concatenation."""
        joint = torch.cat([zeta, h[..., :-1, :].flatten(-2)], dim=-1)
        networks = gaussian_networks(self.networks)
        outputs = [
            network.output(joint[..., : self.num_latents + index * self.num_units])
            for index, network in enumerate(networks)
        ]
        return networks[0].gaussian(torch.stack(outputs, dim=-2))
