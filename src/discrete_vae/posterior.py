"""The approximating posterior q(z, zeta | x) over the binary latents, group by group.

Of each unit a draw has the logits of q(z = 1 | x, zeta of earlier groups), the bit z, the smoothed zeta, and what the
code calls bits: E[z | zeta, logits], with the gradient that pair terms of the prior's energy need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.mlp import MLP, L1BatchNorm, NetworkFactory, normalized
from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import open_uniform
from discrete_vae.smoothing.base import CERTAIN, InputDependentSmoothing, SmoothedDraw, Smoothing


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LatentGroup(ShowsShapes):
    """A group of units that are sampled together.

    Attributes:
        logits: (..., unit of the group), log-odds of q(z = 1 | everything sampled earlier).
        zeta: (..., unit of the group), the smoothed sample.
        bits: (..., unit of the group), E[z | zeta, logits] of that very zeta and these logits, by `Smoothing.bits`.
        units: (unit of the group,) int64, their places in the prior; None in every group of a list means that
            the groups cover 0..n-1 in order.
        kl_of_zeta: (..., unit of the group), sum_z q(z) KL[q(zeta | z, x) || r(zeta|z)], nats, from
            `InputDependentSmoothing.kl`; None for a transformation that does not depend on x, where r cancels.
    """

    logits: Tensor
    zeta: Tensor
    bits: Tensor
    units: Tensor | None = None
    kl_of_zeta: Tensor | None = None

    def __post_init__(self) -> None:
        shape, units = check_tensor("logits", self.logits, (..., "unit")).shape, self.units
        for name in ("zeta", "bits", *(["kl_of_zeta"] if self.kl_of_zeta is not None else [])):
            check_tensor(name, getattr(self, name), shape)
        if units is None:
            return
        is_tensor = isinstance(units, torch.Tensor)
        is_dense = is_tensor and units.layout is torch.strided and not units.is_meta
        if not is_dense or units.dtype != torch.int64 or units.shape != shape[-1:]:
            rule = f"must be a dense int64 tensor of shape ({shape[-1]},)"
            repair = "Give one place in the prior for each logit."
            raise InvalidInputError("units", rule, f"a {type(units).__name__}", repair)


# Labels of classes, whose units are the prior's first.

UNKNOWN = -1
"""What stands for a label that is not known."""


def check_labels(labels: object, num_rows: int, num_classes: int, *, like: Tensor) -> Tensor:
    """Check the labels of examples; returns them on a tensor's device, (example,) int64.

    They are integers, a tensor or an array, from 0 to num_classes - 1, or -1 where unknown; None is -1 for all.
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        labels = torch.from_numpy(labels.astype(np.int64))
    if labels is None:
        return torch.full((num_rows,), UNKNOWN, device=like.device)
    rule = f"must be {num_rows} integers from 0 to {num_classes - 1}, or -1 for one that is not known"
    repair = "Give a tensor (example,) of int64; number the classes from 0."
    if (
        not isinstance(labels, Tensor)
        or labels.dtype == torch.bool
        or not torch.can_cast(labels.dtype, torch.int64)
    ):
        received = f"{getattr(labels, 'dtype', f'a {type(labels).__name__}')}"
        raise InvalidInputError("labels", rule, received, repair)
    if labels.shape != (num_rows,):
        raise InvalidInputError("labels", rule, f"shape {tuple(labels.shape)}", repair)
    found = labels.to(like.device, torch.int64)
    outside = found[(found < UNKNOWN) | (found >= num_classes)]
    if len(outside):
        raise InvalidInputError("labels", rule, int(outside[0]), repair)
    return found


