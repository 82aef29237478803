"""Exact expectations over smoothed binary units, by Gauss-Jacobi quadrature in float64.

A unit's nodes are pairs (z, zeta) with weights r(zeta|z) d zeta, taken from the transformation's CDF at saturated
logits; they share nothing with its inverse CDF, and the posterior's probabilities stay outside of them.
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
from discrete_vae.smoothing.overlapping_power import OverlappingPower

_SATURATED = 45.0  # sigmoid is 1 to the last digit of float64

LogitsFunction = Callable[[int, Tensor], Tensor]
"""(group index, zeta (node, unit) with zeros where not yet sampled) -> (node, unit of the group)."""


@dataclass(frozen=True, eq=False)
class UnitNodes:
    """Quadrature nodes of one unit: z (node,), zeta (node,), weight (node,) = r(zeta|z) d zeta."""

    z: Tensor
    zeta: Tensor
    weight: Tensor


def unit_nodes(smoothing: Smoothing, num_nodes: int) -> UnitNodes:
    """Nodes of one unit of a transformation whose zeta lies in [0, 1].

    Args:
        smoothing: A float64 transformation; weights are differentiable in its parameters.
        num_nodes: Nodes for each z that has a density.

    Returns:
        The nodes; for each z the weights sum to 1.
    """
    zs, zetas, weights = [], [], []
    for z in (0.0, 1.0):
        logits = torch.tensor([_SATURATED if z else -_SATURATED], dtype=torch.float64)
        atom = smoothing.cdf(torch.zeros(1, dtype=torch.float64), logits)
        if float(atom.detach()) > 0.5:  # a spike at zero
            zeta, weight = torch.zeros(1, dtype=torch.float64), atom
        else:
            points, widths = _nodes_of_density(smoothing, num_nodes, at_one=z == 1)
            zeta = points.requires_grad_()
            total = smoothing.cdf(zeta, logits).sum()
            (density,) = torch.autograd.grad(total, zeta, create_graph=True)
            zeta, weight = zeta.detach(), density * widths
        zs.append(torch.full_like(zeta, z))
        zetas.append(zeta)
        weights.append(weight)
    return UnitNodes(torch.cat(zs), torch.cat(zetas), torch.cat(weights))


def _nodes_of_density(smoothing: Smoothing, num_nodes: int, *, at_one: bool) -> tuple[Tensor, Tensor]:
    """Nodes on [0, 1] and their widths, for a density that may have the pole of a power function at one end."""
    exponent = 1 / smoothing.b - 1 if isinstance(smoothing, OverlappingPower) else 0.0
    points, weights = (
        torch.from_numpy(part) for part in roots_sh_jacobi(num_nodes, exponent + 1, exponent + 1)
    )
    widths = weights * points**-exponent  # the weights integrate x^exponent times a polynomial
    return (1 - points, widths) if at_one else (points, widths)


@dataclass(frozen=True, eq=False)
class JointNodes:
    """Quadrature nodes of several units: z and zeta (node, unit), weight (node,) = prod_i r(zeta_i|z_i) d zeta_i."""

    z: Tensor
    zeta: Tensor
    weight: Tensor


def joint_nodes(smoothing: Smoothing, num_units: int, num_nodes: int) -> JointNodes:
    """The product grid of `unit_nodes` over units; (num_nodes + 1)^n nodes for a spike transformation."""
    unit = unit_nodes(smoothing, num_nodes)
    index = torch.cartesian_prod(*[torch.arange(len(unit.z))] * num_units).reshape(-1, num_units)
    return JointNodes(unit.z[index], unit.zeta[index], unit.weight[index].prod(-1))


def normal_nodes(num_units: int, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Gauss-Hermite nodes of independent standard normal variables, float64.

    Args:
        num_units: Number of variables.
        num_nodes: Nodes of each.

    Returns:
        (node, unit) and weights (node,), which sum to 1; num_nodes^num_units nodes.
    """
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

    nodes: JointNodes
    logits: Tensor
    log_q: Tensor

    def expectation(self, values: Tensor) -> Tensor:
        """E_q of values given at each node, (node, ...) -> (...)."""
        return torch.tensordot(self.nodes.weight * self.log_q.exp(), values, dims=1)


def posterior_quadrature(
    logits: LogitsFunction, groups: Sequence[Sequence[int]], smoothing: Smoothing, num_nodes: int
) -> PosteriorQuadrature:
    """Evaluate q(z, zeta | x) = prod_j r(zeta_j|z_j) q(z_j | zeta_<j) on a product grid.

    Args:
        logits: Gives the logits of a group; sees zeros in place of units of the same and later groups.
        groups: Unit indices of each group, in the order of sampling.
        smoothing: A float64 transformation.
        num_nodes: Nodes per unit and z.

    Returns:
        The posterior on its nodes, differentiable in everything that logits and smoothing depend on.
    """
    num_units = sum(len(group) for group in groups)
    nodes = joint_nodes(smoothing, num_units, num_nodes)
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
    """KL[q || p] = E_q[log q(z | .) - log p(z)], a scalar in nats; r(zeta|z) cancels."""
    return posterior.expectation(posterior.log_q - log_prior(posterior.nodes.z))
