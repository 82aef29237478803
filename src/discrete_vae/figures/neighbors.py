"""Examples beside those with the nearest codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from discrete_vae.figures.image_grid import GridText, draw_image_grid
from discrete_vae.figures.ink import ink_for

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture
    from discrete_vae.inference.neighbors import Neighbors

_MOST_QUERIES, _MOST_NEIGHBORS = 10, 10


def draw_neighbors(
    queries: Tensor, among: Tensor, found: Neighbors, image_shape: tuple[int, int] | None = None
) -> Picture:
    """Draw the first queries, each at the start of a row of its neighbors.

    Args:
        queries: (query, feature).
        among: (row, feature), the examples that were searched.
        found: What `discrete_vae.inference.neighbors.nearest_codes` found.
        image_shape: (height, width) of an example; None draws strips.

    Returns:
        The figure.
    """
    indices = torch.from_numpy(found.indices[:_MOST_QUERIES, :_MOST_NEIGHBORS])
    shown = queries[: len(indices), None]
    ink = ink_for(torch.cat([shown.flatten(0, 1), among[indices.flatten()]]), per_feature=image_shape is None)
    images = torch.cat([ink(shown), ink(among[indices.flatten()]).unflatten(0, indices.shape)], 1)
    distances = found.distances[: len(indices), : indices.shape[1]]
    text = GridText(
        caption="Examples (left) and those whose codes differ from theirs in the fewest units, nearest first; "
        f"numbers of units: {distances.min()} to {distances.max()}. {ink.words.capitalize()}.",
        group_labels=["query", *map(str, range(1, indices.shape[1] + 1))] if image_shape is not None else [],
    )
    if image_shape is None:
        return draw_image_grid(images[:, None], None, text=text, stacked=True)
    return draw_image_grid(images[:, :, None], image_shape, text=text)
