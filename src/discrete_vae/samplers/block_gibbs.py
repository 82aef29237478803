"""Persistent block-Gibbs chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import (
    check_binary,
    check_number,
    check_positive_int,
    check_tensor,
    values_are_known,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.chains import MarkovChains, check_entry, one_at_a_time
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.sweeps import LARGEST_INVERSE_TEMPERATURE, check_clamped, run_sweeps
from discrete_vae.samplers.moments import RunningMoments
from discrete_vae.samplers.packing import pack_bits, unpack_bits


class BlockGibbs(MarkovChains):
    """Markov chains that draw each block of units from its conditional, p(z_i = 1 | rest) = sigmoid(logit_i).

    The chains are persistent: every step goes on where the last one ended, with the parameters that the
    energy has at that moment. On a CPU all noise is keyed by (seed, chain, sweep, unit), so results depend neither on
    threads nor on how sweeps are divided among steps; elsewhere see `run_sweeps`. The chains live on the energy's
    device and are kept packed, one bit per unit, between steps.

    It is a module that does not own the energy: see `MarkovChains`.

    Source: Rolfe 2017, section architecture (persistent contrastive divergence with block Gibbs sampling).

    Args:
        energy: The machine to sample.
        num_chains: Number of chains, from 1 to 2^32.
        seed: Integer from 0 to 2^64 - 1.
        start: Where the chains start, (chain, unit) in {0,1}; None means fair coins.
        clamped: Bool, (unit,) or (chain, unit), True where a unit keeps the value that it has at the start, so that
            the others follow p(z | clamped units). Needs start; None means nowhere. Part of the arguments, not of the
            state.
        inverse_temperature: t, a number or (chain,): the chains follow p^t, renormalized. Part of the arguments, not
            of the state.
        first_chain: Number of the first chain, which keys the noise on the CPU: chains that are divided among several
            samplers are those of one. Part of the arguments, not of the state.

    Attributes:
        energy: The machine.
        num_chains: Number of chains.
        seed: The seed.
        sweep: Number of sweeps run so far.
        clamped: See above.
        inverse_temperature: (chain,) float32, or None for 1.

    Raises:
        InvalidInputError: If a number is out of its range, start or clamped has another shape or dtype, or clamped
            comes without start.

    Examples:
        >>> from discrete_vae import RBM
        >>> chains = BlockGibbs(RBM(3, 2), num_chains=4, seed=0)
        >>> chains.step(10).shape, chains.sweep
        (torch.Size([4, 5]), 10)
        >>> start, left = torch.ones(4, 5), torch.arange(5) < 3
        >>> BlockGibbs(RBM(3, 2), 4, start=start, clamped=left).step(10)[:, left].unique().tolist()
        [1.0]
    """

    clamped: Tensor | None
    inverse_temperature: Tensor | None
    _packed: Tensor

    def __init__(
        self,
        energy: BoltzmannMachine,
        num_chains: int,
        *,
        seed: int = 0,
        start: Tensor | None = None,
        clamped: Tensor | None = None,
        inverse_temperature: float | Tensor = 1.0,
        first_chain: int = 0,
    ) -> None:
        super().__init__(energy, num_chains, seed)
        self.first_chain = first_chain
        device, shape = energy.bias.device, (num_chains, energy.num_units)
        if start is None:
            z = fair_coins(*shape, key=self._key, first_chain=first_chain, device=device)
        else:
            z = check_binary("start", check_tensor("start", start, shape)).detach().to(device)
        if clamped is not None:
            if start is None:
                repair = "Give states whose clamped units have the values that they are to keep."
                raise InvalidInputError("start", "must be given where units are clamped", "None", repair)
            clamped = check_clamped(clamped, shape).to(device, copy=True)
        scale = _check_inverse_temperature(inverse_temperature, num_chains)
        for name, value in {
            "_packed": pack_bits(z),
            "clamped": clamped,
            "inverse_temperature": None if scale is None else scale.to(device, copy=True),
        }.items():
            self.register_buffer(name, value, persistent=False)

    @property
    def z(self) -> Tensor:
        """A copy of the states, (chain, unit) float32 in {0,1}."""
        self._follow()
        return unpack_bits(self._packed, self.energy.num_units)

    @one_at_a_time
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
        # where all units are independent a sweep forgets where it began: the last one alone leaves something
        num_sweeps = 1 if len(self.energy.blocks) == 1 else end - self.sweep
        z = run_sweeps(
            self.energy,
            z,
            num_sweeps,
            key=self._key,
            first_sweep=end - num_sweeps + 1,
            first_chain=self.first_chain,
            inverse_temperature=self.inverse_temperature,
            clamped=self.clamped,
        )
        self.sweep = end
        return z

    def _state(self) -> dict[str, Tensor]:
        return {"z": self._packed.clone()}

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        packed, num_bytes = state["z"], (self.energy.num_units + 7) // 8
        if isinstance(packed, Tensor) and packed.ndim == 2 and len(packed) != self.num_chains:
            rule = f"must hold the sampler's {self.num_chains} chains"
            repair = f"Build the sampler with num_chains={len(packed)}."
            raise InvalidInputError(name("z"), rule, len(packed), repair)
        check_entry(name("z"), packed, torch.uint8, (self.num_chains, num_bytes))

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        self._packed = state["z"].to(self._packed.device, copy=True)


def _check_inverse_temperature(value: float | Tensor, num_chains: int) -> Tensor | None:
    """Return the inverse temperatures as (chain,) float32; None for 1."""
    repair = "Give a number near 1, or a tensor (chain,)."
    if isinstance(value, Tensor):
        scale = check_tensor("inverse_temperature", value, (num_chains,)).detach().float()
        largest = float(scale.abs().max()) if values_are_known(scale) else 0.0
    else:
        largest = abs(check_number("inverse_temperature", value, repair=repair))
        scale = None if value == 1 else torch.full((num_chains,), float(value))
    if not largest < LARGEST_INVERSE_TEMPERATURE:
        rule = f"must be finite and below {LARGEST_INVERSE_TEMPERATURE:g}"
        raise InvalidInputError("inverse_temperature", rule, f"a value of {largest:g}", repair)
    return scale
