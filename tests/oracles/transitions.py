"""Exact transition matrices of block Gibbs on small machines, and counts of a kernel's transitions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.testing import all_states, check_frequencies, enumerate_machine


@torch.no_grad()
def sweep_matrix(
    energy: BoltzmannMachine, *, inverse_temperature: float = 1.0, clamped: Tensor | None = None
) -> Tensor:
    """The transition matrix of one sweep, from the float64 `block_logits` of every state.

    Clamped units keep their values. Entry (a, b) is the probability to go from a to b, states as in `all_states`.
    """
    states = all_states(energy.num_units)
    matrix = torch.eye(len(states), dtype=torch.float64)
    for index, block in enumerate(energy.blocks):
        logits = inverse_temperature * energy.block_logits(states, index)
        log_step = torch.zeros_like(matrix)
        rest = torch.ones(energy.num_units, dtype=torch.bool)
        for column, unit in enumerate(block.tolist()):
            if clamped is None or not clamped[unit]:
                rest[unit] = False
                sign = 2 * states[:, unit] - 1
                log_step += torch.nn.functional.logsigmoid(sign * logits[:, column, None])
        kept = (states[:, None, rest] == states[None, :, rest]).all(-1)
        matrix = matrix @ (log_step.exp() * kept)
    return matrix


@torch.no_grad()
def invariance_error(probabilities: Tensor, matrix: Tensor) -> float:
    """The largest |(p P)_z - p_z|."""
    return float((probabilities @ matrix - probabilities).abs().max())


def check_transitions(
    step: Callable[[Tensor], Tensor], matrix: Tensor, num_units: int, *, repeats: int
) -> None:
    """Check transitions, (chain, unit) -> (chain, unit) float32, out of every state against a matrix, by chi-square.

    ``repeats`` chains start in each state. The false-alarm rate of 1e-6 is an upper bound: the row totals are fixed.
    """
    states = all_states(num_units).float()
    after = step(states.repeat_interleave(repeats, 0))
    origin = torch.arange(len(states)).repeat_interleave(repeats)
    target = (after.long() << torch.arange(num_units)).sum(-1)
    cells = len(states) * origin + target
    counts = torch.bincount(cells, minlength=len(states) ** 2)
    check_frequencies(counts, (matrix / len(states)).flatten())


def check_sweeps(energy: BoltzmannMachine, step: Callable[[Tensor], Tensor], *, repeats: int) -> None:
    """The law of every machine's sweeps, whatever the kernel: they leave p(z) invariant to 1e-12 and are counted so."""
    matrix = sweep_matrix(energy)
    error = invariance_error(enumerate_machine(energy).prob, matrix)
    assert error < 1e-12, f"a sweep changes the probability of a state by {error:.2g}"
    check_transitions(step, matrix, energy.num_units, repeats=repeats)
