"""Samples of a dimod solver as the chains of training."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine, fit_inverse_temperature
from discrete_vae.checks import check_count, check_positive_int
from discrete_vae.errors import DiscreteVAEError, InvalidInputError, SolverError, not_one_of
from discrete_vae.interop.dimod.conversion import REPAIR, labels_of, library, pairs_of, to_bqm
from discrete_vae.kernels.gibbs import fair_coins, run_sweeps
from discrete_vae.rng import key_to_seed
from discrete_vae.samplers.gibbs import BlockGibbs, MarkovChains, one_at_a_time, pack_bits

if TYPE_CHECKING:
    from dimod import BinaryQuadraticModel, Sampler

_SWEEP_STREAM = 0x64776176
# standard deviations of the logarithm of the solver's temperature: at first, and of its drift in a call
_UNKNOWN, _DRIFT = 1.0, 0.02
_FAR, _FARTHEST = 10.0, 100.0  # of that logarithm from 0: what is warned of, and what it cannot exceed
_ALARMING_BREAKS = 0.1
_TOLD = 0.5  # standard error of a temperature that tells 1 from 0
_SURE_SAMPLES = 22  # 2^-22 is 2e-7
_SURE_UNITS = 15  # e^-15 is 3e-7


class DimodSampler(MarkovChains):
    """Samples of a machine from a dimod sampler, corrected for its temperature.

    Each step hands the solver a model with the machine's present weights and takes one read per chain. A solver that
    draws exp(-c E_bqm), c unknown, is given E / c; c is estimated from the samples of each step
    (`fit_inverse_temperature`) and followed by a scalar Kalman filter of log c, which believes an estimate as far as
    its standard error allows. The correction is thus that of the steps before, and of single flips: which share of the
    samples each mode has stays the solver's. Sweeps of block Gibbs after the solver bring samples nearer to the
    machine, at the cost of those sweeps.

    Reads are independent of those of the step before, unless the solver itself remembers. A solver that takes a seed is
    given one of (seed, step, part), so that a run can go on bit for bit if it has no other random numbers; one that
    takes none, such as a quantum annealer, says so with a warning, and a resumed run is then another one with the same
    law.

    It is a module that does not own the energy: see `MarkovChains`, also for its other attributes. A named solver is
    opened at the first step, and is no part of a copy or of what is pickled.

    Args:
        energy: An RBM, a GraphBoltzmann or a FactorialBernoulli. A solver with a graph of its own needs one of which
            every unit is a node and every pair an edge, see `GraphBoltzmann.nodes`: nothing is embedded.
        num_chains: Reads per step.
        solver: A name of `solver_names`, or the sampler itself.
        parameters: Keywords for the solver's ``sample``, on top of those that its name stands for.
        correct_temperature: False leaves c at 1, merely measured.
        num_gibbs_sweeps: Sweeps of block Gibbs that each sample makes after the solver.
        seed: Integer from 0 to 2^64 - 1.

    Attributes:
        z: A copy of the last samples, (chain, unit) float32 in {0,1}; fair coins before the first step.
        calls: Number of steps so far.
        sampled_at: The inverse temperature that the last samples had, before the sweeps after; NaN where it could not
            be told. 1 is right.
        chain_break_fraction: Mean share of broken chains of the last samples, as an embedding composite reports it;
            None where it does not.

    Warns:
        UserWarning: If the solver takes no seed, more than a tenth of the chains are broken, its samples prefer high
            energies or have no temperature, or that follows the scale of the problems.

    Examples:
        >>> from discrete_vae import RBM
        >>> chains = DimodSampler(RBM(3, 2), num_chains=4, seed=0)
        >>> chains.step(10).shape  # simulated annealing in 10 sweeps
        torch.Size([4, 5])
    """

    _entries: ClassVar = {"z": "_packed", "temperature": "_filter"}

    def __init__(
        self,
        energy: BoltzmannMachine,
        num_chains: int,
        *,
        solver: str | Sampler = "simulated-annealing",
        parameters: Mapping[str, Any] | None = None,
        correct_temperature: bool = True,
        num_gibbs_sweeps: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(energy, num_chains, seed)
        self.solver, self.parameters_given = solver, dict(parameters or {})
        self.correct_temperature = correct_temperature
        self.num_gibbs_sweeps = check_count("num_gibbs_sweeps", num_gibbs_sweeps, repair="0 makes none.")
        self.calls = 0
        self.sampled_at = math.nan
        self.chain_break_fraction: float | None = None
        self._opened: Solver | None = None
        self._warned: set[str] = set()
        z = fair_coins(num_chains, energy.num_units, key=self._key, device=energy.bias.device)
        self._packed = nn.Buffer(pack_bits(z), persistent=False)
        # level and variance of the logarithm of c
        start = torch.tensor([0.0, _UNKNOWN**2], dtype=torch.float64, device="cpu")
        self._filter = nn.Buffer(start, persistent=False)

    @property
    def solver_inverse_temperature(self) -> float:
        """c: the solver draws exp(-c E_bqm), as far as it is known."""
        return math.exp(float(self._filter[0]))

    def connect(self, num_sweeps: int) -> None:
        """Open the solver, unless it is open, and check by one read that it can draw from the machine."""
        self._open().ask(to_bqm(self.energy, vartype="SPIN"), 1, num_sweeps=num_sweeps, seed=0)

    @one_at_a_time
    def step(self, num_sweeps: int) -> Tensor:
        """Ask the solver for a sample per chain; returns `z`.

        ``num_sweeps`` is for a solver with a parameter of that name; others have their own measure of effort.
        """
        check_positive_int("num_sweeps", num_sweeps)
        solver, t = self._open(), 1 / self.solver_inverse_temperature
        bqm = to_bqm(self.energy, vartype="SPIN", inverse_temperature=t)
        seed = key_to_seed(self.seed, self.calls)
        try:
            z, self.chain_break_fraction = solver.ask(bqm, self.num_chains, num_sweeps=num_sweeps, seed=seed)
        except InvalidInputError as error:
            if self.calls:
                raise SolverError(solver.name, str(error)) from error
            raise
        z = z.to(self.energy.bias.device)
        self._measure(z)
        if self.num_gibbs_sweeps:
            key = key_to_seed(self.seed, _SWEEP_STREAM, self.calls)
            z = run_sweeps(self.energy, z, self.num_gibbs_sweeps, key=key, first_sweep=1)
        self.calls, self.sweep = self.calls + 1, self.sweep + num_sweeps
        self._packed = pack_bits(z)
        return z

    def metrics(self) -> dict[str, float]:
        """Temperatures and broken chains, for the log of a run."""
        found = {
            "solver_inverse_temperature": self.solver_inverse_temperature,
            "sampled_at_inverse_temperature": self.sampled_at,
            "chain_break_fraction": self.chain_break_fraction,
        }
        return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}

    def local_chains(self) -> BlockGibbs:
        """Chains of the library's own that start at the last samples and need no solver."""
        return BlockGibbs(self.energy, self.num_chains, seed=self.seed, start=self.z)

    def _open(self) -> Solver:
        if self._opened is None:
            solver = open_solver(self.solver, self.parameters_given)
            solver.check_graph(self.energy)
            if not solver.takes("seed"):
                self._warn(
                    "seed",
                    f"the solver {solver.name} takes no seed: a run that is resumed goes on with other samples, not "
                    "bit for bit as one without interruption.",
                )
            self._opened = solver
        return self._opened

    def _measure(self, z: Tensor) -> None:
        """Estimate the temperature of two samples or more, and bring c up to date."""
        self.sampled_at = math.nan
        if len(z) < 2:
            return
        found = fit_inverse_temperature(self.energy, z)
        self.sampled_at = found.value if math.isfinite(found.std_error) else math.nan
        # while weights are near 0, chains of qubits break by chance, and samples tell no temperature
        if (self.chain_break_fraction or 0.0) > _ALARMING_BREAKS and found.std_error < _TOLD:
            self._warn(
                "breaks",
                f"{self.chain_break_fraction:.0%} of the chains of qubits are broken: majority votes follow no "
                "Boltzmann law. Raise the composite's chain_strength, or train on the solver's own graph.",
            )
        if found.value > 1 and math.isinf(found.std_error) and len(z) >= _SURE_SAMPLES:
            blocks = range(len(self.energy.blocks))
            logits = (self.energy.compute_block_logits(z, block).detach() for block in blocks)
            expected = sum(float(torch.sigmoid(-each.abs()).sum()) for each in logits)
            if expected > _SURE_UNITS:
                self._warn(
                    "cold",
                    f"no unit of any read is in its less likely state, where about {expected:.0f} should be: the "
                    "solver optimizes, or is so cold that its temperature cannot be told, and is not corrected for it. "
                    "Give it a hotter schedule, such as beta_range.",
                )
        # no unit is in its likelier state: of each sample that has a chance of at most 1/2 where t >= 0
        is_surely_below = len(z) >= _SURE_SAMPLES and math.isinf(found.std_error)
        if found.value < 0 and (is_surely_below or found.value + 5 * found.std_error < 0):
            self._warn(
                "sign",
                f"the solver's samples have the inverse temperature {found.value:.2f} ± {found.std_error:.2f}: they "
                "prefer high energies. Look for a reversed sign; a dimod sampler draws exp(-E_bqm).",
            )
            return
        level, variance = self._filter.tolist()
        variance += _DRIFT**2
        if self.correct_temperature and 0 < found.std_error < math.inf:
            change, variance = _updated(variance, found.value, found.std_error)
            level += change
        level = max(-_FARTHEST, min(_FARTHEST, level))
        if abs(level) > _FAR:
            self._warn(
                "scale",
                f"the solver's temperature follows the scale of its problems, and c has come to {math.exp(level):.0e}: "
                "such a solver scales each to a range of its own, or heeds none. Switch that off, or the correction "
                "of c.",
            )
        self._filter = self._filter.new_tensor([level, min(variance, _UNKNOWN**2)])

    def _warn(self, subject: str, message: str) -> None:
        if subject not in self._warned:
            self._warned.add(subject)
            warnings.warn(message, stacklevel=3)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_opened": None}

    def extra_repr(self) -> str:
        name = self.solver if isinstance(self.solver, str) else type(self.solver).__name__
        return f"{super().extra_repr()}, by {name}"

    def _integers(self) -> dict[str, int]:
        return super()._integers() | {"calls": self.calls}

    def _take_integers(self, values: Mapping[str, int]) -> None:
        super()._take_integers(values)
        self.calls = values["calls"]

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        super()._check_state(state, name)
        level, variance = state["temperature"].tolist()
        if not (abs(level) <= _FARTHEST and variance >= 0):
            rule, repair = "must be a logarithm and a variance", "Restore the checkpoint from a copy."
            raise InvalidInputError(name("temperature"), rule, [level, variance], repair)


