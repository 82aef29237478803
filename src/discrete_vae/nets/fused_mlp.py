"""A whole multilayer perceptron as one operation of autograd, with its gradients written out.

Products are torch's, norm and rectifier one compiled pass. Inputs with the same leading axes are joined once, in the
precision of the products; the gradient of an input that wants none is not computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from discrete_vae.nets.kernels import norm as kernel
from discrete_vae.nets.mlp_parts import MLPParts
from discrete_vae.numerics import differentiable_once, row_sum


@dataclass(frozen=True)
class _Joint:
    """Consecutive inputs with the same leading axes.

    Attributes:
        lead: The axes before the last.
        sizes: Length of each one's last axis.
        start: Column of the weight that the first of them meets.
        stop: Column after the last.
        inputs: Index of the first of them, and the one after the last.
    """

    lead: torch.Size
    sizes: tuple[int, ...]
    start: int
    stop: int
    inputs: tuple[int, int]


@dataclass(frozen=True)
class _Plan:
    """What is not a tensor of one call.

    Attributes:
        parts: The network.
        joints: How its inputs are joined.
        lead: Leading axes of the output.
        centred: Whether a norm takes the mean over the batch away behind the output layer too.
    """

    parts: MLPParts
    joints: tuple[_Joint, ...]
    lead: torch.Size
    centred: bool

    def centres(self, layer: int) -> bool:
        """Whether a norm takes the mean over the batch away behind a layer."""
        return self.parts.training if layer < len(self.parts.norms) else self.centred


def fused_mlp(parts: MLPParts, inputs: Sequence[Tensor], *, centred: bool = False) -> Tensor:
    """What the network gives, of float32 or bfloat16 inputs on the CPU; see `MLP.forward`."""
    joints = tuple(_joints(inputs))
    lead = joints[0].lead if len(joints) == 1 else torch.broadcast_shapes(*(each.lead for each in joints))
    plan = _Plan(parts, joints, lead, centred)
    parameters = [*parts.weights]
    for scale, offset, _, _ in parts.norm_tensors:
        parameters += [scale, offset]
    if parts.bias is not None:
        parameters.append(parts.bias)
    if torch.is_grad_enabled():
        return _FusedMLP.apply(plan, *inputs, *parameters)
    return _forward(plan, inputs, parameters, None)


def _joints(inputs: Sequence[Tensor]) -> list[_Joint]:
    found, column, index = [], 0, 0
    for lead, group in groupby(inputs, key=lambda value: value.shape[:-1]):
        sizes = tuple(value.shape[-1] for value in group)
        stop = column + sum(sizes)
        found.append(_Joint(lead, sizes, column, stop, (index, index + len(sizes))))
        column, index = stop, index + len(sizes)
    return found


def _matrix(joint: _Joint, inputs: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The joined inputs, (row, column), contiguous."""
    rows = math.prod(joint.lead)
    # cast before they are joined: a recording casts once what many networks read
    parts = [part.to(dtype).reshape(rows, -1) for part in inputs[slice(*joint.inputs)]]
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, 1)


def _first_product(plan: _Plan, matrices: Sequence[Tensor], weight: Tensor) -> Tensor:
    """The joints times their columns of the first weight, (row, width)."""
    if len(matrices) == 1:
        return torch.mm(matrices[0], weight.t())
    total = torch.zeros(1, dtype=weight.dtype)
    for joint, matrix in zip(plan.joints, matrices, strict=True):
        share = torch.mm(matrix, weight[:, joint.start : joint.stop].t()).view(*joint.lead, -1)
        # one that has all of the leading axes takes the other in
        if share.shape[:-1] == plan.lead:
            total = share.add_(total)
        else:
            total = total.add_(share) if total.shape[:-1] == plan.lead else total + share
    return total.expand(*plan.lead, -1).reshape(-1, len(weight))


def _forward(
    plan: _Plan, inputs: Sequence[Tensor], parameters: Sequence[Tensor], keep: list[Tensor] | None
) -> Tensor:
    """The output; what the gradients need is added to ``keep``, without it memory is written over."""
    parts = plan.parts
    weights = parameters[: len(parts.weights)]
    matrices = [_matrix(joint, inputs, weights[0].dtype) for joint in plan.joints]
    hidden = _first_product(plan, matrices, weights[0])
    saved = list(matrices)
    for norm, tensors, weight in zip(parts.norms, parts.norm_tensors, weights[1:], strict=True):
        scale, offset, *running = tensors
        out = hidden if keep is None else torch.empty_like(hidden)
        form = norm.form(rectify=True)
        if parts.training:
            norm.check_rows(len(hidden))
            statistics = kernel.normalize(hidden, out, (scale, offset), (running[0], running[1]), form)
        else:
            statistics = torch.stack(running)
            scale, offset = norm.used_parameters()
            kernel.apply_fixed(hidden, out, running[0], scale / (running[1] + norm.eps), offset, form)
        saved += [hidden, out, statistics]
        hidden = torch.mm(out, weight.t())
    if keep is not None:
        keep += saved
    hidden = hidden.to(torch.float32)
    if parts.bias is not None:
        hidden.add_(parts.bias)
    return hidden if len(plan.lead) == 1 else hidden.view(*plan.lead, -1)


