"""The Boltzmann machine on any graph: edges, coloring, sparse products."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import Array, PairMachine
from discrete_vae.checks import check_positive_int, values_are_readable
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.registry import custom_op
from discrete_vae.system import check_memory

_DENSE = 8  # a whole matrix of up to so many entries per edge is computed faster than its entries one by one
_PER_UNIT, _PER_EDGE = 48, 120  # bytes of the constants, at least
Pairs = Sequence[Sequence[int]] | np.ndarray | Tensor
Edges = str | Pairs


class GraphBoltzmann(PairMachine):
    """Binary units with one weight per edge of a graph: E(z) = -(sum_{edges ij} W_ij z_i z_j + b^T z).

    The blocks are the colors of a greedy coloring, so neighbors are in different blocks and units of one block
    are independent given all others. Memory and time grow with the edges, never with the square of the units: the
    constants take some 120 bytes per edge, and a product with gathered states 64 MiB at a time.
    Weights and biases start at zero, where log Z = n log 2 exactly.

    Source: Rolfe 2017, eq. RBM-distribution, whose triangular W it is on the complete graph.

    Args:
        num_units: Number of units, at least 1.
        edges: Pairs of different units, each pair once in either order: nested lists, or an integer array or
            tensor (edge, 2). Or a name: "complete" joins all units; "chimera", "pegasus" and "zephyr" are the graphs
            of quantum annealers, see `chimera_edges`, `pegasus_edges` and `zephyr_edges` for their numbers of units.
        nodes: Number of each unit's node in a larger graph, such as a qubit of an annealer. None means those of a named
            graph, else 0, 1, ...

    Attributes:
        weight: (edge,), in the order of the edges.
        bias: (unit,).
        edges: (edge, 2) int64, as given.
        nodes: The numbers above; no part of the law.
        order: (unit,) int64, the units block after block. Row r of the neighbor lists belongs to unit order[r].
        start: (unit + 1,) int64; the entries of row r are start[r] to start[r + 1] - 1.
        neighbor: (entry,) int64, the neighbor of each entry.
        neighbor_edge: (entry,) int64, its edge.

    Examples:
        >>> triangle = GraphBoltzmann(3, [[0, 1], [1, 2], [0, 2]])
        >>> with torch.no_grad():
        ...     _ = triangle.weight.copy_(torch.tensor([1.0, 2.0, 4.0]))
        >>> triangle.energy(torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])).tolist()
        [-7.0, -4.0]
        >>> [block.tolist() for block in GraphBoltzmann(4, [[0, 1], [1, 2], [2, 3], [3, 0]]).blocks]
        [[0, 2], [1, 3]]
    """

    _compiled_sweeps = "gibbs_graph"  # in `discrete_vae.kernels`

    def __init__(self, num_units: int, edges: Edges, nodes: Sequence[int] | None = None) -> None:
        super().__init__()
        self.num_units = check_positive_int("num_units", num_units)
        num_edges = num_units * (num_units - 1) // 2 if isinstance(edges, str) and edges == "complete" else 0
        check_memory("num_units", _PER_UNIT * num_units + _PER_EDGE * num_edges, "Use fewer units.")
        with torch.device("cpu"):  # NumPy works the graph out, wherever the weights are wanted
            pairs = check_edges(num_units, edges).numpy()
        self.nodes = check_nodes(num_units, nodes, edges)
        self.weight = nn.Parameter(torch.zeros(len(pairs)))
        self.bias = nn.Parameter(torch.zeros(num_units))
        blocks = color_blocks(num_units, pairs)
        # a machine without values keeps its graph on the CPU, where it can be looked at
        on = torch.device("cpu") if self.bias.is_meta else self.bias.device
        self.blocks = tuple(torch.from_numpy(block).to(on) for block in blocks)
        order = np.concatenate(blocks)
        start, neighbor, edge = adjacency(order, pairs)
        # the row of each entry, counted from the first row of its block
        row_in_block = np.concatenate([np.arange(len(block)) for block in blocks])
        by_place = np.lexsort(pairs.T)  # the edges' matrix, row after row

        def constant(array: np.ndarray) -> nn.Buffer:
            # the graph belongs to the constructor's arguments, not to the state
            return nn.Buffer(torch.from_numpy(np.ascontiguousarray(array)).to(on), persistent=False)

        self.edges, self.order, self.start = constant(pairs), constant(order), constant(start)
        self.neighbor, self.neighbor_edge = constant(neighbor), constant(edge)
        self._edge_order, self._edge_places = constant(by_place), constant(pairs[by_place][:, ::-1].T)
        # of the edges in their order, whichever end comes first
        self._edges_sum = hashlib.sha256(np.sort(pairs, axis=1).tobytes()).hexdigest()
        ends = np.cumsum([0, *map(len, blocks)])
        self._entries = [slice(a, b) for a, b in pairwise(start[ends].tolist())]
        places = np.stack([row_in_block.repeat(np.diff(start)), neighbor])
        for index, entries in enumerate(self._entries):
            setattr(self, f"_places_{index}", constant(places[:, entries]))

    def extra_repr(self) -> str:
        return f"num_units={self.num_units}, num_edges={len(self.edges)}"

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            metadata[prefix[:-1]]["edges"] = self._edges_sum

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Mapping[str, Any], *rest: Any
    ) -> None:
        """Take weights of the same edges in their order; a state_dict that does not tell its edges is believed."""
        if local_metadata.get("edges", self._edges_sum) != self._edges_sum:
            rule = "must be of a machine with these edges, in their order"
            repair = "Build it with the same edges."
            raise InvalidInputError("state_dict", rule, "weights of other edges", repair)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    @classmethod
    def from_ising(
        cls,
        num_units: int,
        edges: Edges,
        couplings: Array,
        fields: Array,
        *,
        dtype: torch.dtype | None = None,
    ) -> GraphBoltzmann:
        """The machine whose bits z = (s + 1) / 2 have the law of the spins s in {-1,+1} of an Ising model.

        p(s) ~ exp(-E_ising(s)) with E_ising(s) = -(sum_{edges ij} J_ij s_i s_j + h^T s): a positive coupling aligns
        spins, a positive field turns them up. Energies are in nats; divide those of a package by its temperature
        first; for the signs of dimod see `IsingModel`.

        Units and edges are as in the constructor. The couplings J, (edge,), are in the order of the edges; they and the
        fields h, (unit,), are tensors, arrays or nested lists. ``dtype=None`` is torch's default.
        `to_ising` gives both back.

        Examples:
            >>> ring = GraphBoltzmann.from_ising(3, [[0, 1], [1, 2], [2, 0]], [1, 1, -1], [0, 0, 0])
            >>> ring.weight.tolist(), ring.bias.tolist()
            ([4.0, 4.0, -4.0], [0.0, -4.0, 0.0])
        """
        machine = cls(num_units, edges).to(dtype or torch.get_default_dtype())
        return machine._set_from_ising_(couplings, fields)

    def _pair_sums(self, values: Tensor) -> Tensor:
        sums = values.new_zeros(self.num_units)
        return sums.index_add(0, self.edges[:, 0], values).index_add(0, self.edges[:, 1], values)

    def compute_energy(self, z: Tensor) -> Tensor:
        z = self._widen(z)
        weight = self.weight.to(z.dtype).index_select(0, self._edge_order)
        fields = sparse_product(weight, z, self._edge_places, self.num_units, coalesced=True)
        return -((fields + self.bias.to(z.dtype)) * z).sum(-1)

    def compute_block_logits(self, z: Tensor, block: int) -> Tensor:
        z = self._widen(z)
        entries, units = self._entries[block], getattr(self, f"_block_{block}")
        weight = self.weight.to(z.dtype).index_select(0, self.neighbor_edge[entries])
        places = getattr(self, f"_places_{block}")
        fields = sparse_product(weight, z, places, len(units), coalesced=True)
        return fields + self.bias.to(z.dtype)[units]

    def sum_pairs(self, z: Tensor) -> Tensor:
        flat = z[None].mT.flatten(0, -3)
        if len(self.edges) * _DENSE >= self.num_units**2:
            sums = (flat @ flat.transpose(1, 2))[:, self.edges[:, 0], self.edges[:, 1]]
        else:
            sums = torch.stack([_SampledProduct.apply(part, part, *self.edges.T) for part in flat])
        return sums.view(*z.shape[:-2], len(self.edges))

    def pair_order(self, group_of_unit: Tensor) -> nn.Module:
        return _PairOrder(self.edges.cpu(), group_of_unit.cpu())

    def expected_energy(self, bits: Tensor, probabilities: Tensor, order: nn.Module) -> Tensor:
        assert isinstance(order, _PairOrder)
        weight = self.weight.to(probabilities.dtype)
        fields = self.bias.to(probabilities.dtype)
        for edges, source in ((order.apart, bits), (order.together, probabilities)):
            if len(edges) > 0:
                earlier, later = order.earlier[edges], order.later[edges]
                fields = fields + sparse_product(
                    weight[edges], source, torch.stack([later, earlier]), self.num_units
                )
        return -(fields * probabilities).sum(-1)


class _PairOrder(nn.Module):
    """The units of each edge in the order of sampling, and which edges lie between groups and inside one."""

    def __init__(self, edges: Tensor, group_of_unit: Tensor) -> None:
        super().__init__()
        first, second = edges.T
        forward = group_of_unit[first] <= group_of_unit[second]
        self.earlier = nn.Buffer(torch.where(forward, first, second), persistent=False)
        self.later = nn.Buffer(torch.where(forward, second, first), persistent=False)
        apart = group_of_unit[self.earlier] < group_of_unit[self.later]
        self.apart = nn.Buffer(apart.nonzero().flatten(), persistent=False)
        self.together = nn.Buffer((~apart).nonzero().flatten(), persistent=False)


# Graphs that have a name. Units of those of quantum annealers are in the order in which their maker numbers the nodes.


# of 12 parallel lines of Pegasus, how many lines of the other direction lie before their start
_PEGASUS_STARTS = np.array([[2] * 4 + [10] * 4 + [6] * 4, [6] * 4 + [2] * 4 + [10] * 4])


def chimera_edges(num_units: int) -> Tensor:
    """The square Chimera graph of 8 m^2 units, (edge, 2).

    Each cell of an m x m grid is a complete bipartite graph of 4 + 4 units, numbered one cell after another, row
    by row. The first four of a cell are joined to those of the cell below, the others to those of the cell to the
    right, so the graph is bipartite and no unit has more than six neighbors.

    Source: Bunyk et al. 2014, "Architectural considerations in the design of a superconducting quantum annealing
    processor".
    """
    size = _size("a Chimera graph", "8 m^2", num_units, lambda m: 8 * m * m)
    units = torch.arange(num_units).view(size, size, 2, 4)
    inside = torch.stack(torch.broadcast_tensors(units[:, :, 0, :, None], units[:, :, 1, None, :]), -1)
    below = torch.stack([units[:-1, :, 0], units[1:, :, 0]], -1)
    right = torch.stack([units[:, :-1, 1], units[:, 1:, 1]], -1)
    return torch.cat([part.reshape(-1, 2) for part in (inside, below, right)])


def pegasus_edges(num_units: int) -> Tensor:
    """The Pegasus graph of 8 (m - 1) (3 m - 1) units, (edge, 2); no unit has more than 15 neighbors.

    Units are lines of a square grid, joined to the lines that they cross, to the next ones on the same track, and in
    pairs side by side. Lines that cross no other are left out, so nodes have gaps in their numbers: `pegasus_nodes`.

    Source: Boothby, Bunyk, Raymond & Roy 2020, "Next-generation topology of D-Wave quantum processors".
    """
    return torch.from_numpy(_pegasus(num_units)[0])


def pegasus_nodes(num_units: int) -> tuple[int, ...]:
    """The number that each unit's node has in a Pegasus graph with all of its lines, rising."""
    return tuple(_pegasus(num_units)[1].tolist())


