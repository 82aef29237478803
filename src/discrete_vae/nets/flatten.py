"""The paper's encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn


class FlattenEncoder(nn.Module):
    """The values of x in one row: nothing is computed before the networks of the posterior.

    Args:
        input_shape: Shape of what is read of one example.

    Attributes:
        num_features: Values of one example.
    """

    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.num_features = math.prod(input_shape)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, *input_shape) -> (batch, feature)."""
        return x.flatten(1)
