"""What the rest of the library asks of a sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.boltzmann.machine import BoltzmannMachine


@runtime_checkable
class Sampler(Protocol):
    """Persistent Markov chains of a Boltzmann machine, for the negative phase and for generation.

    The library's own are modules, see `MarkovChains`; one of yours need not be.

    Attributes:
        energy: The machine; its parameters are read anew at every step.
        num_chains: Number of chains.
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

    def connect(self) -> None:
        """Find out whether it can be asked about this machine; training does so before anything is written."""
        ...

    def local_chains(self) -> Sampler:
        """Chains of the library's own that start at the last samples."""
        ...
