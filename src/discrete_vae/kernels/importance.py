"""Draws for importance sampling: by the modules, and by compiled passes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor, nn

from discrete_vae.hierarchy.gaussian import (
    AutoregressiveGaussianPrior,
    GaussianHierarchy,
    GaussianNetwork,
    Hierarchy,
    NoHierarchy,
)
from discrete_vae.hierarchy.sharing import CompleteSharing, GroupSharing, NoSharing
from discrete_vae.kernels.codegen import Vector, exp_of_negative, log1p, magnitude
from discrete_vae.kernels.gaussian import draw_layer
from discrete_vae.kernels.gaussian import sampled_layer_works as layers_work
from discrete_vae.kernels.mlp import has_hooks
from discrete_vae.kernels.registry import check_close, tried
from discrete_vae.kernels.rows import Keys, Made, SamplePass, draw_uniforms, uniforms
from discrete_vae.nets.folding import FoldedMLP
from discrete_vae.nets.mlp import MLP, L1BatchNorm, MLPDecoder
from discrete_vae.numerics import are_plain, is_ordinary
from discrete_vae.posterior import HierarchicalPosterior, Posterior
from discrete_vae.records import ShowsShapes
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.smoothing.spike import SharpLimit, SpikeExponential, SpikeSlab

# Draws of units with a spike for importance sampling: from logits to zeta, z and log q(z | x) in one compiled
# pass.
#
# The formulas are those of `discrete_vae.smoothing.spike`.


_TINY = 2.0**-126


@dataclass(frozen=True)
class Spike:
    """A smoothing with its parameters as they are.

    Attributes:
        kind: Its class.
        numbers: What the pass must know of them.
    """

    kind: type[Smoothing]
    numbers: tuple[float, ...]


def spike_of(smoothing: Smoothing) -> Spike | None:
    """The smoothing as the pass takes it; None if it is of another kind."""
    kind = type(smoothing)  # a subclass may have another density
    if isinstance(smoothing, SpikeExponential) and kind in _INVERSE_SURVIVALS:
        parameter = smoothing._bounded_parameter()
        assert parameter is not None
        beta = float(parameter.detach())
        return Spike(kind, (math.expm1(-beta), 1 / beta))
    return Spike(kind, (0.0,)) if kind in _INVERSE_SURVIVALS else None


def draw_units(
    spike: Spike,
    raw: Tensor,
    affine: tuple[Tensor, Tensor],
    keys: Keys,
    *,
    z: Tensor,
    zeta: Tensor,
    spread: Sequence[Tensor],
    log_prob: Tensor,
) -> None:
    """Draw units with the log-odds a y + b.

    Args:
        spike: The smoothing.
        raw: y, (sample, example, unit), float32 or bfloat16.
        affine: a and b, (unit,), float32.
        keys: Of the noise.
        z: Receives the bits, (sample, example, unit), float32.
        zeta: Receives the smoothed units, likewise.
        spread: Also receive them, in the precision of y.
        log_prob: log q(z | x) is added to it, (sample, example), nats.
    """
    factor, offset = (value.expand(raw.shape) for value in affine)
    run = _pass(spike.kind, raw.dtype == torch.bfloat16)
    run([raw, factor, offset], [z, zeta], spread=spread, total=log_prob, numbers=spike.numbers, keys=keys)


def _of_exponential(v: Vector, numbers: list[Vector]) -> Vector:
    minus_c, inverse_beta = numbers
    zeta = log1p(v * minus_c).times_plus(inverse_beta, 1)
    return zeta.filled(_TINY).where(zeta.below(_TINY), zeta)  # a rounding can bring it to 0 or below


_INVERSE_SURVIVALS: dict[type[Smoothing], Callable[[Vector, list[Vector]], Vector]] = {
    SpikeExponential: _of_exponential,
    SpikeSlab: lambda v, _: -(v - 1),
    SharpLimit: lambda v, _: v * 0 + 1,
}


@cache
def _pass(kind: type[Smoothing], bfloat16: bool) -> SamplePass:
    inverse_survival = _INVERSE_SURVIVALS[kind]

    def body(elements: list[Vector], numbers: list[Vector], words: list[Vector]) -> Made:
        raw, factor, offset = elements
        logits = raw.times_plus(factor, offset)
        minus = -magnitude(logits)
        fall, on_side = exp_of_negative(minus), logits.above(0)
        one, zero = fall.filled(1), fall.filled(0)
        sum_of_odds = fall + 1
        v = uniforms(words) * sum_of_odds / one.where(on_side, fall)  # u / q
        spike = v.reaches(1)  # false for NaN, which must come out
        inside = zero.where(spike, v)
        zeta = zero.where(spike, inverse_survival(inside, numbers))
        z = zero.where(spike, v * 0 + 1)
        # z l - softplus(l): the likelier value costs nothing but the logarithm
        return Made([z, zeta], zeta, [zero.where(on_side ^ spike, minus)], [sum_of_odds])

    return SamplePass(
        f"units {kind.__name__}",
        body,
        elements=[bfloat16, False, False],
        outputs=[False, False],
        spreads=bfloat16,
        noise=True,
    )


@tried("The compiled draw of units with a spike", "plain torch is used")
def works() -> None:
    """Whether it gives what plain torch gives of the same noise, on a small batch."""
    shape, keys = (3, 2, 37), Keys(torch.tensor([5, -7]), 11, 1)
    raw, factor, offset = torch.linspace(-9, 9, 222).view(shape), torch.linspace(0.5, 2, 37), torch.ones(37)
    survival = draw_uniforms(shape, keys)
    for smoothing in (SpikeExponential(2.0, trainable=False), SpikeSlab(), SharpLimit()):
        for dtype in (torch.float32, torch.bfloat16):
            given = raw.to(dtype)
            z, zeta, log_prob = torch.empty(shape), torch.empty(shape), torch.zeros(shape[:2])
            other = torch.empty(shape, dtype=dtype)
            spike = spike_of(smoothing)
            assert spike is not None
            draw_units(
                spike, given, (factor, offset), keys, z=z, zeta=zeta, spread=[other], log_prob=log_prob
            )
            logits = given.float() * factor + offset
            right = smoothing.draw(1 - survival, logits)
            expected = torch.where(right.z == 1, logits.sigmoid(), (-logits).sigmoid()).log().sum(-1)
            pairs = (zeta, right.zeta), (z, right.z), (log_prob, expected), (other, right.zeta.to(dtype))
            check_close(*pairs, tolerance=1e-3)


# Draws from the posterior with their densities, by the modules themselves.


@dataclass(frozen=True, eq=False, repr=False)
class Draws(ShowsShapes):
    """Samples of latents.

    Attributes:
        z: (sample, example, unit), in {0,1}.
        log_ratio: log q(z | zeta, x) + log q(h | zeta, x) - log p(h | zeta), (sample, example), nats.
        decoder_input: What p(x | zeta, h) reads, (sample, example, decoder_size).
    """

    z: Tensor
    log_ratio: Tensor
    decoder_input: Tensor


def draw(
    posterior: Posterior,
    hierarchy: Hierarchy,
    features: Tensor,
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
) -> Draws:
    """Draw from q(z, zeta, h | x).

    Args:
        posterior: Over the binary latents.
        hierarchy: Over the continuous ones.
        features: (example, feature), what the encoder makes of x.
        num_samples: Draws per example.
        generator: Source of the noise; None means torch's global generator.
    """
    sample = posterior.rsample(features, num_samples=num_samples, generator=generator)
    below = hierarchy.rsample(features, sample.zeta, generator=generator)
    return Draws(sample.z, sample.log_prob() - below.log_ratio(), below.decoder_input)


def joined(parts: Iterable[Draws]) -> Draws:
    """Draws of several examples beside each other.

    Args:
        parts: With as many samples each.
    """
    columns = zip(*((part.z, part.log_ratio, part.decoder_input) for part in parts), strict=True)
    return Draws(*(torch.cat(column, 1) for column in columns))


# The prior of the Gaussian layers one layer after the other, as their draws need it.


def prior_steps(prior: AutoregressiveGaussianPrior) -> PriorSteps | None:
    """The steps of a prior with folded networks; None if it is of another kind."""
    if not isinstance(prior, (NoSharing, GroupSharing)) or type(prior) not in _KINDS:
        return None
    networks, bounds = [], []
    for layer in prior.networks:
        network = layer.network if type(layer) is GaussianNetwork else None
        folded = network.folded if type(network) is MLP else None
        if not isinstance(layer, GaussianNetwork) or not isinstance(folded, FoldedMLP):
            return None
        networks.append(folded)
        bounds.append(layer.log_std_bound)
    if len({network.dtype for network in networks}) > 1:
        return None
    return _KINDS[type(prior)](prior, networks, bounds)


class PriorSteps(ABC):
    """p(h_m | h_<m, zeta), layer after layer.

    Args:
        networks: Folded.
        bounds: Of the log standard deviations, one per layer.

    Attributes:
        dtype: Precision of the networks' products.
        bounds: As given.
    """

    def __init__(self, networks: Sequence[FoldedMLP], bounds: Sequence[float | None]) -> None:
        self._networks, self.bounds = networks, bounds
        self.dtype = networks[0].dtype

    @abstractmethod
    def begin(self, zeta: Tensor) -> None:
        """Start with zeta, (sample, example, latent), float32."""

    @abstractmethod
    def output(self, index: int, joint: Tensor) -> Tensor:
        """What the network of a layer gives, (sample, example, 2 unit).

        Args:
            index: The layer's.
            joint: [zeta, h_<m], (sample, example, column), in the precision of the products.
        """

    @abstractmethod
    def drawn(self, h: Tensor) -> None:
        """Take the layer that was drawn, (sample, example, unit), float32."""

    @abstractmethod
    def decoder_input(self, joint: Tensor) -> Tensor:
        """What p(x | zeta, h) reads.

        Args:
            joint: [zeta, h], of all layers, in the precision of the products.
        """


class ConcatenationSteps(PriorSteps):
    """Of `NoSharing`: all read the concatenation."""

    def __init__(
        self, prior: NoSharing, networks: Sequence[FoldedMLP], bounds: Sequence[float | None]
    ) -> None:
        super().__init__(networks, bounds)

    def begin(self, zeta: Tensor) -> None:
        """Nothing to do."""

    def output(self, index: int, joint: Tensor) -> Tensor:
        """The layer's own network at the concatenation."""
        return self._networks[index].of_rows(joint)

    def drawn(self, h: Tensor) -> None:
        """Nothing to do."""

    def decoder_input(self, joint: Tensor) -> Tensor:
        """The concatenation."""
        return joint


