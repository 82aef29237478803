"""Philox4x32-10 in torch integers: the definition of the random words of all Markov chains.

A unit's word is word ``unit % 4`` of the output for the counter (unit // 4, chain, sweep low, sweep high)
under a 64-bit key, so it does not depend on the device, the number of threads, or on how chains and sweeps
are divided among calls. Sweep 0 belongs to the initial state.

Source: Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_UNIFORM = 1 - 2.0**-24  # the largest float32 below 1
_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten rounds of Philox4x32.

    Args:
        counter: Four int64 tensors of values from 0 to 2^32 - 1, broadcastable with each other.
        key: Integer from 0 to 2^64 - 1; its low half is the first word of the key.

    Returns:
        Four int64 tensors of values from 0 to 2^32 - 1, in the broadcast shape.

    Examples:
        >>> zero = torch.tensor(0)
        >>> [f"{int(word):08x}" for word in philox4x32((zero, zero, zero, zero), 0)]
        ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
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
    """The random words of one sweep.

    Args:
        num_chains: Number of chains.
        num_units: Units of the whole machine.
        key: Integer from 0 to 2^64 - 1.
        sweep: Number of the sweep, from 0 to 2^64 - 1.
        first_chain: Number of the first chain; the last one must be below 2^32.
        device: Where to compute.

    Returns:
        (chain, unit) int64, values from 0 to 2^32 - 1.
    """
    quads = torch.arange((num_units + 3) // 4, device=device)
    chains = torch.arange(first_chain, first_chain + num_chains, device=device)[:, None]
    low, high = (torch.full((), word, device=device) for word in (sweep & _LOW, sweep >> 32))
    words = philox4x32((quads, chains, low, high), key)
    return torch.stack(torch.broadcast_tensors(*words), dim=-1).flatten(1)[:, :num_units]


def uniforms(words: Tensor) -> Tensor:
    """The float32 uniforms u = (word >> 8) 2^-24 + 2^-25 of some words, in the open unit interval.

    The sum is rounded to float32, and the one value that would become 1 stays below it: a unit whose
    probability is 1 must never be drawn as 0.

    Args:
        words: int64, values from 0 to 2^32 - 1.

    Returns:
        float32 of the same shape, from 2^-25 to 1 - 2^-24.

    Examples:
        >>> uniforms(torch.tensor([0, 0xFFFFFFFF])).tolist() == [2.0**-25, 1 - 2.0**-24]
        True
    """
    return ((words >> 8).float() * 2.0**-24 + 2.0**-25).clamp_max_(LARGEST_UNIFORM)


def fair_coins(
    num_chains: int, num_units: int, *, key: int, first_chain: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """The initial state of chains: 1 where the uniform of sweep 0 is below 1/2.

    Args:
        num_chains: Number of chains.
        num_units: Units of the whole machine.
        key: Integer from 0 to 2^64 - 1.
        first_chain: Number of the first chain.
        device: Where to compute.

    Returns:
        (chain, unit) float32 in {0,1}.
    """
    words = unit_words(num_chains, num_units, key=key, sweep=0, first_chain=first_chain, device=device)
    return (uniforms(words) < 0.5).float()
