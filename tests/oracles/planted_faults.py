"""Wrong estimators of the KL's pair terms, each a mistake that somebody could make; tests must reject them.

Each has the value of the right estimator, or an unbiased one; only the gradient is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.numerics import bernoulli_entropy, replace_gradient
from discrete_vae.posterior import LatentGroup

PairTerm = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(W symmetric (unit, unit), z, logits (batch, unit), rank (unit,)) -> E[-z^T W z / 2] estimate, (batch,)."""


def triangular_weight_alone(weight: Tensor, z: Tensor, logits: Tensor, rank: Tensor) -> Tensor:
    """Eq. low-var-J-grad read literally: only the later unit of each pair sends a gradient."""
    earlier = weight * (rank[:, None] < rank)
    q = torch.sigmoid(logits)
    factor = replace_gradient(z, ((1 - z) * (1 + logits.detach().exp())) * q)
    same = weight * (rank[:, None] == rank) / 2
    return -((z @ earlier) * factor).sum(-1) - ((q @ same) * q).sum(-1)


def straight_through_bits(weight: Tensor, z: Tensor, logits: Tensor, rank: Tensor) -> Tensor:
    """Both bits of a pair carry dq, as if z were q."""
    bits = replace_gradient(z, torch.sigmoid(logits))
    return -((bits @ weight) * bits).sum(-1) / 2


def factor_missing(weight: Tensor, z: Tensor, logits: Tensor, rank: Tensor) -> Tensor:
    """The right estimator, but the earlier bit carries dq without (1-z)/(1-q)."""
    q = torch.sigmoid(logits)
    return _earlier_times_later(weight, replace_gradient(z, q), q, rank)


def clamped_probability(weight: Tensor, z: Tensor, logits: Tensor, rank: Tensor) -> Tensor:
    """q is clamped at 0.999, so saturated units send no gradient."""
    q = torch.sigmoid(logits).clamp(max=0.999)
    bits = replace_gradient(z, (1 - z) / (1 - q.detach()) * q)
    return _earlier_times_later(weight, bits, q, rank)


def _earlier_times_later(weight: Tensor, bits: Tensor, q: Tensor, rank: Tensor) -> Tensor:
    earlier = weight * (rank[:, None] < rank)
    same = weight * (rank[:, None] == rank) / 2
    return -((bits @ earlier) * q).sum(-1) - ((q @ same) * q).sum(-1)


def second_draw_of_z(groups: Sequence[LatentGroup], generator: torch.Generator) -> list[LatentGroup]:
    """The same groups with bits drawn afresh from q instead of the ones in zeta."""
    redrawn = []
    for group in groups:
        z = torch.bernoulli(torch.sigmoid(group.logits.detach()), generator=generator)
        slope = torch.nn.functional.softplus(group.logits)
        bits = replace_gradient(z, (1 - z) * slope)
        redrawn.append(LatentGroup(logits=group.logits, zeta=group.zeta, bits=bits, units=group.units))
    return redrawn


def faulty_kl(rbm: RBM, groups: Sequence[LatentGroup], log_partition: Tensor, pair_term: PairTerm) -> Tensor:
    """The KL with one of the pair terms above, (batch,)."""
    order = torch.cat([group.units for group in groups if group.units is not None]).argsort()
    logits = torch.cat([group.logits for group in groups], -1)[:, order]
    z = (torch.cat([group.zeta for group in groups], -1)[:, order] != 0).to(logits.dtype)
    sizes = torch.tensor([group.logits.shape[-1] for group in groups])
    rank = torch.repeat_interleave(torch.arange(len(groups)), sizes)[order]
    weight = torch.zeros(rbm.num_units, rbm.num_units, dtype=logits.dtype)
    weight[: rbm.num_left, rbm.num_left :] = rbm.weight.to(logits.dtype)
    weight = weight + weight.T
    linear = -(torch.sigmoid(logits) @ rbm.bias.to(logits.dtype))
    return pair_term(weight, z, logits, rank) + linear - bernoulli_entropy(logits).sum(-1) + log_partition