def zephyr_edges(num_units: int) -> Tensor:
    """The Zephyr graph of 16 m (2 m + 1) units, (edge, 2); no unit has more than 20 neighbors.

    Units are lines of a square grid, joined to the lines that they cross, to the next ones on the same track, and to
    those on the neighboring track, which lie half a length further.

    Source: Boothby, King & Raymond 2021, "Zephyr topology of D-Wave quantum processors".
    """
    size = _size("a Zephyr graph", "16 m (2 m + 1)", num_units, lambda m: 16 * m * (2 * m + 1))
    units = np.arange(num_units).reshape(2, 2 * size + 1, 4, 2, size)
    position, track, place = np.indices(units.shape)[[1, 3, 4]]  # of direction, position, copy, track, place
    crossing = _crossings(position, 2 * place + track, 2)
    along = _pairs(units[..., :-1], units[..., 1:])
    beside = _pairs(units[..., 0, :], units[..., 1, :])
    further = _pairs(units[..., 0, 1:], units[..., 1, :-1])
    return torch.from_numpy(np.concatenate([crossing, along, beside, further]))


def _pegasus(num_units: int) -> tuple[np.ndarray, np.ndarray]:
    size = 1 + _size("a Pegasus graph", "8 (m - 1) (3 m - 1)", num_units, lambda m: 8 * m * (3 * m + 2))
    nodes = np.arange(24 * size * (size - 1)).reshape(2, size, 12, size - 1)
    direction, coarse, fine, place = np.indices(nodes.shape)
    crossing = _crossings(12 * coarse + fine, 12 * place + _PEGASUS_STARTS[direction, fine], 12)
    along = _pairs(nodes[..., :-1], nodes[..., 1:])
    beside = _pairs(nodes[:, :, ::2], nodes[:, :, 1::2])
    kept = np.unique(crossing)
    edges = np.concatenate([crossing, along, beside])
    edges = edges[np.isin(edges, kept).all(1)]
    return np.searchsorted(kept, edges), kept


