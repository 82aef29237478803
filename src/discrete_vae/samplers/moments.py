"""Means and pair moments of chains, summed while they run, so that no samples are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine, check_energy
from discrete_vae.checks import check_binary, check_count, check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes

_MAX_BATCHES = 32
REPAIR = "Load the right file, for a sampler with these numbers of chains and units."
_LARGEST_BATCH = 2**24  # sums of so many bits are exact in float32


@dataclass(frozen=True, eq=False, repr=False)
class Moments(ShowsShapes):
    """Averages over chains and sweeps, with standard errors from the spread between groups of independent chains.

    The errors therefore include the correlation between sweeps of one chain, and are rough where chains are few; none
    is below that of as many independent draws. They are NaN for a single chain.

    Attributes:
        mean: E[z_i], (unit,) float64.
        mean_std_error: Its standard error, (unit,) float64.
        pair: E[z_i z_j], float64: (left, right) for an RBM, (edge,) for a graph; for other machines, i in the first
            block and j in the others, (unit, other unit).
        pair_std_error: Its standard error, of the same shape.
        num_chains: Number of chains.
        num_draws: States that each chain contributed.
    """

    mean: Tensor
    mean_std_error: Tensor
    pair: Tensor
    pair_std_error: Tensor
    num_chains: int
    num_draws: int


class RunningMoments:
    """Sums of the states of chains and of their pairs: means and pair moments without keeping samples.

    Give it to `BlockGibbs.step`. The sums are integers, so the result depends neither on the order of the chains nor
    on how sweeps are divided among steps, and a resumed run has the very numbers of an unbroken one. They take 256
    bytes per unit and per pair of units that the machine joins: 32 groups of chains are summed apart.

    Args:
        energy: The machine; only the arrangement of its units is used.
        num_chains: Number of chains.
        every: Count the states after every so many sweeps.

    Attributes:
        num_draws: States that each chain has contributed so far.

    Examples:
        >>> from discrete_vae import RBM, BlockGibbs
        >>> rbm = RBM(3, 2)
        >>> moments = RunningMoments(rbm, num_chains=200)
        >>> z = BlockGibbs(rbm, num_chains=200, seed=0).step(50, moments=moments)
        >>> moments.value().pair.shape, moments.num_draws
        (torch.Size([3, 2]), 50)
    """

    def __init__(self, energy: BoltzmannMachine, num_chains: int, *, every: int = 1) -> None:
        self.num_chains = check_positive_int("num_chains", num_chains)
        self.every = check_positive_int("every", every)
        self.num_draws = 0
        # groups of neighboring chains; the last one may be smaller
        self._batch_size = -(-num_chains // _MAX_BATCHES)
        if self._batch_size > _LARGEST_BATCH:
            rule = f"must be at most {_MAX_BATCHES * _LARGEST_BATCH}"
            raise InvalidInputError("num_chains", rule, num_chains, "Use several RunningMoments.")
        num_batches = -(-num_chains // self._batch_size)
        self._energy = check_energy(energy)
        bias = energy.bias.detach()
        pairs = energy.sum_pairs(bias.new_zeros(0, energy.num_units)).shape
        self._units = bias.new_zeros(num_batches, energy.num_units, dtype=torch.int64)
        self._pairs = bias.new_zeros(num_batches, *pairs, dtype=torch.int64)

    def check_fits(self, z: Tensor) -> None:
        """Refuse states of another number of chains or units."""
        shape = (self.num_chains, self._units.shape[1])
        if tuple(z.shape) != shape:
            rule = f"must have the shape (chain, unit) = {shape} of the moments"
            raise InvalidInputError("z", rule, tuple(z.shape), "Build RunningMoments for these chains.")

    @torch.no_grad()
    def add(self, z: Tensor) -> None:
        """Count one state of every chain, (chain, unit), in {0,1}."""
        self.check_fits(z)
        z = check_binary("z", z).float()
        device, num_batches = z.device, len(self._units)
        z = torch.nn.functional.pad(z, (0, 0, 0, num_batches * self._batch_size - len(z)))
        batches = z.view(num_batches, self._batch_size, -1)
        with torch.autocast(device.type, enabled=False):
            pairs = self._energy.sum_pairs(batches)
        self._units = self._units.to(device) + batches.sum(1).long()
        self._pairs = self._pairs.to(device) + pairs.round().long()
        self.num_draws += 1

    def value(self) -> Moments:
        """The averages so far, of at least one state per chain."""
        if not self.num_draws:
            rule, repair = "must have counted a state of each chain", "Run at least `every` sweeps."
            raise InvalidInputError("moments", rule, 0, repair)
        mean, mean_std_error = self._average(self._units)
        pair, pair_std_error = self._average(self._pairs)
        return Moments(mean, mean_std_error, pair, pair_std_error, self.num_chains, self.num_draws)

    def state_dict(self) -> dict[str, Any]:
        """The sums of units, (batch, unit), and of pairs, (batch, ...), int64, and the integers of this object."""
        return {
            "units": self._units.clone(),
            "pairs": self._pairs.clone(),
            "num_draws": self.num_draws,
            "num_chains": self.num_chains,
            "every": self.every,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` returned; one of another machine or number of chains is refused."""
        missing = sorted(self.state_dict().keys() - state.keys())
        if missing:
            rule = "must have all that state_dict returns"
            raise InvalidInputError("state", rule, f"none of {missing}", REPAIR)
        for name, wanted in (("num_chains", self.num_chains), ("every", self.every)):
            if state[name] != wanted:
                repair = f"Build RunningMoments with {name}={state[name]}."
                raise InvalidInputError(f"state[{name!r}]", f"must be {wanted}", state[name], repair)
        num_draws = check_count("state['num_draws']", state["num_draws"], repair=REPAIR)
        for name, own in (("units", self._units), ("pairs", self._pairs)):
            check_entry(f"state[{name!r}]", state[name], torch.int64, tuple(own.shape))
        self._units, self._pairs = state["units"].clone(), state["pairs"].clone()
        self.num_draws = num_draws

    def _average(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        batches = len(sums)
        chains = torch.full((batches,), self._batch_size, dtype=torch.float64, device=sums.device)
        chains[-1] -= batches * self._batch_size - self.num_chains
        chains = chains.view(-1, *[1] * (sums.ndim - 1))
        mean = sums.sum(0).double() / (self.num_chains * self.num_draws)
        deviation = sums.double() / (chains * self.num_draws) - mean
        variance = (chains / self.num_chains * deviation).square().sum(0)
        spread = variance * (batches / (batches - 1) if batches > 1 else float("nan"))
        # groups agree by chance: no less than that of independent draws, one more of either value
        count = self.num_chains * self.num_draws
        smoothed = (sums.sum(0).double() + 1) / (count + 2)
        return mean, spread.maximum(smoothed * (1 - smoothed) / count).sqrt()


def check_entry(name: str, value: object, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return an entry of a sampler's state if it is a tensor of that dtype and shape."""
    wanted = f"{dtype} of shape {shape}"
    received = (
        f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]
    )
    if not isinstance(value, Tensor) or received != wanted:
        raise InvalidInputError(name, f"must be {wanted}", received, REPAIR)
    return value
