"""Moves between modes that are known: one block summed out, the others flipped to where they differ."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_binary, check_tensor
from discrete_vae.noise import key_to_seed
from discrete_vae.numerics import softplus_sum
from discrete_vae.samplers.kernels.sweeps import run_sweeps
from discrete_vae.samplers.swaps import swap_uniforms

_STREAM = 0x6A756D70


class ModeJumps:
    """A Metropolis move that flips the units in which two known states differ, outside one block, then draws the block.

    Each chain takes one of the pairs of states at random and flips, where they differ, all units outside block b; the
    move is its own inverse, so it is accepted with the probability min(1, exp(F_t(before) - F_t(after))), F_t the free
    energy of the units outside the block. The block is then drawn given the others. p^t stays invariant whatever the
    states are; states in different modes make chains cross where sweeps do not. Summing a block out spares the move
    from having to find the block's states in the other mode.

    Args:
        energy: The machine.
        modes: (state, unit), in {0,1}; local minima of the energy, for example.
        seed: Integer from 0 to 2^64 - 1.

    Attributes:
        masks: (pair, unit) bool, where pairs of modes differ; without rows there is nothing to flip.

    Raises:
        InvalidInputError: If modes is not a tensor of that shape with the values 0 and 1.

    Examples:
        >>> from discrete_vae import RBM
        >>> ModeJumps(RBM(2, 1), torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), seed=0).masks.tolist()
        [[True, True, True]]
    """

    def __init__(self, energy: BoltzmannMachine, modes: Tensor, *, seed: int = 0) -> None:
        check_binary("modes", check_tensor("modes", modes, ("state", energy.num_units)))
        self.energy = energy
        states = modes.bool()
        differ = (states[:, None] ^ states)[tuple(torch.triu_indices(len(states), len(states), 1))]
        self.masks = differ[differ.any(1)].unique(dim=0)
        # two streams: the units' uniforms must have no part in the choice of the move
        self._key, self._choice_key = key_to_seed(seed, _STREAM), key_to_seed(seed, _STREAM, 1)

    def __call__(
        self, z: Tensor, inverse_temperature: Tensor, *, sweep: int, block: int
    ) -> tuple[Tensor, Tensor]:
        """Make one move of each chain.

        Args:
            z: (chain, unit) float32, in {0,1}.
            inverse_temperature: (chain,).
            sweep: Number that keys the noise, from 1.
            block: The block that is summed out.

        Returns:
            The new states, (chain, unit), and which moves were accepted, (chain,) bool.
        """
        draws = swap_uniforms(len(z), 2, key=self._choice_key, sweeps=range(sweep, sweep + 1))[0].to(z.device)
        self.masks = self.masks.to(z.device)
        masks = self.masks[(draws[:, 0] * len(self.masks)).long()]
        masks[:, self.energy.block_place(block)] = False
        flipped = (z.bool() ^ masks).to(z.dtype)
        t = inverse_temperature.to(z.dtype)
        change = self._free_energy(z, t, block) - self._free_energy(flipped, t, block)
        accepted = draws[:, 1] < change.clamp(max=0).exp()
        others = torch.ones(z.shape[1], dtype=torch.bool, device=z.device)
        others[self.energy.block_place(block)] = False
        after = run_sweeps(
            self.energy,
            torch.where(accepted[:, None], flipped, z),
            1,
            key=self._key,
            first_sweep=sweep,
            inverse_temperature=inverse_temperature,
            clamped=others,
        )
        return after, accepted & masks.any(1)

    def _free_energy(self, z: Tensor, t: Tensor, block: int) -> Tensor:
        """F_t of the units outside a block, (chain,) float64."""
        logits = self.energy.compute_block_logits(z, block)
        off = self.energy.compute_energy_without(z, block)
        return t.double() * off.double() - softplus_sum(logits * t[:, None]).double()
