"""A trained prior on a solver whose graph has lost qubits or couplers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.checks import check_binary, check_positive_int, check_tensor
from discrete_vae.config import GraphBoltzmannConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod.conversion import library
from discrete_vae.log_partition.bridge import bridge_term, weighted_ratio
from discrete_vae.rng import keyed_generator, open_uniform
from discrete_vae.samplers.gibbs import BlockGibbs

if TYPE_CHECKING:
    from dimod import Sampler


_SAMPLES, _SWEEPS = 4000, 1000


@dataclass(frozen=True)
class Divergence:
    """The divergence of a machine on the remaining units from the law of these units.

    Attributes:
        kl: KL(p || p'), nats, p the original's law of the remaining units.
        std_error: Its standard error, where samples are independent.
        log_partition_shift: log Z' - log Z, nats.
    """

    kl: float
    std_error: float
    log_partition_shift: float


@dataclass(frozen=True, eq=False)
class Remapped:
    """A prior as a solver can take it.

    Attributes:
        energy: The machine p' on the remaining units, with `GraphBoltzmann.nodes` those of the solver.
        units: The unit of the original that each of its units is.
        lost_units: Units of the original without a node.
        lost_pairs: Pairs of the original without a coupler, those of lost units included.
        divergence: The cost of the approximation that remains; all 0 where nothing was lost.
        dropped: The cost of leaving the lost terms out and fitting nothing.
    """

    energy: GraphBoltzmann
    units: tuple[int, ...]
    lost_units: tuple[int, ...]
    lost_pairs: tuple[tuple[int, int], ...]
    divergence: Divergence
    dropped: Divergence
    _lost: LostUnits

    def complete(self, z: Tensor, *, seed: int = 0) -> Tensor:
        """States of all units, as the decoder of the model wants them: lost ones are drawn from p(lost | others).

        With samples z of p', (sample, unit of p'), the result, (sample, unit of the original) float32 in {0,1}, has
        KL(p || result) = ``divergence.kl``: the draws themselves add nothing.
        """
        z = check_binary("z", check_tensor("z", z, ("sample", len(self.units))))
        found = torch.zeros(len(z), len(self.units) + len(self.lost_units), device="cpu")
        found[:, list(self.units)] = z.to("cpu", torch.float32)
        return self._lost.draw(found, keyed_generator(seed))


@torch.no_grad()
def remap(
    energy: GraphBoltzmann,
    nodes: Iterable[int],
    edges: Iterable[Sequence[int]],
    *,
    candidates: np.ndarray | None = None,
    z: Tensor | None = None,
    seed: int = 0,
) -> Remapped:
    """Lay a trained prior onto a solver's graph that lacks some of its nodes or edges.

    Of the candidates that place is taken whose lost pairs have the smallest sum of squared weights. Units without a
    node are summed out: what is left of them is a function of their neighbors, which linear terms and the couplers
    that remain take over as well as they can, by least squares over samples of the prior; so are lost couplers. Least
    squares of log p - log p' are KL(p || p') to second order. Half of the samples fit, the other half measure.

    The cost is estimated from samples of the prior and of what is left of it (`estimate_divergence`), the latter
    by 1,000 sweeps of block Gibbs; it holds as far as these samples do.

    Args:
        energy: The prior; it stays as it is.
        nodes: The solver's working nodes, `nodelist` of a structured sampler.
        edges: Its working edges, `edgelist`.
        candidates: (place, unit), nodes for the units, from `places`; None means where they lie, `energy.nodes`.
        z: Independent samples of the prior, (sample, unit) in {0,1}, at least 100; of a prior with distant modes those
            of tempered chains. None draws 4,000 by 1,000 sweeps of block Gibbs.
        seed: Of these.

    Warns:
        UserWarning: If p' is so far from p that the divergence rests on few of the samples.

    Examples:
        >>> ring = GraphBoltzmann(4, [[0, 1], [1, 2], [2, 3], [3, 0]], nodes=[10, 11, 12, 13])
        >>> found = remap(ring, [10, 11, 12], [[10, 11], [11, 12]])
        >>> found.energy.nodes, found.lost_units, found.lost_pairs
        ((10, 11, 12), (3,), ((2, 3), (3, 0)))
    """
    _check_graph(energy)
    node_list, edge_list = sorted(nodes), list(edges)
    places = np.array(energy.nodes)[None] if candidates is None else np.asarray(candidates)
    if places.shape[1:] != (energy.num_units,) or not len(places) or places.dtype.kind not in "iu":
        rule = f"must be integers (place, {energy.num_units}), one place at least"
        received = f"{places.dtype} of shape {places.shape}"
        raise InvalidInputError("candidates", rule, received, "discrete_vae.interop.dimod.places makes them.")
    place = places[int(losses(energy, places, node_list, edge_list).argmin())]
    kept = np.flatnonzero(np.isin(place, node_list))
    if not len(kept):
        rule, repair = "must hold a node of the prior", "Lay it elsewhere: give candidates."
        raise InvalidInputError("nodes", rule, "none of them", repair)
    pairs = energy.edges.cpu().numpy()
    alive = np.isin(codes_of(place[pairs]), _couplers(edge_list)) & np.isin(pairs, kept).all(1)
    lost = LostUnits(energy, kept, ~alive)
    machine = GraphBoltzmann(len(kept), np.searchsorted(kept, pairs[alive]), nodes=place[kept].tolist())
    machine = machine.to(energy.bias.dtype)  # with the remaining terms, as they were
    machine.weight.copy_(energy.weight[torch.from_numpy(alive)])
    machine.bias.copy_(energy.bias[torch.from_numpy(kept)])
    dropped = divergence = Divergence(0.0, 0.0, 0.0)
    if not alive.all() or len(kept) < energy.num_units:
        if z is None:
            z = BlockGibbs(energy, _SAMPLES, seed=seed).step(_SWEEPS)
        z = check_binary("z", check_tensor("z", z, ("sample", energy.num_units)))
        if len(z) < 100:
            raise InvalidInputError("z", "must have at least 100 samples", len(z), "Draw more.")
        z = z.double().cpu()
        fit, measure = z[::2], z[1::2]  # of samples in any order, also by their energies
        dropped = estimate_divergence(
            lost.log_factor, measure, _states(machine, kept, measure, seed), warn=False
        )
        bias, weight = lost.fit(fit, pairs[alive])
        machine.bias.add_(bias[kept].to(machine.bias))
        machine.weight.add_(weight.to(machine.weight))

        fitted = weight != 0
        ends = pairs[alive][fitted.numpy()].T

        def ratio(z: Tensor) -> Tensor:
            return lost.log_factor(z) - z @ bias - (z[:, ends[0]] * z[:, ends[1]]) @ weight[fitted]

        divergence = estimate_divergence(ratio, measure, _states(machine, kept, measure, seed))
    return Remapped(
        machine,
        tuple(kept.tolist()),
        tuple(np.setdiff1d(np.arange(energy.num_units), kept).tolist()),
        tuple((int(a), int(b)) for a, b in pairs[~alive]),
        divergence,
        dropped,
        lost,
    )


def _check_graph(energy: object) -> None:
    if not isinstance(energy, GraphBoltzmann):
        repair = "Train a prior on the solver's graph: GraphBoltzmann."
        raise InvalidInputError("energy", "must be a GraphBoltzmann", f"a {type(energy).__name__}", repair)


def _states(machine: GraphBoltzmann, kept: np.ndarray, like: Tensor, seed: int) -> Tensor:
    """Samples of the remaining machine, as many as are given, in the places of the original's units."""
    found = torch.zeros_like(like)
    found[:, kept] = BlockGibbs(machine, len(like), seed=seed).step(_SWEEPS).to(like)
    return found


