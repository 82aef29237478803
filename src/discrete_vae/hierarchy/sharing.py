"""Sharing of prior networks among Gaussian layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.gaussian import (
    AutoregressiveGaussianPrior,
    Gaussian,
    GaussianNetwork,
    gaussian_networks,
)


class NoSharing(AutoregressiveGaussianPrior):
    """One network per layer, of the concatenation [zeta, h_1, ..., h_(m-1)]; the decoder reads [zeta, h_1, ..., h_M].

    Source: Rolfe 2017, sections continuous-hierarchy and architecture (dynamic MNIST).

    Args:
        num_latents: As in `AutoregressiveGaussianPrior`, likewise num_layers and num_units.
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
        return self.networks[earlier.shape[-2]](torch.cat([zeta, earlier.flatten(-2)], dim=-1))

    def layers(self, zeta: Tensor, h: Tensor) -> Gaussian:
        joint = torch.cat([zeta, h[..., :-1, :].flatten(-2)], dim=-1)
        networks = gaussian_networks(self.networks)
        outputs = [
            network.output(joint[..., : self.num_latents + index * self.num_units])
            for index, network in enumerate(networks)
        ]
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
        return network(self.zeta_map(zeta) + earlier.sum(-2))

    def layers(self, zeta: Tensor, h: Tensor) -> Gaussian:
        """One call per group, with all of its layers at their own running sums."""
        start = self.zeta_map(zeta).unsqueeze(-2)
        sums = start + torch.cat([torch.zeros_like(start), h[..., :-1, :].cumsum(-2)], dim=-2)
        networks = gaussian_networks(self.networks)
        outputs = [
            network.output(part)
            for network, part in zip(networks, sums.split(self.group_size, dim=-2), strict=True)
        ]
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
