"""Paths between examples, as images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from discrete_vae.data.dataset import picture_shape
from discrete_vae.figures.image_grid import GridText, draw_image_grid
from discrete_vae.figures.ink import ink_for
from discrete_vae.inference.interpolate import LatentPath

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture


def draw_latent_paths(
    paths: Sequence[LatentPath],
    ends: Sequence[tuple[Tensor, Tensor]],
    numbers: Sequence[tuple[int, int]],
    *,
    num_frames: int = 11,
) -> Picture:
    """Draw a row per path: the first example, means along the path, the last example.

    Args:
        paths: The paths, of images.
        ends: Their examples, (feature,) each.
        numbers: The examples' numbers.
        num_frames: Images per path, evenly spaced along its steps.
    """
    rows = []
    for path, (first, last) in zip(paths, ends, strict=True):
        places = np.linspace(0, len(path.energy) - 1, num_frames).round().astype(int)
        frames = torch.from_numpy(path.mean.reshape(len(path.mean), -1)[places])
        rows.append(torch.cat([first[None].flatten(1), frames, last[None].flatten(1)]))
    images = torch.stack(rows)
    ink = ink_for(images.flatten(0, 1), per_feature=False)
    shares = [f"{round(100 * share)} %" for share in np.linspace(0, 1, num_frames)]
    flips = any((path.flipped >= 0).any() for path in paths)
    how = (
        "codes in which one bit after the other is flipped, in an order that keeps the prior's energy low"
        if flips
        else "smoothed latents that go evenly from the one to the other"
    )
    text = GridText(
        caption=f"Between two examples, left and right: means E[x | ζ, h] along {how}; {ink.words}.",
        row_labels=[f"{first} to {last}" for first, last in numbers],
        group_labels=["x", *shares, "x"],
    )
    return draw_image_grid(ink(images)[:, :, None], picture_shape(paths[0].mean.shape[1:]), text=text)
