"""Boltzmann machines over bits as Ising models over spins, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import Axis, check_finite, check_tensor
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


PairSums = Callable[[Tensor], Tensor]
"""Sums values of pairs, in the shape of the machine's weight, over the pairs of each unit: (unit,)."""


def to_ising(weight: Tensor, bias: Tensor, pair_sums: PairSums) -> IsingModel:
    """J = W / 4 and h_i = b_i / 2 + sum_j W_ij / 4.

    Args:
        weight: W.
        bias: b, (unit,).
        pair_sums: Over the pairs of the machine.
    """
    couplings = weight.detach().double() / 4
    fields = bias.detach().double() / 2 + pair_sums(couplings)
    return IsingModel(couplings, fields, float(couplings.sum() - fields.sum()))


@torch.no_grad()
def set_from_ising_(
    weight: Tensor, bias: Tensor, couplings: Array, fields: Array, pair_sums: PairSums
) -> None:
    """W = 4 J and b_i = 2 h_i - 2 sum_j J_ij, computed in float64 and rounded once.

    Args:
        weight: Receives W.
        bias: Receives b, (unit,).
        couplings: J, in the shape of W.
        fields: h, (unit,).
        pair_sums: Over the pairs of the machine.

    Raises:
        InvalidInputError: If J or h has another shape, or holds a number that is not finite.
    """
    j = finite_numbers("couplings", couplings, weight.shape).to(weight.device)
    h = finite_numbers("fields", fields, bias.shape).to(bias.device)
    weight.copy_(4 * j)
    bias.copy_(2 * h - 2 * pair_sums(j))


def finite_numbers(name: str, value: Array, shape: Sequence[Axis]) -> Tensor:
    """Numbers of any kind as a float64 tensor.

    Args:
        name: Name of the argument.
        value: Numbers.
        shape: As in `check_tensor`.

    Raises:
        InvalidInputError: If they are no numbers, have another shape, or one is not finite.
    """
    try:
        numbers = torch.as_tensor(value).detach().double()
    except (TypeError, ValueError, RuntimeError):
        repair = "Give a tensor, an array or nested lists of equal lengths."
        raise InvalidInputError(name, "must hold numbers", f"a {type(value).__name__}", repair) from None
    repair = "Remove NaN and infinities."
    return check_finite(name, check_tensor(name, numbers, shape), repair=repair)