def _updated(variance: float, value: float, std_error: float) -> tuple[float, float]:
    """The change of log c that an estimate of c / (c that was assumed) makes, and the variance after it.

    The change d has the highest density given the estimate, whose mean is e^d. Estimates on both sides of 1 count,
    those below 0 too: where reads tell little, the high ones alone would drive c up.
    """
    from scipy import optimize  # here, since it takes a while

    def slope(d: float) -> float:  # of the negative log density times variance
        return d - variance * (value - math.exp(d)) * math.exp(d) / std_error**2

    lowest, highest = variance * (value - 1) / std_error**2, math.log(max(value, 1.0))
    d = float(optimize.root_scalar(slope, bracket=(min(lowest, 0.0), highest), xtol=1e-12).root)
    return d, 1 / (1 / variance + math.exp(2 * d) / std_error**2)


# The solvers that a config can name. A name is looked up here; no file of a run names what is imported.


def _of(module: str, name: str, repair: str = REPAIR) -> Callable[[], Sampler]:
    return lambda: getattr(library(module, repair=repair), name)()


_CLIENT = "Install D-Wave's client, pip install dwave-system, and give it your token: dwave setup."
_OWN = "discrete_vae.interop.dimod.samplers"
# by name, what makes the sampler, and what it is called with unless something else is asked for
_SOLVERS: dict[str, tuple[Callable[[], Sampler], Mapping[str, Any]]] = {
    # towards 1, where an annealer that optimizes would go on to lower temperatures; Metropolis moves in a fixed order
    # can run in circles
    "simulated-annealing": (
        _of("dwave.samplers", "SimulatedAnnealingSampler"),
        {"beta_range": (0.1, 1.0), "proposal_acceptance_criteria": "Gibbs"},
    ),
    "qpu": (_of("dwave.system", "DWaveSampler", _CLIENT), {}),
    "block-gibbs": (_of(_OWN, "BlockGibbsSampler"), {}),
    "parallel-tempering": (_of(_OWN, "ParallelTemperingSampler"), {}),
}


