"""Draws for importance sampling: by the modules, and by compiled passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn

from discrete_vae.hierarchy.base import Hierarchy, NoHierarchy
from discrete_vae.hierarchy.gaussian import (
    AutoregressiveGaussianPrior,
    CompleteSharing,
    GaussianHierarchy,
    GaussianNetwork,
    GroupSharing,
    NoSharing,
)
from discrete_vae.kernels.codegen import Vector, exp, exp_of_negative, log1p, magnitude, tanh
from discrete_vae.kernels.registry import Kernel, are_plain, check_close, has_hooks, is_eager
from discrete_vae.kernels.rows import (
    Block,
    Keys,
    RowReduction,
    draw_normals,
    draw_uniforms,
    normals,
    uniforms,
)
from discrete_vae.nets.convolutional import ConvolutionalDecoder, Linear
from discrete_vae.nets.mlp import MLP, L1BatchNorm, MLPDecoder
from discrete_vae.nets.modes import FoldedMLP
from discrete_vae.posterior import HierarchicalPosterior, Posterior
from discrete_vae.records import ShowsShapes
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.smoothing.spike import SharpLimit, SpikeExponential, SpikeSlab, StraightThrough

# Draws of units with a spike: from logits to zeta, z and log q(z | x) in one fused reduction. The formulas are those of
# `discrete_vae.smoothing.spike`.


_Pair = tuple[Tensor, Tensor]


class Spike(NamedTuple):
    """A smoothing's class, and what a reduction must know of its parameters as they are."""

    kind: type[Smoothing]
    numbers: tuple[Tensor, ...]


def spike_of(smoothing: Smoothing) -> Spike | None:
    """The smoothing as a reduction takes it; None if it is of another kind."""
    kind, numbers = type(smoothing), ()  # a subclass may have another density
    if isinstance(smoothing, SpikeExponential) and kind is SpikeExponential:
        parameter = smoothing._bounded_parameter()
        assert parameter is not None
        beta = float(parameter.detach())
        numbers = torch.tensor([math.expm1(-beta), 1 / beta], device="cpu", dtype=torch.float32).unbind()
    return Spike(kind, numbers) if kind in _INVERSE_SURVIVALS else None


def _draw_units(
    spike: Spike,
    raw: Tensor,
    affine: _Pair,
    keys: Keys,
    out: _Pair,
    spread: Sequence[Tensor],
    log_prob: Tensor,
) -> None:
    """Draw units with the log-odds a y + b, for y, (sample, example, unit), and the affine a and b, (unit,).

    The outputs receive bits and smoothed units, the tensors of spread the latter in the precision of y; log q(z | x) is
    added to log_prob, (sample, example), nats.
    """
    factor, offset = (value.expand(raw.shape) for value in affine)
    run = _unit_reduction(spike.kind)
    run([raw, factor, offset], spike.numbers, out, [log_prob], spread=spread, keys=keys)


def _of_exponential(v: Vector, numbers: list[Vector]) -> Vector:
    minus_c, inverse_beta = numbers
    # a rounding can bring it to 0 or below
    return log1p(v * minus_c).times_plus(inverse_beta, 1).at_least(2.0**-126)


_INVERSE_SURVIVALS: dict[type[Smoothing], Callable[[Vector, list[Vector]], Vector]] = {
    SpikeExponential: _of_exponential,
    SpikeSlab: lambda v, _: -(v - 1),
    SharpLimit: lambda v, _: v * 0 + 1,
    StraightThrough: lambda v, _: v * 0 + 1,
}


@cache
def _unit_reduction(kind: type[Smoothing]) -> RowReduction:
    inverse_survival = _INVERSE_SURVIVALS[kind]

    def body(elements: list[Vector], numbers: list[Vector], words: list[Vector]) -> Block:
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
        return Block([z, zeta], [zero.where(on_side ^ spike, minus)], zeta, [sum_of_odds])

    return RowReduction(f"units {kind.__name__}", body, adds=True, factors=True, prefetches=True)


def _check_units(kernel: Kernel) -> None:
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
            kernel.compiled(spike, given, (factor, offset), keys, (z, zeta), [other], log_prob)
            logits = given.float() * factor + offset
            right = smoothing.draw(1 - survival, logits)
            expected = torch.where(right.z == 1, logits.sigmoid(), (-logits).sigmoid()).log().sum(-1)
            pairs = (zeta, right.zeta), (z, right.z), (log_prob, expected), (other, right.zeta.to(dtype))
            check_close(*pairs, tolerance=1e-3)


