"""Layers that read weights in low precision; fully connected networks with the L1 batch norm, and their fused forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int, check_positive_ints
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels import norm as kernel
from discrete_vae.kernels.norm import SCALE_BOUNDS, Form, norm_form
from discrete_vae.kernels.registry import are_contiguous, are_plain, compiled_by, has_hooks, is_eager
from discrete_vae.nets.weights import MixedPrecisionWeight, row_products
from discrete_vae.numerics import bounded, differentiable_once, project_, row_sum
from discrete_vae.system import allocating


class NetworkFactory(Protocol):
    """Makes a network from the lengths of its inputs' last axes and the length of its output's.

    The network is called with one tensor per input, (..., size), whose leading axes are equal or broadcast against each
    other: what depends on x alone is (batch, feature), what is sampled is (batch, size) in training and
    (sample, batch, size) in importance sampling. It returns (..., output) with the broadcast leading axes. The first
    input is always the encoder's features; those after it are earlier latents, in order.

    `MLP` with its hidden layers fixed is one: ``functools.partial(MLP, hidden=(200, 200))``.
    """

    def __call__(self, input_sizes: Sequence[int], num_outputs: int, /) -> nn.Module: ...


class L1BatchNorm(nn.Module):
    """y = x - mean(x); output y / (mean|y| + eps) * s + o, for each feature over all leading axes.

    In training the statistics are the batch's and running averages are kept; in evaluation the running averages
    are used, so that an example's log-likelihood does not depend on the rest of its batch.

    Source: Rolfe 2017, appendix laplacian-batch-normalization. The paper is silent on evaluation, eps, the
    momentum and the starting values; eps is 1e-3 because at 1e-8 a constant column gets gradients of 3e8.

    Args:
        num_features: Length of the last axis.
        bounded: Whether 2 <= s <= 3 and -s <= o <= s always, as the paper has it for the logits of the discrete
            units (see `discrete_vae.numerics.bounded`); s then starts at 2, otherwise at 1. o starts at 0.
        eps: Added to the mean absolute deviation, above 0.
        momentum: Weight of the new batch in the running averages, above 0 and at most 1.

    Attributes:
        scale: s, (feature,).
        offset: o, (feature,).
        running_mean: (feature,).
        running_deviation: Running mean|y|, (feature,).

    Examples:
        >>> norm = L1BatchNorm(1)
        >>> norm(torch.tensor([[0.0], [2.0]])).flatten()
        tensor([-0.9990, 0.9990], grad_fn=...)
    """

    running_mean: Tensor
    running_deviation: Tensor

    def __init__(
        self, num_features: int, *, bounded: bool = False, eps: float = 1e-3, momentum: float = 0.1
    ) -> None:
        super().__init__()
        self.num_features = check_positive_int("num_features", num_features)
        self.bounded = bounded
        self.eps = check_number("eps", eps, above=0, repair="The default is 1e-3.")
        self.momentum = check_number("momentum", momentum, above=0, at_most=1, repair="The default is 0.1.")
        self.scale = nn.Parameter(torch.full((num_features,), 2.0 if bounded else 1.0))
        self.offset = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_deviation", torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize (..., feature), in training at least two rows, in the wider of x's dtype and the parameters'."""
        x = x.to(torch.promote_types(x.dtype, self.scale.dtype))  # autocast rounds what networks make
        if self.training:
            self.check_rows(x.numel() // self.num_features)
            return _normalize_batch(self, x)
        scale, offset = self.used_parameters()
        return (x - self.running_mean) * (scale / (self.running_deviation + self.eps)) + offset

    def used_parameters(self) -> tuple[Tensor, Tensor]:
        """Scale and offset inside their bounds, each (feature,)."""
        if not self.bounded:
            return self.scale, self.offset
        scale = bounded(self.scale, *SCALE_BOUNDS)
        limit = scale.detach()
        return scale, bounded(self.offset, -limit, limit)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Factor and offset of the map of x that the norm is in evaluation, each (feature,)."""
        scale, offset = self.used_parameters()
        factor = scale / (self.running_deviation + self.eps)
        return factor, offset - self.running_mean * factor

    def form(self, *, rectify: bool, of_batch: bool = True) -> Form:
        """Settings of the norm for the compiled pass."""
        return norm_form(self.eps, self.momentum, SCALE_BOUNDS if self.bounded else None, rectify, of_batch)

    def check_rows(self, num_rows: int) -> None:
        """Refuse a batch without a deviation: of fewer than two rows."""
        if num_rows < 2:
            repair = "Give larger batches (drop_last=True drops a short one), or call eval() for running statistics."
            raise InvalidInputError(
                "x", "must have at least two rows in training", f"{num_rows} rows", repair
            )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Parameters and running averages."""
        own, kept = self._parameters, self._buffers  # faster than the attributes
        return own["scale"], own["offset"], kept["running_mean"], kept["running_deviation"]  # pyright: ignore[reportReturnType]

    def extra_repr(self) -> str:
        return f"{self.num_features}, bounded={self.bounded}"

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the parameters s, then o, back inside the paper's bounds; does nothing where there are none."""
        if self.bounded:
            _project_norm_(self.scale, self.offset)


@compiled_by("norm.batch_norm")
def _normalize_batch(norm: L1BatchNorm, x: Tensor) -> Tensor:
    scale, offset = norm.used_parameters()
    axes = tuple(range(x.dim() - 1))
    mean = x.mean(axes)
    centered = x - mean
    deviation = centered.abs().mean(axes)
    with torch.no_grad():
        norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), norm.momentum)
        norm.running_deviation.lerp_(deviation.to(norm.running_deviation.dtype), norm.momentum)
    return centered * (scale / (deviation + norm.eps)) + offset