class SumSteps(PriorSteps):
    """Of `GroupSharing`: all read the running sum, float32."""

    def __init__(
        self, prior: GroupSharing, networks: Sequence[FoldedMLP], bounds: Sequence[float | None]
    ) -> None:
        group_of_layer = [index // prior.group_size for index in range(prior.num_layers)]
        super().__init__(
            [networks[group] for group in group_of_layer], [bounds[group] for group in group_of_layer]
        )
        self._prior = prior
        self._sum = torch.empty(0)

    def begin(self, zeta: Tensor) -> None:
        """A zeta."""
        self._sum = self._prior.zeta_map(zeta)

    def output(self, index: int, joint: Tensor) -> Tensor:
        """The network of the layer's group at the sum."""
        return self._networks[index].of_rows(self._sum.to(self.dtype))

    def drawn(self, h: Tensor) -> None:
        """Add to the sum."""
        self._sum.add_(h)

    def decoder_input(self, joint: Tensor) -> Tensor:
        """The sum."""
        return self._sum


_KINDS = {NoSharing: ConcatenationSteps, GroupSharing: SumSteps, CompleteSharing: SumSteps}


# Draws from the posterior by products and one compiled pass between them, with noise keyed by example and
# sample.
#
# Between two networks stand the draw of a group of units, or of a Gaussian layer with both of its densities;
# its result goes straight into the inputs of all networks that read it, in the precision of their products.
# What an example draws does not depend on the other examples, nor on how samples are divided among calls.


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
    if len(dtypes) > 1 or not works() or (layers and not layers_work()):
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