def _crossings(position: np.ndarray, start: np.ndarray, length: int) -> np.ndarray:
    """Pairs of lines of both directions that cross, (pair, 2).

    Lines are numbered in the order of position, where each lies across, (direction, ...), and begin at start along.
    """
    across, begin = position.reshape(2, -1), start.reshape(2, -1)
    covers = [
        (begin[mine][:, None] <= across[other]) & (across[other] < begin[mine][:, None] + length)
        for mine, other in itertools.permutations((0, 1))
    ]
    first, second = np.nonzero(covers[0] & covers[1].T)
    return np.stack([first, second + across.shape[1]], axis=1)


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.stack([first.ravel(), second.ravel()], axis=1)


def _size(what: str, formula: str, num_units: int, count: Callable[[int], int]) -> int:
    check_positive_int("num_units", num_units)
    size = next(m for m in itertools.count(1) if count(m) >= num_units)
    if count(size) != num_units:
        nearest = " and ".join(map(str, sorted({count(max(1, size - 1)), count(size)})))
        repair = f"Near it there are {nearest}."
        raise InvalidInputError("num_units", f"must be {formula} for {what}", num_units, repair)
    return size


TOPOLOGIES: dict[str, Callable[[int], Tensor]] = {
    "chimera": chimera_edges,
    "complete": lambda num_units: torch.triu_indices(num_units, num_units, 1).T.contiguous(),
    "pegasus": pegasus_edges,
    "zephyr": zephyr_edges,
}


