"""The hierarchical approximating posterior over the binary latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.mlp import MLP
from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.posteriors.groups import check_groups, contiguous_groups
from discrete_vae.posteriors.latent_group import LatentGroup
from discrete_vae.smoothing.base import Smoothing


@dataclass(frozen=True, eq=False)
class PosteriorSample:
    """A draw from q(z, zeta | x).

    Attributes:
        z: (..., batch, unit), in {0,1}, the bits that belong to zeta, in the prior's order; without gradient.
        zeta: (..., batch, unit), in the prior's order.
        logits: (..., batch, unit), log-odds of each unit given x and the earlier groups, in the prior's order.
        groups: The same by group, in the posterior's order, as `kl_to_boltzmann` takes them.
    """

    z: Tensor
    zeta: Tensor
    logits: Tensor
    groups: tuple[LatentGroup, ...]

    def log_prob(self) -> Tensor:
        """log q(z | zeta, x) = sum over units of log Bernoulli(z; sigmoid(l)), (..., batch), nats."""
        return bernoulli_log_prob(self.z, self.logits).sum(-1)


class HierarchicalPosterior(nn.Module):
    """q(z, zeta | x) = prod_j r(zeta_j | z_j) q(z_j | zeta_<j, x), each q(z_j | .) a factorial Bernoulli.

    Each group has its own network of [x, zeta_1, ..., zeta_(j-1)]; its logits pass an L1 batch norm with the
    paper's bounds. One group is the factorial posterior.

    Source: Rolfe 2017, eq. approx-post-dist, section architecture; the paper's networks have two hidden layers of
    2000 units.

    Args:
        num_features: Features of x.
        groups: The unit indices of each group, in the order of sampling; or the number of groups, which then
            divide num_units units in order.
        hidden: Widths of the hidden layers of each network; empty makes the logits linear.
        smoothing: The transformation r(zeta|z); it becomes a part of this module.
        num_units: Needed only where groups is a number.

    Raises:
        InvalidInputError: If a size or the division into groups breaks its rule.

    Examples:
        >>> from discrete_vae import SpikeSlab
        >>> posterior = HierarchicalPosterior(5, [[0, 2], [1, 3]], (8,), SpikeSlab())
        >>> sample = posterior.rsample(torch.zeros(10, 5))
        >>> sample.z.shape, len(sample.groups)
        (torch.Size([10, 4]), 2)
    """

    def __init__(
        self,
        num_features: int,
        groups: int | Sequence[Sequence[int]],
        hidden: Sequence[int],
        smoothing: Smoothing,
        *,
        num_units: int | None = None,
    ) -> None:
        super().__init__()
        self.num_features = check_positive_int("num_features", num_features)
        if isinstance(groups, int):
            if num_units is None:
                repair = "Give num_units too, or list the units of each group."
                raise InvalidInputError(
                    "groups", "must list the units where num_units is not given", groups, repair
                )
            groups = contiguous_groups(num_units, groups)
        self.groups = check_groups(groups)
        self.num_units = sum(len(group) for group in self.groups)
        if num_units is not None and num_units != self.num_units:
            repair = "Let the groups cover every unit of the prior."
            raise InvalidInputError(
                "groups", f"must cover {num_units} units", f"{self.num_units} units", repair
            )
        self.smoothing = smoothing
        sizes = [len(group) for group in self.groups]
        self.networks = nn.ModuleList(
            MLP([num_features, *sizes[:index]], hidden, size, bounded_output=True)
            for index, size in enumerate(sizes)
        )
        order = [unit for group in self.groups for unit in group]
        self._in_order = order == sorted(order)
        self._units = [torch.tensor(group) for group in self.groups]
        self._to_prior_order = torch.tensor(order).argsort()

    def rsample(
        self, x: Tensor, *, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        """Draw z and zeta, group after group, by the marginal inverse CDF.

        Args:
            x: (batch, feature).
            num_samples: Draws an example; None draws one and adds no axis.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The sample; with num_samples every tensor has a leading axis (sample,).

        Raises:
            InvalidInputError: If x has another shape, or num_samples is not a positive integer.
        """
        x = check_tensor("x", x, ("batch", self.num_features)).to(next(self.parameters()).dtype)
        front = () if num_samples is None else (check_positive_int("num_samples", num_samples),)
        zetas: list[Tensor] = []
        bits: list[Tensor] = []
        groups: list[LatentGroup] = []
        for network, units in zip(self.networks, self._units, strict=True):
            logits = network(x, *zetas)
            if not zetas:
                logits = logits.expand(*front, *logits.shape)
            zeta = self.smoothing.rsample(logits, generator=generator)
            bits.append(self.smoothing.sample_z(zeta, logits, generator=generator))
            zetas.append(zeta)
            groups.append(
                LatentGroup(
                    logits=logits,
                    zeta=zeta,
                    bits=self.smoothing.bits(zeta, logits),
                    units=None if self._in_order else units.to(x.device),
                )
            )
        return PosteriorSample(
            z=self._gather(bits),
            zeta=self._gather(zetas),
            logits=self._gather([group.logits for group in groups]),
            groups=tuple(groups),
        )

    def _gather(self, parts: list[Tensor]) -> Tensor:
        """Bring tensors by group to one tensor in the prior's order."""
        joint = torch.cat(parts, dim=-1)
        return joint if self._in_order else joint[..., self._to_prior_order.to(joint.device)]
