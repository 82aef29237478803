"""Persistent block-Gibbs chains."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.energy import BoltzmannEnergy, check_energy
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import key_to_seed
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.sweeps import run_sweeps
from discrete_vae.samplers.moments import RunningMoments
from discrete_vae.samplers.packing import pack_bits, unpack_bits

_STATE_KEYS = ("z", "num_units", "sweep", "seed")


class BlockGibbs:
    """Markov chains that draw each block of units from its conditional, p(z_i = 1 | rest) = sigmoid(logit_i).

    The chains are persistent: every step goes on where the last one ended, with the parameters that the
    energy has at that moment. All noise is keyed by (seed, chain, sweep, unit), so results depend neither on
    threads nor on how sweeps are divided among steps. The chains start from fair coins, live on the energy's
    device and are kept packed, a bit a unit, between steps.

    Source: Rolfe 2017, section architecture (persistent contrastive divergence with block Gibbs sampling).

    Args:
        energy: The machine to sample.
        num_chains: Number of chains, from 1 to 2^32.
        seed: Integer from 0 to 2^64 - 1.

    Attributes:
        energy: The machine.
        num_chains: Number of chains.
        seed: The seed.
        sweep: Number of sweeps run so far.

    Raises:
        InvalidInputError: If an argument breaks its rule.

    Examples:
        >>> from discrete_vae import RBM
        >>> chains = BlockGibbs(RBM(3, 2), num_chains=4, seed=0)
        >>> chains.step(10).shape, chains.sweep
        (torch.Size([4, 5]), 10)
    """

    def __init__(self, energy: BoltzmannEnergy, num_chains: int, *, seed: int = 0) -> None:
        self.energy = check_energy(energy)
        self.num_chains = check_positive_int("num_chains", num_chains)
        self._key = key_to_seed(seed)
        self.seed = seed
        self.sweep = 0
        coins = fair_coins(num_chains, energy.num_units, key=self._key, device=energy.bias.device)
        self._packed = pack_bits(coins)

    @property
    def z(self) -> Tensor:
        """A copy of the states, (chain, unit) float32 in {0,1}."""
        return unpack_bits(self._packed.to(self.energy.bias.device), self.energy.num_units)

    def step(self, num_sweeps: int, *, moments: RunningMoments | None = None) -> Tensor:
        """Run sweeps on all chains.

        Args:
            num_sweeps: Sweeps to run, at least 1.
            moments: Receives the states after each sweep whose number is a multiple of ``moments.every``.

        Returns:
            A copy of the states, (chain, unit) float32 in {0,1}, without gradient.

        Raises:
            InvalidInputError: If num_sweeps is not a positive integer, moments are for another number of chains
                or units, or the energy has a parameter that is not finite.
        """
        end = self.sweep + check_positive_int("num_sweeps", num_sweeps)
        z = self.z
        if moments is None:
            z = self._advance(z, end)
        else:
            moments.check_fits(z)
            while self.sweep < end:
                z = self._advance(z, min(end, (self.sweep // moments.every + 1) * moments.every))
                if self.sweep % moments.every == 0:
                    moments.add(z)
        self._packed = pack_bits(z)
        return z

    def _advance(self, z: Tensor, end: int) -> Tensor:
        """Run sweeps up to and with number ``end``, in one call of the kernel."""
        z = run_sweeps(self.energy, z, end - self.sweep, key=self._key, first_sweep=self.sweep + 1)
        self.sweep = end
        return z

    def state_dict(self) -> dict[str, Any]:
        """The packed states (chain, byte) uint8 and the integers num_units, sweep and seed."""
        return {
            "z": self._packed.clone(),
            "num_units": self.energy.num_units,
            "sweep": self.sweep,
            "seed": self.seed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` returned, taking over its seed.

        Args:
            state: The state; it is not kept.

        Raises:
            InvalidInputError: If an entry is missing or damaged, or made for other numbers of units or
                chains.
        """
        missing = [key for key in _STATE_KEYS if key not in state]
        if missing:
            raise InvalidInputError(
                "state", f"must have the keys {_STATE_KEYS}", f"none of {missing}", "Load the right file."
            )
        num_units, packed, sweep = state["num_units"], state["z"], state["sweep"]
        if num_units != self.energy.num_units:
            raise InvalidInputError(
                "state['num_units']",
                f"must be the energy's {self.energy.num_units}",
                num_units,
                "Build the energy it was made for.",
            )
        shape = (self.num_chains, (num_units + 7) // 8)
        if not isinstance(packed, Tensor) or packed.dtype != torch.uint8 or tuple(packed.shape) != shape:
            received = (
                f"{packed.dtype} of shape {tuple(packed.shape)}"
                if isinstance(packed, Tensor)
                else repr(packed)
            )
            raise InvalidInputError(
                "state['z']",
                f"must be uint8 of shape (chain, byte) = {shape}",
                received,
                f"Build the sampler with num_chains={packed.shape[0]}."
                if isinstance(packed, Tensor) and packed.ndim == 2
                else "Load the right file.",
            )
        if isinstance(sweep, bool) or not isinstance(sweep, int) or not 0 <= sweep < 2**64:
            raise InvalidInputError(
                "state['sweep']", "must be an integer from 0 to 2^64 - 1", repr(sweep), "Load the right file."
            )
        key = key_to_seed(state["seed"])
        self._packed = packed.clone()
        self._key, self.seed, self.sweep = key, state["seed"], sweep
