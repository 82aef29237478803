"""The network behind a transformation that depends on x."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from discrete_vae.nets.l1_batch_norm import L1BatchNorm
from discrete_vae.nets.mlp import normalized
from discrete_vae.nets.network import NetworkFactory

_START = 0.1  # of the norm's scale: q(zeta | z, x) begins near the prior's r(zeta|z), its KL near 0


class ParameterNetwork(nn.Module):
    """Numbers without bounds, from which a transformation makes its parameters, for all units from the features of x.

    They pass an L1 batch norm, whatever the network is; the norm's scale starts at 0.1.

    Source: Rolfe 2017, section sec:spike-and-gaussian, which says no more of it than that the parameters are functions
    of x.

    Args:
        num_features: Length of the last axis of the features.
        num_units: Units.
        num_parameters: Parameters of each unit.
        network: Makes the network.
    """

    def __init__(
        self, num_features: int, num_units: int, num_parameters: int, network: NetworkFactory
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.network = network([num_features], num_parameters * num_units)
        self.norm = L1BatchNorm(num_parameters * num_units)
        with torch.no_grad():
            self.norm.scale.fill_(_START)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """One tensor for each parameter, (batch, unit), at least in the norm's precision.

        Args:
            features: (batch, feature).
        """
        return normalized(self.network, self.norm, features).chunk(self.num_parameters, -1)