# Edges and nodes of the user's own: checks.


_RULE = "must be pairs of two different units, each pair once"
_EXAMPLE = "For a triangle: [[0, 1], [1, 2], [0, 2]]."


def check_edges(num_units: int, edges: Edges) -> Tensor:
    """The edges, a name in `TOPOLOGIES` or pairs, as a tensor (edge, 2) int64, in the order and orientation given."""
    if isinstance(edges, str):
        if edges not in TOPOLOGIES:
            known = f"must be pairs of units or one of {', '.join(map(repr, TOPOLOGIES))}"
            raise InvalidInputError("edges", known, repr(edges), _EXAMPLE)
        return TOPOLOGIES[edges](num_units)
    pairs = _as_array(edges)
    _refuse((pairs < 0) | (pairs >= num_units), pairs, f"must hold units from 0 to {num_units - 1}")
    _refuse(pairs[:, :1] == pairs[:, 1:], pairs, "must join two different units")
    codes = pairs.min(1) * num_units + pairs.max(1)
    first = np.unique(codes, return_index=True)[1]
    again = np.ones((len(pairs), 1), bool)
    again[first] = False
    _refuse(again, pairs, "must join units that no earlier edge joins")
    return torch.from_numpy(pairs)


def check_nodes(num_units: int, nodes: Sequence[int] | None, edges: Edges) -> tuple[int, ...]:
    """The number of each unit's node in a larger graph; None means those of the named graph's maker, else 0, 1, ..."""
    if nodes is None:
        named = isinstance(edges, str) and edges == "pegasus"
        return pegasus_nodes(num_units) if named else tuple(range(num_units))
    rule = f"must be {num_units} different whole numbers of at least 0, one for each unit"
    try:
        found = tuple(operator.index(node) for node in nodes)
    except TypeError:
        raise InvalidInputError("nodes", rule, repr(nodes)[:80], "Leave them out for 0, 1, ...") from None
    if len(found) != num_units or len(set(found)) != num_units or min(found) < 0:
        received = f"{len(found)} numbers, {len(set(found))} of them different"
        raise InvalidInputError("nodes", rule, received, "Leave them out for 0, 1, ...")
    return found


