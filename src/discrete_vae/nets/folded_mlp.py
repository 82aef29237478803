"""Multilayer perceptrons for evaluation, with the given statistics of their norms folded into their linear maps.

A norm with given statistics is an affine map of each feature: it scales the rows of the weight in front of it and gives
it a bias. Product, bias and rectifier are then one operation, and no pass over the activations is left. What is
computed of features that many calls share, x in importance sampling, is computed once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.compiled.choice import are_plain, is_ordinary
from discrete_vae.nets.finite_weights import check_weights
from discrete_vae.nets.kernels.choice import has_hooks
from discrete_vae.nets.l1_batch_norm import L1BatchNorm
from discrete_vae.nets.mlp import MLP, ConcatLinear


class FoldedMLP:
    """What an MLP computes with its running statistics, with its weights as they are when this is made.

    Args:
        network: An MLP of plain layers, with the precision of products that is wanted.
    """

    def __init__(self, network: MLP) -> None:
        self._dtype = network.output.product_weight().dtype
        self._weights: list[Tensor] = []
        self._biases: list[Tensor] = []
        layers = [*network.layers, network.output]
        for linear, norm in zip(layers[::2], [*layers[1::2], None], strict=True):
            assert isinstance(linear, ConcatLinear)
            weight, bias = linear.weight.detach(), linear.bias
            if isinstance(norm, L1BatchNorm):
                scale, offset = norm.used_parameters()
                factor = scale / (norm.running_deviation + norm.eps)
                weight, bias = weight * factor[:, None], offset - norm.running_mean * factor
            self._weights.append(weight)
            self._biases.append(weight.new_zeros(len(weight)) if bias is None else bias.detach())
        first = self._weights[0]
        self._of_shared = first[:, : network.input_sizes[0]]
        self._of_rest = first[:, network.input_sizes[0] :].to(self._dtype).contiguous()
        self._weights = [weight.to(self._dtype) for weight in self._weights]
        self._wide_bias = self._biases[0]
        self._biases = [bias.to(self._dtype) for bias in self._biases]
        self._kept: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        """See `MLP.forward`; in the precision of the products."""
        if len(inputs) == 1:
            return self._once(inputs[0], lambda: self._run(inputs))
        return self._run(inputs)

    def _run(self, inputs: Sequence[Tensor]) -> Tensor:
        lead = torch.broadcast_shapes(*(value.shape[:-1] for value in inputs))
        shared, rest = inputs[0], inputs[1:]
        if shared.shape[:-1] == lead:
            hidden = self._linear(0, self._joined(inputs, lead))
        else:
            # of x alone, so it costs next to nothing and may keep all its digits
            share = self._once(shared, lambda: F.linear(shared, self._of_shared, self._wide_bias))
            joint, rectify = self._joined(rest, lead), len(self._weights) > 1
            if share.numel() == share.shape[-1]:
                hidden = _linear(joint, self._of_rest, share.flatten().to(self._dtype), rectify=rectify)
            else:
                hidden = F.linear(joint, self._of_rest).view(*lead, -1).add_(share)
                hidden = (hidden.relu_() if rectify else hidden).flatten(0, -2)
        for index in range(1, len(self._weights)):
            hidden = self._linear(index, hidden)
        return hidden.view(*lead, -1)

    def _linear(self, index: int, rows: Tensor) -> Tensor:
        rectify = index < len(self._weights) - 1
        return _linear(rows, self._weights[index], self._biases[index], rectify=rectify)

    def _joined(self, inputs: Sequence[Tensor], lead: torch.Size) -> Tensor:
        """The inputs beside each other, (row, column), in the precision of products."""
        if len(inputs) == 1:
            return inputs[0].expand(*lead, -1).reshape(lead.numel(), -1).to(self._dtype)
        sizes = [value.shape[-1] for value in inputs]
        joint = torch.empty(*lead, sum(sizes), dtype=self._dtype, device=inputs[0].device)
        for value, place in zip(inputs, joint.split(sizes, -1), strict=True):
            place.copy_(value)
        return joint.view(lead.numel(), -1)

    def _once(self, value: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """What was made of a tensor before, while it lives and does not change."""
        kept = self._kept
        if kept is None or kept[0]() is not value or kept[1] != value._version:
            kept = self._kept = (weakref.ref(value, self._forget), value._version, make())
        return kept[2]

    def _forget(self, reference: weakref.ref[Tensor]) -> None:
        if self._kept is not None and self._kept[0] is reference:
            self._kept = None


def _linear(rows: Tensor, weight: Tensor, bias: Tensor, *, rectify: bool) -> Tensor:
    """A linear map and, if asked for, a rectifier."""
    if torch.backends.mkldnn.is_available() and are_plain((rows, weight)):
        kind = "relu" if rectify else "none"
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, kind, [], "")
    out = F.linear(rows, weight, bias)
    return out.relu_() if rectify else out


@contextmanager
def folded_networks(module: nn.Module) -> Iterator[None]:
    """Within the block, the multilayer perceptrons of a module compute as `FoldedMLP`; parameters must not change.

    Networks with hooks or layers of other kinds are left as they are. Blocks may be nested. The rectifier of the fused
    operation makes 0 of a NaN, so weights are looked at before.

    Args:
        module: A model in evaluation mode.

    Raises:
        InvalidInputError: If a weight is not finite.
    """
    check_weights("model", module)
    networks = [part for part in module.modules() if isinstance(part, MLP) and _folds(part)]
    try:
        with torch.no_grad():
            for network in networks:
                network.folded = FoldedMLP(network)
        yield
    finally:
        for network in networks:
            network.folded = None


def _folds(network: MLP) -> bool:
    layers = [*network.layers, network.output]
    return (
        network.folded is None
        and is_ordinary()
        and not has_hooks(layers)
        and all(type(layer) is ConcatLinear for layer in layers[::2])
        and all(type(layer) is L1BatchNorm and not layer.training for layer in layers[1::2])
    )