def solver_names() -> tuple[str, ...]:
    """The names that a config may have, those that `register_solver` has added included."""
    return tuple(_SOLVERS)


def register_solver(
    name: str, make: Callable[[], Sampler], parameters: Mapping[str, Any] | None = None
) -> None:
    """Give a dimod sampler of your own a name for configs, in this process; one that is there is replaced.

    ``make`` makes the sampler, when it is first asked for samples, and the parameters are its keywords, unless the
    config says otherwise.

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
    _SOLVERS[name] = make, dict(parameters or {})


# An open solver, and its reads.


_OURS = {"num_reads": "num_chains", "num_sweeps": "num_sweeps", "seed": "seed"}
# of a device, named or given: one that scales each problem to its range has another temperature for each
_OF_DEVICES = {"auto_scale": False, "answer_mode": "raw"}
_MOST_CALLS = 100  # for one that would do if no read were discarded


@dataclass(frozen=True)
class Solver:
    """An open solver, its name in messages, and the keywords of its ``sample``."""

    sampler: Sampler
    name: str
    settings: dict[str, Any]

    def takes(self, parameter: str) -> bool:
        return parameter in self.sampler.parameters

    def check_graph(self, energy: BoltzmannMachine) -> None:
        """Check that each unit is a node and each pair an edge of the solver's graph, if it has one of its own."""
        adjacency = getattr(self.sampler, "adjacency", None)  # of dimod's Structured samplers
        if adjacency is None:
            return
        labels = labels_of(energy)
        nodes = [label for label in labels if label not in adjacency]
        pairs = [(labels[a], labels[b]) for a, b in pairs_of(energy)]
        pairs = [(a, b) for a, b in pairs if b not in adjacency.get(a, ())]
        if not nodes and not pairs:
            return
        first = f"node {nodes[0]}" if nodes else f"edge {pairs[0]}"
        rule = f"must be a part of the graph of {self.name}, on which nothing is embedded"
        received = f"{len(nodes)} units and {len(pairs)} pairs that it lacks, first {first}"
        repair = "Take the graph of solver_graph(solver), remap the prior, or give a FixedEmbeddingComposite."
        raise InvalidInputError("energy", rule, received, repair)

    def ask(
        self, bqm: BinaryQuadraticModel, num_reads: int, *, num_sweeps: int, seed: int
    ) -> tuple[Tensor, float | None]:
        """Draw reads, in as many calls as it takes, each with a seed of its own.

        A solver may have a limit, and an embedding may discard reads whose chains are broken.

        Returns them, (read, unit) float32 in {0,1} on the CPU, in the order of the model's variables, and the mean
        share of broken chains, None where the solver does not tell.
        """
        parts, broken, missing = [], [], num_reads
        properties = self.sampler.properties
        while "num_reads_range" not in properties and "child_properties" in properties:
            properties = properties["child_properties"]
        most = int((properties.get("num_reads_range") or (num_reads,))[-1])
        subject = f"samples of {self.name}"
        for index in range(most_calls := _MOST_CALLS * -(-num_reads // most)):
            # solvers take 31 bits of a seed at least
            ours = {"num_sweeps": num_sweeps, "seed": key_to_seed(seed, index) >> 33}
            settings = self.settings | {name: value for name, value in ours.items() if self.takes(name)}
            settings["num_reads"] = min(most, missing)
            with _refusing(self.name, "parameters", f"must be what {self.name} can do with this model"):
                answer = self.sampler.sample(bqm, **settings)
                record = answer.record  # waits for the answer
            counts, is_embedded = record.num_occurrences, "chain_break_fraction" in record.dtype.names
            if set(answer.variables) != set(bqm.variables):
                rule = f"must have the model's {bqm.num_variables}"
                received = f"{len(answer.variables)} variables"
                raise InvalidInputError(subject, rule, received, "Look at what it does to the model.")
            found, asked = int(counts.sum()), settings["num_reads"]
            if found > asked or (found < asked and not is_embedded):
                rule, received = f"must be {asked} reads", f"{found} reads"
                repair = "Each read must be one draw: a solver must list no states, a composite add none."
                raise InvalidInputError(subject, rule, received, repair)
            allowed = (-1, 1) if answer.vartype.name == "SPIN" else (0, 1)
            if not np.isin(record.sample, allowed).all():
                rule = f"must hold {allowed[0]} and {allowed[1]} alone"
                raise InvalidInputError(subject, rule, "other values", "Look at what the solver returns.")
            columns = [answer.variables.index(label) for label in bqm.variables]
            # states that were read twice are there twice
            parts.append(np.repeat(record.sample[:, columns] > 0, counts, axis=0))
            if is_embedded:
                broken.append(np.repeat(record.chain_break_fraction, counts))
            missing -= found
            if not missing:
                break
        else:
            rule, received = f"must be {num_reads} reads", f"{num_reads - missing} in {most_calls} calls"
            repair = "Raise the composite's chain_strength, or let broken chains vote."
            raise InvalidInputError(subject, rule, received, repair)
        z = torch.from_numpy(np.concatenate(parts).astype(np.float32))
        return z, float(np.concatenate(broken).mean()) if broken else None


def open_solver(solver: str | Sampler, parameters: Mapping[str, Any]) -> Solver:
    """Make the sampler of a name, or take the one that is given, and check that it takes the parameters."""
    for wanted, argument in _OURS.items():
        if wanted in parameters:
            repair = f"It follows from {argument}: set that."
            raise InvalidInputError(f"parameters[{wanted!r}]", "must be left out", parameters[wanted], repair)
    sampler: Any = solver  # until it is known to be one
    name, defaults = type(solver).__name__, dict[str, Any]()
    if isinstance(solver, str):
        if solver not in _SOLVERS:
            repair = "discrete_vae.interop.dimod.register_solver adds one of your own."
            raise not_one_of("solver", _SOLVERS, solver, repair)
        name, (make, defaults) = solver, _SOLVERS[solver]
        with _refusing(name, "solver", f"must open {name}"):
            sampler = make()
    if not isinstance(sampler, library("dimod").Sampler):
        repair, received = "Give one, or the name of one.", f"a {type(sampler).__name__}"
        raise InvalidInputError("solver", "must be a dimod.Sampler", received, repair)
    of_device = {each: value for each, value in _OF_DEVICES.items() if each in sampler.parameters}
    opened = Solver(sampler, name, {**of_device, **defaults, **parameters})
    for wanted in ["num_reads", *opened.settings]:
        if not opened.takes(wanted):
            known = ", ".join(sorted(opened.sampler.parameters)) or "none"
            rule, repair = f"must be known to {opened.name}", f"It takes: {known}."
            raise InvalidInputError(f"parameters[{wanted!r}]", rule, "an unknown name", repair)
    return opened


@contextmanager
def _refusing(solver: str, argument: str, rule: str) -> Iterator[None]:
    """Say in this library's words that a solver refused something, or failed."""
    try:
        yield
    except (DiscreteVAEError, MemoryError):
        raise
    except Exception as error:
        received = f"{type(error).__name__}: {error}".rstrip(".")
        if not isinstance(error, TypeError | ValueError):  # a lost connection, say, is no wrong input
            raise SolverError(solver, received) from error
        raise InvalidInputError(argument, rule, received, "See the solver's own documentation.") from error