def _as_array(edges: Pairs) -> np.ndarray:
    try:
        array = np.asarray(edges.cpu() if isinstance(edges, Tensor) else edges)
    except (ValueError, TypeError):  # ragged
        raise InvalidInputError("edges", _RULE, "entries of several lengths", _EXAMPLE) from None
    if array.shape == (0,):
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        received = f"an array of {array.dtype} and shape {array.shape}"
        raise InvalidInputError("edges", _RULE, received, _EXAMPLE)
    return array.astype(np.int64)


def _refuse(wrong: np.ndarray, pairs: np.ndarray, rule: str) -> None:
    """Name the first wrong pair, if there is one; wrong is (edge, 1 or 2)."""
    found = np.flatnonzero(wrong.any(1))
    if len(found):
        repair = f"Change the edge. ({len(found)} in all are wrong.)"
        raise InvalidInputError(f"edges[{found[0]}]", rule, pairs[found[0]].tolist(), repair)


# Coloring: units of one color are never neighbors, so block Gibbs may draw them together.


def adjacency(order: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The neighbors of each unit, ascending, as compressed sparse rows; row r is of unit order[r].

    These are the start of each row, (row + 1,), and of each entry the neighbor and the edge, (entry,), int64.
    """
    row_of = np.empty_like(order)
    row_of[order] = np.arange(len(order))
    rows = row_of[edges.T].reshape(-1)
    neighbor = edges.T[::-1].reshape(-1)
    entries = np.lexsort((neighbor, rows))
    start = np.concatenate([[0], np.bincount(rows, minlength=len(order)).cumsum()])
    return start, neighbor[entries], entries % max(1, len(edges))


def greedy_coloring(num_units: int, edges: np.ndarray) -> np.ndarray:
    """Colors from 0, (unit,) int64, by saturation degree; deterministic, and two where these suffice.

    The next unit is the one whose neighbors have the most colors so far, then the one with the most neighbors,
    then the first; it takes the lowest color that none of its neighbors has. Time grows as
    (units + edges) log(units + edges).

    Source: Brelaz 1979, "New methods to color the vertices of a graph" (DSATUR).
    """
    start, neighbor, _ = (part.tolist() for part in adjacency(np.arange(num_units), edges))
    degree = np.diff(start)
    # one integer per unit that sorts by saturation, then degree (both descending), then index
    step = num_units * (int(degree.max()) + 1)
    queue = (num_units * (degree.max() - degree) + np.arange(num_units)).tolist()
    priority = queue.copy()
    heapq.heapify(queue)
    colors = [-1] * num_units
    seen = [0] * num_units  # bit c: a neighbor has color c
    while queue:
        unit = heapq.heappop(queue) % num_units
        if colors[unit] >= 0:  # an entry from before its saturation rose
            continue
        bit = ~seen[unit] & (seen[unit] + 1)
        colors[unit] = bit.bit_length() - 1
        for other in neighbor[start[unit] : start[unit + 1]]:
            if colors[other] < 0 and not seen[other] & bit:
                seen[other] |= bit
                priority[other] -= step
                heapq.heappush(queue, priority[other])
    return np.array(colors)


def color_blocks(num_units: int, edges: np.ndarray) -> list[np.ndarray]:
    """The units of each color in ascending order, blocks in the order of their first units.

    A graph with the edges of an RBM so gets the RBM's blocks, the left side first.
    """
    colors = greedy_coloring(num_units, edges)
    first = np.unique(colors, return_index=True)[1]
    return [np.flatnonzero(colors == colors[unit]) for unit in np.sort(first)]


# Products of states with sparse matrices, with gradients of any order in the memory of the states: torch's own product
# of a sparse and a dense matrix forms a dense gradient for the sparse one. The two operations here are each other's
# derivatives and never leave the entries that are there.


_LARGEST_PART = 1 << 24  # numbers that a product of gathered states holds at a time


def sparse_product(
    values: Tensor, z: Tensor, places: Tensor, num_rows: int, *, coalesced: bool = False
) -> Tensor:
    """y_r = sum over the entries (r, c, v) of v z_c, (..., row), of states z (..., column) in the dtype of v.

    ``places`` are r and c, (2, entry) int64; ``coalesced`` ones ascend, r first, which spares sorting them.
    """
    flat = z.reshape(-1, z.shape[-1]).T.contiguous()
    return _SparseProduct.apply(values, flat, places, num_rows, coalesced).T.reshape(*z.shape[:-1], num_rows)  # pyright: ignore[reportOptionalMemberAccess]


def _multiply(values: Tensor, z: Tensor, places: Tensor, num_rows: int, coalesced: bool) -> Tensor:
    if values_are_readable(z):
        result = z.new_empty(num_rows, z.shape[1])
        _multiply_into(result, values, z, places, coalesced)
        return result
    # an accelerator would sort the entries in each call, and a compiled graph knows no sparse tensors
    result = z.new_zeros(num_rows, z.shape[1])
    size = max(1, _LARGEST_PART // max(1, z.shape[1]))
    for v, r, c in zip(values.split(size), *(place.split(size) for place in places), strict=True):
        result = result.index_add(0, r, z.index_select(0, c) * v[:, None])
    return result


@custom_op(only_read=("values", "z", "places"))
def _multiply_into(
    result: Tensor, values: Tensor, z: Tensor, places: Tensor, coalesced: bool
) -> Callable[[], object]:
    """torch's product, as one operation of a recording, which holds no sparse tensors."""
    matrix = torch.sparse_coo_tensor(
        places, values, (len(result), len(z)), check_invariants=False, is_coalesced=coalesced
    )
    return lambda: result.copy_(torch.sparse.mm(matrix, z))


class _SparseProduct(torch.autograd.Function):
    """values (entry,), z (column, batch) -> (row, batch)."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, z: Tensor, places: Tensor, num_rows: int, coalesced: bool
    ) -> Tensor:
        ctx.save_for_backward(values, z, places)
        return _multiply(values, z, places, num_rows, coalesced)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        values, z, places = ctx.saved_tensors
        grad = grad.contiguous()
        of_values = _SampledProduct.apply(grad, z, *places) if ctx.needs_input_grad[0] else None
        of_z = None
        if ctx.needs_input_grad[1]:
            of_z = _SparseProduct.apply(values, grad, places.flip(0), len(z), False)
        return of_values, of_z, None, None, None


class _SampledProduct(torch.autograd.Function):
    """left (row, batch), right (column, batch) -> sum over the batch of left_r right_c for each entry."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(left, right, rows, columns)
        size = max(1, _LARGEST_PART // max(1, left.shape[1]))
        parts = [
            (left.index_select(0, r) * right.index_select(0, c)).sum(-1)
            for r, c in zip(rows.split(size), columns.split(size), strict=True)
        ]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        left, right, rows, columns = ctx.saved_tensors
        of_left = of_right = None
        if ctx.needs_input_grad[0]:
            of_left = _SparseProduct.apply(grad, right, torch.stack([rows, columns]), len(left), False)
        if ctx.needs_input_grad[1]:
            of_right = _SparseProduct.apply(grad, left, torch.stack([columns, rows]), len(right), False)
        return of_left, of_right, None, None
