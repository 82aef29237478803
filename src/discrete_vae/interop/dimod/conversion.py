"""Machines as dimod's binary quadratic models, and back; without dimod an `InvalidInputError` names the extra."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from discrete_vae.boltzmann.base import BoltzmannMachine, FactorialBernoulli, check_energy
from discrete_vae.boltzmann.graph import GraphBoltzmann, color_blocks
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import DIVERGED, check_number
from discrete_vae.errors import InvalidInputError, not_one_of
from discrete_vae.system import optional_library

if TYPE_CHECKING:
    import dimod
    from dimod import BinaryQuadraticModel

REPAIR = "Install it: pip install 'discrete-vae[dwave]'."
Vartype = Literal["BINARY", "SPIN"]


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
    pair of an RBM and every edge of a graph has an entry, zero or not. The model is in float64, its variables in the
    order of the units; in bits it holds the weights exactly at t = 1.

    Args:
        energy: An RBM, a GraphBoltzmann or a FactorialBernoulli.
        inverse_temperature: t. A solver that samples exp(-c E_bqm) samples the machine where t = 1 / c.
        vartype: "BINARY" for variables in {0,1}, whose offset is 0, or "SPIN" for {-1,+1}; or dimod's own.
        labels: The variable of each unit; None means its `GraphBoltzmann.nodes`, else 0, 1, ...

    Examples:
        >>> from discrete_vae import RBM
        >>> to_bqm(RBM.from_ising([[0.5]], [0.0, 0.0]), labels="ab")
        BinaryQuadraticModel({'a': 1.0, 'b': 1.0}, {('b', 'a'): -2.0}, 0.0, 'BINARY')
    """
    t = check_number("inverse_temperature", inverse_temperature, repair="Give a number near 1.")
    dimod = library("dimod")
    variables = labels_of(check_energy(energy), labels)
    name = getattr(vartype, "name", vartype)  # of dimod's own
    if not isinstance(name, str) or name not in get_args(Vartype):
        repair = "Variables in {0,1} are BINARY, those in {-1,+1} SPIN."
        raise not_one_of("vartype", get_args(Vartype), vartype, repair)
    heads, tails = pairs_of(energy).T.copy()
    in_order = range(energy.num_units)  # which dimod is quick to find out
    bqm = dimod.BinaryQuadraticModel.from_numpy_vectors(
        -t * _numbers(energy, "bias"),
        (heads, tails, -t * _numbers(energy, "weight")),
        0.0,
        "BINARY",
        variable_order=in_order if variables == tuple(in_order) else variables,
    )
    return bqm.change_vartype(name, inplace=True)