draw_units = Kernel("The compiled draw of units with a spike", _draw_units, _check_units)


# Draws of a Gaussian layer: from what the networks give to h and its densities in one fused reduction. The formulas are
# those of `discrete_vae.hierarchy.gaussian`.


def _draw_layer(
    networks: _Pair,
    bounds: Sequence[float | None],
    keys: Keys,
    h: Tensor,
    spread: Sequence[Tensor],
    log_ratio: Tensor,
) -> None:
    """Draw h from the posterior, with mean m and log standard deviation b tanh(u / b).

    The networks of posterior and prior give [m, u], (sample, example, 2 unit), and each has its b, None for u itself.
    h and the tensors of spread receive the draw; log q(h | x) - log p(h) is added to log_ratio, (sample, example),
    nats.
    """
    run = _layer_reduction(*bounds)
    elements = [part for output in networks for part in output.chunk(2, -1)]
    run(elements, outputs=[h], sums=[log_ratio], spread=spread, keys=keys)


@cache
def _layer_reduction(posterior_bound: float | None, prior_bound: float | None) -> RowReduction:
    def bounded(raw: Vector, bound: float | None) -> Vector:
        return raw if bound is None else tanh(raw * (1 / bound)) * bound

    def body(elements: list[Vector], _per_row: list[Vector], words: list[Vector]) -> Block:
        mean, raw, prior_mean, prior_raw = elements
        log_std, prior_log_std = bounded(raw, posterior_bound), bounded(prior_raw, prior_bound)
        noise = normals(words)
        h = exp(log_std).times_plus(noise, mean)
        scaled = (h - prior_mean) * exp(-prior_log_std)
        term = (scaled * scaled - noise * noise).times_plus(0.5, prior_log_std - log_std)
        return Block([h], [term], h)

    name = f"layer {posterior_bound} {prior_bound}"
    return RowReduction(name, body, adds=True, prefetches=True)


def _check_layer(kernel: Kernel) -> None:
    shape, keys = (3, 2, 37), Keys(torch.tensor([5, -7]), 11, 1)
    posterior, prior = (torch.linspace(low, high, 444).view(3, 2, 74) for low, high in ((-3, 3), (2, -2)))
    noise = draw_normals(shape, keys)
    for dtype in (torch.float32, torch.bfloat16):
        h, log_ratio, other = torch.empty(shape), torch.zeros(shape[:2]), torch.empty(shape, dtype=dtype)
        given = posterior.to(dtype), prior.to(dtype)
        kernel.compiled(given, (5.0, None), keys, h, [other], log_ratio)
        (m, u), (n, t) = (value.float().chunk(2, -1) for value in given)
        s = 5 * torch.tanh(u / 5)
        right = m + s.exp() * noise
        ratio = 0.5 * ((right - n) / t.exp()).square() + t - 0.5 * noise.square() - s
        pairs = (h, right), (other, right.to(dtype)), (log_ratio, ratio.sum(-1))
        check_close(*pairs, tolerance=1e-3)


draw_layer = Kernel("The compiled draw of Gaussian layers", _draw_layer, _check_layer)


# Draws from the posterior with their densities, by the modules themselves.


@dataclass(frozen=True, eq=False, repr=False)
class Draws(ShowsShapes):
    """Samples of latents."""

    z: Tensor  # (sample, example, unit), in {0,1}
    log_ratio: Tensor  # log q(z | zeta, x) + log q(h | zeta, x) - log p(h | zeta), (sample, example), nats
    decoder_input: Tensor  # what p(x | zeta, h) reads, (sample, example, decoder_size)


def draw(
    posterior: Posterior,
    hierarchy: Hierarchy,
    features: Tensor,
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
) -> Draws:
    """Draw from q(z, zeta, h | x), where features, (example, feature), are what the encoder makes of x."""
    sample = posterior.rsample(features, num_samples=num_samples, generator=generator)
    zeta = hierarchy.with_condition(sample.zeta, features)
    below = hierarchy.rsample(features, zeta, generator=generator)
    return Draws(sample.z, sample.log_prob() - below.log_ratio(), below.decoder_input)


def joined(parts: Iterable[Draws]) -> Draws:
    """Draws of several examples, with as many samples each, beside each other."""
    columns = zip(*((part.z, part.log_ratio, part.decoder_input) for part in parts), strict=True)
    return Draws(*(torch.cat(column, 1) for column in columns))


