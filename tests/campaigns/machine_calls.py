"""A public callable with right arguments; those of machines and of what samples them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import discrete_vae as dv


@dataclass(frozen=True)
class Call:
    """A public callable.

    Attributes:
        name: Its name.
        function: Takes the arguments by name; what it returns is compared.
        arguments: Right ones.
        optional: Those that may be None.
        free: Tensors that may have another shape, which the result then follows.
        real: Tensors that may hold any finite number.
        gaps: Tensors in which NaN is a missing value.
        sizes: Numbers that the shape of the result, or its values, depend on.
    """

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    optional: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    real: frozenset[str] = frozenset()
    gaps: frozenset[str] = frozenset()
    sizes: frozenset[str] = field(default=frozenset())

    @property
    def exported(self) -> str:
        """The public name that the call is of: the word that its own name begins with."""
        return re.split(r"\W", self.name)[0]


def right_call(name: str, function: Callable[..., Any], /, **arguments: Any) -> Call:
    options = {
        kind: frozenset(arguments.pop(f"_{kind}", ()))
        for kind in ("optional", "free", "real", "gaps", "sizes")
    }
    return Call(name, function, arguments, **options)


def some_bits(*shape: int) -> Tensor:
    return torch.bernoulli(torch.full(shape, 0.4), generator=torch.Generator().manual_seed(0))


def calls_of_machine(name: str, machine: Any) -> list[Call]:
    z = some_bits(10, 7)
    sampler = {"energy": machine, "num_chains": 6, "seed": 3}
    sizes = ("num_chains", "seed", "num_sweeps", "num_temperatures", "max_sweeps")
    quick = {"energy": machine, "num_chains": 20, "seed": 0}

    def moments(energy: Any, num_chains: int, every: int) -> Any:
        running = dv.RunningMoments(energy, num_chains, every=every)
        for number in range(8):
            running.add(some_bits(6, 7) if number % 2 else 1 - some_bits(6, 7))
        return running.value()

    return [
        right_call(f"{name}.energy", machine.energy, z=z, _free=("z",)),
        right_call(
            f"{name}.block_logits", machine.block_logits, z=z, block=0, _free=("z",), _sizes=("block",)
        ),
        right_call(
            f"{name}.free_energy",
            lambda z, **k: machine.free_energy(z, **k),
            z=z,
            block=0,
            inverse_temperature=0.5,
            _free=("z",),
            _sizes=("block",),
            _optional=("block",),
        ),
        right_call(
            f"BlockGibbs({name})",
            lambda num_sweeps, **k: dv.BlockGibbs(**k).step(num_sweeps),
            num_sweeps=2,
            **sampler,
            _sizes=sizes,
        ),
        right_call(
            f"ParallelTempering({name})",
            lambda num_sweeps, **k: dv.ParallelTempering(**k).step(num_sweeps),
            num_sweeps=2,
            inverse_temperatures=[0.0, 0.5, 1.0],
            **sampler,
            _sizes=(*sizes, "inverse_temperatures"),
            _optional=("inverse_temperatures",),
        ),
        right_call(
            f"TrajectoryTempering({name})",
            lambda num_sweeps, **k: dv.TrajectoryTempering(**k).step(num_sweeps),
            num_sweeps=2,
            sweeps_per_swap=1,
            **sampler,
            _sizes=(*sizes, "sweeps_per_swap"),
        ),
        right_call(
            f"RunningMoments({name})", moments, energy=machine, num_chains=6, every=1, _sizes=("every",)
        ),
        right_call(
            f"BlockGibbs({name}) with a start",
            lambda num_sweeps, **k: dv.BlockGibbs(**k).step(num_sweeps),
            num_sweeps=2,
            **sampler,
            start=some_bits(6, 7),
            clamped=torch.arange(7) < 2,
            inverse_temperature=0.5,
            _sizes=sizes,
            _optional=("start", "clamped"),
        ),
        right_call(f"exact_log_partition({name})", dv.exact_log_partition, energy=machine),
        right_call(
            f"estimate_log_partition({name})",
            dv.estimate_log_partition,
            **quick,
            chains=some_bits(20, 7),
            std_error=0.5,
            max_sweeps=200,
            num_temperatures=10,
            max_enumerated=0,
            _optional=("chains",),
            _sizes=(*sizes, "std_error", "max_enumerated"),
        ),
        right_call(
            f"annealed_log_partition({name})",
            dv.annealed_log_partition,
            **quick,
            num_temperatures=10,
            start=some_bits(20, 7),
            _optional=("start",),
            _sizes=sizes,
        ),
        right_call(
            f"bennett_log_partition({name})",
            dv.bennett_log_partition,
            **quick,
            std_error=0.5,
            max_sweeps=200,
            start=some_bits(20, 7),
            _optional=("start",),
            _sizes=(*sizes, "std_error"),
        ),
    ]
