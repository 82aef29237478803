"""The hierarchical approximating posterior over the binary latents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.l1_batch_norm import L1BatchNorm
from discrete_vae.nets.mlp import MLP, normalized
from discrete_vae.nets.network import NetworkFactory
from discrete_vae.noise import open_uniform
from discrete_vae.posteriors.base import Posterior, PosteriorSample
from discrete_vae.posteriors.groups import check_groups, contiguous_groups
from discrete_vae.posteriors.logit_paths import LogitPaths
from discrete_vae.posteriors.parameter_network import ParameterNetwork
from discrete_vae.smoothing.base import SmoothedDraw, Smoothing
from discrete_vae.smoothing.input_dependent import InputDependentSmoothing


class HierarchicalPosterior(Posterior):
    """q(z, zeta | x) = prod_j r(zeta_j | z_j) q(z_j | zeta_<j, x), each q(z_j | .) a factorial Bernoulli.

    Each group has its own network of [features of x, zeta_1, ..., zeta_(j-1)]; what it gives passes an L1 batch norm
    with the paper's bounds, whatever the network is: without it the posterior collapses. One group is the factorial
    posterior. A transformation that depends on x gets its parameters from one more network, of the features alone, for
    all units.

    Source: Rolfe 2017, eq. approx-post-dist, section architecture; the paper's networks have two hidden layers of
    2000 units.

    Args:
        num_features: Length of the last axis of the features.
        groups: The unit indices of each group, in the order of sampling; or the number of groups, which then
            divide num_units units in order.
        hidden: Widths of the hidden layers of each network; empty makes the logits linear.
        smoothing: The transformation r(zeta|z); it becomes a part of this module.
        num_units: Needed only where groups is a number.
        network: Makes the network of each group, and that of a transformation's parameters, in place of the MLPs that
            hidden describes.

    Raises:
        InvalidInputError: If a size is not a positive integer, or the groups do not cover each unit once.

    Examples:
        >>> from discrete_vae import SpikeSlab
        >>> posterior = HierarchicalPosterior(5, [[0, 2], [1, 3]], (8,), SpikeSlab())
        >>> sample = posterior.rsample(torch.zeros(10, 5))
        >>> sample.z.shape, posterior.group_of_unit.tolist()
        (torch.Size([10, 4]), [0, 1, 0, 1])
    """

    _to_prior_order: Tensor
    _by_group: Tensor

    def __init__(
        self,
        num_features: int,
        groups: int | Sequence[Sequence[int]],
        hidden: Sequence[int],
        smoothing: Smoothing,
        *,
        num_units: int | None = None,
        network: NetworkFactory | None = None,
    ) -> None:
        check_positive_int("num_features", num_features)
        if isinstance(groups, int):
            if num_units is None:
                repair = "Give num_units too, or list the units of each group."
                raise InvalidInputError(
                    "groups", "must list the units where num_units is not given", groups, repair
                )
            groups = contiguous_groups(num_units, groups)
        groups = check_groups(groups)
        sizes = [len(group) for group in groups]
        if num_units is not None and num_units != sum(sizes):
            repair = "Let the groups cover every unit of the prior."
            raise InvalidInputError("groups", f"must cover {num_units} units", f"{sum(sizes)} units", repair)
        order = torch.tensor([unit for group in groups for unit in group], device="cpu")
        to_prior_order = order.argsort()
        position = torch.arange(len(groups), device="cpu").repeat_interleave(
            torch.tensor(sizes, device="cpu")
        )
        super().__init__(num_features, position[to_prior_order], smoothing)
        self.groups = groups
        self._sizes = sizes
        self._in_order = order.tolist() == list(range(len(order)))
        self.register_buffer("_to_prior_order", to_prior_order, persistent=False)
        self.register_buffer("_by_group", order, persistent=False)
        make = partial(MLP, hidden=hidden, bias=False) if network is None else network
        self.networks = nn.ModuleList(
            make([num_features, *sizes[:index]], size) for index, size in enumerate(sizes)
        )
        self.norms = nn.ModuleList(L1BatchNorm(size, bounded=True) for size in sizes)
        if isinstance(smoothing, InputDependentSmoothing):
            num_parameters = len(smoothing.parameter_names)
            self.parameter_network = ParameterNetwork(num_features, len(order), num_parameters, make)

    def rsample(
        self, features: Tensor, *, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        """See `Posterior.rsample`.

        Raises:
            InvalidInputError: If features has another shape, or num_samples is not a positive integer.
        """
        features = check_tensor("features", features, ("batch", self.num_features)).to(
            next(self.norms.parameters()).dtype
        )
        front = () if num_samples is None else (check_positive_int("num_samples", num_samples),)
        shape = (*front, len(features), self.num_units)
        noise = open_uniform(features, shape=shape, generator=generator)

        def draw(group: int, rho: Tensor, logits: Tensor, own: tuple[Tensor, ...]) -> SmoothedDraw:
            return self.smoothing.draw(rho, logits, *own, generator=generator)

        return self._draw_groups(features, noise, draw, copied=num_samples is not None)

    def sample_discretely(
        self, features: Tensor, uniforms: Tensor, *, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        """See `Posterior.sample_discretely`.

        Raises:
            InvalidInputError: If features or uniforms has another shape.
        """
        features = check_tensor("features", features, ("batch", self.num_features)).to(
            next(self.norms.parameters()).dtype
        )
        check_tensor("uniforms", uniforms, ("sample", len(features), self.num_units))
        noise = open_uniform(features, shape=uniforms.shape[1:], generator=generator).expand(uniforms.shape)
        ordered = uniforms if self._in_order else uniforms.index_select(-1, self._by_group)
        by_group = ordered.split(self._sizes, -1)

        def draw(group: int, rho: Tensor, logits: Tensor, own: tuple[Tensor, ...]) -> SmoothedDraw:
            z = (by_group[group] < torch.sigmoid(logits.detach())).to(logits.dtype)
            return SmoothedDraw(z, self.smoothing.draw_zeta(rho, z, *own), z)

        return self._draw_groups(features, noise, draw, copied=True)

    def _draw_groups(
        self,
        features: Tensor,
        noise: Tensor,
        draw: Callable[[int, Tensor, Tensor, tuple[Tensor, ...]], SmoothedDraw],
        *,
        copied: bool,
    ) -> PosteriorSample:
        """Draw group after group.

        Args:
            features: (batch, feature).
            noise: (..., batch, unit), by group.
            draw: Of the number of a group, its noise, its logits and the transformation's parameters of x.
            copied: Whether each group's noise is copied: passes over many samples gain more than that costs.
        """
        smoothing = self.smoothing if isinstance(self.smoothing, InputDependentSmoothing) else None
        parameters = () if smoothing is None else smoothing.constrain(*self.parameter_network(features))
        zetas: list[Tensor] = []
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        noises = noise.split(self._sizes, -1)
        if copied:
            noises = [rho.contiguous() for rho in noises]
        inputs: list[list[Tensor]] = []
        by_group = zip(self.networks, self.norms, noises, self._split(parameters), strict=True)
        for group, (network, norm, rho, own) in enumerate(by_group):
            inputs.append([zeta.view_as(zeta) for zeta in zetas])
            logits = normalized(network, norm, features, *inputs[-1])
            if logits.shape != rho.shape:  # the first group's are shared by all samples
                logits = logits.expand(rho.shape)
            drawn = draw(group, rho, logits, own)
            z, zeta, bits = (value.to(features.dtype) for value in (drawn.z, drawn.zeta, drawn.bits))
            zetas.append(zeta)
            parts.append((z, logits, bits))
        paths = LogitPaths(
            [logits for _, logits, _ in parts], inputs, None if self._in_order else self._to_prior_order
        )
        z, logits, bits = (self._gather(part) for part in zip(*parts, strict=True))
        parameters = tuple(self._to_prior(value) for value in parameters)
        zeta = self._gather(zetas)
        return PosteriorSample(z, zeta, logits, bits, self.group_of_unit, smoothing, parameters, paths)

    def _split(self, parameters: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """Parameters of all units by group, which are in the order of sampling."""
        if not parameters:
            return [()] * len(self._sizes)
        return list(zip(*(value.split(self._sizes, -1) for value in parameters), strict=True))

    def _gather(self, parts: Sequence[Tensor]) -> Tensor:
        """Bring tensors by group to one tensor in the prior's order."""
        return self._to_prior(torch.cat(list(parts), dim=-1))

    def _to_prior(self, joint: Tensor) -> Tensor:
        """Bring units from the order of sampling to the prior's."""
        return joint if self._in_order else joint.index_select(-1, self._to_prior_order)
