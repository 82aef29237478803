"""Machines as binary quadratic models, our chains as dimod samplers, solvers by name."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine, FactorialBernoulli, check_energy
from discrete_vae.boltzmann.graph import GraphBoltzmann, color_blocks
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.rng import draw_key, key_to_seed
from discrete_vae.samplers.gibbs import BlockGibbs
from discrete_vae.samplers.tempering import ParallelTempering

if TYPE_CHECKING:
    import dimod
    from dimod import BinaryQuadraticModel, Sampler


# The libraries of the extra "dwave", imported when they are needed.


REPAIR = "Install it: pip install 'discrete-vae[dwave]'."


def library(name: str, *, repair: str = REPAIR) -> ModuleType:
    """Import a module of another library.

    Args:
        name: Of the module, "dwave.samplers".
        repair: What an error says is to be done.

    Raises:
        InvalidInputError: If it is not installed.

    Examples:
        >>> library("no.such.library")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: the library no.such.library must be installed; received ...
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        received = f"{type(error).__name__}: {error}"
        raise InvalidInputError(f"the library {name}", "must be installed", received, repair) from None


# Binary quadratic models of one machine at changing weights.


Vartype = Literal["BINARY", "SPIN"]


class BQMForm:
    """Models of one machine at changing weights: what does not change is worked out once.

    Args:
        energy: As in `to_bqm`; its weights are read anew by each `fill`.
        vartype: As in `to_bqm`.
        labels: As in `to_bqm`.

    Attributes:
        energy: The machine.
        labels: The variable of each unit.
    """

    def __init__(
        self,
        energy: BoltzmannMachine,
        *,
        vartype: Vartype | dimod.Vartype = "BINARY",
        labels: Sequence[Hashable] | None = None,
    ) -> None:
        self._dimod = library("dimod")
        self.energy = check_energy(energy)
        self.labels = check_labels(labels, energy)
        name = getattr(vartype, "name", vartype)  # of dimod's own
        if not isinstance(name, str) or name not in get_args(Vartype):
            repair = "Variables in {0,1} are BINARY, those in {-1,+1} SPIN."
            raise InvalidInputError("vartype", "must be 'BINARY' or 'SPIN'", repr(vartype), repair)
        self._vartype = name
        self._heads, self._tails = pairs_of(energy).T.copy()
        in_order = self.labels == tuple(range(energy.num_units))  # which dimod is quick to find out
        self._order = range(energy.num_units) if in_order else self.labels

    def fill(self, inverse_temperature: float) -> BinaryQuadraticModel:
        """The model at the machine's present weights, with energies t E(z).

        Raises:
            InvalidInputError: If a parameter of the machine is not finite.
        """
        weight, bias = self._numbers("weight"), self._numbers("bias")
        offset = 0.0
        if self._vartype == "SPIN":
            weight, bias = weight / 4, bias / 2
            offset = -float(weight.sum() + bias.sum())
            for ends in (self._heads, self._tails):
                bias = bias + np.bincount(ends, weight, len(bias))
        t = inverse_temperature
        return self._dimod.BinaryQuadraticModel.from_numpy_vectors(
            -t * bias,
            (self._heads, self._tails, -t * weight),
            t * offset,
            self._vartype,
            variable_order=self._order,
        )

    def pairs(self) -> list[tuple[Hashable, Hashable]]:
        """The variables that are joined."""
        return [(self.labels[a], self.labels[b]) for a, b in zip(self._heads, self._tails, strict=True)]

    def _numbers(self, name: str) -> np.ndarray:
        """A parameter in float64, without gradient; a copy."""
        parameter = getattr(self.energy, name, None)
        if parameter is None:
            return np.zeros(0)
        found = parameter.detach().to("cpu", torch.float64).flatten().numpy().copy()
        if not np.isfinite(found).all():
            repair = "Look for a diverged training step and restore an earlier state."
            raise InvalidInputError(f"energy.{name}", "must be finite", "NaN or an infinity", repair)
        return found