# Draws from the posterior by products and one fused reduction between them, with noise keyed by example and sample.
#
# Between two networks stand the draw of a group of units, or of a Gaussian layer with both of its densities; its result
# goes straight into the inputs of all networks that read it, in the precision of their products. An example's draws
# depend neither on the other examples, nor on how samples are divided among calls.


class _LayerPrior(NamedTuple):
    """p(h_m | h_<m, zeta) layer after layer, of folded networks.

    They read [zeta, h_<m] or, where there is a map of zeta, the sum of its value and all h_<m.
    """

    zeta_map: nn.Module | None
    networks: list[FoldedMLP]
    bounds: list[float | None]


def _layer_prior(prior: AutoregressiveGaussianPrior) -> _LayerPrior | None:
    """The prior with its folded networks; None if a part is of another kind."""
    if not isinstance(prior, NoSharing | GroupSharing) or type(prior) not in _SHARINGS:
        return None
    zeta_map, size = (prior.zeta_map, prior.group_size) if isinstance(prior, GroupSharing) else (None, 1)
    layers = [prior.networks[index // size] for index in range(prior.num_layers)]
    networks = [network for network in map(_folded_layer, layers) if network is not None]
    if len(networks) < len(layers):
        return None
    return _LayerPrior(zeta_map, networks, [layer.log_std_bound for layer in layers])  # pyright: ignore[reportArgumentType]


_SHARINGS = (NoSharing, GroupSharing, CompleteSharing)  # a subclass may compute otherwise


def compiled_draws(posterior: Posterior, hierarchy: Hierarchy, decoder: nn.Module) -> CompiledDraws | None:
    """Compiled draws of parts with folded networks; None where a part is of another kind or kernels do not work."""
    parts = nn.ModuleList([posterior, hierarchy, decoder])
    if type(posterior) is not HierarchicalPosterior or not is_eager() or has_hooks(parts.modules()):
        return None
    spike = spike_of(posterior.smoothing) if are_plain(parts.parameters(), torch.float32) else None
    groups = [_folded(network) for network in posterior.networks]
    others = {*map(type, posterior.norms)} - {L1BatchNorm}  # a subclass may compute otherwise
    replaced = any("forward" in vars(norm) for norm in posterior.norms)
    if spike is None or None in groups or others or replaced:
        return None
    layers: list[FoldedMLP | None] = []
    steps = None
    if type(hierarchy) is GaussianHierarchy:
        layers = [_folded_layer(layer) for layer in hierarchy.posterior]
        steps = _layer_prior(hierarchy.prior)
        if steps is None or None in layers:
            return None
    elif type(hierarchy) is not NoHierarchy:
        return None
    networks = [network for network in (*groups, *layers) if network is not None]
    dtypes = {network.dtype for network in (*networks, *(() if steps is None else steps.networks))}
    dtypes.add(_precision_read_by(decoder))
    if len(dtypes) > 1 or not draw_units.is_usable() or (layers and not draw_layer.is_usable()):
        return None
    return CompiledDraws(posterior, hierarchy, spike, networks, steps)


def _precision_read_by(decoder: nn.Module) -> torch.dtype:
    """The precision to which a decoder itself rounds what it reads; one of another kind reads all digits."""
    if type(decoder) is ConvolutionalDecoder and type(decoder.input) is Linear:
        return decoder.input.product_weight().dtype
    reads = _folded(decoder.network) if type(decoder) is MLPDecoder else None
    return torch.float32 if reads is None else reads.dtype


def _folded(network: nn.Module) -> FoldedMLP | None:
    folded = network.folded if type(network) is MLP else None
    return folded if isinstance(folded, FoldedMLP) else None


def _folded_layer(layer: nn.Module) -> FoldedMLP | None:
    return _folded(layer.network) if type(layer) is GaussianNetwork else None


class _Workspace(NamedTuple):
    """Memory of one call, used again by the next of its size; all (sample, example, column).

    The inputs are those of the networks in the order in which they run; the first one reads x alone, and the last is
    what the decoder reads if that is a concatenation.
    """

    inputs: list[Tensor]
    z: Tensor
    zeta: Tensor
    h: Tensor
    log_ratio: Tensor


class CompiledDraws:
    """Draws of z, zeta and h; made by `compiled_draws`. Networks are those of groups and of layers' posteriors."""

    def __init__(
        self,
        posterior: HierarchicalPosterior,
        hierarchy: Hierarchy,
        spike: Spike,
        networks: Sequence[FoldedMLP],
        steps: _LayerPrior | None,
    ) -> None:
        self._posterior, self._hierarchy, self._spike, self._steps = posterior, hierarchy, spike, steps
        self._networks, self._dtype = networks, networks[0].dtype
        self._sizes = [len(group) for group in posterior.groups]
        layers = getattr(hierarchy, "posterior", ())
        self._bounds = [layer.log_std_bound for layer in layers if isinstance(layer, GaussianNetwork)]
        self._affine = []
        for norm in posterior.norms:
            assert isinstance(norm, L1BatchNorm)
            self._affine.append(norm.affine())
        self._kept: tuple[tuple[int, int], _Workspace] | None = None

    def __call__(self, features: Tensor, keys: Sequence[int], first: int, count: int) -> Draws:
        """Draw some samples of each example from a first number on, in memory that the next call writes anew.

        Features are (example, feature), float32, the same tensor for all samples of an example; the keys of the noise,
        one per example, are from 0 to 2^64 - 1.
        """
        workspace, num_units = self._workspace_for(count, len(features)), self._posterior.num_units
        workspace.log_ratio.zero_()
        signed = torch.tensor([key - ((key >> 63) << 64) for key in keys], device="cpu")
        self._units(workspace, features, signed, first)
        z, zeta, end = workspace.z, workspace.zeta, self._hierarchy.num_latents
        start = num_units  # of what the inputs of layers and decoder still lack
        if not self._posterior._in_order:
            order, start = self._posterior._to_prior_order, 0
            z, zeta = z.index_select(-1, order), zeta.index_select(-1, order)
        if start < end:
            zeta = self._hierarchy.with_condition(zeta, features)
            for rows in workspace.inputs[len(self._sizes) :]:
                rows[..., start:end].copy_(zeta[..., start:])
        decoder_input = workspace.inputs[-1]
        if self._steps is not None:
            decoder_input = self._layers(self._steps, workspace, zeta, features, signed, first)
        return Draws(z, workspace.log_ratio, decoder_input)

    def _units(self, workspace: _Workspace, features: Tensor, keys: Tensor, first: int) -> None:
        to_layers = workspace.inputs[len(self._sizes) :] if self._posterior._in_order else []
        start = 0
        for index, size in enumerate(self._sizes):
            network, end = self._networks[index], start + size
            if index == 0:
                raw = network(features).expand(*workspace.log_ratio.shape, -1)
            else:
                raw = network.of_rows(workspace.inputs[index], features)
            readers = [*workspace.inputs[index + 1 : len(self._sizes)], *to_layers]
            spread = [rows[..., start:end] for rows in readers]
            out, own = (workspace.z[..., start:end], workspace.zeta[..., start:end]), Keys(keys, first, index)
            _draw_units(self._spike, raw, self._affine[index], own, out, spread, workspace.log_ratio)
            start = end

    def _layers(
        self,
        steps: _LayerPrior,
        workspace: _Workspace,
        zeta: Tensor,
        features: Tensor,
        keys: Tensor,
        first: int,
    ) -> Tensor:
        total = None if steps.zeta_map is None else steps.zeta_map(zeta)  # float32
        start = self._hierarchy.num_latents
        for index in range(self._hierarchy.num_layers):
            place, end = len(self._sizes) + index, start + self._hierarchy.num_units
            rows, bounds = workspace.inputs[place], (self._bounds[index], steps.bounds[index])
            of_prior = steps.networks[index].of_rows(rows if total is None else total.to(self._dtype))
            outputs = self._networks[place].of_rows(rows, features), of_prior
            spread = [rows[..., start:end] for rows in workspace.inputs[place + 1 :]]
            own = Keys(keys, first, place)
            _draw_layer(outputs, bounds, own, workspace.h, spread, workspace.log_ratio)
            if total is not None:
                total.add_(workspace.h)
            start = end
        return workspace.inputs[-1] if total is None else total

    def _workspace_for(self, samples: int, examples: int) -> _Workspace:
        if self._kept is not None and self._kept[0] == (samples, examples):
            return self._kept[1]
        num_units, layer_size = self._posterior.num_units, self._hierarchy.num_units
        layers = [layer_size] * self._hierarchy.num_layers
        widths = [
            *accumulate(self._sizes[:-1], initial=0),
            *accumulate(layers, initial=self._hierarchy.num_latents),
        ]

        def rows(width: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(samples, examples, width, dtype=dtype, device="cpu")

        inputs, log_ratio = [rows(width, self._dtype) for width in widths], rows(1).squeeze(-1)
        workspace = _Workspace(inputs, rows(num_units), rows(num_units), rows(layer_size), log_ratio)
        self._kept = (samples, examples), workspace
        return workspace
