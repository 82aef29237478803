"""Fully connected networks of several inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int
from discrete_vae.compiled.choice import are_plain, is_ordinary
from discrete_vae.memory import allocating
from discrete_vae.nets.kernels.choice import has_hooks, works
from discrete_vae.nets.l1_batch_norm import L1BatchNorm
from discrete_vae.nets.mlp_parts import MLPParts
from discrete_vae.nets.row_products import row_products
from discrete_vae.nets.working_weight import WorkingLayer

SMALLEST_FUSED = 100_000
"""Activations of a layer from which a network is fused where statistics are given: below, torch's operations do."""


class ConcatLinear(WorkingLayer, nn.Linear):
    """A linear map of the concatenation of its inputs along the last axis.

    Inputs whose leading axes differ but broadcast are multiplied on their own and added, so what many samples
    share (x, in importance sampling) is multiplied once.
    """

    def __init__(self, input_sizes: Sequence[int], num_outputs: int, *, bias: bool = True) -> None:
        super().__init__(sum(input_sizes), num_outputs, bias=bias)
        self.input_sizes = tuple(input_sizes)

    def forward(self, *inputs: Tensor, centred: bool = False) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map inputs of shapes (..., size) to (..., output), in the bias's precision if there is one.

        Args:
            inputs: One tensor per input; leading axes are equal or broadcast.
            centred: Whether the result's mean over the batch is taken away behind: see `MLP`.
        """
        weight = self.product_weight()
        if centred and torch.is_grad_enabled():
            rows = [value.detach().flatten(0, -2) for value in inputs]
            varies = torch.cat([value.amax(0) != value.amin(0) for value in rows])
            weight = torch.where(varies, weight, weight.detach())
        product = F.linear if torch.is_grad_enabled() or not is_ordinary() else row_products
        if self.working is not None:
            inputs = tuple(value.to(weight.dtype) for value in inputs)
        if all(value.shape[:-1] == inputs[0].shape[:-1] for value in inputs):
            joint = inputs[0] if len(inputs) == 1 else torch.cat(inputs, dim=-1)
            if self.working is None:
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
        folded: What computes in place of the layers; `discrete_vae.nets.folded_mlp` sets it for an evaluation.

    Raises:
        InvalidInputError: If a size is not a positive integer.

    Examples:
        >>> network = MLP([6, 2], 3, (5,))
        >>> network(torch.zeros(4, 6), torch.zeros(10, 4, 2)).shape
        torch.Size([10, 4, 3])
    """

    def __init__(
        self, input_sizes: Sequence[int], num_outputs: int, hidden: Sequence[int] = (), *, bias: bool = True
    ) -> None:
        super().__init__()
        for index, size in enumerate(input_sizes):
            check_positive_int(f"input_sizes[{index}]", size)
        check_positive_int("num_outputs", num_outputs)
        for index, size in enumerate(hidden):
            check_positive_int(f"hidden[{index}]", size)
        self.input_sizes = tuple(input_sizes)
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
        """Apply the network.

        Args:
            inputs: One tensor per input, (..., size); leading axes are equal or broadcast.
            centred: Whether a norm takes the mean over the batch away behind the output layer too.

        Returns:
            (..., output).
        """
        if self.folded is not None:
            return self.folded(*inputs)
        parts = self._fused_parts(inputs)
        if parts is not None:
            from discrete_vae.nets.fused_mlp import fused_mlp

            return fused_mlp(parts, inputs, centred=centred)
        for index in range(0, len(self.layers), 2):
            inputs = (torch.relu(normalized(self.layers[index], self.layers[index + 1], *inputs)),)
        out = self.output(*inputs, centred=centred) if centred else self.output(*inputs)
        return out if self.output.working is None else out.to(self.output.weight.dtype)

    def _fused_parts(self, inputs: tuple[Tensor, ...]) -> MLPParts | None:
        """What one operation needs to know of the network; None where it cannot take its place, or does not gain."""
        if not is_ordinary() or not are_plain(inputs):
            return None
        layers = [*self.layers._modules.values()]  # slices of a ModuleList are modules, made anew
        linears, norms, training = [*layers[::2], self.output], layers[1::2], self.training
        for linear in linears:
            if type(linear) is not ConcatLinear:
                return None
        for norm in norms:
            if type(norm) is not L1BatchNorm or norm.training != training:
                return None
        if not training:
            rows = max(value.numel() // max(value.shape[-1], 1) for value in inputs)
            if rows * linears[0].out_features < SMALLEST_FUSED:
                return None
        if has_hooks(layers) or has_hooks((self.output,)):
            return None
        parts = MLPParts.of(linears, norms, training)  # pyright: ignore[reportArgumentType]
        return parts if parts.are_plain() and works() else None

    @torch.no_grad()
    def initialize_output_(self, start: Tensor | float, scale: float = 1.0) -> None:
        """Let the output start near given values.

        Args:
            start: The output's biases, (output,) or one number.
            scale: Factor on the output layer's weights.
        """
        self.output.weight.mul_(scale)
        self.output.bias.copy_(torch.as_tensor(start).expand_as(self.output.bias))


def normalized(network: nn.Module, norm: nn.Module, *inputs: Tensor) -> Tensor:
    """What a norm makes of a network's output, whose gradient by constant inputs' weights is then zero: see `MLP`."""
    if norm.training and getattr(network.forward, "__func__", None) in _KNOW_NORMS:
        return norm(network(*inputs, centred=True))
    return norm(network(*inputs))


_KNOW_NORMS = (MLP.forward, ConcatLinear.forward)  # whoever puts another one in its place need not
