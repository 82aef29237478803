"""How many importance samples fit a memory budget."""

from __future__ import annotations

import math

from torch import nn

from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.mlp import MLP

_LARGEST_CHUNK = 5000  # fewer leave the time to the calls, more to the memory
_LIVE = 6  # arrays as wide as the widest layer that are alive at once, at most


def samples_in_memory(model: DiscreteVAE, max_memory: float) -> int:
    """Samples of one example that the networks' intermediate values leave room for.

    Args:
        model: The model.
        max_memory: Budget for them, MiB; weights and data come on top.

    Returns:
        From 1 to 5000.
    """
    widths = [
        layer.in_features + layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)
    ]
    floats = _LIVE * max([*widths, math.prod(model.likelihood.parameter_shape) + model.prior.num_units])
    # each network beside the features has its inputs in a row
    floats += sum(sum(part.input_sizes[1:]) for part in model.modules() if isinstance(part, MLP))
    return max(1, min(_LARGEST_CHUNK, int(max_memory * 2**20 / (4 * floats))))