@compiled_by("norm.project_norm")
def _project_norm_(scale: Tensor, offset: Tensor) -> None:
    project_(scale, *SCALE_BOUNDS)
    project_(offset, -scale, scale)


class MixedPrecisionLayer(nn.Module):
    """A layer whose products may read a low-precision copy of its weight; stands before torch's class among the bases.

    Attributes:
        mixed_precision: Weight and copy; None where products read the weight. `set_precision` sets it.
    """

    weight: Tensor
    mixed_precision: MixedPrecisionWeight | None = None

    def product_weight(self) -> Tensor:
        """Weight that the products read."""
        mixed, weight = self.mixed_precision, self.weight
        if mixed is None or mixed.master is not weight:  # another parameter has taken its place
            return weight
        return mixed.current()

    def gradient_memory(self) -> Tensor | None:
        """Memory for the gradient of `product_weight`, if some is kept and free."""
        mixed, weight = self.mixed_precision, self.weight
        return None if mixed is None or mixed.master is not weight else mixed.lend_memory()


SMALLEST_FUSED = 100_000
"""Activations of a layer from which a network is fused where statistics are given: below, torch's operations do."""


class ConcatLinear(MixedPrecisionLayer, nn.Linear):
    """A linear map of the concatenation of its inputs along the last axis.

    Inputs whose leading axes differ but broadcast are multiplied on their own and added, so what many samples
    share (x, in importance sampling) is multiplied once.
    """

    def __init__(self, input_sizes: Sequence[int], num_outputs: int, *, bias: bool = True) -> None:
        super().__init__(sum(input_sizes), num_outputs, bias=bias)
        self.input_sizes = tuple(input_sizes)

    def forward(self, *inputs: Tensor, centred: bool = False) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map inputs of shapes (..., size) to (..., output), in the bias's precision if there is one.

        Their leading axes are equal or broadcast. It is centred if the mean over the batch is taken away behind: see
        `MLP`.
        """
        weight = self.product_weight()
        if centred and torch.is_grad_enabled() and inputs[0].numel() > 0:
            rows = [value.detach().flatten(0, -2) for value in inputs]
            varies = torch.cat([value.amax(0) != value.amin(0) for value in rows])
            weight = torch.where(varies, weight, weight.detach())
        product = F.linear if torch.is_grad_enabled() or not is_eager() else row_products
        if self.mixed_precision is not None:
            inputs = tuple(value.to(weight.dtype) for value in inputs)
        if all(value.shape[:-1] == inputs[0].shape[:-1] for value in inputs):
            joint = inputs[0] if len(inputs) == 1 else torch.cat(inputs, dim=-1)
            if self.mixed_precision is None:
                return product(joint, weight, self.bias)
            total = product(joint, weight)
        else:
            parts = weight.split(self.input_sizes, dim=1)
            total = product(inputs[0], parts[0])
            for value, part in zip(inputs[1:], parts[1:], strict=True):
                total = total + product(value, part)
        return total if self.bias is None else total + self.bias


class MLP(nn.Module):
    """Hidden layers of linear -> L1 batch norm -> ReLU, then a linear output layer.

    Linear layers in front of a norm have no bias: the norm's offset plays its part. The norm takes the mean over the
    batch away, so the gradient by the weights of an input that is constant in the batch is zero. Products give the
    rounding of it, of which an optimizer such as Adam makes full steps; here it is zero exactly.

    Source: Rolfe 2017, section architecture and appendix laplacian-batch-normalization.

    Args:
        input_sizes: Length of the last axis of each input.
        num_outputs: Length of the output's last axis.
        hidden: Widths of the hidden layers; empty makes the network linear.
        bias: Whether the output layer has a bias.

    Attributes:
        folded: What computes in place of the layers; `discrete_vae.nets.modes` sets it for an evaluation.

    Examples:
        >>> network = MLP([6, 2], 3, (5,))
        >>> network(torch.zeros(4, 6), torch.zeros(10, 4, 2)).shape
        torch.Size([10, 4, 3])
    """

    def __init__(
        self, input_sizes: Sequence[int], num_outputs: int, hidden: Sequence[int] = (), *, bias: bool = True
    ) -> None:
        super().__init__()
        self.input_sizes = check_positive_ints("input_sizes", input_sizes)
        check_positive_int("num_outputs", num_outputs)
        check_positive_ints("hidden", hidden)
        sizes, layers = list(input_sizes), []
        with allocating("input_sizes, hidden, num_outputs", "Use narrower layers."):
            for width in hidden:
                layers.append(ConcatLinear(sizes, width, bias=False))
                layers.append(L1BatchNorm(width))
                sizes = [width]
            self.layers = nn.ModuleList(layers)
            self.output = ConcatLinear(sizes, num_outputs, bias=bias)
        self.folded: Callable[..., Tensor] | None = None

    def forward(self, *inputs: Tensor, centred: bool = False) -> Tensor:
        if self.folded is not None:
            return self.folded(*inputs)
        plan = self._fused_plan(inputs, centred)
        if plan is not None:
            return _fused(plan, inputs)
        for index in range(0, len(self.layers), 2):
            inputs = (torch.relu(normalized(self.layers[index], self.layers[index + 1], *inputs)),)
        out = self.output(*inputs, centred=centred) if centred else self.output(*inputs)
        return out if self.output.mixed_precision is None else out.to(self.output.weight.dtype)

    def plain_layers(self) -> tuple[list[ConcatLinear], list[L1BatchNorm]] | None:
        """Linear maps and norms; None where hooks, a replaced `forward` or other classes may compute something else."""
        # slices of a ModuleList are modules, made anew
        layers = [*self.layers._modules.values(), self.output]
        linears, norms = layers[::2], layers[1::2]
        others = {*map(type, linears)} - {ConcatLinear} or {*map(type, norms)} - {L1BatchNorm}
        replaced = any("forward" in vars(each) for each in layers)
        return None if others or replaced or has_hooks(layers) else (linears, norms)  # pyright: ignore[reportReturnType]

    def _fused_plan(self, inputs: tuple[Tensor, ...], centred: bool) -> _Plan | None:
        """The network as one fused operation; None where that cannot be used, or does not gain."""
        if not is_eager() or not are_plain(inputs) or (layers := self.plain_layers()) is None:
            return None
        linears, norms = layers
        others: list[Tensor] = [] if self.output.bias is None else [self.output.bias]
        for norm in norms:
            if norm.training != self.training:
                return None
            others += norm.tensors()
        if not self.training:
            rows = max(value.numel() // max(value.shape[-1], 1) for value in inputs)
            if rows * linears[0].out_features < SMALLEST_FUSED:
                return None
        weights = [linear.product_weight() for linear in linears]
        alike = are_plain(weights) and are_plain(weights, weights[0].dtype)
        alike = alike and are_plain(others, torch.float32) and are_contiguous([*weights, *others])
        if not alike or not kernel.batch_norm.is_usable():
            return None
        return _Plan(linears, norms, weights, self.training, centred, *_joined(inputs))

    @torch.no_grad()
    def initialize_output_(self, start: Tensor | float, scale: float = 1.0) -> None:
        """Set the output's biases, (output,) or one number, and scale the output layer's weights."""
        self.output.weight.mul_(scale)
        self.output.bias.copy_(torch.as_tensor(start).expand_as(self.output.bias))


def normalized(network: nn.Module, norm: nn.Module, *inputs: Tensor) -> Tensor:
    """Norm of a network's output, with a gradient of exactly zero by the weights of constant inputs, see `MLP`."""
    if norm.training and getattr(network.forward, "__func__", None) in _KNOW_NORMS:
        return norm(network(*inputs, centred=True))
    return norm(network(*inputs))


