"""Ladders of inverse temperatures: where to put replicas, and how many of them."""

from __future__ import annotations

import torch
from scipy import special
from torch import Tensor

from discrete_vae.checks import values_are_known
from discrete_vae.errors import InvalidInputError

TARGET_RATE = 0.5
"""Exchange rate that neighboring replicas are tuned to (paper section log-partition-function)."""

MAX_REPLICAS = 256
_MIN_RATE = 0.01  # a rate below this says only that the gap is wide
_START = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def start_ladder() -> Tensor:
    """The ladder that tuning starts from, (replica,) float64 from 0 to 1, denser where machines change fastest."""
    return torch.tensor(_START, dtype=torch.float64)


def check_ladder(inverse_temperatures: object) -> Tensor:
    """Return a ladder as (replica,) float64 if it rises strictly, within [0, 1], and ends at 1.

    Raises:
        InvalidInputError: If it does not.
    """
    try:
        ladder = torch.as_tensor(inverse_temperatures, dtype=torch.float64).detach().cpu().clone()
    except (TypeError, ValueError, RuntimeError):  # no numbers, or rows of several lengths
        ladder = torch.empty(0, dtype=torch.float64)
    if ladder.ndim == 1 and not values_are_known(ladder):
        return ladder
    rising = ladder.ndim == 1 and len(ladder) > 0 and bool((ladder.diff() > 0).all())
    if not (rising and float(ladder[0]) >= 0 and float(ladder[-1]) == 1):
        raise InvalidInputError(
            "inverse_temperatures",
            "must rise strictly from 0 or more to exactly 1",
            repr(inverse_temperatures)[:80],
            "Give for example (0, 0.25, 0.5, 1), or None to tune them.",
        )
    return ladder


def retuned_ladder(inverse_temperatures: Tensor, swap_rates: Tensor) -> Tensor:
    """A ladder whose neighbors exchange at the target rate, from the rates measured on another one.

    Two neighbors whose energies are normal with deviation s / (difference of t) exchange at the rate
    erfc(s / 2), so s = 2 erfc^-1(rate) is the length of a gap; lengths add up over gaps. The new replicas divide
    the whole length equally, and there are as many as bring each gap closest to the target.

    Source: Rolfe 2017, section log-partition-function (rates near 0.5); the additive length is that of
    Gelman & Meng 1998 and the equal division that of Syed, Bouchard-Cote, Deligiannidis & Doucet 2022.

    Args:
        inverse_temperatures: (replica,), from 0 to 1.
        swap_rates: (replica - 1,), rates between neighbors.

    Returns:
        (replica,) float64 with the same end points; at least 2 replicas, at most 256.

    Examples:
        >>> retuned_ladder(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.25, 0.5])).tolist()
        [0.0, 0.2..., 0.5..., 1.0]
    """
    lengths = _lengths(swap_rates)
    total = torch.cat([torch.zeros(1, dtype=torch.float64), lengths.cumsum(0)])
    num_gaps = round(float(total[-1]) / float(_lengths(torch.tensor([TARGET_RATE]))[0]))
    num_gaps = min(max(num_gaps, 1), MAX_REPLICAS - 1)
    wanted = torch.linspace(0, 1, num_gaps + 1, dtype=torch.float64) * total[-1]
    place = torch.searchsorted(total, wanted[1:-1].contiguous()).clamp(1, len(lengths))
    share = (wanted[1:-1] - total[place - 1]) / lengths[place - 1]
    inner = inverse_temperatures[place - 1] + share * inverse_temperatures.diff()[place - 1]
    return torch.cat([inverse_temperatures[:1], inner, inverse_temperatures[-1:]])


def _lengths(rates: Tensor) -> Tensor:
    rates = rates.double().clamp(_MIN_RATE, 1 - 1e-9)
    return 2 * torch.from_numpy(special.erfcinv(rates.numpy()))
