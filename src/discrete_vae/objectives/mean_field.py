"""A lower bound of the log Z of a machine in further fields."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.numerics import bernoulli_entropy


def mean_field_bound(
    energy: BoltzmannMachine, fields: Tensor, start: Tensor, *, num_sweeps: int = 5
) -> Tensor:
    """log Z(b + g) >= -E(m) + g^T m + H(m), with m from sweeps of mean field.

    A sweep sets each block of units that do not act on each other to m_i = sigmoid(its log-odds at m), which is the
    best m of that block: the bound never falls. Where it has converged, it does not change with m, so the gradient,
    with m held fixed, is that of the value; short of that it lacks what m passes on.

    Source: Vahdat et al. 2018, DVAE#, section 3.1.

    Args:
        energy: The machine.
        fields: g, (..., unit), nats, which add to its biases.
        start: m at the start, (..., unit), in [0, 1]; the bound is not below that of the start.
        num_sweeps: Sweeps over all blocks.

    Returns:
        (...), nats, with the gradient by g and by the machine's parameters.

    Examples:
        >>> from discrete_vae import FactorialBernoulli
        >>> fields = torch.tensor([0.5, -1.0])  # without couplings the bound is log Z itself
        >>> bound = mean_field_bound(FactorialBernoulli(2), fields, torch.full((2,), 0.5))
        >>> torch.allclose(bound, torch.log1p(fields.exp()).sum())
        True
    """
    with torch.no_grad():
        mean, logits = start.detach().clone(), torch.logit(start.detach(), eps=1e-6)
        for _ in range(num_sweeps):
            for block in range(len(energy.blocks)):
                place = energy.block_place(block)
                found = energy.compute_block_logits(mean, block) + fields[..., place]
                logits[..., place] = found.to(logits.dtype)
                mean[..., place] = torch.sigmoid(logits[..., place])
        entropy = bernoulli_entropy(logits).sum(-1)
    return (fields * mean).sum(-1) - energy.compute_energy(mean) + entropy
