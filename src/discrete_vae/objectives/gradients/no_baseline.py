"""No baseline."""

from __future__ import annotations

from torch import Tensor

from discrete_vae.objectives.gradients.baseline import Baseline


class NoBaseline(Baseline):
    """B = 0."""

    def forward(self, features: Tensor, zeta: Tensor, signals: Tensor) -> tuple[Tensor, None]:
        """The signals themselves."""
        return signals, None
