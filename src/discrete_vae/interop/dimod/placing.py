"""Where on a solver's graph the units of a prior may lie: graphs of solvers, and ways to lay a graph onto them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from discrete_vae.boltzmann.edges import TOPOLOGIES, check_nodes
from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.checks import check_positive_int
from discrete_vae.config import GraphBoltzmannConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod.extra import library

if TYPE_CHECKING:
    from dimod import Sampler

_LATTICES = ("chimera", "pegasus", "zephyr")


def solver_graph(solver: Sampler) -> GraphBoltzmannConfig:
    """The config of a prior on all of a solver's graph: its working qubits and couplers.

    The config holds the graph, and so do runs and saved models, which need neither the solver nor dimod to be loaded.

    Args:
        solver: A sampler with a graph of its own, whose nodes are whole numbers.

    Raises:
        InvalidInputError: If it has no such graph.

    Examples:
        >>> import dimod
        >>> solver = dimod.StructureComposite(dimod.RandomSampler(), [4, 7, 9], [(4, 7), (7, 9)])
        >>> config = solver_graph(solver)
        >>> config.num_units, config.edges, config.nodes
        (3, ((0, 1), (1, 2)), (4, 7, 9))
    """
    found: Any = solver
    nodes = getattr(found, "nodelist", None)
    if not nodes or not all(isinstance(node, int) for node in nodes):
        received = f"a {type(solver).__name__}" + (
            "" if nodes is None else f" with nodes {list(nodes)[:3]} ..."
        )
        repair = "Give a structured sampler, such as a QPU or dimod.StructureComposite."
        raise InvalidInputError("solver", "must have a graph whose nodes are whole numbers", received, repair)
    nodes = sorted(nodes)
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
    """Nodes that the units of a graph may lie on with every pair on a coupler of a solver without gaps.

    The first are those that they have. The others are symmetries of the graph, drawn uniformly; where the solver's
    lattice is larger than the prior's, each shift over it too.

    Args:
        energy: The machine.
        lattice: Family and size of the solver's lattice, ("zephyr", 12), as a device states it in its topology; the
            machine's graph must be a smaller one of the family. None means the nodes are not left.
        num_symmetries: Symmetries that are drawn, for each shift.
        seed: Of the draws.

    Returns:
        (place, unit) int64, a node for each unit.

    Raises:
        InvalidInputError: If dwave-graphs is missing, a number is not positive, or the lattice is none into which the
            machine's graph fits.

    Examples:
        >>> places(GraphBoltzmann(8, "chimera"), num_symmetries=3).shape
        (4, 8)
        >>> places(GraphBoltzmann(8, "chimera"), lattice=("chimera", 3), num_symmetries=1).shape
        (19, 8)
    """
    graphs, networks = library("dwave.graphs"), library("networkx")
    check_positive_int("num_symmetries", num_symmetries)
    graph = networks.Graph()
    graph.add_nodes_from(range(energy.num_units))
    graph.add_edges_from(energy.edges.tolist())
    group = graphs.schreier_rep(graph)
    anywhere = np.arange(energy.num_units)[None]
    shifts = np.array(energy.nodes)[None] if lattice is None else _shifts(energy, *lattice)
    found = [np.array(energy.nodes)[None]]
    for index, shift in enumerate(shifts):
        symmetries = anywhere
        if group.u_vector:
            draws = graphs.sample_automorphisms(
                group.u_vector, num_symmetries, seed=seed + index, num_nodes=energy.num_units
            )
            symmetries = np.concatenate([anywhere, np.stack(draws)]) if lattice else np.stack(draws)
        found.append(shift[symmetries])
    return np.concatenate(found)


def _shifts(energy: GraphBoltzmann, family: str, size: int) -> np.ndarray:
    """The places of a lattice on a larger one, (shift, unit)."""
    rule = "must be a family and a size of which the machine's graph is a smaller one"
    repair = f"Families are {', '.join(_LATTICES)}."
    if family not in _LATTICES or not isinstance(size, int):
        raise InvalidInputError("lattice", rule, (family, size), repair)
    graphs = library("dwave.graphs")
    try:
        edges = TOPOLOGIES[family](energy.num_units)
    except InvalidInputError as error:
        raise InvalidInputError(
            "lattice", rule, f"{(family, size)} for {error.received} units", repair
        ) from None
    if not np.array_equal(edge_codes(edges.numpy()), edge_codes(energy.edges.cpu().numpy())):
        raise InvalidInputError("lattice", rule, f"{(family, size)} for another graph", repair)
    make, maps = getattr(graphs, f"{family}_graph"), getattr(graphs, f"{family}_sublattice_mappings")
    nodes = check_nodes(energy.num_units, None, family)
    own = next(m for m in range(1, energy.num_units + 1) if len(make(m)) >= len(nodes))
    if own > size:
        raise InvalidInputError("lattice", rule, f"{(family, size)}, smaller than the graph's {own}", repair)
    return np.array([[to_node(node) for node in nodes] for to_node in maps(make(own), make(size))])


def edge_codes(edges: np.ndarray) -> np.ndarray:
    """A number for each edge, whichever way it points, rising; (edge,) int64."""
    return np.sort(codes_of(edges))


def codes_of(edges: np.ndarray) -> np.ndarray:
    """A number for each edge, whichever way it points; (..., 2) -> (...)."""
    return (edges.min(-1).astype(np.int64) << 32) | edges.max(-1).astype(np.int64)


def losses(
    energy: GraphBoltzmann, candidates: np.ndarray, nodes: Iterable[int], edges: Iterable[Sequence[int]]
) -> np.ndarray:
    """Sum of the squared weights of the pairs that a solver lacks, for each place, (place,).

    Args:
        energy: The machine.
        candidates: (place, unit), a node for each unit.
        nodes: The solver's.
        edges: The solver's, pairs of nodes.
    """
    there = np.isin(candidates, np.fromiter(nodes, np.int64))
    pairs = energy.edges.cpu().numpy()
    couplers = codes_of(np.array([tuple(edge) for edge in edges], np.int64).reshape(-1, 2))
    weight = energy.weight.detach().to("cpu", torch.float64).square().numpy()
    bias = energy.bias.detach().to("cpu", torch.float64).square().numpy()
    lost = ~np.isin(codes_of(candidates[:, pairs]), couplers)
    return lost @ weight + 1e-9 * (~there) @ (1 + bias)  # of equal ones that which keeps more units
