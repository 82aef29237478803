"""What all chains have in common: modules whose state a checkpoint holds, beside a machine that is not theirs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.check_machine import check_energy
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import check_memory
from discrete_vae.noise import key_to_seed

_REPAIR = "Load the right file, for a sampler with these numbers of chains and units."
_BYTES_PER_SPIN = 16  # random words and uniforms of the first states
_SAME_SIZE = {4: torch.int32, 8: torch.int64}

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


class MarkovChains(nn.Module, ABC):
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
    """

    energy: BoltzmannMachine

    def __init__(self, energy: BoltzmannMachine, num_chains: int, seed: int) -> None:
        super().__init__()
        self.energy = check_energy(energy)
        self.num_chains = check_positive_int("num_chains", num_chains)
        if energy.bias.device.type == "cpu":
            check_memory("num_chains", _BYTES_PER_SPIN * num_chains * energy.num_units, "Use fewer chains.")
        self._lock = threading.RLock()
        self._key = key_to_seed(seed)
        self.seed = seed
        self.sweep = 0

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

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.num_chains} chains of {self.energy.num_units} units after {self.sweep} sweeps"

    @abstractmethod
    def _state(self) -> dict[str, Tensor]:
        """The tensors of the state but the sampler's integers, as copies."""

    @abstractmethod
    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        """Refuse tensors that do not fit; ``name`` gives the words for an entry."""

    @abstractmethod
    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over checked tensors, as copies."""

    def _integers(self) -> dict[str, int]:
        return {"num_units": self.energy.num_units, "sweep": self.sweep, "seed": self.seed}

    def _take_integers(self, values: Mapping[str, int]) -> None:
        self.seed, self.sweep = values["seed"], values["sweep"]
        self._key = key_to_seed(self.seed)

    def _follow(self) -> torch.device:
        """Move the buffers to where the machine is now."""
        device = self.energy.bias.device
        if any(buffer.device != device for buffer in self.buffers()):
            self.to(device)
        return device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def keep_dtype(x: Tensor) -> Tensor:
            return fn(x.view(_SAME_SIZE[x.element_size()])).view(x.dtype) if x.is_floating_point() else fn(x)

        return super()._apply(keep_dtype, recurse)

    @one_at_a_time
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, value in self._state().items():
            destination[prefix + name] = value
        for name, value in self._integers().items():  # 64 bits, signed as torch has them
            destination[prefix + name] = torch.tensor(value - (value >> 63 << 64), device="cpu")

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
        """Check all, then take over all; torch itself refuses unknown entries and a state without any, if strict.

        Raises:
            InvalidInputError: If an entry is missing or damaged, or made for other numbers of units or chains;
                nothing of the sampler is changed.
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

        integers = {name: _integer(named(name), state[name]) for name in self._integers()}
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


def check_entry(name: str, value: object, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return an entry of a state if it is a tensor of that dtype and shape.

    Raises:
        InvalidInputError: If it is not.
    """
    wanted = f"{dtype} of shape {shape}"
    received = (
        f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]
    )
    if not isinstance(value, Tensor) or received != wanted:
        raise InvalidInputError(name, f"must be {wanted}", received, _REPAIR)
    return value


def _integer(name: str, value: object) -> int:
    return int(check_entry(name, value, torch.int64, ()))
