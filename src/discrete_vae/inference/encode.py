"""Codes of examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from discrete_vae.inference.batches import Report, in_batches
from discrete_vae.inference.latents import drawn, most_probable
from discrete_vae.inference.row_noise import RowNoise
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.records import ShowsShapes

_STREAM = 0x656E636F


@dataclass(frozen=True, eq=False, repr=False)
class Codes(ShowsShapes):
    """Codes of examples, a row each.

    Attributes:
        probabilities: q(z_i = 1 | x, zeta of the earlier groups), (row, unit) float32.
        bits: The code, (row, unit) uint8 in {0,1}.
        packed: The same, eight units to a byte: `numpy.packbits` of bits along the units, the first unit being the
            highest bit of the first byte, and zeros behind the last; (row, byte) uint8.
        zeta: The smoothed latents that the decoder reads, (row, unit) float32.
        continuous: The Gaussian layers, (row, layer, unit) float32; no layer where the model has none.
    """

    probabilities: np.ndarray
    bits: np.ndarray
    packed: np.ndarray
    zeta: np.ndarray
    continuous: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """All of them by name, the layers only where there are some."""
        found = {name: getattr(self, name) for name in ("probabilities", "bits", "packed", "zeta")}
        return found | ({"continuous": self.continuous} if self.continuous.shape[1] else {})


def encode_rows(
    model: DiscreteVAE,
    x: Tensor,
    *,
    draw: bool = False,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> Codes:
    """The most probable code of each example, or a draw.

    The most probable code is found group after group: each group's bits are the most probable ones given x and the
    groups before it, whose zeta are the medians of r(zeta|z) at their bits. The layers are then the means of
    q(h_m | h_<m, zeta, x), each at the means before it. A draw is one of q(z, zeta, h | x), layers included.

    Args:
        model: The model.
        x: (row, feature) or (row, *event), in the likelihood's domain; NaN marks missing values.
        draw: Whether to draw.
        seed: Seed of the draws.
        numbers: As in `discrete_vae.inference.batches.in_batches`.
        batch_size: Likewise.
        report: Likewise.

    Returns:
        The codes.

    Raises:
        InvalidInputError: If the model refuses x, or a logit of its posterior is not finite.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=6, num_right=6)))
        >>> codes = encode_rows(model, torch.eye(6))
        >>> codes.bits.shape, codes.packed.shape, codes.continuous.shape
        ((6, 12), (6, 2), (6, 0, 0))
        >>> bool((np.unpackbits(codes.packed, axis=1, count=12) == codes.bits).all())
        True
    """
    with eval_mode(model) as model:

        def compute(batch: Tensor, rows: Sequence[int]) -> dict[str, Tensor]:
            features = model.read(*model._open(batch, None))
            found = (
                drawn(model, features, RowNoise(rows, seed, _STREAM))
                if draw
                else most_probable(model, features)
            )
            return {
                "probabilities": torch.sigmoid(found.logits.float()),
                "bits": found.z.to(torch.uint8),
                "zeta": found.zeta.float(),
                "continuous": found.h.float(),
            }

        found = in_batches(model, x, compute, numbers=numbers, batch_size=batch_size, report=report)
    return Codes(packed=np.packbits(found["bits"], axis=1), **found)