def pairs_of(energy: BoltzmannMachine) -> np.ndarray:
    """The pairs of units that a machine joins, (pair, 2) int64, in the order of its flattened weight.

    Raises:
        InvalidInputError: If it is a machine whose weights the library does not know.
    """
    if isinstance(energy, GraphBoltzmann):
        return energy.edges.cpu().numpy()
    if isinstance(energy, RBM):
        sides = np.indices((energy.num_left, energy.num_right)).reshape(2, -1)
        return np.stack([sides[0], sides[1] + energy.num_left], axis=1)
    if isinstance(energy, FactorialBernoulli):
        return np.empty((0, 2), np.int64)
    repair = "Copy its weights into a GraphBoltzmann."
    rule = "must be an RBM, a GraphBoltzmann or a FactorialBernoulli"
    raise InvalidInputError("energy", rule, f"a {type(energy).__name__}", repair)


def check_labels(labels: Sequence[Hashable] | None, energy: BoltzmannMachine) -> tuple[Hashable, ...]:
    """The variable of each unit.

    Raises:
        InvalidInputError: If they are not one for each unit, all different.
    """
    if labels is None:
        nodes = energy.nodes if isinstance(energy, GraphBoltzmann) else None
        return tuple(range(energy.num_units)) if nodes is None else nodes
    try:
        found, different = tuple(labels), set(labels)
    except TypeError:
        received, repair = repr(labels)[:80], "Give a list of words or numbers."
        raise InvalidInputError("labels", "must be a list of names of variables", received, repair) from None
    if len(found) != energy.num_units or len(different) != len(found):
        received = f"{len(found)} labels, {len(different)} of them different"
        repair = "Leave them out for 0, 1, ..."
        rule = f"must be {energy.num_units} different labels, one for each unit"
        raise InvalidInputError("labels", rule, received, repair)
    return found


# Priors as dimod's binary quadratic models, and back.


@dataclass(frozen=True, eq=False)
class MachineOfBQM:
    """A Boltzmann machine with the law of a binary quadratic model.

    Attributes:
        energy: The machine; p(z) ~ exp(-E(z)) is exp(-t E_bqm), renormalized.
        labels: The variable that each unit stands for. Those of an RBM begin with its left side, so their order may
            differ from the model's.
        offset: t E_bqm(x) - E(z), nats, the same for all states; log Z of the machine is that of the model plus it.
    """

    energy: RBM | GraphBoltzmann | FactorialBernoulli
    labels: tuple[Hashable, ...]
    offset: float


def to_bqm(
    energy: BoltzmannMachine,
    *,
    inverse_temperature: float = 1.0,
    vartype: Vartype | dimod.Vartype = "BINARY",
    labels: Sequence[Hashable] | None = None,
) -> BinaryQuadraticModel:
    """The binary quadratic model whose energies are those of a machine: E_bqm(x) = t E(z) for every state.

    dimod, as the library, gives likely states a low energy: p ~ exp(-E_bqm). So biases are -t b and couplings -t W, of
    spins s = 2 z - 1 the fields and couplings that belong to them, with the offset that keeps energies equal. Every
    pair of an RBM and every edge of a graph has an entry, zero or not.

    Args:
        energy: An RBM, a GraphBoltzmann or a FactorialBernoulli.
        inverse_temperature: t. A solver that samples exp(-c E_bqm) samples the machine where t = 1 / c.
        vartype: "BINARY" for variables in {0,1}, whose offset is 0, or "SPIN" for {-1,+1}; or dimod's own.
        labels: The variable of each unit; None means its `GraphBoltzmann.nodes`, else 0, 1, ...

    Returns:
        A new model in float64. In bits it holds the weights exactly at t = 1.

    Raises:
        InvalidInputError: If dimod is missing, energy is another machine or has a parameter that is not finite, t is
            not finite, or labels are not one for each unit, all different.

    Examples:
        >>> from discrete_vae import RBM
        >>> rbm = RBM(1, 1)
        >>> with torch.no_grad():
        ...     _ = rbm.weight.fill_(2.0)
        >>> to_bqm(rbm, labels="ab")
        BinaryQuadraticModel({'a': 0.0, 'b': 0.0}, {('b', 'a'): -2.0}, 0.0, 'BINARY')
        >>> float(to_bqm(rbm, vartype="SPIN").offset)
        -0.5
    """
    t = check_number("inverse_temperature", inverse_temperature, repair="Give a number near 1.")
    return BQMForm(energy, vartype=vartype, labels=labels).fill(t)


