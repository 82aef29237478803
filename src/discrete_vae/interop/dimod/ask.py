"""Asking a dimod sampler for reads: what it takes, in how many parts, and what comes back."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod.bqm_form import BQMForm
from discrete_vae.interop.dimod.extra import library
from discrete_vae.interop.dimod.solvers import find_solver
from discrete_vae.noise import key_to_seed
from discrete_vae.records import ShowsShapes

if TYPE_CHECKING:
    from dimod import BinaryQuadraticModel, Sampler, SampleSet

_OURS = {"num_reads": "num_chains", "num_sweeps": "num_sweeps", "seed": "seed"}


@dataclass(frozen=True)
class Solver:
    """An open solver.

    Attributes:
        sampler: It.
        name: What messages call it.
        parameters: Keywords of its ``sample``.
        takes_seed: Whether it can be given a seed.
        takes_sweeps: Whether it can be given a number of sweeps.
        most_reads: The most reads of one call; None where it names no limit.
    """

    sampler: Sampler
    name: str
    parameters: dict[str, Any]
    takes_seed: bool
    takes_sweeps: bool
    most_reads: int | None

    def check_graph(self, form: BQMForm) -> None:
        """Check that each unit is a node and each pair an edge of the solver's graph, if it has one of its own.

        Raises:
            InvalidInputError: If not; counts and names what is lacking.
        """
        adjacency = getattr(self.sampler, "adjacency", None)  # of dimod's Structured samplers
        if adjacency is None:
            return
        nodes = [label for label in form.labels if label not in adjacency]
        pairs = [(a, b) for a, b in form.pairs() if b not in adjacency.get(a, ())]
        if not nodes and not pairs:
            return
        first = f"node {nodes[0]}" if nodes else f"edge {pairs[0]}"
        rule = f"must be a part of the graph of {self.name}, on which nothing is embedded"
        received = f"{len(nodes)} units and {len(pairs)} pairs that it lacks, first {first}"
        repair = "Take the graph from solver_graph(solver), remap the prior, or give an EmbeddingComposite."
        raise InvalidInputError("energy", rule, received, repair)


@dataclass(frozen=True, eq=False, repr=False)
class Reads(ShowsShapes):
    """What a solver answered.

    Attributes:
        z: (read, unit) float32 in {0,1}, on the CPU; memory of its own.
        chain_break_fraction: Mean share of broken chains; None where the solver does not tell.
    """

    z: Tensor
    chain_break_fraction: float | None


def open_solver(solver: str | Sampler, parameters: Mapping[str, Any]) -> Solver:
    """Make the sampler of a name, or take the one that is given, and see what it takes.

    Raises:
        InvalidInputError: If there is none of that name, its library is missing, it cannot be opened, it takes no
            num_reads or not all of the parameters, or one of them is set by other means.
    """
    for name, argument in _OURS.items():
        if name in parameters:
            repair = f"It follows from {argument}: set that."
            raise InvalidInputError(f"parameters[{name!r}]", "must be left out", parameters[name], repair)
    if isinstance(solver, str):
        found = find_solver(solver)
        with _refusing("solver", f"must open {solver}"):
            sampler = found.make()
        name, settings = solver, {**found.parameters, **parameters}
    else:
        sampler, name, settings = solver, type(solver).__name__, dict(parameters)
    if not isinstance(sampler, library("dimod").Sampler):
        repair = "Give an object with dimod's interface, or the name of one."
        raise InvalidInputError("solver", "must be a dimod.Sampler", f"a {type(sampler).__name__}", repair)
    takes = sampler.parameters
    for wanted in ["num_reads", *settings]:
        if wanted not in takes:
            known = ", ".join(sorted(takes)) or "none"
            rule, repair = f"must be known to {name}", f"It takes: {known}."
            raise InvalidInputError(f"parameters[{wanted!r}]", rule, "an unknown name", repair)
    limits = sampler.properties.get("num_reads_range")
    most = None if limits is None else int(limits[-1])
    return Solver(sampler, name, settings, "seed" in takes, "num_sweeps" in takes, most)


def ask(
    solver: Solver,
    bqm: BinaryQuadraticModel,
    labels: Sequence[Hashable],
    num_reads: int,
    *,
    num_sweeps: int,
    seed: int,
) -> Reads:
    """Draw reads, in as many calls as the solver's limit makes necessary.

    Args:
        solver: The solver.
        bqm: The model.
        labels: The variable of each unit.
        num_reads: Reads.
        num_sweeps: For a solver that takes it.
        seed: The same; each call gets its own.

    Raises:
        InvalidInputError: If the solver refuses the model or a parameter, or returns another number of reads or other
            variables.
    """
    parts: list[np.ndarray] = []
    broken: list[float] = []
    most = solver.most_reads or num_reads
    for index, start in enumerate(range(0, num_reads, most)):
        settings = dict(solver.parameters, num_reads=min(most, num_reads - start))
        if solver.takes_sweeps:
            settings["num_sweeps"] = num_sweeps
        if solver.takes_seed:
            settings["seed"] = key_to_seed(seed, index) >> 33  # solvers take 31 bits at least
        with _refusing("parameters", f"must be what {solver.name} can do with this model"):
            answer = solver.sampler.sample(bqm, **settings)
            names = answer.record.dtype.names  # waits for the answer
        parts.append(_bits(answer, labels, settings["num_reads"], solver.name))
        if "chain_break_fraction" in names:
            shares = np.repeat(answer.record.chain_break_fraction, answer.record.num_occurrences)
            broken.extend(shares.tolist())
    z = torch.from_numpy(np.concatenate(parts).astype(np.float32))
    return Reads(z, sum(broken) / len(broken) if broken else None)


@contextmanager
def _refusing(argument: str, rule: str) -> Iterator[None]:
    """Say in this library's words that a solver refused something."""
    try:
        yield
    except InvalidInputError:
        raise
    except (TypeError, ValueError) as error:  # a lost connection is no wrong input, and says so itself
        received = f"{type(error).__name__}: {error}".rstrip(".")
        raise InvalidInputError(argument, rule, received, "See the solver's own documentation.") from error


def _bits(answer: SampleSet, labels: Sequence[Hashable], num_reads: int, name: str) -> np.ndarray:
    """The reads as bits, (read, unit) bool, in the order of the labels; states that were read twice are there twice."""
    if set(answer.variables) != set(labels):
        received, repair = f"{len(answer.variables)} variables", "Look at what the sampler does to the model."
        raise InvalidInputError(
            f"samples of {name}", f"must have the model's {len(labels)} variables", received, repair
        )
    record = answer.record
    if int(record.num_occurrences.sum()) != num_reads:
        received = f"{int(record.num_occurrences.sum())} reads"
        repair = "A solver of which each read is one draw is needed, not one that lists states."
        raise InvalidInputError(f"samples of {name}", f"must be {num_reads} reads", received, repair)
    columns = [answer.variables.index(label) for label in labels]
    return np.repeat(record.sample[:, columns] > 0, record.num_occurrences, axis=0)