def rows_of_labels(labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """A row for each class that an example may be of: the row's example and its class, (row,) int64 each.

    A known label makes one row, an unknown one num_classes rows side by side.

    Examples:
        >>> rows_of_labels(torch.tensor([2, -1]), 3)
        (tensor([0, 1, 1, 1]), tensor([2, 0, 1, 2]))
    """
    classes = torch.arange(num_classes, device=labels.device)
    allowed = (labels[:, None] == classes) | (labels[:, None] == UNKNOWN)
    example, label = allowed.nonzero(as_tuple=True)
    return example, label


def clamped_labels(z: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """States z, (chain, unit), with known labels, (chain,), in the first units; and the mask of the units so fixed.

    Examples:
        >>> z, fixed = clamped_labels(torch.zeros(2, 3), torch.tensor([1, -1]), 2)
        >>> z.tolist(), fixed.int().tolist()
        ([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[1, 1, 0], [0, 0, 0]])
    """
    fixed = torch.zeros_like(z, dtype=torch.bool)
    fixed[:, :num_classes] = (labels != UNKNOWN)[:, None]
    hot = torch.nn.functional.one_hot(labels.clamp(min=0), num_classes).to(z.dtype)
    return torch.where(fixed, torch.cat([hot, z[:, num_classes:]], -1), z), fixed


# The division of the prior's units into groups.


def contiguous_groups(num_units: int, num_groups: int) -> tuple[tuple[int, ...], ...]:
    """Divide units into consecutive groups whose sizes differ by at most one.

    For a bipartite machine with its left side first, four groups of 64 + 64 units are two on each side, so every
    pair across groups has its earlier unit on the left.

    Source: the paper is silent on the division; this one is ours.
    """
    check_positive_int("num_groups", num_groups)
    if num_groups > num_units:
        repair = "Use fewer groups or more units."
        raise InvalidInputError("num_groups", f"must be at most the {num_units} units", num_groups, repair)
    return tuple(tuple(group.tolist()) for group in np.array_split(np.arange(num_units), num_groups))


def color_groups(prior: BoltzmannMachine) -> tuple[tuple[int, ...], ...]:
    """One group per color of a machine's graph: no two units of a group are joined.

    A factorial group cannot represent correlations of joined units; so each coupling runs between two groups.
    """
    # not the blocks themselves, which have no values on the device meta
    places = [prior.block_place(block) for block in range(len(prior.blocks))]
    units = range(prior.num_units)
    return tuple(tuple(units[place] if isinstance(place, slice) else place.tolist()) for place in places)


def check_groups(groups: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Check that groups are not empty, disjoint, and cover 0..n-1; names the offending group or unit."""
    rule = "must be a list of lists that hold each unit index 0..n-1 exactly once"
    example = "For four units in two groups: [[0, 1], [2, 3]]."

    def is_list(value: object) -> bool:
        return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0

    if not is_list(groups):
        raise InvalidInputError("groups", rule, repr(groups)[:80], example)
    for index, group in enumerate(groups):
        if not is_list(group) or not all(type(unit) is int and unit >= 0 for unit in group):
            received = repr(group)[:80]
            raise InvalidInputError(f"groups[{index}]", "must list at least one unit", received, example)
    units = sorted(unit for group in groups for unit in group)
    for place, unit in enumerate(units):
        if unit != place:
            received = f"unit {unit} twice" if unit < place else f"no unit {place} but a unit {unit}"
            raise InvalidInputError("groups", rule, received, example)
    return tuple(tuple(group) for group in groups)


# A draw, with what the logits of later groups owe to the zeta of earlier ones.


@dataclass(frozen=True, eq=False, repr=False)
class LogitPaths(ShowsShapes):
    """The logits of each group of a draw, beside the earlier zeta that their network read."""

    logits: Sequence[Tensor]  # (..., unit of the group) each
    inputs: Sequence[Sequence[Tensor]]  # what was read of each earlier group: views that nothing else reads
    to_prior_order: Tensor | None  # the permutation from the groups' order; None where it is the identity

    def gradient(self, by_logits: Tensor) -> Tensor:
        """Backpropagate a gradient by the logits to zeta, networks' parameters and features held fixed.

        It is one backward pass through each network, to its inputs alone; paths from an earlier zeta through that of a
        group between are left to the draw's own gradient. Both gradients are (..., unit), in the prior's order.
        """
        order = self.to_prior_order
        by_group = by_logits if order is None else by_logits.index_select(-1, order.argsort())
        shares = by_group.split([logits.shape[-1] for logits in self.logits], -1)
        parts = [torch.zeros_like(share) for share in shares]
        for logits, read, share in zip(self.logits, self.inputs, shares, strict=True):
            places = [place for place, zeta in enumerate(read) if zeta.requires_grad]
            if not places or not logits.requires_grad:
                continue
            wanted = [read[place] for place in places]
            found = torch.autograd.grad(
                logits, wanted, share.to(logits.dtype), retain_graph=True, allow_unused=True
            )
            for place, by_zeta in zip(places, found, strict=True):
                parts[place] = parts[place] if by_zeta is None else parts[place] + by_zeta
        joint = torch.cat(parts, -1)
        return joint if order is None else joint.index_select(-1, order)


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorSample(ShowsShapes):
    """A draw from q(z, zeta | x); all tensors (..., batch, unit), in the prior's order.

    Without paths there is no bound with several importance samples of the binary latents.
    """

    z: Tensor  # in {0,1}, the states that belong to zeta; without gradient
    zeta: Tensor  # the smoothed latents
    logits: Tensor  # log-odds of each unit given x and the earlier groups
    bits: Tensor  # E[z | zeta, logits], see `Smoothing.bits`
    group_of_unit: Tensor  # (unit,) int64, the position of each unit's group in the order of sampling
    smoothing: InputDependentSmoothing | None = None  # if it depends on x; else prior and posterior share it
    parameters: tuple[Tensor, ...] = ()  # what it has of x beside the logits, (batch, unit) each
    paths: LogitPaths | None = None  # how the logits depend on earlier zeta

    @property
    def groups(self) -> tuple[LatentGroup, ...]:
        """The same by group, in the order of sampling, as `kl_to_boltzmann` takes them."""
        of_unit = self.group_of_unit
        places = [(of_unit == group).nonzero().flatten() for group in of_unit.unique()]
        kl = self.kl_of_zeta()
        return tuple(
            LatentGroup(
                logits=self.logits[..., units],
                zeta=self.zeta[..., units],
                bits=self.bits[..., units],
                units=units,
                kl_of_zeta=None if kl is None else kl[..., units],
            )
            for units in places
        )

    def kl_of_zeta(self) -> Tensor | None:
        """sum_z q(z) KL[q(zeta | z, x) || r(zeta|z)] of each unit, (..., batch, unit), nats; None where it is 0."""
        return None if self.smoothing is None else self.smoothing.kl(self.logits, *self.parameters)

    def log_prob(self) -> Tensor:
        """log q(z, zeta | x) - log r(zeta|z), what stands under log p(z) in importance weights; (..., batch), nats.

        Where prior and posterior share r, it is the sum over units of log Bernoulli(z; sigmoid(l)).
        """
        wide = torch.promote_types(self.logits.dtype, torch.float32)
        of_z = bernoulli_log_prob(self.z.to(wide), self.logits.to(wide)).sum(-1)
        if self.smoothing is None:
            return of_z
        return of_z - self.smoothing.log_ratio(self.zeta, *self.parameters).sum(-1)


# Posteriors.


class Posterior(nn.Module, ABC):
    """q(z, zeta | x) = prod_j r(zeta_j | z_j) q(z_j | zeta_<j, x) over groups of units, each q(z_j | .) factorial.

    A subclass draws group after group and says in which group each unit is; `discrete_vae.testing.contracts` checks
    that what it draws is what it says. It reads the encoder's features, never x, with those of a condition behind them.
    In place of r a transformation may have a q(zeta_j | z_j, x), whose parameters are then the subclass's to make, see
    `discrete_vae.smoothing.base`.

    Args:
        num_features: Length of the last axis of the features.
        group_of_unit: (unit,) int64, the position of each unit's group in the order of sampling, from 0.
        smoothing: The transformation r(zeta|z); it becomes a part of this module.

    Attributes:
        num_units: Units of the prior.
        num_classes: K, of a label y whose units are the prior's first K; 0 for a model without.
    """

    group_of_unit: Tensor
    num_classes: int = 0

    def __init__(self, num_features: int, group_of_unit: Tensor, smoothing: Smoothing) -> None:
        super().__init__()
        if not isinstance(smoothing, Smoothing):
            received, repair = f"{smoothing!r}"[:80], "Make one, for example SpikeSlab()."
            raise InvalidInputError("smoothing", "must be a Smoothing", received, repair)
        self.num_features = num_features
        self.num_units = len(group_of_unit)
        self.smoothing = smoothing
        # it belongs to the constructor's arguments, not to the state
        self.register_buffer("group_of_unit", group_of_unit, persistent=False)

    @property
    def num_groups(self) -> int:
        """Groups of units."""
        return int(self.group_of_unit.max()) + 1

    def log_prob_of_classes(self, features: Tensor) -> Tensor:
        """log q(y | x), (batch, class), nats, of features without e_y; no column without classes."""
        return features.new_zeros(len(features), 0)

    @abstractmethod
    def rsample(
        self, features: Tensor, *, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        """Draw z and zeta, group after group, by the marginal inverse CDF.

        Features are (batch, feature), what the encoder makes of x. With num_samples, draws per example, every tensor of
        the sample has a leading axis (sample,).
        """

    def sample_discretely(
        self, features: Tensor, uniforms: Tensor, *, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        """Draw z, group after group, by comparing uniforms with q, then zeta from r(zeta|z).

        No gradient passes through zeta to the logits; the smoothing's own parameters have theirs. Score-function
        estimators need it; a posterior of your own may leave it out. Features are (batch, feature); uniforms are
        (sample, batch, unit), in the prior's order, and z = 1 where u < q. The noise in r(zeta|z) is the same for all
        samples of an example. The sample has z in place of bits.
        """
        rule = "must be 'reparameterized' for a posterior without sample_discretely"
        repair = "Give it that method, or take the reparameterized gradient."
        raise InvalidInputError("gradient", rule, type(self).__name__, repair)


_START = 0.1  # of the norm's scale: q(zeta | z, x) begins near the prior's r(zeta|z), its KL near 0


class ParameterNetwork(nn.Module):
    """Numbers without bounds, from which a transformation makes its parameters, for all units from the features of x.

    They pass an L1 batch norm, whatever the network is; the norm's scale starts at 0.1.

    Source: Rolfe 2017, section sec:spike-and-gaussian, which only says that the parameters are functions of x.
    """

    def __init__(
        self, num_features: int, num_units: int, num_parameters: int, network: NetworkFactory
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.network = network([num_features], num_parameters * num_units)
        self.norm = L1BatchNorm(num_parameters * num_units)
        with torch.no_grad():
            self.norm.scale.fill_(_START)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """One tensor for each parameter, (batch, unit), of features (batch, feature)."""
        return normalized(self.network, self.norm, features).chunk(self.num_parameters, -1)


class GivenLabel(nn.Module):
    """Logits of the units of a label that is given, which leave no other state than e_y.

    So these units have no entropy, no gradient reaches their logits, and zeta is from r(zeta | e_y).
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def forward(self, features: Tensor) -> Tensor:
        """(..., class), of features (..., feature) that begin with e_y."""
        return (features[..., : self.num_classes] - 0.5) * (2 * CERTAIN)


class HierarchicalPosterior(Posterior):
    """q(z, zeta | x) = prod_j r(zeta_j | z_j) q(z_j | zeta_<j, x), each q(z_j | .) a factorial Bernoulli.

    Each group has its own network of [features of x, zeta_1, ..., zeta_(j-1)]; what it gives passes an L1 batch norm
    with the paper's bounds, whatever the network is: without it the posterior collapses. One group is the factorial
    posterior. A transformation that depends on x gets its parameters from one more network, of the features alone, for
    all units.

    With classes it is q(y | x) q(z, zeta | x, y): the units of the label are a group before the others, given by e_y,
    which stands in front of the features, see `discrete_vae.objectives.elbo`.

    Source: Rolfe 2017, eq. approx-post-dist, section architecture; the paper's networks have two hidden layers of
    2000 units.

    Args:
        num_features: Length of the last axis of the features.
        groups: The unit indices of each group, in the order of sampling; or the number of groups, which then
            divide num_units units in order. Those of a label are not among them.
        hidden: Widths of the hidden layers of each network; empty makes the logits linear.
        smoothing: The transformation r(zeta|z); it becomes a part of this module.
        num_units: Needed only where groups is a number.
        network: Makes the network of each group, and that of a transformation's parameters, in place of the MLPs that
            hidden describes.
        num_classes: K, of a label whose units are the prior's first K; 0 is no label.

    Attributes:
        class_network: Of a label, log q(y | x) up to a constant, (batch, class), of the features without e_y.

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
        num_classes: int = 0,
    ) -> None:
        check_positive_int("num_features", num_features)
        if num_units is not None:
            check_positive_int("num_units", num_units)
            if num_units <= num_classes:
                rule = f"must be more than the {num_classes} units of the label"
                raise InvalidInputError("num_units", rule, num_units, "Give more units.")
        if isinstance(groups, int):
            if num_units is None:
                rule, repair = "must list the units where num_units is not given", "Give num_units too."
                raise InvalidInputError("groups", rule, groups, repair)
            others = contiguous_groups(num_units - num_classes, groups)
            groups = [[unit + num_classes for unit in group] for group in others]
        groups = check_groups([range(num_classes), *groups] if num_classes else groups)
        sizes = [len(group) for group in groups]
        if num_units is not None and num_units != sum(sizes):
            repair = "Let the groups cover every unit of the prior."
            raise InvalidInputError("groups", f"must cover {num_units} units", f"{sum(sizes)} units", repair)
        order = torch.tensor([unit for group in groups for unit in group], device="cpu")
        to_prior_order = order.argsort()
        position = torch.arange(len(sizes), device="cpu").repeat_interleave(torch.tensor(sizes, device="cpu"))
        super().__init__(num_features, position[to_prior_order], smoothing)
        self.groups = groups
        self._sizes, self.num_classes = sizes, num_classes
        self._in_order = order.tolist() == list(range(len(order)))
        self.register_buffer("_to_prior_order", to_prior_order, persistent=False)
        self.register_buffer("_by_group", order, persistent=False)
        make = partial(MLP, hidden=hidden, bias=False) if network is None else network
        self.networks, self.norms = nn.ModuleList(), nn.ModuleList()
        for index, size in enumerate(sizes):
            is_label = index == 0 and num_classes > 0
            self.networks.append(GivenLabel(size) if is_label else make([num_features, *sizes[:index]], size))
            self.norms.append(nn.Identity() if is_label else L1BatchNorm(size, bounded=True))
        if isinstance(smoothing, InputDependentSmoothing):
            num_parameters = len(smoothing.parameter_names)
            self.parameter_network = ParameterNetwork(num_features, len(order), num_parameters, make)
        if num_classes:
            of_classes = partial(MLP, hidden=hidden) if network is None else network
            self.class_network = of_classes([num_features - num_classes], num_classes)

    def log_prob_of_classes(self, features: Tensor) -> Tensor:
        features = self._widened(features, self.num_features - self.num_classes)
        # networks in low precision or under autocast give less than latents have
        return torch.log_softmax(self.class_network(features).to(features.dtype), -1)

    def rsample(
        self, features: Tensor, *, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        features = self._widened(features, self.num_features)
        front = () if num_samples is None else (check_positive_int("num_samples", num_samples),)
        noise = open_uniform(features, shape=(*front, len(features), self.num_units), generator=generator)

        def draw(group: int, rho: Tensor, logits: Tensor, own: tuple[Tensor, ...]) -> SmoothedDraw:
            return self.smoothing.draw(rho, logits, *own, generator=generator)

        return self._draw_groups(features, noise, draw, copied=num_samples is not None)

    def sample_discretely(
        self, features: Tensor, uniforms: Tensor, *, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        features = self._widened(features, self.num_features)
        check_tensor("uniforms", uniforms, ("sample", len(features), self.num_units))
        noise = open_uniform(features, shape=uniforms.shape[1:], generator=generator).expand(uniforms.shape)
        ordered = uniforms if self._in_order else uniforms.index_select(-1, self._by_group)
        by_group = ordered.split(self._sizes, -1)

        def draw(group: int, rho: Tensor, logits: Tensor, own: tuple[Tensor, ...]) -> SmoothedDraw:
            z = (by_group[group] < torch.sigmoid(logits.detach())).to(logits.dtype)
            return SmoothedDraw(z, self.smoothing.draw_zeta(rho, z, *own), z)

        return self._draw_groups(features, noise, draw, copied=True)

    def _widened(self, features: Tensor, size: int) -> Tensor:
        """The features, (batch, size), in the precision of the norms, which latents have."""
        check_tensor("features", features, ("row", size))
        return features.to(next(self.norms.parameters()).dtype)

    def _draw_groups(
        self,
        features: Tensor,
        noise: Tensor,
        draw: Callable[[int, Tensor, Tensor, tuple[Tensor, ...]], SmoothedDraw],
        *,
        copied: bool,
    ) -> PosteriorSample:
        """Draw group after group, by a function of its number, noise, logits and the transformation's parameters of x.

        Each group's noise may be copied: passes over many samples gain more than that costs.
        """
        smoothing = self.smoothing if isinstance(self.smoothing, InputDependentSmoothing) else None
        parameters = () if smoothing is None else smoothing.constrain(*self.parameter_network(features))
        of_groups = [value.split(self._sizes, -1) for value in parameters]
        noises = noise.split(self._sizes, -1)
        inputs: list[list[Tensor]] = []
        all_z, all_zeta, all_logits, all_bits = [], [], [], []
        for group, (network, norm) in enumerate(zip(self.networks, self.norms, strict=True)):
            rho = noises[group].contiguous() if copied else noises[group]
            inputs.append([zeta.view_as(zeta) for zeta in all_zeta])
            logits = normalized(network, norm, features, *inputs[-1])
            if logits.shape != rho.shape:  # the first group's are shared by all samples
                logits = logits.expand(rho.shape)
            drawn = draw(group, rho, logits, tuple(value[group] for value in of_groups))
            all_logits.append(logits)
            all_z.append(drawn.z.to(features.dtype))
            all_zeta.append(drawn.zeta.to(features.dtype))
            all_bits.append(drawn.bits.to(features.dtype))
        paths = LogitPaths(all_logits, inputs, None if self._in_order else self._to_prior_order)
        z, logits, bits, zeta = (
            self._to_prior(torch.cat(parts, dim=-1)) for parts in (all_z, all_logits, all_bits, all_zeta)
        )
        parameters = tuple(self._to_prior(value) for value in parameters)
        return PosteriorSample(z, zeta, logits, bits, self.group_of_unit, smoothing, parameters, paths)

    def _to_prior(self, joint: Tensor) -> Tensor:
        return joint if self._in_order else joint.index_select(-1, self._to_prior_order)
