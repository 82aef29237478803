"""A small smooth hierarchical posterior whose exact expectations quadrature gives to many digits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.posterior import LatentGroup, check_groups
from discrete_vae.smoothing.base import InputDependentSmoothing, Smoothing
from tests.oracles.quadrature import PosteriorQuadrature, posterior_quadrature


class PolynomialPosterior(nn.Module):
    """Logits l_i = a_i + sum_j C_ij zeta_j + D_ij zeta_j^2 over the units j of earlier groups.

    ``offset`` is a; C and D are standard normal; ``of_x`` has, for each parameter that a transformation has of x, one
    number per unit.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        smoothing: Smoothing,
        offset: Sequence[float],
        seed: int = 0,
        of_x: Sequence[Sequence[float]] = (),
    ) -> None:
        super().__init__()
        self.groups = check_groups(groups)
        self.smoothing = smoothing.double()
        n = len(offset)
        generator = torch.Generator().manual_seed(seed)
        self.offset = nn.Parameter(torch.tensor(offset, dtype=torch.float64))
        self.linear = nn.Parameter(torch.randn(n, n, dtype=torch.float64, generator=generator))
        self.square = nn.Parameter(torch.randn(n, n, dtype=torch.float64, generator=generator))
        self.of_x = nn.ParameterList(torch.tensor(values, dtype=torch.float64) for values in of_x)

    def logits(self, group: int, zeta: Tensor) -> Tensor:
        """Logits of one group, given zeta (..., unit) with zeros where not yet sampled; (..., unit of the group)."""
        units = list(self.groups[group])
        return self.offset[units] + zeta @ self.linear[units].T + zeta.square() @ self.square[units].T

    def rsample(self, num_samples: int, generator: torch.Generator) -> tuple[list[LatentGroup], Tensor]:
        """Draw from the posterior: the groups, and zeta (sample, unit) in the prior's order."""
        zeta = torch.zeros(num_samples, len(self.offset), dtype=torch.float64)
        groups = []
        for index, units in enumerate(self.groups):
            logits = self.logits(index, zeta)
            parameters = [value[list(units)] for value in self.of_x]
            of_group = self.smoothing.rsample(logits, *parameters, generator=generator)
            bits = self.smoothing.bits(of_group, logits)
            kl = None
            if isinstance(self.smoothing, InputDependentSmoothing):
                kl = self.smoothing.kl(logits, *parameters)
            places = torch.tensor(units)
            group = LatentGroup(logits=logits, zeta=of_group, bits=bits, units=places, kl_of_zeta=kl)
            groups.append(group)
            zeta = zeta.index_copy(1, torch.tensor(units), of_group)
        return groups, zeta

    def quadrature(self, num_nodes: int) -> PosteriorQuadrature:
        """The same posterior on a product grid."""
        return posterior_quadrature(self.logits, self.groups, self.smoothing, num_nodes, list(self.of_x))
