"""The running mean of each group's signal as baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.checks import check_number
from discrete_vae.objectives.gradients.baseline import Baseline


class RunningMean(Baseline):
    """B_j = the exponential average of the mean signal of group j over **earlier** batches, 0 before the first.

    The start-up's share is taken out: weights of batches sum to 1 from the second batch on. The batch's own signals
    enter only after they were used.

    Source: Mnih & Gregor 2014, section 2.3; Williams 1992.

    Args:
        decay: Weight of the past per batch, from 0 to below 1.
        group_of_unit: See `Baseline`.
        num_features: Likewise.

    Attributes:
        total: Decayed sum of the means, (group,), nats.
        weight: Decayed sum of their weights.

    Raises:
        InvalidInputError: If decay breaks its rule.

    Examples:
        >>> baseline = RunningMean(0.5, group_of_unit=torch.tensor([0, 0]), num_features=1)
        >>> [baseline(None, None, torch.full((1, 2, 1), s))[0].mean().item() for s in (3.0, 6.0, 6.0)]
        [3.0, 3.0, 1.0]
    """

    total: Tensor
    weight: Tensor

    def __init__(self, decay: float = 0.9, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        repair = "The default is 0.9."
        self.decay = check_number("decay", decay, at_least=0, repair=repair)
        check_number("1 - decay", 1 - decay, above=0, repair=repair)
        self.register_buffer("total", torch.zeros(self.num_groups))
        self.register_buffer("weight", torch.zeros(()))

    def forward(self, features: Tensor, zeta: Tensor, signals: Tensor) -> tuple[Tensor, None]:
        """Take away the mean of earlier batches, then note this one's."""
        advantages = signals - self.mean()
        if self.training:
            self.note(signals)
        return advantages, None

    def mean(self) -> Tensor:
        """B, (group,), nats."""
        return self.total / self.weight.clamp_min(torch.finfo(self.weight.dtype).tiny)

    @torch.no_grad()
    def note(self, signals: Tensor) -> None:
        """Let the signals of a batch, (draw, batch, group), enter the mean."""
        self.total.lerp_(signals.mean((0, 1)).to(self.total.dtype), 1 - self.decay)
        self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)
