"""Draws from the posterior by products and one compiled pass between them, with noise keyed by example and sample.

Between two networks stand the draw of a group of units, or of a Gaussian layer with both of its densities; its result
goes straight into the inputs of all networks that read it, in the precision of their products. What an example draws
does not depend on the other examples, nor on how samples are divided among calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from discrete_vae.compiled.choice import are_plain, is_ordinary
from discrete_vae.compiled.sample_rows import Keys
from discrete_vae.hierarchy.base import Hierarchy, NoHierarchy
from discrete_vae.hierarchy.gaussian_hierarchy import GaussianHierarchy
from discrete_vae.hierarchy.gaussian_network import GaussianNetwork
from discrete_vae.hierarchy.kernels.sampled_layer import draw_layer
from discrete_vae.hierarchy.kernels.sampled_layer import works as layers_work
from discrete_vae.importance.draws import Draws
from discrete_vae.importance.prior_steps import PriorSteps, prior_steps
from discrete_vae.nets.folded_mlp import FoldedMLP
from discrete_vae.nets.kernels.choice import has_hooks
from discrete_vae.nets.l1_batch_norm import L1BatchNorm
from discrete_vae.nets.mlp import MLP
from discrete_vae.nets.mlp_decoder import MLPDecoder
from discrete_vae.posteriors.base import Posterior
from discrete_vae.posteriors.hierarchical import HierarchicalPosterior
from discrete_vae.records import ShowsShapes
from discrete_vae.smoothing.kernels.sampled_units import Spike, draw_units, spike_of
from discrete_vae.smoothing.kernels.sampled_units import works as units_work


def compiled_draws(posterior: Posterior, hierarchy: Hierarchy, decoder: nn.Module) -> CompiledDraws | None:
    """What draws so, of parts with folded networks; None where a part is of another kind or the machine cannot.

    Args:
        posterior: Over the binary latents.
        hierarchy: Over the continuous ones.
        decoder: What reads the draws.
    """
    parts = nn.ModuleList([posterior, hierarchy, decoder])
    if type(posterior) is not HierarchicalPosterior or not is_ordinary() or has_hooks(parts.modules()):
        return None
    spike = spike_of(posterior.smoothing) if are_plain(parts.parameters(), (torch.float32,)) else None
    groups = [_folded(network) for network in posterior.networks]
    if spike is None or None in groups:
        return None
    layers: list[FoldedMLP | None] = []
    steps = None
    if type(hierarchy) is GaussianHierarchy:
        layers = [_folded_layer(layer) for layer in hierarchy.posterior]
        steps = prior_steps(hierarchy.prior)
        if steps is None or None in layers:
            return None
    elif type(hierarchy) is not NoHierarchy:
        return None
    networks = [network for network in (*groups, *layers) if network is not None]
    dtypes = {network.dtype for network in networks} | (set() if steps is None else {steps.dtype})
    # a decoder of another kind reads what was not rounded
    reads = _folded(decoder.network) if type(decoder) is MLPDecoder else None
    dtypes.add(torch.float32 if reads is None else reads.dtype)
    if len(dtypes) > 1 or not units_work() or (layers and not layers_work()):
        return None
    return CompiledDraws(posterior, hierarchy, spike, networks, steps)


def _folded(network: nn.Module) -> FoldedMLP | None:
    folded = network.folded if type(network) is MLP else None
    return folded if isinstance(folded, FoldedMLP) else None


def _folded_layer(layer: nn.Module) -> FoldedMLP | None:
    return _folded(layer.network) if type(layer) is GaussianNetwork else None


@dataclass(frozen=True, eq=False, repr=False)
class _Room(ShowsShapes):
    """Memory of one call, used again by the next of its size; all (sample, example, column).

    Attributes:
        inputs: Of the networks, in the order in which they run; the first one reads x alone. The last is what the
            decoder reads if that is a concatenation.
        z: The bits, float32, group after group.
        zeta: Likewise.
        h: A layer, float32.
        log_ratio: See `Draws`, (sample, example).
    """

    inputs: list[Tensor]
    z: Tensor
    zeta: Tensor
    h: Tensor
    log_ratio: Tensor


class CompiledDraws:
    """See the module; made by `compiled_draws`.

    Args:
        posterior: With folded networks.
        hierarchy: Likewise.
        spike: The posterior's smoothing.
        networks: Those of the groups and of the layers' posteriors, in order.
        steps: The layers' prior; None without layers.
    """

    def __init__(
        self,
        posterior: HierarchicalPosterior,
        hierarchy: Hierarchy,
        spike: Spike,
        networks: Sequence[FoldedMLP],
        steps: PriorSteps | None,
    ) -> None:
        self._posterior, self._spike, self._steps = posterior, spike, steps
        self._networks, self._dtype = networks, networks[0].dtype
        self._sizes = [len(group) for group in posterior.groups]
        self._num_units, self._layer_size = posterior.num_units, hierarchy.num_units
        self._num_layers = hierarchy.num_layers
        self._bounds = [
            layer.log_std_bound
            for layer in getattr(hierarchy, "posterior", ())
            if isinstance(layer, GaussianNetwork)
        ]
        self._affine = []
        for norm in posterior.norms:
            assert isinstance(norm, L1BatchNorm)
            scale, offset = norm.used_parameters()
            factor = scale / (norm.running_deviation + norm.eps)
            self._affine.append((factor.contiguous(), (offset - norm.running_mean * factor).contiguous()))
        self._kept: tuple[tuple[int, int], _Room] | None = None

    def __call__(self, features: Tensor, keys: Sequence[int], first: int, count: int) -> Draws:
        """Draw.

        Args:
            features: (example, feature), float32; the same tensor for all samples of an example.
            keys: Of the noise, one per example, from 0 to 2^64 - 1.
            first: Number of the first sample.
            count: How many samples of each example.

        Returns:
            The draws, in memory that the next call writes anew.
        """
        room = self._room(count, len(features))
        room.log_ratio.zero_()
        signed = torch.tensor([key - ((key >> 63) << 64) for key in keys], device="cpu")
        self._draw_units(room, features, signed, first)
        z, zeta = room.z, room.zeta
        if not self._posterior._in_order:
            order = self._posterior._to_prior_order
            z, zeta = z.index_select(-1, order), zeta.index_select(-1, order)
            for rows in room.inputs[len(self._sizes) :]:
                rows[..., : self._num_units].copy_(zeta)
        decoder_input = room.inputs[-1]
        if self._steps is not None:
            decoder_input = self._draw_layers(room, zeta, features, signed, first, self._steps)
        return Draws(z, room.log_ratio, decoder_input)

    def _draw_units(self, room: _Room, features: Tensor, keys: Tensor, first: int) -> None:
        """Group after group."""
        to_layers = room.inputs[len(self._sizes) :] if self._posterior._in_order else []
        start = 0
        for index, size in enumerate(self._sizes):
            network, end = self._networks[index], start + size
            if index == 0:
                raw = network(features).expand(*room.log_ratio.shape, -1)
            else:
                raw = network.of_rows(room.inputs[index], features)
            readers = [*room.inputs[index + 1 : len(self._sizes)], *to_layers]
            draw_units(
                self._spike,
                raw,
                self._affine[index],
                Keys(keys, first, index),
                z=room.z[..., start:end],
                zeta=room.zeta[..., start:end],
                spread=[rows[..., start:end] for rows in readers],
                log_prob=room.log_ratio,
            )
            start = end

    def _draw_layers(
        self, room: _Room, zeta: Tensor, features: Tensor, keys: Tensor, first: int, steps: PriorSteps
    ) -> Tensor:
        """Layer after layer; returns what the decoder reads."""
        steps.begin(zeta)
        start = self._num_units
        for index in range(self._num_layers):
            place, end = len(self._sizes) + index, start + self._layer_size
            draw_layer(
                self._networks[place].of_rows(room.inputs[place], features),
                steps.output(index, room.inputs[place]),
                (self._bounds[index], steps.bounds[index]),
                Keys(keys, first, place),
                h=room.h,
                spread=[rows[..., start:end] for rows in room.inputs[place + 1 :]],
                log_ratio=room.log_ratio,
            )
            steps.drawn(room.h)
            start = end
        return steps.decoder_input(room.inputs[-1])

    def _room(self, samples: int, examples: int) -> _Room:
        """Memory for so many rows."""
        if self._kept is not None and self._kept[0] == (samples, examples):
            return self._kept[1]
        widths = list(accumulate(self._sizes, initial=0))[:-1]
        widths += [self._num_units + index * self._layer_size for index in range(self._num_layers + 1)]

        def rows(width: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(samples, examples, width, dtype=dtype, device="cpu")

        room = _Room(
            [rows(width, self._dtype) for width in widths],
            rows(self._num_units),
            rows(self._num_units),
            rows(self._layer_size),
            rows(1).squeeze(-1),
        )
        self._kept = (samples, examples), room
        return room
