"""Exact expectations over smoothed binary units, by Gauss-Jacobi quadrature in float64.

A unit's nodes are pairs (z, zeta) with weights r(zeta|z) d zeta, taken from the transformation's CDF at saturated
logits; they share nothing with its inverse CDF, and the posterior's probabilities stay outside of them. Of a
transformation that depends on x the weights are q(zeta | z, x) d zeta, and each node knows log q(zeta | z, x) - log r.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import roots_sh_jacobi
from torch import Tensor

from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.smoothing.overlapping import OverlappingPower

_SATURATED = 45.0  # sigmoid is 1 to the last digit of float64
_JUST_BELOW_ZERO = -1e-30
_LEFT_OUT = 1e-12  # of a law without bounds, at either end

LogitsFunction = Callable[[int, Tensor], Tensor]
"""(group index, zeta (node, unit) with zeros where not yet sampled) -> (node, unit of the group)."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """Quadrature nodes of one unit, (node,) each, or of several, with z and zeta (node, unit).

    Attributes:
        z: In {0,1}.
        zeta: Smoothed values.
        weight: q(zeta | z, x) d zeta, of several units the product.
        log_ratio: log q(zeta | z, x) - log r(zeta|z), nats, of several units the sum; 0 where nothing depends on x.
    """

    z: Tensor
    zeta: Tensor
    weight: Tensor
    log_ratio: Tensor


def unit_nodes(smoothing: Smoothing, num_nodes: int, parameters: Sequence[Tensor] = ()) -> Nodes:
    """Nodes of one unit, num_nodes for each z that has a density; for each z the weights sum to 1.

    Weights are differentiable in the parameters of the float64 transformation, and in those that the unit's law has of
    x, scalars; none stand for the prior's.
    """
    of_prior = prior_parameters(smoothing)
    parameters = tuple(parameters) or of_prior
    nodes = []
    for z in (0.0, 1.0):
        logits = torch.tensor([_SATURATED if z else -_SATURATED], dtype=torch.float64)
        around = torch.tensor([_JUST_BELOW_ZERO, 0.0], dtype=torch.float64)
        atom = smoothing.cdf(around, logits, *parameters).diff()
        if float(atom.detach()) > 0.5:  # a spike at zero
            zeta, weight, log_ratio = torch.zeros(1, dtype=torch.float64), atom, torch.zeros_like(atom)
        else:
            zeta, widths = _nodes_of_density(smoothing, num_nodes, logits, parameters, at_one=z == 1)
            density = _density(smoothing, zeta, logits, parameters)
            weight, log_ratio = density * widths, torch.zeros_like(density)
            if parameters:
                log_ratio = density.log() - _density(smoothing, zeta, logits, of_prior).log()
        nodes.append((torch.full_like(zeta, z), zeta, weight, log_ratio))
    return Nodes(*(torch.cat(part) for part in zip(*nodes, strict=True)))


def prior_parameters(smoothing: Smoothing) -> tuple[Tensor, ...]:
    """What a transformation that depends on x has in the prior's r(zeta|z), scalars; none for others."""
    return tuple(torch.tensor(value, dtype=torch.float64) for value in smoothing.prior_parameters)


def _density(smoothing: Smoothing, zeta: Tensor, logits: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    zeta = zeta.detach().requires_grad_()
    total = smoothing.cdf(zeta, logits, *parameters).sum()
    return torch.autograd.grad(total, zeta, create_graph=True)[0]


@torch.no_grad()
def _interval(smoothing: Smoothing, logits: Tensor, parameters: Sequence[Tensor]) -> tuple[float, float]:
    """Where the law of zeta is: all but `_LEFT_OUT` of it at either end."""
    ends = []
    for level in (_LEFT_OUT, 1 - _LEFT_OUT):
        below, above = -1e3, 1e3
        for _ in range(60):
            middle = (below + above) / 2
            value = smoothing.cdf(torch.tensor([middle], dtype=torch.float64), logits, *parameters)
            below, above = (middle, above) if float(value) < level else (below, middle)
        ends.append(above)
    return ends[0], ends[1]


def _nodes_of_density(
    smoothing: Smoothing, num_nodes: int, logits: Tensor, parameters: Sequence[Tensor], *, at_one: bool
) -> tuple[Tensor, Tensor]:
    """Nodes and their widths; on [0, 1] for a density that may have the pole of a power function at one end."""
    if not np.isfinite(smoothing.support).all():
        low, high = _interval(smoothing, logits, parameters)
        points, widths = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(num_nodes))
        return low + (points + 1) / 2 * (high - low), widths * (high - low) / 2
    exponent = 1 / smoothing.b - 1 if isinstance(smoothing, OverlappingPower) else 0.0
    points, weights = (
        torch.from_numpy(part) for part in roots_sh_jacobi(num_nodes, exponent + 1, exponent + 1)
    )
    widths = weights * points**-exponent  # the weights integrate x^exponent times a polynomial
    return (1 - points, widths) if at_one else (points, widths)


