"""Weights that a checkpoint keeps in bfloat16: half the bytes, and float32 again when it is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

KEY = "rounded"
"""The entry of a checkpoint's plain values that names the tensors."""


def rounded_weights(
    tensors: Mapping[str, Tensor], names: Collection[str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Round some tensors to bfloat16, to the nearest.

    Args:
        tensors: float32 tensors by name.
        names: Which of them; none means that all stay as they are.

    Returns:
        All tensors, and what the checkpoint's plain values have to say of them.

    Examples:
        >>> tensors, meta = rounded_weights({"weight": torch.tensor([1.001]), "bias": torch.ones(1)}, ["weight"])
        >>> tensors["weight"].dtype, widened_weights(tensors, meta)["weight"]
        (torch.bfloat16, tensor([1.]))
    """
    chosen = sorted(names)
    found = dict(tensors) | {name: tensors[name].to(torch.bfloat16) for name in chosen}
    return found, {KEY: chosen} if chosen else {}


def widened_weights(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> dict[str, Tensor]:
    """Undo `rounded_weights`, but for the digits that are gone.

    Args:
        tensors: What the checkpoint holds. One that is said to be rounded and is not stays as it is.
        meta: Its plain values.
    """
    named = meta.get(KEY, [])
    rounded = set(map(str, named)) if isinstance(named, list) else set()
    return {
        name: value.float() if name in rounded and value.dtype == torch.bfloat16 else value
        for name, value in tensors.items()
    }