def from_bqm(
    bqm: BinaryQuadraticModel,
    *,
    inverse_temperature: float = 1.0,
    min_density: float = 1.0,
    dtype: torch.dtype | None = None,
) -> MachineOfBQM:
    """The machine with the law p ~ exp(-t E_bqm) of a binary quadratic model.

    A model without interactions becomes a FactorialBernoulli, a bipartite one with all pairs an RBM, any other a
    GraphBoltzmann whose edges are the interactions, in dimod's order, and whose `GraphBoltzmann.nodes` are the
    variables where all of these are whole numbers from 0. What `to_bqm` made of a machine comes back with every bit of
    its float32 weights (of spins, as far as float64 holds their sums).

    Args:
        bqm: Of bits or of spins, with any labels and of any of dimod's number types.
        inverse_temperature: t.
        min_density: A bipartite model with at least this share of all pairs becomes an RBM too, with zero weights for
            the others: dense sides are sampled faster than their edges.
        dtype: Of the parameters; None means torch's default.

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
    bits = dimod.BinaryQuadraticModel(bqm, dtype=np.float64).change_vartype("BINARY", inplace=True)
    variables = list(bits.variables)
    linear, (heads, tails, quadratic), offset, *_ = bits.to_numpy_vectors(variables)
    pairs = np.stack([heads, tails], axis=1).astype(np.int64)
    nodes = variables if all(isinstance(each, int | np.integer) and each >= 0 for each in variables) else None
    energy, order = _machine(pairs, -t * quadratic, -t * linear, min_density, nodes)
    energy.to(dtype or torch.get_default_dtype())
    for name, parameter in energy.named_parameters():
        if not bool(parameter.isfinite().all()):
            rule = f"must have biases that are finite in {parameter.dtype}"
            repair = "Scale the model down, or give dtype=torch.float64."
            raise InvalidInputError("bqm", rule, f"a {name} that is not finite", repair)
    return MachineOfBQM(energy, tuple(variables[unit] for unit in order), t * float(offset))


def pairs_of(energy: BoltzmannMachine) -> np.ndarray:
    """The pairs of units that a machine joins, (pair, 2) int64, in the order of its flattened weight."""
    if isinstance(energy, GraphBoltzmann):
        return energy.edges.cpu().numpy()
    if isinstance(energy, RBM):
        sides = np.indices((energy.num_left, energy.num_right)).reshape(2, -1)
        return np.stack([sides[0], sides[1] + energy.num_left], axis=1)
    if isinstance(energy, FactorialBernoulli):
        return np.empty((0, 2), np.int64)
    rule = "must be an RBM, a GraphBoltzmann or a FactorialBernoulli"
    repair = "Copy its weights into a GraphBoltzmann."
    raise InvalidInputError("energy", rule, f"a {type(energy).__name__}", repair)


def labels_of(energy: BoltzmannMachine, labels: Sequence[Hashable] | None = None) -> tuple[Hashable, ...]:
    """The variable of each unit, all different: as given, else the nodes of a graph, else 0, 1, ..."""
    if labels is None:
        return energy.nodes if isinstance(energy, GraphBoltzmann) else tuple(range(energy.num_units))
    try:
        found, different = tuple(labels), set(labels)
    except TypeError:
        received, repair = repr(labels)[:80], "Give a list of words or numbers."
        raise InvalidInputError("labels", "must be a list of names of variables", received, repair) from None
    if len(found) != energy.num_units or len(different) != len(found):
        received = f"{len(found)} labels, {len(different)} of them different"
        rule = f"must be {energy.num_units} different labels, one for each unit"
        raise InvalidInputError("labels", rule, received, "Leave them out for 0, 1, ...")
    return found


def library(name: str, *, repair: str = REPAIR) -> ModuleType:
    """Import a module of the extra "dwave" when it is needed, such as "dwave.samplers"."""
    return optional_library(name, f"the library {name}", repair)


def _numbers(energy: BoltzmannMachine, name: str) -> np.ndarray:
    parameter = getattr(energy, name, None)
    if parameter is None:
        return np.zeros(0)
    found = parameter.detach().to("cpu", torch.float64).flatten().numpy()
    if not np.isfinite(found).all():
        raise InvalidInputError(f"energy.{name}", "must be finite", "NaN or an infinity", DIVERGED)
    return found


@torch.no_grad()
def _machine(
    pairs: np.ndarray, weight: np.ndarray, bias: np.ndarray, min_density: float, nodes: list[int] | None
) -> tuple[RBM | GraphBoltzmann | FactorialBernoulli, np.ndarray]:
    """The machine in float64, and the variable of each of its units."""
    order = np.arange(len(bias))
    blocks = color_blocks(len(bias), pairs) if len(pairs) else []
    if len(blocks) == 2 and len(pairs) >= min_density * len(blocks[0]) * len(blocks[1]):
        order = np.concatenate(blocks)
        energy = RBM(len(blocks[0]), len(blocks[1])).double()
        left, right = torch.from_numpy(np.sort(np.argsort(order)[pairs], axis=1)).T
        energy.weight[left, right - len(blocks[0])] = torch.from_numpy(weight).to(energy.weight)
    elif blocks:
        energy = GraphBoltzmann(len(bias), pairs, nodes).double()
        energy.weight.copy_(torch.from_numpy(weight))
    else:
        energy = FactorialBernoulli(len(bias)).double()
    energy.bias.copy_(torch.from_numpy(bias[order]))
    return energy, order
