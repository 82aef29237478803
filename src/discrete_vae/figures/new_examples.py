"""New examples, a row for each class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from discrete_vae.figures.image_grid import GridText, draw_image_grid
from discrete_vae.figures.ink import ink_for

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture

_COLUMNS, _ROWS, _STRIPS = 12, 12, 20


def draw_new_examples(
    x: np.ndarray, labels: np.ndarray | None, image_shape: tuple[int, int] | None, statistic: str = "sample"
) -> Picture:
    """Draw the first examples, of each class where there are classes.

    Args:
        x: (example, *event).
        labels: (example,), those of one class beside each other; None without classes.
        image_shape: (height, width) of an example; None draws strips.
        statistic: What x is of p(x | latents), for the caption.

    Returns:
        The figure.
    """
    rows = torch.from_numpy(x).flatten(1)
    ink = ink_for(rows, per_feature=image_shape is None)
    what = {"sample": "drawn from p(x | ζ, h)", "mean": "means E[x | ζ, h]"}.get(
        statistic, "modes of p(x | ζ, h)"
    )
    if labels is None:
        count = min(len(rows), _STRIPS if image_shape is None else _COLUMNS * _ROWS)
        width = 1 if image_shape is None else min(_COLUMNS, count)
        chosen, names = torch.arange(count - count % width), []
        caption = f"New examples, {what} at states of the prior; {ink.words}."
    else:
        starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
        per_class = len(labels) // len(starts)
        width = 1 if image_shape is None else min(_COLUMNS, per_class)
        first = torch.from_numpy(starts[:_STRIPS])
        chosen, names = (first[:, None] + torch.arange(width)).flatten(), [str(labels[at]) for at in first]
        caption = (
            f"New examples of the class beside each row, {what} at latents kept for their class; {ink.words}."
        )
    images = ink(rows[chosen]).unflatten(0, (-1, width))
    text = GridText(caption=caption, row_title="class" if names else "", row_labels=names)
    return draw_image_grid(images[:, :, None], image_shape, text=text)