def from_bqm(
    bqm: BinaryQuadraticModel,
    *,
    inverse_temperature: float = 1.0,
    min_density: float = 1.0,
    dtype: torch.dtype | None = None,
) -> MachineOfBQM:
    """The machine with the law p ~ exp(-t E_bqm) of a binary quadratic model.

    A model without interactions becomes a FactorialBernoulli, a bipartite one with all pairs an RBM, any other a
    GraphBoltzmann whose edges are the interactions, in dimod's order. What `to_bqm` made of a machine comes back with
    every bit of its float32 weights (of spins, as far as float64 holds their sums).

    Args:
        bqm: Of bits or of spins, with any labels and of any of dimod's number types.
        inverse_temperature: t.
        min_density: A bipartite model with at least this share of all pairs becomes an RBM too, with zero weights for
            the others: dense sides are sampled faster than their edges.
        dtype: Of the parameters; None means torch's default.

    Raises:
        InvalidInputError: If dimod is missing, bqm is no such model, has no variable, or a bias that is not finite or
            too large for the dtype; t or min_density is not finite, or dtype is none of floating point.

    Examples:
        >>> import dimod
        >>> spins = dimod.BinaryQuadraticModel({"a": 0.5}, {("a", "b"): -1.0}, 0.0, "SPIN")
        >>> found = from_bqm(spins)
        >>> found.energy, found.labels, found.offset
        (RBM(num_left=1, num_right=1), ('a', 'b'), -1.5)
        >>> found.energy.weight.tolist(), found.energy.bias.tolist()
        ([[4.0]], [-3.0, -2.0])
    """
    dimod = library("dimod")
    if not isinstance(bqm, dimod.BinaryQuadraticModel):
        received, repair = f"a {type(bqm).__name__}", "dimod.BinaryQuadraticModel makes one of biases."
        raise InvalidInputError("bqm", "must be a dimod.BinaryQuadraticModel", received, repair)
    t = check_number("inverse_temperature", inverse_temperature, repair="Give a number near 1.")
    check_number("min_density", min_density, repair="Give a share of all pairs, such as 0.5.")
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        repair = "Give torch.float32 or torch.float64."
        raise InvalidInputError("dtype", "must be a floating-point dtype of torch", repr(dtype), repair)
    if not bqm.num_variables:
        raise InvalidInputError("bqm", "must have a variable", "none", "Add one: bqm.add_variable('a', 0).")
    variables = list(bqm.variables)
    linear, (heads, tails, quadratic), offset, *_ = bqm.to_numpy_vectors(
        variables
    )  # which sorts them if it may
    bias, weight, offset = -linear.astype(float), -quadratic.astype(float), float(offset)
    if bqm.vartype is dimod.SPIN:
        offset += float(bias.sum() - weight.sum())
        bias = 2 * bias
        for ends in (heads, tails):
            bias = bias - 2 * np.bincount(ends, weight, len(bias))
        weight = 4 * weight
    pairs = np.stack([heads, tails], axis=1).astype(np.int64)
    energy, order = _machine(len(bias), pairs, t * weight, t * bias, min_density)
    energy.to(dtype or torch.get_default_dtype())
    for name, parameter in energy.named_parameters():
        if not bool(parameter.isfinite().all()):
            received, repair = (
                f"a {name} that is not finite",
                "Scale the model down, or give dtype=torch.float64.",
            )
            raise InvalidInputError(
                "bqm", f"must have biases that are finite in {parameter.dtype}", received, repair
            )
    return MachineOfBQM(energy, tuple(variables[unit] for unit in order), t * offset)


@torch.no_grad()
def _machine(
    num_units: int, pairs: np.ndarray, weight: np.ndarray, bias: np.ndarray, min_density: float
) -> tuple[RBM | GraphBoltzmann | FactorialBernoulli, np.ndarray]:
    """The machine in float64, and the variable of each of its units."""
    order = np.arange(num_units)
    blocks = color_blocks(num_units, pairs) if len(pairs) else []
    if len(blocks) == 2 and len(pairs) >= min_density * len(blocks[0]) * len(blocks[1]):
        order = np.concatenate(blocks)
        energy = RBM(len(blocks[0]), len(blocks[1])).double()
        place = np.empty_like(order)
        place[order] = np.arange(num_units)
        left, right = np.sort(place[pairs], axis=1).T
        energy.weight[torch.from_numpy(left), torch.from_numpy(right - len(blocks[0]))] = torch.from_numpy(
            weight
        )
    elif blocks:
        energy = GraphBoltzmann(num_units, pairs).double()
        energy.weight.copy_(torch.from_numpy(weight))
    else:
        energy = FactorialBernoulli(num_units).double()
    energy.bias.copy_(torch.from_numpy(bias[order]))
    return energy, order


