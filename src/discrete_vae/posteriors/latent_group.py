"""One group of binary latents as the KL term needs it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LatentGroup(ShowsShapes):
    """A group of units that are sampled together.

    Attributes:
        logits: (..., unit of the group), log-odds of q(z = 1 | everything sampled earlier).
        zeta: (..., unit of the group), the smoothed sample.
        bits: (..., unit of the group), from `Smoothing.bits` of that very zeta and these logits.
        units: (unit of the group,) int64, their places in the prior; None in every group of a list means that
            the groups cover 0..n-1 in order.
        kl_of_zeta: (..., unit of the group), sum_z q(z) KL[q(zeta | z, x) || r(zeta|z)], nats, from
            `InputDependentSmoothing.kl`; None for a transformation that does not depend on x, where r cancels.

    Raises:
        InvalidInputError: If the shapes differ or units does not fit them.
    """

    logits: Tensor
    zeta: Tensor
    bits: Tensor
    units: Tensor | None = None
    kl_of_zeta: Tensor | None = None

    def __post_init__(self) -> None:
        """Check that the shapes agree."""
        check_tensor("logits", self.logits, (..., "unit"))
        for name in ("zeta", "bits", "kl_of_zeta"):
            if name == "kl_of_zeta" and self.kl_of_zeta is None:
                continue
            value = check_tensor(name, getattr(self, name), (..., self.logits.shape[-1]))
            if value.shape != self.logits.shape:
                shapes = f"{tuple(value.shape)} and {tuple(self.logits.shape)}"
                raise InvalidInputError(
                    name, "must have the shape of logits", shapes, "Take both from one sample."
                )
        units = self.units
        if units is not None:
            fits = isinstance(units, torch.Tensor) and units.dtype == torch.int64
            if not fits or units.shape != self.logits.shape[-1:] or units.is_meta:
                rule = f"must be an int64 tensor of shape ({self.logits.shape[-1]},)"
                received = (
                    f"{units.dtype} of shape {tuple(units.shape)}"
                    if isinstance(units, torch.Tensor)
                    else repr(units)
                )
                raise InvalidInputError(
                    "units", rule, received, "Give one place in the prior for each logit."
                )
