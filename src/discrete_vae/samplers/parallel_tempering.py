"""Parallel tempering: replicas of a machine at several inverse temperatures that trade places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_binary, check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import key_to_seed
from discrete_vae.samplers.chains import MarkovChains, one_at_a_time
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.sweeps import run_sweeps
from discrete_vae.samplers.ladder import check_ladder, retuned_ladder, start_ladder
from discrete_vae.samplers.mode_jumps import ModeJumps
from discrete_vae.samplers.packing import pack_bits, unpack_bits
from discrete_vae.samplers.swaps import SwapUniforms, count_trips, exchanged_order, swap_probabilities
from discrete_vae.samplers.tempering_state import check_tempering_state

_SWAP_STREAM = 0x73776170
_WINDOW_SWEEPS, _WINDOW_SWAPS = 20, 2000  # what a measurement of exchange rates takes at least
_SWEEPS_PER_JUMP = 4
_BUFFERS = ("inverse_temperatures", "order", "round_trips", "_last_end", "_swap_sum")
_ENTRIES = {buffer.lstrip("_"): buffer for buffer in _BUFFERS}  # of the state
_UNEVEN = 0.1  # rates this far from their mean ask for new places


class ParallelTempering(MarkovChains):
    """Chains of replicas at p^t, t rising to 1, that exchange states so that cold ones cross between modes.

    After each sweep, neighbors trade places with the probability of `swap_probabilities`, even and odd pairs in
    turn, which leaves the product of all p^t invariant; the replica at t = 1 samples p. All noise is keyed by
    (seed, chain, replica, sweep, unit). Chains are independent of each other.

    With ``inverse_temperatures=None`` the ladder runs from 0 to 1 and follows the machine: whenever exchange rates
    leave 0.5, the number of replicas and their places are chosen anew from the rates measured since (an adaptive
    chain: exact in law only while the ladder stands still; set ``adapting`` to False to hold it).

    It is a module that does not own the energy: see `MarkovChains`.

    Source: Rolfe 2017, section log-partition-function; Swendsen & Wang 1986.

    Args:
        energy: The machine to sample.
        num_chains: Number of independent chains, each with all replicas.
        inverse_temperatures: The ladder, rising to exactly 1; None to tune it.
        seed: Integer from 0 to 2^64 - 1.

    Attributes:
        energy: The machine; its parameters are read anew at every step.
        num_chains: Number of chains.
        seed: The seed.
        sweep: Number of sweeps run so far.
        adapting: Whether the ladder is being tuned.
        inverse_temperatures: (replica,) float64.
        round_trips: (chain,) int64, trips of walkers from the hottest replica to the coldest and back since the
            last `reset_statistics` or change of the ladder.
        measured: Sweeps since then.
        jumps: Moves between known modes, made every fourth sweep; None (the start) makes none. Not part of the state.
        jumped: Jumps of the coldest replicas, an int64 scalar.
        walkers: States of the walkers, (chain, walker, unit); not a copy.
        order: Which walker is at each replica, (chain, replica) int64.
        energies: E of the walkers after the last sweep, (chain, walker) float64; NaN before.

    Raises:
        InvalidInputError: If a number is out of its range, or the ladder does not rise strictly to 1.

    Examples:
        >>> from discrete_vae import RBM
        >>> chains = ParallelTempering(RBM(3, 2), num_chains=4, inverse_temperatures=(0, 0.5, 1), seed=0)
        >>> chains.step(10).shape, chains.replicas.shape
        (torch.Size([4, 5]), torch.Size([4, 3, 5]))
    """

    inverse_temperatures: Tensor
    walkers: Tensor
    order: Tensor
    energies: Tensor
    round_trips: Tensor
    jumped: Tensor
    _last_end: Tensor
    _swap_sum: Tensor

    def __init__(
        self,
        energy: BoltzmannMachine,
        num_chains: int,
        inverse_temperatures: Sequence[float] | Tensor | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(energy, num_chains, seed)
        self._swap_key = key_to_seed(seed, _SWAP_STREAM)
        self.adapting = inverse_temperatures is None
        self.jumps: ModeJumps | None = None
        ladder = start_ladder() if inverse_temperatures is None else check_ladder(inverse_temperatures)
        device = energy.bias.device
        self.register_buffer("jumped", torch.zeros((), dtype=torch.int64, device=device), persistent=False)
        z = fair_coins(num_chains * len(ladder), energy.num_units, key=self._key, device=device)
        self._install(ladder, z.view(num_chains, len(ladder), -1))

    @property
    def num_replicas(self) -> int:
        """Replicas per chain."""
        return len(self.inverse_temperatures)

    @property
    def z(self) -> Tensor:
        """A copy of the states at t = 1, (chain, unit) float32 in {0,1}."""
        self._follow()
        return self.walkers[torch.arange(self.num_chains, device=self.order.device), self.order[:, -1]]

    @property
    def replicas(self) -> Tensor:
        """A copy of all states in the order of the ladder, (chain, replica, unit) float32 in {0,1}."""
        self._follow()
        return self.walkers.gather(1, self.order[:, :, None].expand(-1, -1, self.energy.num_units))

    @property
    def swap_rates(self) -> Tensor:
        """Mean exchange probability of neighbors since the last reset, (replica - 1,); NaN before a sweep."""
        return self._swap_sum / (self.num_chains * self.measured) if self.measured else self._swap_sum / 0

    @one_at_a_time
    def start_from(self, z: Tensor) -> None:
        """Put all replicas of the first chains into given states.

        Args:
            z: (chain, unit), in {0,1}; as many chains as it has rows.

        Raises:
            InvalidInputError: If z is not binary, or has more rows than there are chains.
        """
        check_binary("z", check_tensor("z", z, ("chain", self.energy.num_units)))
        if len(z) > self.num_chains:
            rule = f"must have at most {self.num_chains} rows"
            raise InvalidInputError("z", rule, len(z), "Give one state per chain.")
        self.walkers = self.walkers.clone()
        self.walkers[: len(z)] = z.to(self.walkers)[:, None]

    @one_at_a_time
    def reset_statistics(self) -> None:
        """Forget the measured exchange rates and round trips."""
        self.measured = 0
        self._set(
            _swap_sum=torch.zeros(self.num_replicas - 1, dtype=torch.float64),
            round_trips=torch.zeros(self.num_chains, dtype=torch.int64),
            _last_end=torch.zeros(self.num_chains, self.num_replicas, dtype=torch.uint8),
        )

    @one_at_a_time
    def step(self, num_sweeps: int) -> Tensor:
        """Run sweeps on all replicas, with exchanges after each.

        Args:
            num_sweeps: Sweeps to run, at least 1.

        Returns:
            A copy of the states at t = 1, (chain, unit) float32 in {0,1}, without gradient.

        Raises:
            InvalidInputError: If num_sweeps is not a positive integer, or the energy has a parameter that is not
                finite.
        """
        for _ in range(check_positive_int("num_sweeps", num_sweeps)):
            self._sweep_and_swap()
            if self.adapting and self.measured >= max(_WINDOW_SWEEPS, -(-_WINDOW_SWAPS // self.num_chains)):
                self.retune()
        return self.z

    @one_at_a_time
    def retune(self) -> bool:
        """Place the replicas anew from the measured rates; resets the statistics.

        Returns:
            Whether the ladder changed: another number of replicas, or uneven rates. One replica has no rates.

        Raises:
            InvalidInputError: If no sweep has been measured.
        """
        if not self.measured:
            raise InvalidInputError("retune()", "needs measured exchange rates", "none", "Call step first.")
        if self.num_replicas == 1:
            self.reset_statistics()
            return False
        rates, before = self.swap_rates.cpu(), self.inverse_temperatures.cpu()
        ladder = retuned_ladder(before, rates)
        if len(ladder) == self.num_replicas and bool(((rates - rates.mean()).abs() < _UNEVEN).all()):
            self.reset_statistics()
            return False
        nearest = (ladder[:, None] - before).abs().argmin(1)
        self._install(ladder, self.replicas[:, nearest.to(self.walkers.device)])
        return True

    @torch.no_grad()
    def _sweep_and_swap(self) -> None:
        """One sweep of every replica, then one round of exchanges."""
        device, ladder = self._follow(), self.inverse_temperatures
        scale = torch.empty_like(self.order, dtype=torch.float32)
        scale.scatter_(1, self.order, ladder.float().expand(self.num_chains, -1))
        z = run_sweeps(
            self.energy,
            self.walkers.flatten(0, 1),
            1,
            key=self._key,
            first_sweep=self.sweep + 1,
            inverse_temperature=scale.flatten(),
        )
        self.sweep += 1
        if self.jumps is not None and self.sweep % _SWEEPS_PER_JUMP == 0:
            block = self.sweep // _SWEEPS_PER_JUMP % len(self.energy.blocks)
            z, jumped = self.jumps(z, scale.flatten(), sweep=self.sweep, block=block)
            self.jumped = self.jumped + jumped.view_as(self.order).gather(1, self.order[:, -1:]).sum()
        self.walkers = z.view_as(self.walkers)
        self.energies = self.energy.compute_energy(z).double().view(self.num_chains, -1)
        probabilities = swap_probabilities(self.energies.gather(1, self.order), ladder)
        accepted = self._uniforms(self.sweep, device) < probabilities
        self.order = exchanged_order(self.order, accepted, self.sweep % 2)
        self._swap_sum = self._swap_sum + probabilities.sum(0)
        self.measured += 1
        if self.num_replicas > 1:
            self.round_trips = self.round_trips + count_trips(self.order, self._last_end)

    def _install(self, ladder: Tensor, replicas: Tensor) -> None:
        """Take over a ladder with the states at it."""
        order = torch.arange(len(ladder)).repeat(self.num_chains, 1)
        energies = torch.full_like(order, torch.nan, dtype=torch.float64)
        self._set(inverse_temperatures=ladder, walkers=replicas, order=order, energies=energies)
        self._uniforms = SwapUniforms(self.num_chains, len(ladder) - 1, self._swap_key)
        self.reset_statistics()

    def _set(self, **buffers: Tensor) -> None:
        """Replace buffers, on the device of the others."""
        for name, value in buffers.items():
            self.register_buffer(name, value.to(self.jumped.device), persistent=False)

    def _integers(self) -> dict[str, int]:
        return super()._integers() | {"measured": self.measured}

    def _state(self) -> dict[str, Tensor]:
        packed = pack_bits(self.walkers.flatten(0, 1))
        return {"z": packed} | {name: getattr(self, buffer).clone() for name, buffer in _ENTRIES.items()}

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        check_tempering_state(state, name, num_chains=self.num_chains, num_units=self.energy.num_units)

    def _take_integers(self, values: Mapping[str, int]) -> None:
        super()._take_integers(values)
        self._swap_key, self.measured = key_to_seed(self.seed, _SWAP_STREAM), values["measured"]
        self._uniforms = SwapUniforms(self.num_chains, self.num_replicas - 1, self._swap_key)

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        z = unpack_bits(state["z"].to(self.jumped.device), self.energy.num_units)
        self._install(state["inverse_temperatures"], z.unflatten(0, (self.num_chains, -1)))
        self._set(**{buffer: state[name].clone() for name, buffer in _ENTRIES.items()})
