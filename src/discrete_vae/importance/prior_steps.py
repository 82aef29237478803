"""The prior of the Gaussian layers one layer after the other, as their draws need it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from discrete_vae.hierarchy.gaussian_network import GaussianNetwork
from discrete_vae.hierarchy.group_sharing import CompleteSharing, GroupSharing
from discrete_vae.hierarchy.no_sharing import NoSharing
from discrete_vae.hierarchy.prior import AutoregressiveGaussianPrior
from discrete_vae.nets.folded_mlp import FoldedMLP
from discrete_vae.nets.mlp import MLP


def prior_steps(prior: AutoregressiveGaussianPrior) -> PriorSteps | None:
    """The steps of a prior with folded networks; None if it is of another kind."""
    if not isinstance(prior, (NoSharing, GroupSharing)) or type(prior) not in _KINDS:
        return None
    networks, bounds = [], []
    for layer in prior.networks:
        network = layer.network if type(layer) is GaussianNetwork else None
        folded = network.folded if type(network) is MLP else None
        if not isinstance(layer, GaussianNetwork) or not isinstance(folded, FoldedMLP):
            return None
        networks.append(folded)
        bounds.append(layer.log_std_bound)
    if len({network.dtype for network in networks}) > 1:
        return None
    return _KINDS[type(prior)](prior, networks, bounds)


class PriorSteps(ABC):
    """p(h_m | h_<m, zeta), layer after layer.

    Args:
        networks: Folded.
        bounds: Of the log standard deviations, one per layer.

    Attributes:
        dtype: Precision of the networks' products.
        bounds: As given.
    """

    def __init__(self, networks: Sequence[FoldedMLP], bounds: Sequence[float | None]) -> None:
        self._networks, self.bounds = networks, bounds
        self.dtype = networks[0].dtype

    @abstractmethod
    def begin(self, zeta: Tensor) -> None:
        """Start with zeta, (sample, example, latent), float32."""

    @abstractmethod
    def output(self, index: int, joint: Tensor) -> Tensor:
        """What the network of a layer gives, (sample, example, 2 unit).

        Args:
            index: The layer's.
            joint: [zeta, h_<m], (sample, example, column), in the precision of the products.
        """

    @abstractmethod
    def drawn(self, h: Tensor) -> None:
        """Take the layer that was drawn, (sample, example, unit), float32."""

    @abstractmethod
    def decoder_input(self, joint: Tensor) -> Tensor:
        """What p(x | zeta, h) reads.

        Args:
            joint: [zeta, h], of all layers, in the precision of the products.
        """


class ConcatenationSteps(PriorSteps):
    """Of `NoSharing`: all read the concatenation."""

    def __init__(
        self, prior: NoSharing, networks: Sequence[FoldedMLP], bounds: Sequence[float | None]
    ) -> None:
        super().__init__(networks, bounds)

    def begin(self, zeta: Tensor) -> None:
        """Nothing to do."""

    def output(self, index: int, joint: Tensor) -> Tensor:
        """The layer's own network at the concatenation."""
        return self._networks[index].of_rows(joint)

    def drawn(self, h: Tensor) -> None:
        """Nothing to do."""

    def decoder_input(self, joint: Tensor) -> Tensor:
        """The concatenation."""
        return joint


class SumSteps(PriorSteps):
    """Of `GroupSharing`: all read the running sum, float32."""

    def __init__(
        self, prior: GroupSharing, networks: Sequence[FoldedMLP], bounds: Sequence[float | None]
    ) -> None:
        group_of_layer = [index // prior.group_size for index in range(prior.num_layers)]
        super().__init__(
            [networks[group] for group in group_of_layer], [bounds[group] for group in group_of_layer]
        )
        self._prior = prior
        self._sum = torch.empty(0)

    def begin(self, zeta: Tensor) -> None:
        """A zeta."""
        self._sum = self._prior.zeta_map(zeta)

    def output(self, index: int, joint: Tensor) -> Tensor:
        """The network of the layer's group at the sum."""
        return self._networks[index].of_rows(self._sum.to(self.dtype))

    def drawn(self, h: Tensor) -> None:
        """Add to the sum."""
        self._sum.add_(h)

    def decoder_input(self, joint: Tensor) -> Tensor:
        """The sum."""
        return self._sum


_KINDS = {NoSharing: ConcatenationSteps, GroupSharing: SumSteps, CompleteSharing: SumSteps}