# Graphs of solvers, and places of a prior's units on them.


_LATTICES = ("chimera", "pegasus", "zephyr")
_PLACES = 1000  # that are looked at together


def solver_graph(solver: Sampler) -> GraphBoltzmannConfig:
    """The config of a prior on all of a solver's graph: its working qubits and couplers.

    The solver has a graph of its own, whose nodes are whole numbers. The config holds the graph, and so do runs and
    saved models, which need neither the solver nor dimod to be loaded.

    Examples:
        >>> import dimod
        >>> solver = dimod.StructureComposite(dimod.RandomSampler(), [4, 7, 9], [(4, 7), (7, 9)])
        >>> config = solver_graph(solver)
        >>> config.num_units, config.edges, config.nodes
        (3, ((0, 1), (1, 2)), (4, 7, 9))
    """
    found: Any = solver
    nodes = getattr(found, "nodelist", None)
    if not nodes or not all(isinstance(node, int | np.integer) for node in nodes):
        received = f"a {type(solver).__name__}, nodes {None if nodes is None else list(nodes)[:3]}"
        repair = "Give a structured sampler, such as a QPU or dimod.StructureComposite."
        raise InvalidInputError("solver", "must have a graph whose nodes are whole numbers", received, repair)
    nodes = sorted(map(int, nodes))
    place = {node: unit for unit, node in enumerate(nodes)}
    edges = sorted({(min(place[a], place[b]), max(place[a], place[b])) for a, b in found.edgelist})
    return GraphBoltzmannConfig(num_units=len(nodes), edges=tuple(edges), nodes=tuple(nodes))


