"""What the logits of later groups owe to the draws of earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class LogitPaths(ShowsShapes):
    """The logits of each group of a draw, beside the earlier zeta that their network read.

    Attributes:
        logits: Of each group, (..., unit of the group).
        inputs: Of each group, what its network read of each earlier group, (..., unit of that group): views that
            nothing else reads.
        to_prior_order: The permutation from the groups' order to the prior's, (unit,) int64; None where it is the
            identity.
    """

    logits: Sequence[Tensor]
    inputs: Sequence[Sequence[Tensor]]
    to_prior_order: Tensor | None

    def gradient(self, by_logits: Tensor) -> Tensor:
        """Bring a gradient by the logits on to zeta, with the networks' parameters and the features held fixed.

        It is one backward pass through each network, to its inputs alone; paths from an earlier zeta over the zeta of a
        group between are left to the draw's own gradient.

        Args:
            by_logits: (..., unit), in the prior's order, without gradient.

        Returns:
            (..., unit), in the prior's order, without gradient; zero where logits carry none.
        """
        sizes = [logits.shape[-1] for logits in self.logits]
        order = self.to_prior_order
        by_group = by_logits if order is None else by_logits.index_select(-1, order.argsort())
        parts = [torch.zeros_like(share) for share in by_group.split(sizes, -1)]
        for logits, read, share in zip(self.logits, self.inputs, by_group.split(sizes, -1), strict=True):
            if not any(zeta.requires_grad for zeta in read):
                continue
            found = torch.autograd.grad(logits, read, share.to(logits.dtype), retain_graph=True)
            for place, by_zeta in enumerate(found):
                parts[place] = parts[place] + by_zeta
        joint = torch.cat(parts, -1)
        return joint if order is None else joint.index_select(-1, order)
