"""The Kullback-Leibler divergence from a hierarchical posterior to a Boltzmann prior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_log_partition
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import mean_and_entropy
from discrete_vae.posteriors.latent_group import LatentGroup


def kl_to_boltzmann(
    energy: BoltzmannMachine, groups: Sequence[LatentGroup], log_partition: Tensor | SupportsFloat
) -> Tensor:
    """KL[q(z, zeta | x) || p(z, zeta)] = sum_j E[-H(q_j)] + E[E(z)] + log Z, where r(zeta|z) cancels.

    Of groups whose transformation depends on x, sum_i E[q_i KL[q(zeta_i | z_i, x) || r(zeta_i | z_i)]] is added (eq.
    vae-loss-input-dependent-zeta), which is analytic too.

    An unbiased value, given log Z, and an unbiased gradient for the posterior's and the prior's parameters. The
    entropy of each group is analytic. In the energy a linear term takes q; a pair takes the bit of the unit sampled
    earlier and q of the later one, and two units of one group take both q. The bits carry (1-z)/(1-q) dq, taken in
    logits, so nothing is divided by 1-q and no q is clamped.

    Source: Rolfe 2017, appendix kl-gradient, eqs. KL-component-ELBO, J-term-gradient, J-gradient-z-0. Deviation:
    eq. low-var-J-grad with a triangular W holds one of the two terms of eq. J-term-gradient only and is biased; both
    are used here, and the factor (1-z)/(1-q) only for partners later in the hierarchy, where it is needed.

    Args:
        energy: The prior.
        groups: In the order in which the posterior samples them; their tensors are (batch, unit of the group).
        log_partition: log Z in nats: a number, or a scalar tensor whose gradient is the prior's negative phase, as
            `log_partition_surrogate` and `enumerate_log_partition` give it.

    Returns:
        (batch,), nats. One draw may be negative; its expectation is the KL.

    Raises:
        InvalidInputError: If the groups do not cover each unit of the prior exactly once, or log_partition is no
            finite number or scalar tensor.

    Examples:
        >>> from discrete_vae import FactorialBernoulli, SpikeSlab
        >>> logits, smoothing = torch.zeros(1, 2), SpikeSlab()
        >>> zeta = smoothing.rsample(logits)
        >>> group = LatentGroup(logits=logits, zeta=zeta, bits=smoothing.bits(zeta, logits))
        >>> kl_to_boltzmann(FactorialBernoulli(2), [group], log_partition=1.3862944).abs().item() < 1e-6
        True
    """
    log_z = check_log_partition(log_partition)
    group_of_unit, to_prior_order = _layout(groups, energy.num_units)
    logits = _gather([group.logits for group in groups], to_prior_order)
    bits = _gather([group.bits for group in groups], to_prior_order)
    kl = kl_without_log_partition(energy, logits, bits, energy.pair_order(group_of_unit)) + log_z
    for group in groups:
        if group.kl_of_zeta is not None:
            kl = kl + group.kl_of_zeta.sum(-1)
    return kl


def kl_without_log_partition(
    energy: BoltzmannMachine, logits: Tensor, bits: Tensor, order: nn.Module
) -> Tensor:
    """`kl_to_boltzmann` less log Z, of tensors in the prior's order; the KL of z alone.

    Args:
        energy: The prior.
        logits: (..., unit), log-odds given everything sampled earlier.
        bits: (..., unit), from `Smoothing.bits`.
        order: What the energy's `pair_order` gives for the posterior's groups; made once, not per step.

    Returns:
        (...), nats.
    """
    mean, entropy = mean_and_entropy(logits)
    return energy.expected_energy(bits, mean, order) - entropy


def _layout(groups: Sequence[LatentGroup], num_units: int) -> tuple[Tensor, Tensor | None]:
    """The position of each unit's group, and the permutation to the prior's order (None where it is the identity)."""
    if len(groups) == 0:
        raise InvalidInputError(
            "groups", "must hold at least one LatentGroup", "an empty list", "Add the groups."
        )
    shapes = {tuple(part.shape[:-1]) for group in groups for part in (group.logits, group.bits)}
    if len(shapes) > 1:
        repair = "Sample all groups for the same batch."
        raise InvalidInputError("groups", "must all have one batch", sorted(shapes), repair)
    sizes = [group.logits.shape[-1] for group in groups]
    if sum(sizes) != num_units:
        repair = "Every unit of the prior belongs to exactly one group."
        raise InvalidInputError(
            "groups", f"must cover the prior's {num_units} units", f"{sum(sizes)} units", repair
        )
    position = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    position = position.to(groups[0].logits.device)
    listed = [group.units for group in groups if group.units is not None]
    if not listed:
        return position, None
    if len(listed) != len(groups):
        repair = "Give units in every group or in none."
        raise InvalidInputError(
            "groups", "must all have units or all have none", f"{len(listed)} of {len(groups)}", repair
        )
    order = torch.cat(listed)
    to_prior_order = order.argsort()
    if not torch.equal(order[to_prior_order], torch.arange(num_units, device=order.device)):
        repair = "List each of 0..n-1 exactly once over all groups."
        raise InvalidInputError("groups", "must list each unit of the prior once", order.tolist(), repair)
    return position[to_prior_order], to_prior_order


def _gather(parts: list[Tensor], to_prior_order: Tensor | None) -> Tensor:
    joint = torch.cat(parts, dim=-1)
    return joint if to_prior_order is None else joint[..., to_prior_order]