def places(
    energy: GraphBoltzmann,
    *,
    lattice: tuple[str, int] | None = None,
    num_symmetries: int = 200,
    seed: int = 0,
) -> np.ndarray:
    """Nodes, (place, unit), that the units may lie on with every pair on a coupler of a solver without gaps.

    The first are those that they have, which on a larger lattice need not fit. The others are symmetries of the graph,
    drawn uniformly; where the solver's lattice is larger than the prior's, each shift over it too.

    Args:
        energy: The machine.
        lattice: Family and size of the solver's lattice, ("zephyr", 12), as a device states it in its topology; the
            machine's graph must be a smaller one of the family. None means the nodes are not left.
        num_symmetries: Symmetries that are drawn, for each shift.
        seed: Of the draws.

    Examples:
        >>> places(GraphBoltzmann(8, "chimera"), lattice=("chimera", 3), num_symmetries=1).shape
        (19, 8)
    """
    graphs, networks = library("dwave.graphs"), library("networkx")
    _check_graph(energy)
    check_positive_int("num_symmetries", num_symmetries)
    graph = networks.Graph()
    graph.add_nodes_from(range(energy.num_units))
    graph.add_edges_from(energy.edges.tolist())
    group = graphs.schreier_rep(graph)
    anywhere = np.arange(energy.num_units)[None]
    shifts = np.array(energy.nodes)[None] if lattice is None else _shifts(energy, lattice)
    found = [np.array(energy.nodes)[None]]
    for index, shift in enumerate(shifts):
        symmetries = anywhere
        if group.u_vector:
            options = {"seed": seed + index, "num_nodes": energy.num_units}
            draws = np.stack(graphs.sample_automorphisms(group.u_vector, num_symmetries, **options))
            symmetries = np.concatenate([anywhere, draws]) if lattice else draws
        found.append(shift[symmetries])
    return np.concatenate(found)


def _shifts(energy: GraphBoltzmann, lattice: tuple[str, int]) -> np.ndarray:
    graphs = library("dwave.graphs")
    family, size = lattice if len(lattice) == 2 else ("", 0)
    if family in _LATTICES and isinstance(size, int):
        make, maps = getattr(graphs, f"{family}_graph"), getattr(graphs, f"{family}_sublattice_mappings")
        ours = np.sort(codes_of(energy.edges.cpu().numpy()))
        for own in map(make, range(1, size + 1)):
            nodes = np.array(sorted(own))
            theirs = np.searchsorted(nodes, np.array(own.edges).reshape(-1, 2))
            if len(nodes) == energy.num_units and np.array_equal(np.sort(codes_of(theirs)), ours):
                shifts = maps(own, make(size))
                return np.array([[to_node(node) for node in nodes.tolist()] for to_node in shifts])
    rule = "must be a family and a size of which the machine's graph is a smaller one"
    received = f"{lattice!r} for {energy.num_units} units and {len(energy.edges)} edges"
    raise InvalidInputError("lattice", rule, received, f"Families are {', '.join(_LATTICES)}.")


