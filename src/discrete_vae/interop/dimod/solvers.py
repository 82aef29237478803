"""The solvers that a config can name. A name is looked up here; no file of a run names what is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod.extra import REPAIR, library

if TYPE_CHECKING:
    from dimod import Sampler

_CLIENT = "Install D-Wave's client, pip install dwave-system, and give it your token: dwave setup."


@dataclass(frozen=True)
class Solver:
    """A way to a dimod sampler.

    Attributes:
        make: Makes it.
        parameters: What it is called with, unless something else is asked for.
    """

    make: Callable[[], Sampler]
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def _of(module: str, name: str, repair: str = REPAIR) -> Callable[[], Sampler]:
    return lambda: getattr(library(module, repair=repair), name)()


_OWN = "discrete_vae.interop.dimod.samplers"
_SOLVERS: dict[str, Solver] = {
    # towards 1, where an annealer that optimizes would go on to lower temperatures; Metropolis moves in a fixed order
    # can run in circles
    "simulated-annealing": Solver(
        _of("dwave.samplers", "SimulatedAnnealingSampler"),
        {"beta_range": (0.1, 1.0), "proposal_acceptance_criteria": "Gibbs"},
    ),
    # a device that scales each problem to its range has another temperature for each
    "qpu": Solver(_of("dwave.system", "DWaveSampler", _CLIENT), {"auto_scale": False, "answer_mode": "raw"}),
    "block-gibbs": Solver(_of(_OWN, "BlockGibbsSampler")),
    "parallel-tempering": Solver(_of(_OWN, "ParallelTemperingSampler")),
}


def solver_names() -> tuple[str, ...]:
    """The names that a config may have, those that `register_solver` has added included."""
    return tuple(_SOLVERS)


def register_solver(
    name: str, make: Callable[[], Sampler], parameters: Mapping[str, Any] | None = None
) -> None:
    """Give a dimod sampler of your own a name for configs, in this process.

    Args:
        name: The name; one that is there is replaced.
        make: Makes the sampler, when it is first asked for samples.
        parameters: What it is called with, unless the config says otherwise.

    Raises:
        InvalidInputError: If name is no word, or make cannot be called.

    Examples:
        >>> import dimod
        >>> register_solver("coins", dimod.RandomSampler)
        >>> "coins" in solver_names()
        True
    """
    if not isinstance(name, str) or not name:
        raise InvalidInputError("name", "must be a word", repr(name), "Call it 'mine', for example.")
    if not callable(make):
        repair = "Give the sampler's class, or a function that makes one."
        raise InvalidInputError("make", "must be a function that makes a sampler", repr(make)[:80], repair)
    _SOLVERS[name] = Solver(make, dict(parameters or {}))


def find_solver(name: str) -> Solver:
    """The solver of a name.

    Raises:
        InvalidInputError: If there is none.
    """
    if name not in _SOLVERS:
        known = ", ".join(map(repr, _SOLVERS))
        repair = "discrete_vae.interop.dimod.register_solver adds one of your own."
        raise InvalidInputError("solver", f"must be one of {known}", repr(name)[:80], repair)
    return _SOLVERS[name]