# The solvers that a config can name. A name is looked up here; no file of a run names what is imported.


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


_OWN = "discrete_vae.interop.dimod.conversion"
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


# Samplers with dimod's interface that run on the library's chains; the module needs dimod.


try:
    import dimod
except ImportError as error:  # the classes are dimod's
    raise ImportError("dimod must be installed: pip install 'discrete-vae[dwave]'") from error


_MIN_DENSITY = 0.5  # of the pairs of two sides: above it whole sides are drawn faster than along edges


class ChainSampler(dimod.Sampler, dimod.Initialized):
    """Draws p ~ exp(-t E_bqm) by Markov chains, one independent chain for each read.

    A bipartite model with at least half of all pairs is sampled as an RBM, any other block by block of a coloring of
    its graph, with compiled kernels.
    """

    _names = (
        "num_reads",
        "num_sweeps",
        "inverse_temperature",
        "seed",
        "initial_states",
        "initial_states_generator",
    )

    @property
    def parameters(self) -> dict[str, Any]:
        """The keywords of `sample`, as dimod wants them; none depends on a property."""
        return {name: [] for name in self._names}

    @property
    def properties(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def _sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None,
        num_sweeps: int,
        inverse_temperature: float,
        seed: int | None,
        initial_states: Any,
        initial_states_generator: Any,
        **settings: Any,
    ) -> dimod.SampleSet:
        check_positive_int("num_sweeps", num_sweeps)
        seed = draw_key() if seed is None else seed
        key_to_seed(seed)  # refuses what is none
        start = None
        if initial_states is not None:
            start = self.parse_initial_states(
                bqm, initial_states, initial_states_generator, num_reads, seed=seed & 0xFFFFFFFF
            ).initial_states
            num_reads = len(start)
        num_reads = check_positive_int("num_reads", 1 if num_reads is None else num_reads)
        info = {"inverse_temperature": inverse_temperature, "num_sweeps": num_sweeps, "seed": seed}
        if not bqm.num_variables:
            empty = np.empty((num_reads, 0), np.int8)
            return dimod.SampleSet.from_samples_bqm((empty, []), bqm, info=info)
        found = from_bqm(bqm, inverse_temperature=inverse_temperature, min_density=_MIN_DENSITY)
        states = None
        if start is not None:
            columns = [start.variables.index(label) for label in found.labels]
            states = torch.from_numpy((start.record.sample[:, columns] > 0).astype(np.float32))
        if isinstance(found.energy, FactorialBernoulli):  # one sweep draws independent units
            z = BlockGibbs(found.energy, num_reads, seed=seed).step(1)
        else:
            z = self._draw(found.energy, num_reads, num_sweeps, seed, states, **settings)
        samples = z.to(torch.int8).numpy()
        if bqm.vartype is dimod.SPIN:
            samples = 2 * samples - 1
        return dimod.SampleSet.from_samples_bqm((samples, found.labels), bqm, info=info)

    @abstractmethod
    def _draw(
        self,
        energy: BoltzmannMachine,
        num_reads: int,
        num_sweeps: int,
        seed: int,
        start: Tensor | None,
        **settings: Any,
    ) -> Tensor:
        """States, (read, unit) in {0,1}."""


