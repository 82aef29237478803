"""What the units of codes say of examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discrete_vae.inference.encode import Codes
from discrete_vae.shown import plot_text

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture

_MOST_LABELS, _MOST_ROWS = 40, 300


def draw_codes(codes: Codes, labels: np.ndarray | None = None) -> Picture:
    """Draw the probabilities of the units: their mean by label, or those of single examples, alike beside alike.

    Args:
        codes: The codes.
        labels: (row,); None, or more than 40 different ones, shows examples.
    """
    from discrete_vae.figures.picture import Picture

    names = [] if labels is None or labels.ndim != 1 else sorted(set(labels.tolist()))
    by_label = 1 < len(names) <= _MOST_LABELS
    if by_label:
        shown = np.stack([codes.probabilities[labels == name].mean(0) for name in names])
        title = "Mean probability that a unit is on, by label"
    else:
        count = min(_MOST_ROWS, len(codes.probabilities))
        some = codes.probabilities[np.arange(count) * len(codes.probabilities) // count]
        shown = some[_alike(some)]
        title = f"Probability that a unit is on: {count} examples, alike beside alike"
    height = min(6.0, 1.4 + 0.24 * len(shown)) if by_label else 4.2
    figure = Picture((7.0, height), dpi=120, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("unit", fontsize=9)
    axes.set_ylabel("label" if by_label else "example", fontsize=9)
    axes.set_yticks(
        range(len(names)), [plot_text(str(name)[:20]) for name in names]
    ) if by_label else axes.set_yticks([])
    axes.tick_params(labelsize=8)
    figure.colorbar(image, ax=axes, pad=0.01).ax.tick_params(labelsize=8)
    return figure


def _alike(rows: np.ndarray) -> np.ndarray:
    """An order in which neighbors are alike: that of the leaves of a tree of clusters."""
    from scipy.cluster.hierarchy import leaves_list, linkage  # here, since it takes a while

    return leaves_list(linkage(rows, "average")) if len(rows) > 1 else np.arange(len(rows))
