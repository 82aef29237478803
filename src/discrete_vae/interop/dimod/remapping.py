"""A trained prior on a solver whose graph has lost qubits or couplers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.checks import check_binary, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod.divergence import Divergence, estimate_divergence
from discrete_vae.interop.dimod.lost_units import LostUnits
from discrete_vae.interop.dimod.placing import codes_of, losses
from discrete_vae.noise import keyed_generator
from discrete_vae.samplers.block_gibbs import BlockGibbs

_SAMPLES, _SWEEPS = 4000, 1000
_NOTHING = Divergence(0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Remapped:
    """A prior as a solver can take it.

    Attributes:
        energy: The machine p' on the remaining units, with `GraphBoltzmann.nodes` those of the solver.
        units: The unit of the original that each of its units is.
        lost_units: Units of the original without a node.
        lost_pairs: Pairs of the original without a coupler, those of lost units included.
        divergence: What the remaining approximation costs; all 0 where nothing was lost.
        dropped: What it would cost to leave the lost terms out and fit nothing.
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

        With samples of p' the result has KL(p || result) = ``divergence.kl``: the draws themselves add nothing.

        Args:
            z: Samples of the remaining units, (sample, unit of p') in {0,1}.
            seed: Of the draws.

        Returns:
            (sample, unit of the original), float32 in {0,1}.

        Raises:
            InvalidInputError: If z has another shape or other values.
        """
        z = check_binary("z", check_tensor("z", z, ("sample", len(self.units))))
        found = torch.zeros(len(z), len(self.units) + len(self.lost_units))
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

    What this costs is estimated from samples of the prior and of what is left of it (`estimate_divergence`), the latter
    by 1,000 sweeps of block Gibbs; it holds as far as these samples do.

    Args:
        energy: The prior; it stays as it is.
        nodes: The solver's working nodes, `nodelist` of a structured sampler.
        edges: Its working edges, `edgelist`.
        candidates: (place, unit), nodes for the units, from `places`; None means where they lie, `energy.nodes`.
        z: Independent samples of the prior, (sample, unit) in {0,1}, at least 100; of a prior with distant modes those
            of tempered chains. None draws 4,000 by 1,000 sweeps of block Gibbs.
        seed: Of these.

    Returns:
        The remaining machine, what was lost and what it costs.

    Raises:
        InvalidInputError: If energy is no GraphBoltzmann, candidates or z have another shape, no unit remains, or more
            than 12 lost units hang together.

    Warns:
        UserWarning: If p' is so far from p that the divergence rests on few of the samples, see `estimate_divergence`.

    Examples:
        >>> ring = GraphBoltzmann(4, [[0, 1], [1, 2], [2, 3], [3, 0]], nodes=[10, 11, 12, 13])
        >>> found = remap(ring, [10, 11, 12], [[10, 11], [11, 12]])
        >>> found.energy.nodes, found.lost_units, found.lost_pairs
        ((10, 11, 12), (3,), ((2, 3), (3, 0)))
    """
    if not isinstance(energy, GraphBoltzmann):
        repair = "Train a prior on the solver's graph: GraphBoltzmann."
        raise InvalidInputError("energy", "must be a GraphBoltzmann", f"a {type(energy).__name__}", repair)
    node_list, edge_list = sorted(nodes), [tuple(edge) for edge in edges]
    places = np.array(energy.nodes)[None] if candidates is None else np.asarray(candidates)
    if places.ndim != 2 or places.shape[1] != energy.num_units or places.dtype.kind not in "iu":
        repair = "discrete_vae.interop.dimod.places makes them."
        received = f"{places.dtype} of shape {places.shape}"
        raise InvalidInputError(
            "candidates", f"must be integers (place, {energy.num_units})", received, repair
        )
    place = places[int(losses(energy, places, node_list, edge_list).argmin())]
    kept = np.flatnonzero(np.isin(place, node_list))
    if not len(kept):
        repair = "Lay it elsewhere: give candidates."
        raise InvalidInputError("nodes", "must hold a node of the prior", "none of them", repair)
    pairs = energy.edges.cpu().numpy()
    couplers = codes_of(np.array(edge_list, np.int64).reshape(-1, 2))
    alive = np.isin(codes_of(place[pairs]), couplers) & np.isin(pairs, kept).all(1)
    lost = LostUnits(energy, kept, ~alive)
    machine = _cut(energy, kept, place, alive)
    dropped = divergence = _NOTHING
    if not alive.all() or len(kept) < energy.num_units:
        if z is None:
            z = BlockGibbs(energy, _SAMPLES, seed=seed).step(_SWEEPS)
        z = check_binary("z", check_tensor("z", z, ("sample", energy.num_units)))
        fit, measure = z.double().cpu().tensor_split(2)
        if len(fit) < 50:
            raise InvalidInputError("z", "must have at least 100 samples", len(z), "Draw more.")
        dropped = estimate_divergence(lost.log_factor, measure, _states(machine, kept, measure, seed))
        bias, weight = lost.fit(fit, pairs[alive])
        machine.bias.add_(bias[kept].to(machine.bias))
        machine.weight.add_(weight.to(machine.weight))

        def ratio(z: Tensor) -> Tensor:
            ends = pairs[alive].T
            return lost.log_factor(z) - z @ bias - (z[:, ends[0]] * z[:, ends[1]]) @ weight

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


def _cut(energy: GraphBoltzmann, kept: np.ndarray, place: np.ndarray, alive: np.ndarray) -> GraphBoltzmann:
    """The machine on the remaining units with the remaining terms, as they were."""
    index = np.full(energy.num_units, -1)
    index[kept] = np.arange(len(kept))
    edges = index[energy.edges.cpu().numpy()[alive]]
    machine = GraphBoltzmann(len(kept), edges, nodes=place[kept].tolist()).to(energy.bias.dtype)
    machine.weight.copy_(energy.weight[torch.from_numpy(alive)])
    machine.bias.copy_(energy.bias[torch.from_numpy(kept)])
    return machine


def _states(machine: GraphBoltzmann, kept: np.ndarray, like: Tensor, seed: int) -> Tensor:
    """Samples of the remaining machine, as many as are given, in the places of the original's units."""
    found = torch.zeros_like(like)
    found[:, kept] = BlockGibbs(machine, len(like), seed=seed).step(_SWEEPS).to(like)
    return found
