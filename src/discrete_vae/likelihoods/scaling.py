"""Features shifted and scaled by statistics of the training data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.likelihoods.base import feature_moments


class Standardizer(nn.Module):
    """(x - location) / scale for each feature, 0 for constant ones; both are constants that `fit_` takes from data.

    Args:
        event_shape: Shape of one example.

    Attributes:
        location: Training mean, (*event); 0 before `fit_` and where nothing was observed.
        scale: Training standard deviation, (*event); 0 for constant features, 1 before `fit_` and where nothing was
            observed.

    Examples:
        >>> standardizer = Standardizer((2,))
        >>> standardizer.fit_(torch.tensor([[1.0, 7.0], [3.0, 7.0]]))
        >>> standardizer(torch.tensor([5.0, 7.0]))
        tensor([3., 0.])
    """

    location: Tensor
    scale: Tensor

    def __init__(self, event_shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("location", torch.zeros(*event_shape))
        self.register_buffer("scale", torch.ones(*event_shape))

    @torch.no_grad()
    def fit_(self, x: Tensor, observed: Tensor | None = None) -> None:
        """Take location and scale from data.

        Args:
            x: (example, *event); NaN marks unobserved entries.
            observed: Bool, of x's shape; None: every entry that is not NaN is observed.
        """
        moments = feature_moments(x, observed)
        self.location.copy_(moments.mean)
        scale = moments.variance.sqrt()
        # in float32 as in float64: what float32 cannot divide by is no spread
        scale.masked_fill_(scale < torch.finfo(torch.float32).tiny, 0.0).masked_fill_(moments.count == 0, 1.0)
        self.scale.copy_(scale)

    @property
    def constant(self) -> Tensor:
        """Which features had one value in the data, bool, (*event)."""
        return self.scale == 0

    @property
    def divisor(self) -> Tensor:
        """The scale, 1 for constant features, (*event)."""
        return self.scale.masked_fill(self.constant, 1.0)

    def forward(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Standardize; unobserved entries and constant features become 0, the training mean.

        Args:
            x: (..., *event).
            observed: Bool, of x's shape; None: every entry is observed.

        Returns:
            (..., *event) in x's dtype.
        """
        standard = ((x - self.location) / self.divisor).to(x.dtype).masked_fill(self.constant, 0)
        return standard if observed is None else standard.masked_fill(~observed, 0)
