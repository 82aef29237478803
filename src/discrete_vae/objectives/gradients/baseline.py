"""What a baseline of REINFORCE is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from discrete_vae.config import BaselineConfig, NoBaselineConfig, instantiate


class Baseline(nn.Module, ABC):
    """A guess of each group's signal from what is known before the group is drawn: x, zeta of earlier groups, the past.

    What it takes away from the signal of group j must not depend on z_j nor on anything drawn later, its own signal
    above all: a baseline that sees its own sample biases the gradient.

    Args:
        group_of_unit: (unit,) int64, the position of each unit's group in the posterior's order of sampling.
        num_features: Length of the last axis of the encoder's features.
    """

    def __init__(self, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__()
        self.num_features, self.num_groups = num_features, int(group_of_unit.max()) + 1

    @abstractmethod
    def forward(self, features: Tensor, zeta: Tensor, signals: Tensor) -> tuple[Tensor, Tensor | None]:
        """Take the baseline away; in training mode then learn from these signals.

        Args:
            features: (batch, feature), what the encoder makes of x, without gradient.
            zeta: (draw, batch, unit), without gradient.
            signals: (draw, batch, group), nats, without gradient.

        Returns:
            The signals less the baseline, (draw, batch, group), without gradient; and a loss, (draw, batch), whose
            gradient trains the baseline's own parameters and reaches no others, None where there are none.
        """


def build_baseline(
    baseline: BaselineConfig | Baseline | None, group_of_unit: Tensor, num_features: int
) -> Baseline:
    """A baseline as it is, or built from its config; None is none.

    Args:
        baseline: The baseline, or its config.
        group_of_unit: See `Baseline`.
        num_features: Likewise.
    """
    if isinstance(baseline, Baseline):
        return baseline
    config = NoBaselineConfig() if baseline is None else baseline
    return instantiate(config, group_of_unit=group_of_unit, num_features=num_features)
