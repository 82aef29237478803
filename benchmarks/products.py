"""The matrix products of a computation, listed from what its networks are given and timed alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from discrete_vae.nets.mlp import MLP

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Product:
    """A product of two matrices, (rows, inner) times (inner, columns)."""

    shape: tuple[int, int, int]  # rows, inner, columns
    left_transposed: bool = False  # whether the left matrix lies in memory as its transpose
    right_transposed: bool = False
    energy: bool = False  # whether it belongs to an energy, which is computed in float32

    def call(self, precision: str) -> Callable[[], object]:
        """The product on random matrices."""
        rows, inner, columns = self.shape
        dtype = torch.float32 if self.energy else DTYPES[precision]

        def matrix(rows: int, columns: int, transposed: bool) -> torch.Tensor:
            return (
                torch.randn(columns, rows).to(dtype).T if transposed else torch.randn(rows, columns).to(dtype)
            )

        left, right = matrix(rows, inner, self.left_transposed), matrix(inner, columns, self.right_transposed)
        out = torch.empty(rows, columns, dtype=dtype)
        return lambda: torch.mm(left, right, out=out)


def watched(
    model: nn.Module,
    products_of: Callable[[MLP | nn.Linear, tuple[torch.Tensor, ...]], Iterable[Product]],
    call: Callable[[], object],
) -> list[Product]:
    """The products of a model's fully connected networks during a call that runs them.

    ``products_of`` gives those of a network, or of a linear map outside all networks, at the inputs that it is given.
    """
    found: list[Product] = []
    inside = {m for network in model.modules() if isinstance(network, MLP) for m in network.modules()}
    with contextlib.ExitStack() as hooks:

        def watch(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            assert isinstance(module, MLP | nn.Linear)
            found.extend(products_of(module, inputs))

        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                raise SystemExit("The floor is known for fully connected networks, not for convolutions.")
            if isinstance(module, MLP) or (isinstance(module, nn.Linear) and module not in inside):
                hooks.callback(module.register_forward_pre_hook(watch).remove)
        call()
    return found


def linear_layers(network: MLP | nn.Linear) -> list[nn.Linear]:
    """The linear layers of a network in order."""
    return [m for m in network.modules() if isinstance(m, nn.Linear)]
