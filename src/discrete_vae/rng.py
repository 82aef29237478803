"""Noise as a function of keys, and noise from elsewhere than a generator.

Every random number is a function of (seed, key), never of a position in a stream: a training step draws from the key
(seed, step), an evaluation from (seed, image, sample chunk). A resumed or re-chunked run needs no generator state.
Markov chains have counters of their own, see `discrete_vae.kernels.gibbs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from discrete_vae.checks import is_integer
from discrete_vae.errors import InvalidInputError

_MASK = (1 << 64) - 1


def key_to_seed(seed: int, *key: int) -> int:
    """Mix a seed and any number of integers into one 64-bit seed (SplitMix64 finalizer, one round an integer).

    All are from 0 to 2^64 - 1; the number and order of those of the key matter.
    """
    state = 0
    for position, word in enumerate((seed, *key)):
        if not is_integer(word) or not 0 <= word <= _MASK:
            name = "seed" if position == 0 else f"key[{position - 1}]"
            raise InvalidInputError(
                name, "must be an integer from 0 to 2^64 - 1", repr(word), "Use a non-negative int."
            )
        state = (state + int(word) + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def keyed_generator(seed: int, *key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator whose draws depend on the seed and the key alone, and on the kind of device."""
    return reseed(torch.Generator(device=device), seed, *key)


def reseed(generator: torch.Generator, seed: int, *key: int) -> torch.Generator:
    """Bring a generator to where `keyed_generator` would make one, and return it."""
    return _set(generator, key_to_seed(seed, *key))


def generator_of(mixed: int, *, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator that `keyed_generator` makes of a seed and a key that `key_to_seed` has mixed already."""
    return _set(torch.Generator(device=device), mixed)


_FIRST, _LAST = 24, 24 + 8 * 624
"""Where the 624 words of the Mersenne twister lie in the state of torch's generator of the CPU, eight bytes each."""


def _set(generator: torch.Generator, mixed: int) -> torch.Generator:
    """Seed a generator with 64 bits.

    That of the CPU takes 32 bits of a seed. The Mersenne twister is linear over bits: where the states of two seeds are
    added bit by bit, so are their streams. The state of the upper half is moved on by a word before, so that the
    halves do not change places.

    Source: Matsumoto & Nishimura 1998, section 2.
    """
    if generator.device.type != "cpu":
        # manual_seed takes a signed range: fold the upper half onto the negative numbers.
        return generator.manual_seed(mixed if mixed < 1 << 63 else mixed - (1 << 64))
    upper = generator.manual_seed(mixed >> 32).get_state()
    state = generator.manual_seed(mixed & 0xFFFFFFFF).get_state()
    bits = state.numpy()  # whose operations begin in a tenth of the time
    bits[_FIRST + 8 : _LAST] ^= upper.numpy()[_FIRST : _LAST - 8]
    return generator.set_state(state)


class DrawsFrom(TorchDispatchMode):
    """A block in which what this thread draws comes from one source, where the call names none.

    New modules draw their weights so that no other thread's draws change them; torch's global generator, which all
    threads share, stays where it is.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            takes_one = any(each.name == "generator" for each in func._schema.arguments)
            if not takes_one and "generator" in func.overloadpacket.overloads():
                func, takes_one = func.overloadpacket.generator, True
            if takes_one:  # attention, which draws dropout alone, takes none
                keywords["generator"] = keywords.get("generator") or self._generator
        return func(*args, **keywords)


def check_generator(generator: torch.Generator | None, device: torch.device) -> torch.Generator | None:
    """Return a source of noise if it draws on a device; None, torch's global generator there, always does."""
    if generator is None:
        return None
    if not isinstance(generator, torch.Generator):
        repair = "Give torch.Generator().manual_seed(0), or a seed where there is such an argument."
        raise InvalidInputError("generator", "must be a torch.Generator", repr(generator), repair)
    if generator.device.type != device.type:
        repair = f"Build it with torch.Generator(device={device.type!r})."
        raise InvalidInputError("generator", f"must draw on {device}", generator.device, repair)
    return generator


def resolve_generator(
    seed: int | None, generator: torch.Generator | None, device: torch.device
) -> torch.Generator | None:
    """The one source of all noise of a call: a seed, a generator, or None, torch's global generator."""
    if seed is None:
        return check_generator(generator, device)
    if generator is not None:
        rule = "must not be given together with generator"
        raise InvalidInputError("seed", rule, repr(seed), "Give the one or the other.")
    return keyed_generator(seed, device=device)


def draw_key(generator: torch.Generator | None = None) -> int:
    """Draw an integer from 0 to 2^63 - 2 for streams that are keyed; None is torch's global generator of the CPU."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint((1 << 63) - 1, (), generator=generator, device=device))


def open_uniform(
    like: Tensor,
    *,
    shape: Sequence[int] | None = None,
    generator: torch.Generator | NoiseSource | None = None,
) -> Tensor:
    """Draw from the *open* unit interval, on the device of a tensor, in its dtype or in float32 if that is wider.

    In bfloat16 there would be 256 values, and no probability below 1/256. torch.rand returns exactly 0 once in 2^24
    draws, where inverse CDFs with unbounded support are infinite; that draw becomes 2^-24 (float64: 2^-53), for which
    1 - rho is below 1 too, so that a unit whose probability rounds to 1 is on.
    """
    shape = like.shape if shape is None else shape
    if isinstance(generator, NoiseSource):
        return generator.take(open_uniform, like, shape)
    check_generator(generator, like.device)
    dtype = torch.promote_types(like.dtype, torch.float32)
    draws = torch.rand(shape, dtype=dtype, device=like.device, **_source(generator))
    return draws.clamp_min_(torch.finfo(dtype).eps / 2)


def standard_normal(
    like: Tensor, *, shape: Sequence[int], generator: torch.Generator | NoiseSource | None = None
) -> Tensor:
    """Draw standard normal numbers in the dtype and on the device of a tensor."""
    if isinstance(generator, NoiseSource):
        return generator.take(standard_normal, like, shape)
    check_generator(generator, like.device)
    return torch.randn(shape, dtype=like.dtype, device=like.device, **_source(generator))


def _source(generator: torch.Generator | None) -> dict[str, Any]:
    # torch.compile takes no generator, not even None, where shapes are dynamic
    return {} if generator is None else {"generator": generator}


# Noise from elsewhere than a generator.


class NoiseSource(ABC):
    """A source of noise in the place of a generator, for the draws of `discrete_vae.rng`."""

    @abstractmethod
    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        """The next noise of a shape, for `open_uniform` or `standard_normal`, which was asked; like gives the dtype."""


class DrawnNoise(NoiseSource):
    """Hands out tensors that were drawn before, in their order."""

    def __init__(self, draws: Sequence[Tensor]) -> None:
        self._left = list(draws)

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        if not self._left or self._left[0].shape != torch.Size(shape):
            repair = "Draw in the same order, and as much, at each call."
            received = f"a request for {tuple(shape)}"
            raise InvalidInputError("noise", "must be asked for as it was drawn", received, repair)
        return self._left.pop(0)
