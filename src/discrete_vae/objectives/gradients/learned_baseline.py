"""A baseline by networks that read x and the earlier groups."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.nets.mlp import MLP
from discrete_vae.objectives.gradients.baseline import Baseline
from discrete_vae.objectives.gradients.running_mean import RunningMean


class LearnedBaseline(Baseline):
    """B_j = m_j + s_j b_j(features of x, zeta_<j), with a small network b_j per group, trained by squared error.

    m_j is the running mean of the signal and s_j^2 is 1 + the running mean of its variance within a batch, both of
    earlier batches, so that networks learn numbers of the size 1 whatever the model's likelihood. They start at 0, that
    is, at `RunningMean`. Their loss is ((signal - m_j) / s_j - b_j)^2, averaged over groups; its gradient reaches their
    parameters alone. From the first batch, which m and s do not know, networks learn nothing.

    Source: Mnih & Gregor 2014, section 2.3. Deviation: it reads the encoder's features, which for the default encoder
    are x, and the scale is that of the signal instead of the learning rate's.

    Args:
        hidden: Widths of the hidden layers of each network.
        decay: Weight of the past per batch in m and s, from 0 to below 1.
        group_of_unit: See `Baseline`.
        num_features: Likewise.

    Raises:
        InvalidInputError: If decay breaks its rule, or a width is not a positive integer.
    """

    by_group: Tensor

    def __init__(
        self,
        hidden: Sequence[int] = (100,),
        decay: float = 0.9,
        *,
        group_of_unit: Tensor,
        num_features: int,
    ) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        sizes = {"group_of_unit": group_of_unit, "num_features": num_features}
        self.level, self.variance = RunningMean(decay, **sizes), RunningMean(decay, **sizes)
        self.register_buffer("by_group", group_of_unit.argsort(stable=True), persistent=False)
        self._sizes = torch.bincount(group_of_unit).tolist()
        self.networks = nn.ModuleList(
            MLP([num_features, *self._sizes[:index]], 1, hidden) for index in range(self.num_groups)
        )
        for network in self.networks:
            assert isinstance(network, MLP)
            network.initialize_output_(0.0, scale=0.0)

    def forward(self, features: Tensor, zeta: Tensor, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Take away what the networks make of what is known before each group; then note the signals."""
        own = next(self.parameters()).dtype
        features, zeta = features.to(own), zeta.to(own)
        groups = zeta.index_select(-1, self.by_group).split(self._sizes, -1)
        found = [
            network(features, *groups[:index]).expand(*zeta.shape[:-1], 1)
            for index, network in enumerate(self.networks)
        ]
        level, scale = self.level.mean(), torch.sqrt(1 + self.variance.mean())
        predicted = torch.cat(found, -1).to(signals.dtype)
        # the first batch has no scale yet: Adam would remember its huge gradient for a thousand steps
        begun = (self.level.weight > 0).to(signals.dtype)
        error = ((signals - level) / scale - predicted).square().mean(-1) * begun
        advantages = signals - (level + scale * predicted.detach())
        if self.training:
            self.level.note(signals)
            self.variance.note((signals - signals.mean((0, 1))).square())
        return advantages, error
