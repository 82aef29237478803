"""Boltzmann machines over bits as Ising models over spins, and the temperature of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine, check_energy
from discrete_vae.checks import Axis, check_binary, check_finite, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes

Array = Tensor | np.ndarray | Sequence[float] | Sequence[Sequence[float]]


@dataclass(frozen=True, eq=False, repr=False)
class IsingModel(ShowsShapes):
    """Couplings J and fields h of spins s in {-1,+1}: E_ising(s) = -(sum_pairs J_ij s_i s_j + h^T s).

    It is the machine that it was made from, with z = (s + 1) / 2: E(z) = E_ising(s) + offset for every state, so both
    have one law p ~ exp(-E), and log Z = log Z_ising - offset. (Packages such as dimod minimize
    +(sum J_ij s_i s_j + h^T s): hand them -J and -h.)

    Attributes:
        couplings: J, in the shape of the machine's weight, float64, nats.
        fields: h, (unit,) float64, nats.
        offset: E(z) - E_ising(s), nats.
    """

    couplings: Tensor
    fields: Tensor
    offset: float


class HasPairs(Protocol):
    """A machine with one weight per pair, and sums of such values, in the weight's shape, over each unit's pairs."""

    weight: nn.Parameter
    bias: nn.Parameter

    def _pair_sums(self, values: Tensor) -> Tensor: ...


def to_ising(machine: HasPairs) -> IsingModel:
    """J = W / 4 and h_i = b_i / 2 + sum_j W_ij / 4."""
    couplings = machine.weight.detach().double() / 4
    fields = machine.bias.detach().double() / 2 + machine._pair_sums(couplings)
    return IsingModel(couplings, fields, float(couplings.sum() - fields.sum()))


@torch.no_grad()
def set_from_ising_(machine: HasPairs, couplings: Array, fields: Array) -> None:
    """W = 4 J and b_i = 2 h_i - 2 sum_j J_ij, computed in float64 and rounded once."""
    j = finite_numbers("couplings", couplings, machine.weight.shape).to(machine.weight.device)
    h = finite_numbers("fields", fields, machine.bias.shape).to(machine.bias.device)
    machine.weight.copy_(4 * j)
    machine.bias.copy_(2 * h - 2 * machine._pair_sums(j))


def finite_numbers(name: str, value: Array, shape: Sequence[Axis]) -> Tensor:
    """Numbers of any kind as a float64 tensor of that shape, all finite."""
    try:
        numbers = torch.as_tensor(value).detach().double()
    except (TypeError, ValueError, RuntimeError):
        repair = "Give a tensor, an array or nested lists of equal lengths."
        raise InvalidInputError(name, "must hold numbers", f"a {type(value).__name__}", repair) from None
    repair = "Remove NaN and infinities."
    return check_finite(name, check_tensor(name, numbers, shape), repair=repair)


_LIMIT = 20.0


@dataclass(frozen=True)
class InverseTemperature:
    """An estimate of the t of samples from p^t, renormalized.

    Attributes:
        value: t; NaN where the machine gives no state a preference, plus or minus 20 where the samples lie beyond.
        std_error: Its standard error over samples; infinite in both cases.
    """

    value: float
    std_error: float


@torch.no_grad()
def fit_inverse_temperature(energy: BoltzmannMachine, z: Tensor) -> InverseTemperature:
    """The t whose conditionals sigmoid(t logit_i) make samples most probable (maximum pseudo-likelihood).

    It looks at each unit given all others, so it is the temperature of single flips: consistent for samples of p^t, and
    blind to what share of the samples each mode has. Of a sampler that is in equilibrium at no temperature it gives the
    local one.

    Source: Besag 1975 for the pseudo-likelihood; Raymond, Yarkoni & Andriyash 2016, "Global warming: temperature
    estimation in annealers", for its use.

    Samples z are (sample, unit) in {0,1}, at least 2, independent of each other. The standard error holds if a model
    with the wrong shape is fitted too.

    Examples:
        >>> from discrete_vae import RBM, BlockGibbs
        >>> rbm = RBM(3, 3)
        >>> with torch.no_grad():
        ...     _ = rbm.weight.fill_(1.0), rbm.bias.fill_(-1.0)
        >>> found = fit_inverse_temperature(rbm, BlockGibbs(rbm, 2000, inverse_temperature=0.7, seed=0).step(50))
        >>> abs(found.value - 0.7) < 4 * found.std_error, found.std_error < 0.04
        (True, True)
    """
    from scipy import optimize  # here, since it takes a while

    check_energy(energy)
    z = check_binary("z", check_tensor("z", z, ("sample", energy.num_units))).double()
    if len(z) < 2:
        raise InvalidInputError("z", "must hold at least 2 samples", len(z), "Their spread is the error.")
    blocks = range(len(energy.blocks))
    logits = torch.cat([energy.compute_block_logits(z, block) for block in blocks], 1)
    signs = torch.cat([2 * z[:, energy.block_place(block)] - 1 for block in blocks], 1)
    margins = logits * signs  # of the states that were drawn over their flips, at t = 1
    if not bool((margins != 0).any()):
        return InverseTemperature(math.nan, math.inf)
    if bool((margins >= 0).all()) or _derivatives(margins, _LIMIT)[0] > 0:
        return InverseTemperature(_LIMIT, math.inf)
    if bool((margins <= 0).all()) or _derivatives(margins, -_LIMIT)[0] < 0:
        return InverseTemperature(-_LIMIT, math.inf)
    bracket = -_LIMIT, _LIMIT
    t = optimize.root_scalar(lambda t: _derivatives(margins, t)[0], bracket=bracket, xtol=1e-12).root
    scores = (margins * torch.sigmoid(-t * margins)).sum(1)
    return InverseTemperature(t, float(scores.square().sum().sqrt()) / _derivatives(margins, t)[1])


def _derivatives(margins: Tensor, t: float) -> tuple[float, float]:
    """The slope of the log-pseudo-likelihood at t, which falls, and minus its second derivative."""
    wrong = torch.sigmoid(-t * margins)
    return float((margins * wrong).sum()), float((margins.square() * wrong * (1 - wrong)).sum())
