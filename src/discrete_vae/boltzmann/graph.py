"""The Boltzmann machine on any graph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.coloring import adjacency, color_blocks
from discrete_vae.boltzmann.edges import check_edges, check_nodes
from discrete_vae.boltzmann.ising import Array, IsingModel, set_from_ising_, to_ising
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.boltzmann.sparse_products import product_at, sampled_product, sparse_product
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import check_memory

_DENSE = 8  # a whole matrix of so many times the edges is had sooner than its entries one by one
_PER_UNIT, _PER_EDGE = 48, 120  # bytes of the constants, at least
Edges = str | Sequence[Sequence[int]] | np.ndarray | Tensor


class GraphBoltzmann(BoltzmannMachine):
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
            of quantum annealers, see `discrete_vae.boltzmann.topologies` for their numbers of units.
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

    Raises:
        InvalidInputError: If num_units is not a positive integer, edges are no pairs of different units, each pair
            once (names the first wrong one), or nodes are not one number of at least 0 for each unit, all different.

    Examples:
        >>> triangle = GraphBoltzmann(3, [[0, 1], [1, 2], [0, 2]])
        >>> with torch.no_grad():
        ...     _ = triangle.weight.copy_(torch.tensor([1.0, 2.0, 4.0]))
        >>> triangle.energy(torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])).tolist()
        [-7.0, -4.0]
        >>> [block.tolist() for block in GraphBoltzmann(4, [[0, 1], [1, 2], [2, 3], [3, 0]]).blocks]
        [[0, 2], [1, 3]]
    """

    edges: Tensor
    order: Tensor
    start: Tensor
    neighbor: Tensor
    neighbor_edge: Tensor
    _edge_places: Tensor
    _edge_order: Tensor

    def __init__(self, num_units: int, edges: Edges, nodes: Sequence[int] | None = None) -> None:
        super().__init__()
        self.num_units = check_positive_int("num_units", num_units)
        num_edges = num_units * (num_units - 1) // 2 if isinstance(edges, str) and edges == "complete" else 0
        check_memory("num_units", _PER_UNIT * num_units + _PER_EDGE * num_edges, "Use fewer units.")
        with torch.device("cpu"):  # NumPy works the graph out, wherever the weights are wanted
            pairs = check_edges(num_units, edges)
        self.nodes = check_nodes(num_units, nodes, edges)
        self.weight = nn.Parameter(torch.zeros(len(pairs)))
        self.bias = nn.Parameter(torch.zeros(num_units))
        blocks = color_blocks(num_units, pairs.numpy())
        # a machine without values keeps its graph on the CPU, where it can be looked at
        on = torch.device("cpu") if self.bias.is_meta else self.bias.device
        self.blocks = tuple(torch.from_numpy(block).to(on) for block in blocks)
        order = np.concatenate(blocks)
        rows = adjacency(order, pairs.numpy())
        # the row of each entry, counted from the first row of its block
        row_in_block = np.concatenate([np.arange(len(block)) for block in blocks])
        # the graph belongs to the constructor's arguments, not to the state
        for name, value in {
            "edges": pairs,
            "order": order,
            "start": rows.start,
            "neighbor": rows.neighbor,
            "neighbor_edge": rows.edge,
            **_sorted_places(pairs.numpy()),
        }.items():
            value = value if isinstance(value, Tensor) else torch.from_numpy(value)
            self.register_buffer(name, value.to(on), persistent=False)
        # of the edges in their order, whichever end comes first
        self._edges_sum = hashlib.sha256(np.sort(pairs.numpy(), axis=1).tobytes()).hexdigest()
        ends = np.cumsum([len(block) for block in blocks])
        cuts = [0, *rows.start[ends].tolist()]
        self._entries = [slice(a, b) for a, b in pairwise(cuts)]
        places = np.stack([row_in_block.repeat(np.diff(rows.start)), rows.neighbor])
        for index, entries in enumerate(self._entries):
            of_block = torch.from_numpy(np.ascontiguousarray(places[:, entries]))
            self.register_buffer(f"_places_{index}", of_block, persistent=False)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"num_units={self.num_units}, num_edges={len(self.edges)}"

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            metadata[prefix[:-1]]["edges"] = self._edges_sum

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Mapping[str, Any], *rest: Any
    ) -> None:
        """Take weights of the same edges; a state_dict that does not tell its edges is believed.

        Raises:
            InvalidInputError: If they are weights of other edges, or of the same ones in another order.
        """
        if local_metadata.get("edges", self._edges_sum) != self._edges_sum:
            rule, repair = (
                "must be of a machine with these edges, in their order",
                "Build it with the same edges.",
            )
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
        first. dimod minimizes +(sum J_ij s_i s_j + h^T s): its couplings and fields come here with their signs
        reversed.

        Args:
            num_units: Number of units.
            edges: As in the constructor.
            couplings: J, (edge,), in the order of the edges, a tensor, an array or nested lists.
            fields: h, (unit,).
            dtype: Of the parameters; None means torch's default.

        Raises:
            InvalidInputError: If the graph breaks its rules, or J or h has another shape or holds a number that is not
                finite.

        Examples:
            >>> ring = GraphBoltzmann.from_ising(3, [[0, 1], [1, 2], [2, 0]], [1, 1, -1], [0, 0, 0])
            >>> ring.weight.tolist(), ring.bias.tolist()
            ([4.0, 4.0, -4.0], [0.0, -4.0, 0.0])
        """
        machine = cls(num_units, edges).to(dtype or torch.get_default_dtype())
        set_from_ising_(machine.weight, machine.bias, couplings, fields, machine._pair_sums)
        return machine

    def to_ising(self) -> IsingModel:
        """The same law over spins: couplings (edge,), fields (unit,) and the offset; see `IsingModel`."""
        return to_ising(self.weight, self.bias, self._pair_sums)

    def _pair_sums(self, values: Tensor) -> Tensor:
        """Sums over the edges of each unit, (edge,) -> (unit,)."""
        sums = values.new_zeros(self.num_units)
        return sums.index_add(0, self.edges[:, 0], values).index_add(0, self.edges[:, 1], values)

    def is_factorial(self) -> bool:
        """See `BoltzmannMachine.is_factorial`: where all weights are zero, as at the start."""
        return not bool(self.weight.any())

    def compute_energy(self, z: Tensor) -> Tensor:
        """See `BoltzmannMachine.energy`."""
        z = self._widen(z)
        weight = self.weight.to(z.dtype).index_select(0, self._edge_order)
        fields = product_at(weight, z, self._edge_places, self.num_units, coalesced=True)
        return -((fields + self.bias.to(z.dtype)) * z).sum(-1)

    def compute_block_logits(self, z: Tensor, block: int) -> Tensor:
        """See `BoltzmannMachine.block_logits`."""
        z = self._widen(z)
        entries, units = self._entries[block], self.block_place(block)
        weight = self.weight.to(z.dtype).index_select(0, self.neighbor_edge[entries])
        places = getattr(self, f"_places_{block}")
        fields = product_at(weight, z, places, len(units), coalesced=True)
        return fields + self.bias.to(z.dtype)[units]

    def block_place(self, block: int) -> Tensor:
        """See `BoltzmannMachine.block_place`."""
        return getattr(self, f"_block_{block}")

    def sum_pairs(self, z: Tensor) -> Tensor:
        """See `BoltzmannMachine.sum_pairs`: one sum per edge."""
        flat = z.transpose(-1, -2).flatten(0, -3) if z.ndim > 2 else z.T[None]
        if len(self.edges) * _DENSE >= self.num_units**2:
            sums = (flat @ flat.transpose(1, 2))[:, self.edges[:, 0], self.edges[:, 1]]
        else:
            sums = torch.stack([sampled_product(part, part, *self.edges.T) for part in flat])
        return sums.view(*z.shape[:-2], len(self.edges))

    def pair_order(self, group_of_unit: Tensor) -> nn.Module:
        """See `BoltzmannMachine.pair_order`."""
        return _PairOrder(self.edges.cpu(), group_of_unit.cpu())

    def expected_energy(self, bits: Tensor, probabilities: Tensor, order: nn.Module) -> Tensor:
        """See `BoltzmannMachine.expected_energy`; each edge runs from the unit sampled earlier to the later one."""
        assert isinstance(order, _PairOrder)
        weight = self.weight.to(probabilities.dtype)
        fields = self.bias.to(probabilities.dtype)
        for edges, source in ((order.apart, bits), (order.together, probabilities)):
            if len(edges) > 0:
                earlier, later = order.earlier[edges], order.later[edges]
                fields = fields + sparse_product(weight[edges], source, later, earlier, self.num_units)
        return -(fields * probabilities).sum(-1)


class _PairOrder(nn.Module):
    """The units of each edge in the order of sampling, and which edges lie between groups and inside one."""

    earlier: Tensor
    later: Tensor
    apart: Tensor
    together: Tensor

    def __init__(self, edges: Tensor, group_of_unit: Tensor) -> None:
        super().__init__()
        forward = group_of_unit[edges[:, 0]] <= group_of_unit[edges[:, 1]]
        earlier = torch.where(forward, edges[:, 0], edges[:, 1])
        later = torch.where(forward, edges[:, 1], edges[:, 0])
        apart = group_of_unit[earlier] < group_of_unit[later]
        for name, value in {
            "earlier": earlier,
            "later": later,
            "apart": apart.nonzero().flatten(),
            "together": (~apart).nonzero().flatten(),
        }.items():
            self.register_buffer(name, value, persistent=False)


def _sorted_places(pairs: np.ndarray) -> dict[str, np.ndarray]:
    """Rows and columns of the edges' matrix, (2, edge), ascending, and the edge of each."""
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    return {"_edge_order": order, "_edge_places": np.ascontiguousarray(pairs[order][:, ::-1].T)}