def codes_of(edges: np.ndarray) -> np.ndarray:
    """A number for each edge, whichever way it points; (..., 2) -> (...)."""
    return (edges.min(-1).astype(np.int64) << 32) | edges.max(-1).astype(np.int64)


def _couplers(edges: Iterable[Sequence[int]]) -> np.ndarray:
    return codes_of(np.array([tuple(edge) for edge in edges], np.int64).reshape(-1, 2))


def losses(
    energy: GraphBoltzmann, candidates: np.ndarray, nodes: Iterable[int], edges: Iterable[Sequence[int]]
) -> np.ndarray:
    """Sum of the squared weights of the pairs that a solver lacks, for each candidate (place, unit): (place,)."""
    weight, bias = (
        p.detach().to("cpu", torch.float64).square().numpy() for p in (energy.weight, energy.bias)
    )
    pairs, theirs, couplers = energy.edges.cpu().numpy(), np.fromiter(nodes, np.int64), _couplers(edges)
    found = []
    for block in np.array_split(candidates, max(1, -(-len(candidates) // _PLACES))):
        gone = ~np.isin(block, theirs)
        lost = ~np.isin(codes_of(block[:, pairs]), couplers)
        # of equal ones that which keeps more units and pairs
        found.append(lost @ (weight + 1e-9) + 1e-9 * gone @ (1 + bias))
    return np.concatenate(found)


# Units and pairs that a solver lacks: summed out, drawn, and fitted by what remains.


_MOST_TOGETHER = 12
_PSEUDO_SAMPLES = 4.0  # of least squares, for mean field: samples of units that hardly change tell little


class _Cluster:
    """Lost units that are joined to each other, with all of their states (state, unit) and the units that they touch.

    ``inner`` is -E of each state without neighbors, (state,).
    """

    def __init__(self, matrix: Tensor, bias: Tensor, units: np.ndarray, kept: np.ndarray) -> None:
        if len(units) > _MOST_TOGETHER:
            rule = f"must leave no more than {_MOST_TOGETHER} lost units joined to each other"
            repair = "Train anew on the solver's graph: too much is gone."
            raise InvalidInputError("nodes", rule, f"{len(units)} of them", repair)
        self.units = units
        self.neighbors = kept[(matrix[units][:, kept] != 0).any(0).numpy()]
        self.weight = matrix[units][:, self.neighbors]
        codes = np.arange(2 ** len(units))[:, None]
        self.states = torch.from_numpy(((codes >> np.arange(len(units))) & 1).astype(float))
        inside = matrix[units][:, units].triu(1)
        self.inner = self.states @ bias[units] + (self.states @ inside * self.states).sum(1)

    def log_weights(self, z: Tensor) -> Tensor:
        """-E of each state given all units, (sample, state)."""
        return z[:, self.neighbors] @ self.weight.T @ self.states.T + self.inner

    def log_factor(self, z: Tensor) -> Tensor:
        """The log of their sum over all states, (sample,)."""
        return self.log_weights(z).logsumexp(1)


class LostUnits:
    """The units and pairs that a solver lacks: all units but ``kept``, and the pairs in ``lost``, (edge,) bool.

    p(z) of the remaining units has a factor for each cluster of lost units and for each lost pair of remaining ones.
    """

    def __init__(self, energy: GraphBoltzmann, kept: np.ndarray, lost: np.ndarray) -> None:
        num_units, edges = energy.num_units, energy.edges.cpu().numpy()
        weight = energy.weight.detach().to("cpu", torch.float64)
        bias = energy.bias.detach().to("cpu", torch.float64)
        matrix = torch.zeros(num_units, num_units, dtype=torch.float64, device="cpu")
        first, second = torch.from_numpy(edges).T
        matrix[first, second] = matrix[second, first] = weight
        gone = np.setdiff1d(np.arange(num_units), kept)
        joined = sparse.coo_array((np.ones(len(edges)), edges.T), (num_units, num_units)).tocsr()
        count, part = csgraph.connected_components(joined[gone][:, gone], directed=False)
        self._clusters = [_Cluster(matrix, bias, gone[part == index], kept) for index in range(count)]
        # of each factor the remaining units that it touches, and its log for (sample, unit)
        self._factors: list[tuple[np.ndarray, Callable[[Tensor], Tensor]]] = [
            (cluster.neighbors, cluster.log_factor) for cluster in self._clusters
        ]
        both = lost & np.isin(edges, kept).all(1)
        for pair, strength in zip(edges[both], weight[torch.from_numpy(both)], strict=True):
            self._factors.append((pair, lambda z, pair=pair, w=strength: w * z[:, pair[0]] * z[:, pair[1]]))

    def log_factor(self, z: Tensor) -> Tensor:
        """The log of all factors, (sample,), of states (sample, unit) float64, whose lost units are ignored."""
        return sum((log_factor(z) for _, log_factor in self._factors), z.new_zeros(len(z)))

    def fit(self, z: Tensor, couplers: np.ndarray) -> tuple[Tensor, Tensor]:
        """Linear terms (unit,) and pair terms (coupler,) that come closest to `log_factor` over samples of the machine.

        Each factor is fitted by its own neighborhood: the units that it touches, and the couplers between these. Where
        samples do not tell, mean field does: the change by a unit where others have their means.
        """
        bias = z.new_zeros(z.shape[1])
        weight = z.new_zeros(len(couplers))
        for touched, log_factor in self._factors:
            if not len(touched):  # a constant
                continue
            states = z.mean(0).repeat(2, len(touched), 1)
            for value in (0, 1):
                states[value, torch.arange(len(touched)), torch.from_numpy(touched)] = value
            low, high = log_factor(states.flatten(0, 1)).view(2, len(touched))
            values = log_factor(z) - z[:, touched] @ (high - low)
            inside = np.flatnonzero(np.isin(couplers, touched).all(1))
            ends = couplers[inside]
            features = torch.cat([z[:, touched], z[:, ends[:, 0]] * z[:, ends[:, 1]]], 1)
            features = features - features.mean(0)
            normal = (features.T @ features + _PSEUDO_SAMPLES * torch.eye(features.shape[1]).to(z)) / len(z)
            slopes = torch.linalg.solve(normal, features.T @ (values - values.mean()) / len(z))
            bias[touched] += (high - low) + slopes[: len(touched)]
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


# The divergence of two laws from samples of both.


_LEAST_OVERLAP = 0.01


def estimate_divergence(
    ratio: Callable[[Tensor], Tensor], of_p: Tensor, of_other: Tensor, *, warn: bool = True
) -> Divergence:
    """KL(p || p') = E_p[d] + log Z' - log Z from samples of both laws.

    The shift of log Z is Bennett's acceptance ratio: from samples of p alone, what p' puts where p has nothing would go
    unseen. ``ratio`` gives d = log p - log p' of states, up to its constant. Laws that hardly overlap are warned of.
    """
    up, down = ratio(of_p), ratio(of_other)
    weights = torch.full_like(down, 1 / len(down))
    shift, *_ = weighted_ratio(up, down, weights, num_up=len(up), num_down=len(down))
    constant = torch.tensor(shift + math.log(len(up) / len(down)), dtype=up.dtype)
    here, there = bridge_term(up, down, constant)
    if warn and min(float(here.mean()), float(there.mean())) < _LEAST_OVERLAP:
        warnings.warn(
            "the remapped prior hardly overlaps with the original, and the divergence rests on few samples: it is "
            f"about {float(up.mean()) + shift:.1f} nats. Look for a better place, or train anew on the solver's graph.",
            stacklevel=4,
        )
    first = (up - up.mean()) + here / here.mean() - 1  # what each sample adds to the deviation
    second = there / there.mean() - 1
    variance = first.square().mean() / len(up) + second.square().mean() / len(down)
    return Divergence(float(up.mean()) + shift, math.sqrt(float(variance)), shift)