class _FusedMLP(torch.autograd.Function):
    """See `fused_mlp`."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, *tensors: Tensor) -> Tensor:
        count = plan.joints[-1].inputs[1]
        inputs, parameters = tensors[:count], tensors[count:]
        keep: list[Tensor] = []
        out = _forward(plan, inputs, parameters, keep)
        ctx.plan, ctx.num_inputs, ctx.num_parameters = plan, count, len(parameters)
        ctx.dtypes = [value.dtype for value in inputs]
        ctx.save_for_backward(*parameters, *keep)
        return out

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        plan: _Plan = ctx.plan
        parts, tensors = plan.parts, ctx.saved_tensors
        parameters, keep = tensors[: ctx.num_parameters], tensors[ctx.num_parameters :]
        wanted = ctx.needs_input_grad[1:]
        wants_input, wants_parameter = wanted[: ctx.num_inputs], wanted[ctx.num_inputs :]
        found: list[Tensor | None] = [None] * ctx.num_parameters
        weights, matrices = parameters[: len(parts.weights)], keep[: len(plan.joints)]

        gradient = gradients[0].reshape(-1, gradients[0].shape[-1])
        if parts.bias is not None and wants_parameter[-1]:
            found[-1] = row_sum(gradient)
        gradient = gradient.to(weights[0].dtype).contiguous()
        for index in reversed(range(len(parts.norms))):
            hidden, out, statistics = keep[len(matrices) + 3 * index :][:3]
            if wants_parameter[index + 1]:
                by_weight = _product(gradient, out, parts.memories[index + 1]())
                found[index + 1] = by_weight
                if plan.centres(index + 1):
                    kernel.clear_constant(out, by_weight)
            place = len(weights) + 2 * index
            gradient = torch.mm(gradient, weights[index + 1])
            found[place : place + 2] = kernel.normalize_backward(
                hidden,
                out,
                gradient,
                parameters[place : place + 2],
                statistics,
                parts.norms[index].form(rectify=True),
                of_batch=parts.training,
            )
        by_inputs: list[Tensor | None] = []
        memory = parts.memories[0]() if wants_parameter[0] else None
        for joint, matrix in zip(plan.joints, matrices, strict=True):
            share = gradient
            if len(matrices) > 1:
                lead = gradient.view(*plan.lead, -1)
                share = lead.sum_to_size(*joint.lead, gradient.shape[-1]).reshape(len(matrix), -1)
            if wants_parameter[0] and len(matrices) == 1:
                found[0] = _product(share, matrix, memory)
            elif wants_parameter[0]:
                if found[0] is None:
                    found[0] = torch.empty_like(weights[0]) if memory is None else memory
                found[0][:, joint.start : joint.stop] = torch.mm(share.t(), matrix)
            if (by_weight := found[0]) is not None and plan.centres(0):
                kernel.clear_constant(matrix, by_weight[:, joint.start : joint.stop])
            by_inputs += _by_inputs(joint, share, weights[0], wants_input, ctx.dtypes)
        return None, *by_inputs, *found


def _product(gradient: Tensor, activations: Tensor, memory: Tensor | None) -> Tensor:
    """The gradient by a weight, in lent memory if there is some."""
    return (
        torch.mm(gradient.t(), activations)
        if memory is None
        else torch.mm(gradient.t(), activations, out=memory)
    )


def _by_inputs(
    joint: _Joint, gradient: Tensor, weight: Tensor, wanted: Sequence[bool], dtypes: Sequence[torch.dtype]
) -> list[Tensor | None]:
    """The gradients by the inputs of a joint: one product for the columns from the first to the last that want one."""
    first, last = joint.inputs
    asked = [index for index in range(first, last) if wanted[index]]
    found: list[Tensor | None] = [None] * (last - first)
    if not asked:
        return found
    places = [joint.start + sum(joint.sizes[:index]) for index in range(last - first + 1)]
    start, stop = places[asked[0] - first], places[asked[-1] - first + 1]
    product = torch.mm(gradient, weight[:, start:stop])
    if product.dtype != dtypes[asked[0]]:
        product = product.to(dtypes[asked[0]])
    for index in asked:
        part = product.narrow(1, places[index - first] - start, joint.sizes[index - first])
        found[index - first] = part if len(joint.lead) == 1 else part.reshape(*joint.lead, -1)
    return found
