"""Batch-norm folding: multilayer perceptrons for evaluation, with the norms' statistics folded into linear maps.

A norm with given statistics is an affine map of each feature: it scales the rows of the weight in front of it and gives
it a bias. Product, bias and rectifier are then one operation, and no pass over the activations is left. The share of
features that many calls have in common, x in importance sampling, is computed once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from discrete_vae.kernels.registry import compiled_by, is_eager
from discrete_vae.nets.mlp import MLP, ConcatLinear, L1BatchNorm
from discrete_vae.nets.weights import check_finite_weights, row_products


class FoldedMLP:
    """An MLP with its batch norms folded into its linear maps, from weights and running statistics as they are."""

    def __init__(self, network: MLP) -> None:
        self.dtype = network.output.product_weight().dtype
        self._weights: list[Tensor] = []
        self._biases: list[Tensor] = []
        layers = [*network.layers, network.output]
        for linear, norm in zip(layers[::2], [*layers[1::2], None], strict=True):
            assert isinstance(linear, ConcatLinear)
            weight, bias = linear.weight.detach(), linear.bias
            if isinstance(norm, L1BatchNorm):
                factor, bias = norm.affine()
                weight = weight * factor[:, None]
            self._weights.append(weight)
            self._biases.append(weight.new_zeros(len(weight)) if bias is None else bias.detach())
        first = self._weights[0]
        self._of_shared = first[:, : network.input_sizes[0]].contiguous()
        self._of_rest = first[:, network.input_sizes[0] :].to(self.dtype).contiguous()
        self._weights = [weight.to(self.dtype) for weight in self._weights]
        self._wide_bias = self._biases[0]
        self._biases = [bias.to(self.dtype) for bias in self._biases]
        self._kept: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        if len(inputs) == 1:
            return self._once(inputs[0], lambda: self._run(inputs))
        return self._run(inputs)

    def _run(self, inputs: Sequence[Tensor]) -> Tensor:
        lead = torch.broadcast_shapes(*(value.shape[:-1] for value in inputs))
        shared, rest = inputs[0], inputs[1:]
        if shared.shape[:-1] == lead:
            return self._after(0, self._joined(inputs, lead)).view(*lead, -1)
        return self._with_shared(shared, self._joined(rest, lead), lead).view(*lead, -1)

    def of_rows(self, rows: Tensor, shared: Tensor | None = None) -> Tensor:
        """The network at the rows of samples, (sample, example, output), in the precision of the products, as rows are.

        Rows, which may be written anew between calls, are all inputs, or all but the first, beside each other: (sample,
        example, column), contiguous. The first, shared, (example, feature), is read once while it lives and does not
        change.
        """
        lead, flat = rows.shape[:-1], rows.flatten(0, 1)
        if shared is None:
            return self._after(0, flat).view(*lead, -1)
        return self._with_shared(shared, flat, lead).view(*lead, -1)

    def _with_shared(self, shared: Tensor, rows: Tensor, lead: torch.Size) -> Tensor:
        """The network where the first input has fewer leading axes than the rows of all others."""
        # of x alone, so it costs next to nothing and may keep all its digits
        share = self._once(shared, lambda: row_products(shared, self._of_shared, self._wide_bias))
        rectify = len(self._weights) > 1
        if share.numel() == share.shape[-1]:
            bias = share.flatten().to(self.dtype)
            return self._after(1, row_products(rows, self._of_rest, bias, rectify=rectify))
        hidden = row_products(rows, self._of_rest)
        hidden = _add_shared_(hidden.view(*lead, -1), share, rectify)
        return self._after(1, hidden.flatten(0, -2))

    def _after(self, first: int, rows: Tensor) -> Tensor:
        """The layers from one on, at rows."""
        for index in range(first, len(self._weights)):
            rectify = index < len(self._weights) - 1
            rows = row_products(rows, self._weights[index], self._biases[index], rectify=rectify)
        return rows

    def _joined(self, inputs: Sequence[Tensor], lead: torch.Size) -> Tensor:
        """The inputs beside each other, (row, column), in the precision of products."""
        if len(inputs) == 1:
            return inputs[0].expand(*lead, -1).reshape(lead.numel(), -1).to(self.dtype)
        sizes = [value.shape[-1] for value in inputs]
        joint = torch.empty(*lead, sum(sizes), dtype=self.dtype, device=inputs[0].device)
        for value, place in zip(inputs, joint.split(sizes, -1), strict=True):
            place.copy_(value)
        return joint.view(lead.numel(), -1)

    def _once(self, value: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """Result of an earlier call for the same tensor, while that lives and does not change."""
        kept = self._kept
        if kept is None or kept[0]() is not value or kept[1] != value._version:
            kept = self._kept = (weakref.ref(value, self._forget), value._version, make())
        return kept[2]

    def _forget(self, reference: weakref.ref[Tensor]) -> None:
        if self._kept is not None and self._kept[0] is reference:
            self._kept = None


@compiled_by("norm.add_shared", (torch.float32, torch.bfloat16))
def _add_shared_(rows: Tensor, shared: Tensor, rectify: bool) -> Tensor:
    """Add what rows (sample, example, feature) share, in place, with a rectifier or without."""
    rows.add_(shared)
    return rows.relu_() if rectify else rows


@contextmanager
def folded_networks(module: nn.Module) -> Iterator[None]:
    """Within the block, the multilayer perceptrons of a module compute as `FoldedMLP`; parameters must not change.

    Networks with hooks or layers of other kinds are left as they are. Blocks may be nested. The rectifier of the fused
    operation makes 0 of a NaN, so weights are looked at before.
    """
    check_finite_weights("model", module)
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
    if network.folded is not None or not is_eager() or (layers := network.plain_layers()) is None:
        return False
    return not any(norm.training for norm in layers[1])
