"""Priors as dimod's binary quadratic models, and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from discrete_vae.boltzmann.coloring import color_blocks
from discrete_vae.boltzmann.factorial import FactorialBernoulli
from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_number
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod.bqm_form import BQMForm, Vartype
from discrete_vae.interop.dimod.extra import library

if TYPE_CHECKING:
    import dimod
    from dimod import BinaryQuadraticModel


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
