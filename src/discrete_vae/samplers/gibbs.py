"""Persistent Markov chains: their base class, block Gibbs, moments, packed states, protocols of samplers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine, LogPartition, check_energy
from discrete_vae.checks import (
    check_binary,
    check_count,
    check_finite,
    check_index,
    check_positive_int,
    check_tensor,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.gibbs import check_clamped, check_inverse_temperature, fair_coins, run_sweeps
from discrete_vae.nets.weights import described
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import key_to_seed
from discrete_vae.system import check_memory

_REPAIR = "Load the right file, for a sampler with these numbers of chains and units."
_BYTES_PER_SPIN = 16  # random words and uniforms of the first states; later the works of replicas
_INTEGER_OF_SIZE = {4: torch.int32, 8: torch.int64}

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound="MarkovChains")


def one_at_a_time(method: Callable[Concatenate[_C, _P], _R]) -> Callable[Concatenate[_C, _P], _R]:
    """Let calls of a sampler's methods from several threads wait for each other."""

    @wraps(method)
    def locked(self: _C, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


class MarkovChains(nn.Module):
    """Persistent chains of a Boltzmann machine as a module.

    Assigned to a module of yours, a sampler is part of its ``state_dict``, ``.to``, ``deepcopy`` and pickle. Its state
    are tensors alone; integers are int64 scalars on the CPU. Its floating-point buffers keep their precision whatever
    dtype the module around them is brought to.

    The machine is held, not owned: it is no submodule, so its parameters occur once where a module holds both. So
    ``.to`` of the sampler alone leaves the machine where it is, and the next step follows the machine; ``deepcopy``
    and pickle of the sampler alone take a copy of the machine along, and those of a module that holds both keep the
    two tied.

    Threads may step one sampler: their calls wait for each other, and each goes on where the one before has ended.

    DistributedDataParallel copies the buffers of rank 0 to all others, chains included: keep a sampler outside of what
    it wraps, or give it ``broadcast_buffers=False``, and each rank a seed of its own.

    Attributes:
        energy: The machine; its parameters are read anew at every step.
        num_chains: Number of chains.
        seed: The seed.
        sweep: Number of sweeps run so far.
    """

    energy: BoltzmannMachine
    _packed: Tensor
    _entries: ClassVar[Mapping[str, str]] = {"z": "_packed"}  # of the state, and the buffers that hold them

    def __init__(self, energy: BoltzmannMachine, num_chains: int, seed: int) -> None:
        super().__init__()
        self.energy = check_energy(energy)
        self.num_chains = check_positive_int("num_chains", num_chains)
        self._check_memory(num_chains)
        self._lock = threading.RLock()
        self._key = key_to_seed(seed)
        self.seed = seed
        self.sweep = 0

    def _check_memory(self, num_states: int) -> None:
        if self.energy.bias.device.type == "cpu":
            needed = _BYTES_PER_SPIN * num_states * self.energy.num_units
            check_memory("num_chains", needed, "Use fewer chains, or fewer units.")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "energy":  # as a submodule its weights would be saved and trained twice
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._lock = threading.RLock()

    @property
    def z(self) -> Tensor:
        """A copy of the states, (chain, unit) float32 in {0,1}."""
        self._follow()
        return unpack_bits(self._packed, self.energy.num_units)

    def extra_repr(self) -> str:
        return f"{self.num_chains} chains of {self.energy.num_units} units after {self.sweep} sweeps"

    def _state(self) -> dict[str, Tensor]:
        """The tensors of the state but the sampler's integers."""
        return {entry: self.get_buffer(buffer) for entry, buffer in self._entries.items()}

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        """Refuse tensors that do not fit; ``name`` gives the words for an entry."""
        self._check_entries(state, name)

    def _check_entries(
        self, state: Mapping[str, Any], name: Callable[[str], str], **shapes: tuple[int, ...]
    ) -> None:
        """Refuse tensors unlike the present ones, but for those with other shapes, and floats that are not finite."""
        for entry, own in self._state().items():
            shape = shapes.get(entry, tuple(own.shape))
            value = check_entry(name(entry), state[entry], own.dtype, shape)
            if value.is_floating_point():
                check_finite(name(entry), value, repair=_REPAIR)

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over checked tensors, as copies."""
        for entry, path in self._entries.items():
            owner, _, buffer = path.rpartition(".")
            copied = state[entry].to(self.get_buffer(path).device, copy=True)
            setattr(self.get_submodule(owner), buffer, copied)

    def _integers(self) -> dict[str, int]:
        return {"num_units": self.energy.num_units, "sweep": self.sweep, "seed": self.seed}

    def _take_integers(self, values: Mapping[str, int]) -> None:
        self.seed, self.sweep = values["seed"], values["sweep"]
        self._key = key_to_seed(self.seed)

    def _follow(self) -> torch.device:
        device = self.energy.bias.device
        if any(buffer.device != device for buffer in self.buffers()):
            self.to(device)
        return device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def keep_dtype(x: Tensor) -> Tensor:
            if not x.is_floating_point():
                return fn(x)
            # as integers of the same bits, which a change of dtype passes by
            return fn(x.view(_INTEGER_OF_SIZE[x.element_size()])).view(x.dtype)

        return super()._apply(keep_dtype, recurse)

    @one_at_a_time
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, value in self._state().items():
            destination[prefix + name] = value.clone()
        for name, value in self._integers().items():
            signed = value - 2**64 if value >= 2**63 else value  # as torch has 64 bits
            destination[prefix + name] = torch.tensor(signed, device="cpu")

    @one_at_a_time
    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Check all, then take over all, so that a damaged state changes nothing.

        torch itself refuses unknown entries and a state without any, if strict.
        """
        state = {key[len(prefix) :]: value for key, value in state_dict.items() if key.startswith(prefix)}
        names = [*self._state(), *self._integers()]
        missing = [prefix + name for name in names if name not in state]
        unexpected_keys.extend(prefix + name for name in state.keys() - set(names))
        if len(missing) == len(names):
            missing_keys.extend(missing)
            return
        if missing:
            rule = f"must have the keys {tuple(prefix + name for name in names)}"
            raise InvalidInputError("state", rule, f"none of {missing}", _REPAIR)

        def named(name: str) -> str:
            return f"state['{prefix}{name}']"

        own = self._integers()
        integers = {name: int(check_entry(named(name), state[name], torch.int64, ())) for name in own}
        integers["seed"] %= 1 << 64
        for name, value in integers.items():
            if value < 0:
                raise InvalidInputError(named(name), "must be at least 0", value, _REPAIR)
        if integers["num_units"] != self.energy.num_units:
            rule = f"must be the energy's {self.energy.num_units}"
            raise InvalidInputError(named("num_units"), rule, integers["num_units"], _REPAIR)
        self._check_state(state, named)
        self._take_state(state)
        self._take_integers(integers)


class BlockGibbs(MarkovChains):
    """Markov chains that draw each block of units from its conditional, p(z_i = 1 | rest) = sigmoid(logit_i).

    The chains are persistent: every step goes on where the last one ended, with the parameters that the
    energy has at that moment. On a CPU all noise is keyed by (seed, chain, sweep, unit), so results depend neither on
    threads nor on how sweeps are divided among steps; elsewhere see `run_sweeps`. The chains live on the energy's
    device and are kept packed, one bit per unit, between steps.

    It is a module that does not own the energy: see `MarkovChains`, also for its other attributes.

    Source: Rolfe 2017, section architecture (persistent contrastive divergence with block Gibbs sampling).

    Args:
        energy: The machine to sample.
        num_chains: Number of chains, from 1 to 2^32.
        seed: Integer from 0 to 2^64 - 1.
        start: States at the start, (chain, unit) in {0,1}; None means fair coins. Those that chains with the same seed
            have reached need another seed: the same noise would soon lead to the same states again.
        clamped: Bool, (unit,) or (chain, unit), True where a unit keeps the value that it has at the start, so that
            the others follow p(z | clamped units). Needs start; None means nowhere. This and what follows are part of
            the arguments, not of the state.
        inverse_temperature: t, a number or (chain,): the chains follow p^t, renormalized.
        first_chain: Number of the first chain, which keys the noise on the CPU: chains that are divided among several
            samplers are those of one.

    Attributes:
        inverse_temperature: (chain,) float32, or None for 1.

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
        end = 2**32 + 1 - num_chains
        self.first_chain = check_index("first_chain", first_chain, end, repair="Use a plain int.")
        device, shape = energy.bias.device, (num_chains, energy.num_units)
        if start is None:
            z = fair_coins(*shape, key=self._key, first_chain=self.first_chain, device=device)
        else:
            z = check_binary("start", check_tensor("start", start, shape)).detach().to(device, torch.float32)
        if clamped is not None:
            if start is None:
                repair = "Give states whose clamped units have the values that they are to keep."
                raise InvalidInputError("start", "must be given where units are clamped", "None", repair)
            clamped = check_clamped(clamped, shape).to(device, copy=True)
        scale = check_inverse_temperature(inverse_temperature, num_chains)
        for name, value in {
            "_packed": pack_bits(z),
            "clamped": clamped,
            "inverse_temperature": None if scale is None else scale.to(device, copy=True),
        }.items():
            self.register_buffer(name, value, persistent=False)

    @one_at_a_time
    def step(self, num_sweeps: int, *, moments: RunningMoments | None = None) -> Tensor:
        """Run sweeps on all chains; returns `z`.

        ``moments`` receives the states after each sweep whose number is a multiple of ``moments.every``.
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
        # independent units forget their state at each sweep, so the last sweep alone has to be run
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

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        packed = state["z"]
        if isinstance(packed, Tensor) and packed.ndim == 2 and len(packed) != self.num_chains:
            rule = f"must hold the sampler's {self.num_chains} chains"
            repair = f"Build the sampler with num_chains={len(packed)}."
            raise InvalidInputError(name("z"), rule, len(packed), repair)
        super()._check_state(state, name)


def check_entry(name: str, value: object, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return an entry of a sampler's state if it is a tensor of that dtype and shape."""
    if not isinstance(value, Tensor) or value.dtype != dtype or value.shape != shape:
        rule = f"must be {str(dtype).removeprefix('torch.')} of shape {shape}"
        raise InvalidInputError(name, rule, described(value), _REPAIR)
    return value


# Means and pair moments of chains, summed while they run, so that no samples are kept.

_MAX_BATCHES = 32
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
            raise InvalidInputError("state", rule, f"none of {missing}", _REPAIR)
        for name, wanted in (("num_chains", self.num_chains), ("every", self.every)):
            if state[name] != wanted:
                repair = f"Build RunningMoments with {name}={state[name]}."
                raise InvalidInputError(f"state[{name!r}]", f"must be {wanted}", state[name], repair)
        num_draws = check_count("state['num_draws']", state["num_draws"], repair=_REPAIR)
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


# Binary states as bytes, eight units to one.


def pack_bits(z: Tensor) -> Tensor:
    """States (chain, unit) in {0,1} as (chain, ceil(unit / 8)) uint8, unit i in bit i % 8 of byte i // 8."""
    if z.device.type == "cpu":  # ten times as fast there
        return torch.from_numpy(np.packbits(z.numpy() != 0, axis=1, bitorder="little"))
    return _pack_anywhere(z)


def unpack_bits(packed: Tensor, num_units: int) -> Tensor:
    """Undo `pack_bits`: (chain, byte) uint8 to (chain, unit) float32 in {0,1}."""
    if packed.device.type == "cpu":
        bits = np.unpackbits(packed.numpy(), axis=1, count=num_units, bitorder="little")
        return torch.from_numpy(bits).float()
    return _unpack_anywhere(packed, num_units)


def _pack_anywhere(z: Tensor) -> Tensor:
    padding = -z.shape[1] % 8
    bits = torch.nn.functional.pad(z.to(torch.uint8), (0, padding)).unflatten(1, (-1, 8))
    return (bits << torch.arange(8, dtype=torch.uint8, device=z.device)).sum(-1, dtype=torch.uint8)


def _unpack_anywhere(packed: Tensor, num_units: int) -> Tensor:
    bits = packed[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=packed.device)
    return (bits & 1).flatten(1)[:, :num_units].float()


# Protocols: a sampler, and abilities that it may have beside.


@runtime_checkable
class Sampler(Protocol):
    """Persistent Markov chains of a Boltzmann machine, for the negative phase and for generation.

    The library's own are modules, see `MarkovChains`; one of yours need not be. Each step reads the parameters of the
    machine anew.
    """

    energy: BoltzmannMachine
    num_chains: int

    @property
    def z(self) -> Tensor:
        """A copy of the states of all chains, (chain, unit) float32 in {0,1}."""
        ...

    def step(self, num_sweeps: int) -> Tensor:
        """Advance all chains; returns a copy, (chain, unit) float32 in {0,1}, without gradient."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to go on, as plain tensors."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> object:
        """Go on from a state that `state_dict` returned."""
        ...


@runtime_checkable
class TellsLogPartition(Protocol):
    """A sampler that can also tell log Z of its machine, at next to no cost; training then logs its value."""

    def log_partition(self) -> LogPartition:
        """Estimate log Z at the machine's present weights; the chains may change by it."""
        ...


@runtime_checkable
class TellsMetrics(Protocol):
    """A sampler that has something to say in the log of a run."""

    def metrics(self) -> dict[str, float]:
        """Finite numbers by name."""
        ...


@runtime_checkable
class UsesSolver(Protocol):
    """A sampler that asks something outside of the library, which need not be there when a trained model is used."""

    def connect(self, num_sweeps: int) -> None:
        """Find out whether it can be asked about this machine; training does so before anything is written.

        ``num_sweeps`` is that of the steps to come.
        """
        ...

    def local_chains(self) -> Sampler:
        """Chains of the library's own that start at the last samples."""
        ...
