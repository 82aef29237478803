"""The bound of one step's batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class EvaluatedBound(ShowsShapes):
    """The parts of the bound of a batch, without gradient.

    Attributes:
        reconstruction: As in `Elbo`, (batch,), nats.
        kl_relative: Likewise.
        kl_continuous: Likewise.
        means: Their means over the batch, nats.
    """

    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor
    means: tuple[float, float, float]
