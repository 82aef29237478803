"""Binary quadratic models of one machine at changing weights."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from discrete_vae.boltzmann.check_machine import check_energy
from discrete_vae.boltzmann.factorial import FactorialBernoulli
from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod.extra import library

if TYPE_CHECKING:
    import dimod
    from dimod import BinaryQuadraticModel

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
