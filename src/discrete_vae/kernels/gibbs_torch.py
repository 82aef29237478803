"""Block Gibbs in plain torch: random words, the reference kernel, the kernel for accelerators."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import check_binary
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import keyed_generator

# The definition of the random words of all Markov chains. A unit's word is word ``unit % 4`` of the output of
# Philox4x32-10 for the counter (unit // 4, chain, sweep low, sweep high) under a 64-bit key, so it does not depend on
# the device, the number of threads, or on how chains and sweeps are divided among calls. Sweep 0 is the initial state.


LARGEST_UNIFORM = 1 - 2.0**-24  # the largest float32 below 1
_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten rounds of Philox4x32, on int64 tensors of values from 0 to 2^32 - 1 under a 64-bit key.

    Source: Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
    """
    x0, x1, x2, x3 = counter
    key_0, key_1 = key & _LOW, key >> 32
    for _ in range(_ROUNDS):
        # int64 products wrap to the right low 64 bits; shift and mask then read them as unsigned
        product_0, product_1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0 = ((product_1 >> 32) & _LOW) ^ x1 ^ key_0
        x2 = ((product_0 >> 32) & _LOW) ^ x3 ^ key_1
        x1, x3 = product_1 & _LOW, product_0 & _LOW
        key_0, key_1 = (key_0 + _WEYL[0]) & _LOW, (key_1 + _WEYL[1]) & _LOW
    return x0, x1, x2, x3


def unit_words(
    num_chains: int,
    num_units: int,
    *,
    key: int,
    sweep: int,
    first_chain: int = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """The random words of one sweep over a whole machine, (chain, unit) int64, values from 0 to 2^32 - 1."""
    quads = torch.arange((num_units + 3) // 4, device=device)
    chains = torch.arange(first_chain, first_chain + num_chains, device=device)[:, None]
    low, high = (torch.full((), word, device=device) for word in (sweep & _LOW, sweep >> 32))
    words = philox4x32((quads, chains, low, high), key)
    return torch.stack(torch.broadcast_tensors(*words), dim=-1).flatten(1)[:, :num_units]


def uniforms(words: Tensor) -> Tensor:
    """The float32 uniforms u = (word >> 8) 2^-24 + 2^-25 of int64 words, in the open unit interval.

    The sum is rounded to float32, and the one value that would become 1 stays below it: a unit whose
    probability is 1 must never be drawn as 0.
    """
    return ((words >> 8).float() * 2.0**-24 + 2.0**-25).clamp_max_(LARGEST_UNIFORM)


def fair_coins(
    num_chains: int, num_units: int, *, key: int, first_chain: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """The initial state of chains, (chain, unit) float32: 1 where the uniform of sweep 0 is below 1/2."""
    words = unit_words(num_chains, num_units, key=key, sweep=0, first_chain=first_chain, device=device)
    return (uniforms(words) < 0.5).float()


# The reference kernel, for any Boltzmann machine in plain torch, and what every kernel is asked to do.


_LARGEST_PART = 1 << 22  # spins that are advanced together; their random words take a dozen int64 each


@dataclass(frozen=True, eq=False, repr=False)
class SweepCall(ShowsShapes):
    """Arguments of one call of a kernel, as checked by `discrete_vae.kernels.gibbs.run_sweeps`.

    Clamped units are (chain, unit) or (1, unit); threads are those of a compiled kernel, as torch has its own number.
    """

    num_sweeps: int
    key: int
    first_sweep: int
    first_chain: int
    inverse_temperature: Tensor | None
    clamped: Tensor | None
    num_threads: int = 1


def run(energy: BoltzmannMachine, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps one block after another: z_i = 1 where u_i < sigmoid(inverse temperature * logit_i).

    Of 2^22 spins or more the chains are advanced in parts, so that random words take half a gigabyte at most. Of the
    machine only `blocks` and `compute_block_logits` are used. States before and after, which are a new tensor, are
    (chain, unit) float32 in {0,1}.
    """
    check_binary("z", z)
    size = max(1, _LARGEST_PART // z.shape[1])
    if len(z) <= size:
        return _run_part(energy, z, call)
    parts = []
    for first in range(0, len(z), size):
        rows = slice(first, first + size)
        t, clamped = call.inverse_temperature, call.clamped
        part = replace(
            call,
            first_chain=call.first_chain + first,
            inverse_temperature=None if t is None else t[rows],
            clamped=clamped if clamped is None or len(clamped) == 1 else clamped[rows],
        )
        parts.append(_run_part(energy, z[rows], part))
    return torch.cat(parts)


def _run_part(energy: BoltzmannMachine, z: Tensor, call: SweepCall) -> Tensor:
    z = z.clone()
    # latents stay in float32 or better even where the surroundings run in bfloat16
    with torch.autocast(z.device.type, enabled=False):
        for sweep in range(call.first_sweep, call.first_sweep + call.num_sweeps):
            words = unit_words(
                *z.shape, key=call.key, sweep=sweep, first_chain=call.first_chain, device=z.device
            )
            draw_blocks(energy, z, uniforms(words), call)
    return z


def draw_blocks(energy: BoltzmannMachine, z: Tensor, noise: Tensor, call: SweepCall) -> None:
    """One sweep with given uniforms, (chain, unit); changes z."""
    for index in range(len(energy.blocks)):
        place = energy.block_place(index)
        logits = energy.compute_block_logits(z, index)
        if call.inverse_temperature is not None:
            logits = logits * call.inverse_temperature[:, None]
        drawn = noise[:, place] < torch.sigmoid(logits)
        if call.clamped is not None:
            drawn = torch.where(call.clamped[:, place], z[:, place] != 0, drawn)
        z[:, place] = (
            drawn if isinstance(place, slice) else drawn.to(z.dtype)
        )  # a slice converts while it copies


_MIN_UNIFORM = 2.0**-25  # in place of 0, for which a unit of any probability would come on


def run_on_device(energy: BoltzmannMachine, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps with the device's own random numbers, from one generator keyed by (key, first sweep, first chain).

    The law is that of every kernel, the stream is another one: it is the same for the same calls on the same kind of
    device, but differs from the CPU's and depends on how sweeps are divided among calls. For an RBM a sweep is 12
    launches (the words of `philox` alone would be a hundred), and nothing waits for the device or is copied to it.
    Beside the states it needs their size again for the noise, and that of a block for its logits.
    """
    generator = keyed_generator(call.key, call.first_sweep, call.first_chain, device=z.device)
    z, noise = z.clone(), torch.empty_like(z)
    # latents stay in float32 or better even where the surroundings run in bfloat16
    with torch.autocast(z.device.type, enabled=False):
        for _ in range(call.num_sweeps):
            noise.uniform_(generator=generator).clamp_min_(_MIN_UNIFORM)
            draw_blocks(energy, z, noise, call)
    return z
