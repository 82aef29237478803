"""Units and pairs that a solver lacks: summed out, drawn, and fitted by what remains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.errors import InvalidInputError
from discrete_vae.noise import open_uniform
from discrete_vae.records import ShowsShapes

_MOST_TOGETHER = 12
_PSEUDO_SAMPLES = 4.0  # of least squares, on the side of mean field: samples of frozen units tell little


@dataclass(frozen=True, eq=False, repr=False)
class _Cluster(ShowsShapes):
    """Lost units that hang together, with all of their states.

    Attributes:
        units: Them, (unit,).
        neighbors: The remaining units that they are joined to, (neighbor,).
        weight: (unit, neighbor).
        states: (state, unit).
        inner: -E of each state without neighbors, (state,).
    """

    units: np.ndarray
    neighbors: np.ndarray
    weight: Tensor
    states: Tensor
    inner: Tensor

    def log_weights(self, z: Tensor) -> Tensor:
        """-E of each state given all units, (sample, state)."""
        return z[:, self.neighbors] @ self.weight.T @ self.states.T + self.inner

    def log_factor(self, z: Tensor) -> Tensor:
        """The log of their sum over all states, (sample,)."""
        return self.log_weights(z).logsumexp(1)


class LostUnits:
    """What a solver lacks of a machine.

    Args:
        energy: The machine.
        kept: Its remaining units.
        lost: Which pairs of the machine are lost, those of lost units included, (edge,) bool.

    Raises:
        InvalidInputError: If more than 12 lost units hang together.
    """

    def __init__(self, energy: GraphBoltzmann, kept: np.ndarray, lost: np.ndarray) -> None:
        edges = energy.edges.cpu().numpy()
        weight = energy.weight.detach().to("cpu", torch.float64)
        bias = energy.bias.detach().to("cpu", torch.float64)
        both = lost & np.isin(edges, kept).all(1)
        self._pairs = edges[both]
        self._pair_weight = weight[torch.from_numpy(both)]
        matrix = torch.zeros(energy.num_units, energy.num_units, dtype=torch.float64)
        first, second = torch.from_numpy(edges).T
        matrix[first, second] = matrix[second, first] = weight
        gone = np.setdiff1d(np.arange(energy.num_units), kept)
        self._clusters = [_cluster(matrix, bias, units, kept) for units in _components(gone, edges)]
        self._num_units = energy.num_units

    def log_factor(self, z: Tensor) -> Tensor:
        """What p(z) of the remaining units has beside their remaining terms: the log of the lost ones' sum, (sample,).

        Args:
            z: (sample, unit of the machine) float64; lost units are ignored.
        """
        found = z[:, self._pairs[:, 0]] * z[:, self._pairs[:, 1]] @ self._pair_weight
        for cluster in self._clusters:
            found = found + cluster.log_factor(z)
        return found

    def fit(self, z: Tensor, couplers: np.ndarray) -> tuple[Tensor, Tensor]:
        """Linear and pair terms that come closest to `log_factor` over samples.

        Each cluster and each pair is fitted by its own neighborhood: the units that it touches, and the couplers
        between these. Where samples do not tell, mean field does: what a unit changes where others have their means.

        Args:
            z: Samples of the machine, (sample, unit) float64.
            couplers: The pairs that remain, (coupler, 2).

        Returns:
            Changes of bias, (unit of the machine,), and of weight, (coupler,), float64.
        """
        bias = z.new_zeros(self._num_units)
        weight = z.new_zeros(len(couplers))
        for touched, part in self._parts():
            start = _mean_field(part, z.mean(0), touched)
            values = part(z) - z[:, touched] @ start
            inside = np.flatnonzero(np.isin(couplers, touched).all(1))
            ends = couplers[inside]
            features = torch.cat([z[:, touched], z[:, ends[:, 0]] * z[:, ends[:, 1]]], 1)
            features = features - features.mean(0)
            normal = (features.T @ features + _PSEUDO_SAMPLES * torch.eye(features.shape[1]).to(z)) / len(z)
            slopes = torch.linalg.solve(normal, features.T @ (values - values.mean()) / len(z))
            bias[touched] += start + slopes[: len(touched)]
            weight[inside] += slopes[len(touched) :]
        return bias, weight

    def draw(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Put draws of the lost units, given all others, into samples; (sample, unit), in place."""
        for cluster in self._clusters:
            cumulated = cluster.log_weights(z.double()).softmax(1).cumsum(1)
            uniform = open_uniform(cumulated, shape=(len(z), 1), generator=generator)
            chosen = (uniform > cumulated).sum(1).clamp(max=len(cluster.states) - 1)
            z[:, cluster.units] = cluster.states[chosen].to(z)
        return z

    def _parts(self) -> Iterator[tuple[np.ndarray, Callable[[Tensor], Tensor]]]:
        """For each cluster and pair the remaining units that it touches, and its part of `log_factor`."""
        for cluster in self._clusters:
            if len(cluster.neighbors):
                yield cluster.neighbors, cluster.log_factor
        for pair, strength in zip(self._pairs, self._pair_weight, strict=True):
            yield pair, partial(_pair_factor, pair, strength)


def _pair_factor(pair: np.ndarray, strength: Tensor, z: Tensor) -> Tensor:
    return strength * z[:, pair[0]] * z[:, pair[1]]


def _mean_field(part: Callable[[Tensor], Tensor], mean: Tensor, touched: np.ndarray) -> Tensor:
    """What each touched unit changes where all others have their means, (unit,)."""
    count = len(touched)
    states = mean.repeat(2, count, 1)
    for value in (0, 1):
        states[value, torch.arange(count), torch.from_numpy(touched)] = value
    low, high = part(states.flatten(0, 1)).view(2, count)
    return high - low


def _cluster(matrix: Tensor, bias: Tensor, units: np.ndarray, kept: np.ndarray) -> _Cluster:
    if len(units) > _MOST_TOGETHER:
        rule = f"must leave no more than {_MOST_TOGETHER} lost units joined to each other"
        repair = "Train anew on the solver's graph: too much is gone."
        raise InvalidInputError("nodes", rule, f"{len(units)} of them", repair)
    neighbors = kept[(matrix[units][:, kept] != 0).any(0).numpy()]
    states = torch.from_numpy(
        ((np.arange(2 ** len(units))[:, None] >> np.arange(len(units))) & 1).astype(float)
    )
    inside = matrix[units][:, units].triu(1)
    inner = states @ bias[units] + (states @ inside * states).sum(1)
    return _Cluster(units, neighbors, matrix[units][:, neighbors], states, inner)


def _components(units: np.ndarray, edges: np.ndarray) -> list[np.ndarray]:
    """Units by which of them hang together."""
    root = {unit: unit for unit in units.tolist()}

    def find(unit: int) -> int:
        while root[unit] != unit:
            unit = root[unit]
        return unit

    for a, b in edges[np.isin(edges, units).all(1)].tolist():
        root[find(a)] = find(b)
    groups: dict[int, list[int]] = {}
    for unit in root:
        groups.setdefault(find(unit), []).append(unit)
    return [np.array(group) for group in groups.values()]
