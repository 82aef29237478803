"""Fully connected networks of several inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
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
        hidden: Widths of the hidden layers; empty makes the network linear.
        num_outputs: Length of the output's last axis.
        bounded_output: Whether the output passes an L1 batch norm with the paper's bounds, as the logits of the
            discrete units do.

    Raises:
        InvalidInputError: If a size is not a positive integer.
    """

    def __init__(
        self,
        input_sizes: Sequence[int],
        hidden: Sequence[int],
        num_outputs: int,
        *,
        bounded_output: bool = False,
    ) -> None:
        super().__init__()
        for index, size in enumerate(input_sizes):
            check_positive_int(f"input_sizes[{index}]", size)
        for index, size in enumerate(hidden):
            check_positive_int(f"hidden[{index}]", size)
        check_positive_int("num_outputs", num_outputs)
        sizes, layers = list(input_sizes), []
        for width in hidden:
            layers.append(ConcatLinear(sizes, width, bias=False))
            layers.append(L1BatchNorm(width))
            sizes = [width]
        layers.append(ConcatLinear(sizes, num_outputs, bias=not bounded_output))
        if bounded_output:
            layers.append(L1BatchNorm(num_outputs, bounded=True))
        self.input_sizes = tuple(input_sizes)
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Apply the network.

        Args:
            inputs: One tensor an input, (..., size); leading axes broadcast.

        Returns:
            (..., output).

        Raises:
            InvalidInputError: If the number of inputs or a last axis is wrong.
        """
        if len(inputs) != len(self.input_sizes):
            repair = f"Give {len(self.input_sizes)}."
            raise InvalidInputError(
                "inputs", "must match the network's inputs", f"{len(inputs)} tensors", repair
            )
        for index, (value, size) in enumerate(zip(inputs, self.input_sizes, strict=True)):
            check_tensor(f"inputs[{index}]", value, (..., size))
        hidden = self.layers[0](*inputs)
        for layer in self.layers[1:]:
            if isinstance(layer, ConcatLinear):
                hidden = torch.relu(hidden)
            hidden = layer(hidden)
        return hidden