def joint_nodes(
    smoothing: Smoothing, num_units: int, num_nodes: int, parameters: Sequence[Tensor] = ()
) -> Nodes:
    """The product grid of `unit_nodes` over units; (num_nodes + 1)^n nodes for a spike transformation.

    ``parameters`` are what the units' laws have of x, (unit,) each; none stand for the prior's.
    """
    units = [
        unit_nodes(smoothing, num_nodes, [value[unit] for value in parameters]) for unit in range(num_units)
    ]
    index = torch.cartesian_prod(*[torch.arange(len(units[0].z))] * num_units).reshape(-1, num_units)

    def on_grid(name: str) -> Tensor:
        columns = [getattr(unit, name)[index[:, place]] for place, unit in enumerate(units)]
        return torch.stack(columns, -1)

    return Nodes(on_grid("z"), on_grid("zeta"), on_grid("weight").prod(-1), on_grid("log_ratio").sum(-1))


def normal_nodes(num_units: int, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Gauss-Hermite nodes of independent standard normal variables, (node, unit), and weights (node,), of sum 1."""
    points, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(num_nodes))
    index = torch.cartesian_prod(*[torch.arange(num_nodes)] * num_units).reshape(-1, num_units)
    return points[index], (weights / weights.sum())[index].prod(-1)


@dataclass(frozen=True, eq=False)
class PosteriorQuadrature:
    """A hierarchical posterior on the nodes.

    Attributes:
        nodes: The grid.
        logits: (node, unit), in the prior's order.
        log_q: log q(z | zeta of earlier groups), (node,).
    """

    nodes: Nodes
    logits: Tensor
    log_q: Tensor

    def expectation(self, values: Tensor) -> Tensor:
        """E_q of values given at each node, (node, ...) -> (...)."""
        return torch.tensordot(self.nodes.weight * self.log_q.exp(), values, dims=1)


def posterior_quadrature(
    logits: LogitsFunction,
    groups: Sequence[Sequence[int]],
    smoothing: Smoothing,
    num_nodes: int,
    parameters: Sequence[Tensor] = (),
) -> PosteriorQuadrature:
    """Evaluate q(z, zeta | x) = prod_j r(zeta_j|z_j) q(z_j | zeta_<j) on a product grid.

    ``logits`` gives the logits of a group, and sees zeros in place of units of the same and later groups. The result is
    differentiable in all that logits, smoothing and ``parameters`` (see `joint_nodes`) depend on.
    """
    num_units = sum(len(group) for group in groups)
    nodes = joint_nodes(smoothing, num_units, num_nodes, parameters)
    columns: list[Tensor | None] = [None] * num_units
    visible = torch.zeros_like(nodes.zeta)
    for index, group in enumerate(groups):
        of_group = logits(index, visible)
        for place, unit in enumerate(group):
            columns[unit] = of_group[:, place]
        visible = visible.clone()
        visible[:, list(group)] = nodes.zeta[:, list(group)]
    joint = torch.stack([column for column in columns if column is not None], dim=-1)
    return PosteriorQuadrature(nodes, joint, bernoulli_log_prob(nodes.z, joint).sum(-1))


def exact_kl(posterior: PosteriorQuadrature, log_prior: Callable[[Tensor], Tensor]) -> Tensor:
    """KL[q || p] = E_q[log q(z | .) - log p(z) + log q(zeta | z, x) - log r(zeta|z)], a scalar in nats."""
    nodes = posterior.nodes
    return posterior.expectation(posterior.log_q + nodes.log_ratio - log_prior(nodes.z))