_KNOW_NORMS = (MLP.forward, ConcatLinear.forward)  # whoever puts another one in its place need not


class FlattenEncoder(nn.Module):
    """The values of x in one row: nothing is computed before the networks of the posterior."""

    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.num_features = math.prod(input_shape)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, *input_shape) -> (batch, feature)."""
        return x.flatten(1)


class MLPDecoder(nn.Module):
    """An MLP from the latents to the likelihood's parameters; without hidden layers a linear map.

    Source: Rolfe 2017, eq. final-decoder and section architecture (linear on three of four data sets).

    Args:
        num_latents: Length of the last axis of what it reads.
        parameter_shape: Shape of the likelihood's parameters of one example.
        hidden: Widths of the hidden layers.
    """

    def __init__(self, num_latents: int, parameter_shape: Sequence[int], hidden: Sequence[int] = ()) -> None:
        super().__init__()
        self.parameter_shape = tuple(parameter_shape)
        self.network = MLP([num_latents], math.prod(self.parameter_shape), hidden)

    def forward(self, latents: Tensor) -> Tensor:
        """Map (row, latent) to (row, *parameter_shape)."""
        return self.network(latents).unflatten(-1, self.parameter_shape)

    def initialize_output_(self, start: Tensor) -> None:
        """Let the output start near given parameters, (*parameter_shape)."""
        self.network.initialize_output_(start.flatten())


# A multilayer perceptron as one operation of autograd, with its gradients written out. Products are torch's, norm and
# rectifier one compiled pass. Inputs with the same leading axes are joined once, in the precision of the products; the
# gradient of an input that wants none is not computed.


class _Joint(NamedTuple):
    """Consecutive inputs with the same leading axes."""

    lead: torch.Size  # the axes before the last
    sizes: tuple[int, ...]  # length of each one's last axis
    start: int  # column of the weight that the first of them meets
    stop: int  # column after the last
    inputs: range  # which inputs they are


class _Plan(NamedTuple):
    """One call of a network, but for its inputs."""

    linears: list[ConcatLinear]  # of the hidden layers and of the output
    norms: list[L1BatchNorm]  # of the hidden layers
    weights: list[Tensor]  # what the products of the linear maps read
    training: bool  # whether norms use the statistics of the batch
    centred: bool  # whether a norm takes the mean over the batch away behind the output layer too
    joints: list[_Joint]  # how the inputs are joined
    lead: torch.Size  # leading axes of the output

    def centres(self, layer: int) -> bool:
        """True if a norm takes the mean over the batch away behind a layer."""
        return self.training if layer < len(self.norms) else self.centred


def _fused(plan: _Plan, inputs: Sequence[Tensor]) -> Tensor:
    if torch.is_grad_enabled():
        parameters = [*plan.weights]
        for norm in plan.norms:
            parameters += norm.tensors()[:2]
        bias = plan.linears[-1].bias
        rows = _FusedMLP.apply(plan, *inputs, *parameters, *([] if bias is None else [bias]))
    else:
        rows = _forward(plan, inputs, None)
    # a view made inside the function could not be written in place
    return rows if len(plan.lead) == 1 else rows.view(*plan.lead, -1)


def _joined(inputs: Sequence[Tensor]) -> tuple[list[_Joint], torch.Size]:
    """The joints of some inputs, and the leading axes of all together."""
    found, column, index = [], 0, 0
    for lead, group in groupby(inputs, key=lambda value: value.shape[:-1]):
        sizes = tuple([value.shape[-1] for value in group])
        stop = column + sum(sizes)
        found.append(_Joint(lead, sizes, column, stop, range(index, index + len(sizes))))
        column, index = stop, index + len(sizes)
    lead = found[0].lead if len(found) == 1 else torch.broadcast_shapes(*[each.lead for each in found])
    return found, lead


def _matrix(joint: _Joint, inputs: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    rows = math.prod(joint.lead)
    # cast before they are joined: a recording casts once what many networks read
    parts = [inputs[index].to(dtype).reshape(rows, -1) for index in joint.inputs]
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, 1)


def _first_product(plan: _Plan, matrices: Sequence[Tensor], weight: Tensor) -> Tensor:
    """The joints times their columns of the first weight, (row, width)."""
    if len(matrices) == 1:
        return torch.mm(matrices[0], weight.t())
    total = weight.new_zeros(1)
    for joint, matrix in zip(plan.joints, matrices, strict=True):
        share = torch.mm(matrix, weight[:, joint.start : joint.stop].t()).view(*joint.lead, -1)
        # one that has all of the leading axes takes the other in
        if share.shape[:-1] == plan.lead:
            total = share.add_(total)
        else:
            total = total.add_(share) if total.shape[:-1] == plan.lead else total + share
    return total.expand(*plan.lead, -1).reshape(-1, len(weight))


def _forward(plan: _Plan, inputs: Sequence[Tensor], keep: list[Tensor] | None) -> Tensor:
    """The output, (row, output); what the gradients need is added to ``keep``, without it memory is written over."""
    weights, bias = plan.weights, plan.linears[-1].bias
    matrices = [_matrix(joint, inputs, weights[0].dtype) for joint in plan.joints]
    hidden = _first_product(plan, matrices, weights[0])
    saved = list(matrices)
    for norm, weight in zip(plan.norms, weights[1:], strict=True):
        scale, offset, mean, deviation = norm.tensors()
        out = hidden if keep is None else torch.empty_like(hidden)
        if plan.training:
            norm.check_rows(len(hidden))
            statistics = hidden.new_empty(2, hidden.shape[1], dtype=torch.float32)
            kernel.normalize(
                hidden, out, (scale, offset), statistics, (mean, deviation), norm.form(rectify=True)
            )
        else:
            statistics = torch.stack([mean, deviation])
            scale, offset = norm.used_parameters()
            kernel.apply_fixed(hidden, out, mean, scale / (deviation + norm.eps), offset)
        saved += [hidden, out, statistics]
        hidden = torch.mm(out, weight.t())
    if keep is not None:
        keep += saved
    hidden = hidden.to(torch.float32)
    if bias is not None:
        hidden.add_(bias)
    return hidden


class _FusedMLP(torch.autograd.Function):
    """The network and its gradients: by inputs, weights, scale and offset of each norm, and the bias."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, *tensors: Tensor) -> Tensor:
        count = plan.joints[-1].inputs.stop
        inputs, parameters = tensors[:count], tensors[count:]
        keep: list[Tensor] = []
        out = _forward(plan, inputs, keep)
        ctx.plan, ctx.num_inputs, ctx.num_parameters = plan, count, len(parameters)
        ctx.dtypes = [value.dtype for value in inputs]
        ctx.save_for_backward(*parameters, *keep)
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        plan: _Plan = ctx.plan
        tensors = ctx.saved_tensors
        parameters, keep = tensors[: ctx.num_parameters], tensors[ctx.num_parameters :]
        wanted = ctx.needs_input_grad[1:]
        wants_input, wants_parameter = wanted[: ctx.num_inputs], wanted[ctx.num_inputs :]
        found: list[Tensor | None] = [None] * ctx.num_parameters
        weights, matrices = parameters[: len(plan.weights)], keep[: len(plan.joints)]

        (gradient,) = gradients
        if plan.linears[-1].bias is not None and wants_parameter[-1]:
            found[-1] = row_sum(gradient)
        gradient = gradient.to(weights[0].dtype).contiguous()
        for index in reversed(range(len(plan.norms))):
            hidden, out, statistics = keep[len(matrices) + 3 * index :][:3]
            if wants_parameter[index + 1]:
                memory = plan.linears[index + 1].gradient_memory()  # None is new memory, here and below
                found[index + 1] = by_weight = torch.mm(gradient.t(), out, out=memory)
                if plan.centres(index + 1):
                    kernel.clear_constant(out, by_weight)
            place = len(weights) + 2 * index
            gradient = torch.mm(gradient, weights[index + 1])
            own = parameters[place : place + 2]
            form = plan.norms[index].form(rectify=True, of_batch=plan.training)
            by_own = [torch.empty_like(each) for each in own]
            kernel.normalize_backward(hidden, out, gradient, own, statistics, by_own, form)
            found[place : place + 2] = by_own
        by_inputs: list[Tensor | None] = []
        memory = plan.linears[0].gradient_memory() if wants_parameter[0] else None
        for joint, matrix in zip(plan.joints, matrices, strict=True):
            share = gradient
            if len(matrices) > 1:
                lead = gradient.view(*plan.lead, -1)
                share = lead.sum_to_size(*joint.lead, gradient.shape[-1]).reshape(len(matrix), -1)
            if wants_parameter[0] and len(matrices) == 1:
                found[0] = torch.mm(share.t(), matrix, out=memory)
            elif wants_parameter[0]:
                if found[0] is None:
                    found[0] = torch.empty_like(weights[0]) if memory is None else memory
                found[0][:, joint.start : joint.stop] = torch.mm(share.t(), matrix)
            if (by_weight := found[0]) is not None and plan.centres(0):
                kernel.clear_constant(matrix, by_weight[:, joint.start : joint.stop])
            by_inputs += _by_inputs(joint, share, weights[0], wants_input, ctx.dtypes)
        return None, *by_inputs, *found


def _by_inputs(
    joint: _Joint, gradient: Tensor, weight: Tensor, wanted: Sequence[bool], dtypes: Sequence[torch.dtype]
) -> list[Tensor | None]:
    """The gradients by the inputs of a joint: one product for the columns from the first to the last that want one."""
    asked = [place for place, index in enumerate(joint.inputs) if wanted[index]]
    found: list[Tensor | None] = [None] * len(joint.inputs)
    if not asked:
        return found
    places = list(accumulate(joint.sizes, initial=joint.start))
    start, stop = places[asked[0]], places[asked[-1] + 1]
    product, dtype = torch.mm(gradient, weight[:, start:stop]), dtypes[joint.inputs[asked[0]]]
    if product.dtype != dtype:
        product = product.to(dtype)
    for place in asked:
        part = product.narrow(1, places[place] - start, joint.sizes[place])
        found[place] = part if len(joint.lead) == 1 else part.reshape(*joint.lead, -1)
    return found
