"""Examples with gaps beside what fills them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from discrete_vae.figures.image_grid import GridText, draw_image_grid
from discrete_vae.figures.ink import ink_for

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture
    from discrete_vae.inference.impute import Imputed

_IMAGES, _STRIPS, _DRAWS = 16, 8, 3


def draw_imputed(x: Tensor, imputed: Imputed, image_shape: tuple[int, int] | None = None) -> Picture:
    """Draw examples with gaps, filled, and below them a few draws if there are some.

    Args:
        x: (example, feature), NaN in the gaps; those with gaps are shown, from the first on.
        imputed: What `discrete_vae.inference.impute.impute` made of them.
        image_shape: (height, width) of an example; None draws strips.

    Returns:
        The figure.
    """
    gapped = x.isnan().any(1).nonzero().flatten()[: _STRIPS if image_shape is None else _IMAGES]
    chosen = gapped if len(gapped) else torch.arange(min(1, len(x)))
    shown, filled = x[chosen], torch.from_numpy(imputed.filled)[chosen].flatten(1)
    draws = np.zeros((len(x), 0)) if imputed.draws is None else imputed.draws[:, :_DRAWS]
    drawn = torch.from_numpy(draws)[chosen].reshape(len(chosen), -1, x.shape[1])
    ink = ink_for(torch.cat([shown, filled]), per_feature=image_shape is None)
    rows = [ink(shown), ink(filled), *(ink(one.to(x.dtype)) for one in drawn.unbind(1))]
    labels = ["observed", "filled", *(f"draw {number + 1}" for number in range(len(rows) - 2))]
    text = GridText(
        caption=f"Examples with gaps, which are tinted, and below them the same filled; {ink.words}.",
        row_labels=labels if image_shape is not None else labels * len(chosen),
    )
    members = torch.stack(rows)
    if image_shape is None:
        return draw_image_grid(members.movedim(0, 1)[:, None], None, text=text, stacked=True)
    return draw_image_grid(members[:, :, None], image_shape, text=text)
