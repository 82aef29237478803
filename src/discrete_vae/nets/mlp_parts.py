"""What a multilayer perceptron consists of, as the fused pass takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from discrete_vae.compiled.choice import are_plain
from discrete_vae.nets.l1_batch_norm import L1BatchNorm
from discrete_vae.records import ShowsShapes


class _Linear(Protocol):
    """What is asked of a linear layer."""

    bias: Tensor | None

    def product_weight(self) -> Tensor: ...

    def gradient_memory(self) -> Tensor | None: ...


@dataclass(frozen=True, eq=False, repr=False)
class MLPParts(ShowsShapes):
    """The parts of a network at one call.

    Attributes:
        weights: What the products read, the output layer's last.
        memories: Gives memory for the gradient of each of them, where some is kept and free.
        norms: Of the hidden layers.
        norm_tensors: Scale, offset, running mean and running deviation of each of them.
        bias: The output's.
        training: Whether the norms use the statistics of the batch.
    """

    weights: list[Tensor]
    memories: list[Callable[[], Tensor | None]]
    norms: Sequence[L1BatchNorm]
    norm_tensors: list[tuple[Tensor, Tensor, Tensor, Tensor]]
    bias: Tensor | None
    training: bool

    @classmethod
    def of(cls, linears: Sequence[_Linear], norms: Sequence[L1BatchNorm], training: bool) -> MLPParts:
        """Collect them from the layers, the output's last."""
        return cls(
            [linear.product_weight() for linear in linears],
            [linear.gradient_memory for linear in linears],
            norms,
            [norm.tensors() for norm in norms],
            linears[-1].bias,
            training,
        )

    def are_plain(self) -> bool:
        """Whether the fused pass can work with them: weights of one precision, all else float32, all on the CPU."""
        dtype, others = self.weights[0].dtype, [tensor for norm in self.norm_tensors for tensor in norm]
        if self.bias is not None:
            others.append(self.bias)
        for tensor in others:
            if tensor.dtype != torch.float32:
                return False
        for weight in self.weights:
            if weight.dtype != dtype:
                return False
        return are_plain(self.weights) and are_plain(others)
