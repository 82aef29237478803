"""Fully connected networks of several inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int
from discrete_vae.nets.l1_batch_norm import L1BatchNorm


class ConcatLinear(nn.Linear):
    """A linear map of the concatenation of its inputs along the last axis.

    Inputs whose leading axes differ but broadcast are multiplied on their own and added, so what many samples
    share (x, in importance sampling) is multiplied once.
    """

    def __init__(self, input_sizes: Sequence[int], num_outputs: int, *, bias: bool = True) -> None:
        super().__init__(sum(input_sizes), num_outputs, bias=bias)
        self.input_sizes = tuple(input_sizes)

    def forward(self, *inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Map inputs of shapes (..., size) to (..., output)."""
        if all(value.shape[:-1] == inputs[0].shape[:-1] for value in inputs):
            joint = inputs[0] if len(inputs) == 1 else torch.cat(inputs, dim=-1)
            return F.linear(joint, self.weight, self.bias)
        parts = self.weight.split(self.input_sizes, dim=1)
        total = F.linear(inputs[0], parts[0], self.bias)
        for value, part in zip(inputs[1:], parts[1:], strict=True):
            total = total + F.linear(value, part)
        return total


class MLP(nn.Module):
    """Hidden layers of linear -> L1 batch norm -> ReLU, then a linear output layer.

    Linear layers in front of a norm have no bias: the norm's offset plays its part.

    Source: Rolfe 2017, section architecture and appendix laplacian-batch-normalization.

    Args:
        input_sizes: Length of the last axis of each input.
        num_outputs: Length of the output's last axis.
        hidden: Widths of the hidden layers; empty makes the network linear.
        bias: Whether the output layer has a bias.

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
        for width in hidden:
            layers.append(ConcatLinear(sizes, width, bias=False))
            layers.append(L1BatchNorm(width))
            sizes = [width]
        self.layers = nn.ModuleList(layers)
        self.output = ConcatLinear(sizes, num_outputs, bias=bias)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Apply the network.

        Args:
            inputs: One tensor per input, (..., size); leading axes are equal or broadcast.

        Returns:
            (..., output).
        """
        for index in range(0, len(self.layers), 2):
            linear, norm = self.layers[index], self.layers[index + 1]
            inputs = (torch.relu(norm(linear(*inputs))),)
        return self.output(*inputs)

    @torch.no_grad()
    def initialize_output_(self, start: Tensor | float, scale: float = 1.0) -> None:
        """Let the output start near given values.

        Args:
            start: The output's biases, (output,) or one number.
            scale: Factor on the output layer's weights.
        """
        self.output.weight.mul_(scale)
        self.output.bias.copy_(torch.as_tensor(start).expand_as(self.output.bias))
