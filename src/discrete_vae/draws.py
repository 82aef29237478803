"""Draws of all of the model's variables."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class ModelSample(ShowsShapes):
    """Draws from the generative model.

    Attributes:
        mean: E[x | zeta, h], (sample, *event); of bits, probabilities.
        z: The prior's states, (sample, unit), in {0,1}.
        zeta: (sample, unit).
        h: The continuous layers, (sample, layer, unit); no layer without a hierarchy.
    """

    mean: Tensor
    z: Tensor
    zeta: Tensor
    h: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Encoding(ShowsShapes):
    """A draw of all latents from the approximating posterior.

    Attributes:
        z: (batch, unit), in {0,1}.
        zeta: (batch, unit).
        logits: Log-odds of each unit given x and the earlier groups, (batch, unit).
        h: The continuous layers, (batch, layer, unit); no layer without a hierarchy.
    """

    z: Tensor
    zeta: Tensor
    logits: Tensor
    h: Tensor
