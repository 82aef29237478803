"""The parameters of a model by part, one network per line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ParameterRow:
    """A network, or a tensor that belongs to none.

    Attributes:
        part: The part of the model: prior, posterior, hierarchy.prior, hierarchy.posterior, likelihood.
        name: Its dotted name.
        shape: Widths from input to output, or the tensor's shape.
        count: Its parameters.
    """

    part: str
    name: str
    shape: str
    count: int


def parameter_rows(model: nn.Module) -> list[ParameterRow]:
    """The rows of a model; each parameter is counted in exactly one of them."""
    from discrete_vae.nets.mlp import MLP, ConcatLinear

    networks = {name: module for name, module in model.named_modules() if isinstance(module, MLP)}
    rows: dict[str, ParameterRow] = {}
    for name, parameter in model.named_parameters():
        owner = next((network for network in networks if name.startswith(f"{network}.")), name)
        if owner in rows:
            continue
        if owner in networks:
            network = networks[owner]
            linear = [layer for layer in network.modules() if isinstance(layer, ConcatLinear)]
            widths = [
                " + ".join(map(str, network.input_sizes)),
                *(str(layer.out_features) for layer in linear),
            ]
            shape, count = " -> ".join(widths), sum(part.numel() for part in network.parameters())
        else:
            shape, count = " x ".join(map(str, parameter.shape)) or "scalar", parameter.numel()
        rows[owner] = ParameterRow(_part(name), owner, shape, count)
    return list(rows.values())


def _part(name: str) -> str:
    first, second = name.split(".")[:2]
    return f"{first}.{second}" if first == "hierarchy" else first
