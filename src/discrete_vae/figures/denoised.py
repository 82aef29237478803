"""Examples before and after noise was taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from discrete_vae.data.dataset import picture_shape
from discrete_vae.figures.image_grid import GridText, draw_image_grid
from discrete_vae.figures.ink import ink_for

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture

_IMAGES, _STRIPS, _COLUMNS = 40, 6, 20


def draw_denoised(
    clean: Tensor | None, noisy: Tensor, denoised: np.ndarray, event_shape: tuple[int, ...]
) -> Picture:
    """Draw examples in columns: as they were where that is known, noisy, and denoised.

    Args:
        clean: (row, feature); None where it is not known.
        noisy: (row, feature); NaN marks missing values.
        denoised: (row, *event), means.
        event_shape: Shape of an example.
    """
    shape = picture_shape(event_shape)
    count = min(_STRIPS if shape is None else _IMAGES, len(noisy))
    places = torch.arange(count) * len(noisy) // count
    ink = ink_for(noisy, per_feature=shape is None)
    after = torch.from_numpy(denoised.reshape(len(noisy), -1))
    kinds = [noisy, after] if clean is None else [clean, noisy, after]
    members = torch.stack([ink(values[places].float()) for values in kinds], 1)
    columns = min(_COLUMNS, count) if shape is not None else 1
    num_rows = -(-count // columns)
    empty = members.new_full((num_rows * columns - count, *members.shape[1:]), torch.nan)
    grid = torch.cat([members, empty]).reshape(num_rows, columns, *members.shape[1:])
    names = ["noisy", "denoised"] if clean is None else ["clean", "noisy", "denoised"]
    text = GridText(
        caption=f"Examples before and after noise was taken out, from above: {', '.join(names)}, the last as means "
        f"given the noisy one; {ink.words}.",
        row_labels=names * num_rows,
    )
    return draw_image_grid(grid, shape, text=text, stacked=True)