class BlockGibbsSampler(ChainSampler):
    """Block Gibbs with dimod's interface: sampling at one temperature, not optimization.

    Examples:
        >>> import dimod
        >>> bqm = dimod.BinaryQuadraticModel({"a": 2.0}, {("a", "b"): -1.0}, 0.0, "SPIN")
        >>> found = BlockGibbsSampler().sample(bqm, num_reads=1000, num_sweeps=20, seed=0)
        >>> abs(float(found.record.sample[:, 0].mean()) + 0.964) < 0.03  # of the spin a: -tanh(2) = -0.964
        True
    """

    def sample(  # pyright: ignore[reportIncompatibleMethodOverride]  # dimod's own samplers name their parameters too
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None = None,
        num_sweeps: int = 1000,
        inverse_temperature: float = 1.0,
        seed: int | None = None,
        initial_states: Any = None,
        initial_states_generator: Any = "random",
    ) -> dimod.SampleSet:
        """Draw from p ~ exp(-t E_bqm).

        Args:
            bqm: The model, of bits or spins.
            num_reads: Reads, each from a chain of its own; None means one for each initial state, or one.
            num_sweeps: Sweeps of each chain; of a model with distant modes no number of them may be enough.
            inverse_temperature: t, what annealers call beta.
            seed: Integer from 0 to 2^64 - 1; None draws one from torch's global generator.
            initial_states: Where the chains start, in any form that dimod reads; None means fair coins.
            initial_states_generator: What dimod does where they are fewer than the reads: "random", "tile" or "none".

        Returns:
            The reads, one a row, with the model's energies, the offset included.

        Raises:
            InvalidInputError: If a number is out of its range, or a bias too large for float32.
            ValueError: If the initial states do not fit the model, as dimod words it.
        """
        return self._sample(
            bqm,
            num_reads=num_reads,
            num_sweeps=num_sweeps,
            inverse_temperature=inverse_temperature,
            seed=seed,
            initial_states=initial_states,
            initial_states_generator=initial_states_generator,
        )

    def _draw(
        self,
        energy: BoltzmannMachine,
        num_reads: int,
        num_sweeps: int,
        seed: int,
        start: Tensor | None,
        **settings: Any,
    ) -> Tensor:
        return BlockGibbs(energy, num_reads, seed=seed, start=start).step(num_sweeps)


class ParallelTemperingSampler(ChainSampler):
    """Parallel tempering with dimod's interface: each read is the coldest replica of a ladder of its own.

    Replicas cross between modes where a single temperature stays in one. A ladder that is not given is tuned in the
    first half of the sweeps and stands still in the second.

    Examples:
        >>> import dimod
        >>> ring = dimod.BinaryQuadraticModel({}, {(0, 1): -3.0, (1, 2): -3.0, (2, 0): -3.0}, 0.0, "SPIN")
        >>> found = ParallelTemperingSampler().sample(ring, num_reads=200, num_sweeps=100, seed=0)
        >>> abs(float(found.record.sample.mean())) < 0.3  # both modes, all spins up and all down
        True
    """

    _names = (*ChainSampler._names, "inverse_temperatures")

    def sample(  # pyright: ignore[reportIncompatibleMethodOverride]  # dimod's own samplers name their parameters too
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None = None,
        num_sweeps: int = 100,
        inverse_temperature: float = 1.0,
        inverse_temperatures: Sequence[float] | None = None,
        seed: int | None = None,
        initial_states: Any = None,
        initial_states_generator: Any = "random",
    ) -> dimod.SampleSet:
        """Draw from p ~ exp(-t E_bqm).

        Args:
            bqm: As in `BlockGibbsSampler.sample`.
            num_reads: As there.
            num_sweeps: Sweeps of each replica; one of all of them costs about ten of block Gibbs.
            inverse_temperature: t of the coldest replica.
            inverse_temperatures: The ladder as shares of t, rising to exactly 1; None tunes one that starts at 0.
            seed: As in `BlockGibbsSampler.sample`.
            initial_states: As there; all replicas of a read start there.
            initial_states_generator: As there.

        Returns:
            The reads, one a row, with the model's energies, the offset included.

        Raises:
            InvalidInputError: If a number is out of its range, the ladder does not rise to 1, or a bias is too large
                for float32.
            ValueError: If the initial states do not fit the model, as dimod words it.
        """
        return self._sample(
            bqm,
            num_reads=num_reads,
            num_sweeps=num_sweeps,
            inverse_temperature=inverse_temperature,
            seed=seed,
            initial_states=initial_states,
            initial_states_generator=initial_states_generator,
            ladder=inverse_temperatures,
        )

    def _draw(
        self,
        energy: BoltzmannMachine,
        num_reads: int,
        num_sweeps: int,
        seed: int,
        start: Tensor | None,
        **settings: Any,
    ) -> Tensor:
        chains = ParallelTempering(energy, num_reads, settings["ladder"], seed=seed)
        if start is not None:
            chains.start_from(start)
        if num_sweeps > 1:
            chains.step(num_sweeps // 2)
        chains.adapting = False
        return chains.step(num_sweeps - num_sweeps // 2)
