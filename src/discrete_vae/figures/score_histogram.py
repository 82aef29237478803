"""Histograms of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discrete_vae.inference.score import Scores

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture

_BINS = 60
_LEVEL = 0.01  # whose threshold is shown
_BLUE, _ORANGE = "#0072B2", "#D55E00"  # told apart by the color-blind


def draw_scores(scores: Scores, reference: Scores | None = None) -> Picture:
    """Draw the histogram of scores, and of those of familiar examples behind it.

    Args:
        scores: Of the examples.
        reference: Of familiar ones; None leaves them out.
    """
    from discrete_vae.figures.picture import Picture

    kinds = [(scores, "examples", _ORANGE)]
    if reference is not None:
        kinds.insert(0, (reference, "reference", _BLUE))
    values = np.concatenate([each.value for each, _, _ in kinds])
    low, high = np.quantile(values, [0.002, 1.0])
    if low == high:
        low, high = low - 1, high + 1
    edges = np.linspace(low, high, _BINS + 1)
    figure = Picture((6.4, 3.4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for each, name, color in kinds:
        weights = np.full(len(each.value), 100 / len(each.value))
        label = f"{name}: {len(each.value)}, mean {each.mean:.1f} nats"
        clipped = each.value.clip(low, high)
        axes.hist(clipped, edges, weights=weights, histtype="stepfilled", color=color, alpha=0.35)
        axes.hist(clipped, edges, weights=weights, histtype="step", color=color, label=label)
    if reference is not None:
        threshold = float(np.quantile(reference.value, _LEVEL, method="lower"))
        axes.axvline(threshold, color="0.3", linestyle="--", label=f"p-value {_LEVEL}")
    axes.set_xlabel("ELBO (nats)" if scores.is_bound else "log-likelihood (nats)", fontsize=9)
    axes.set_ylabel("examples (%)", fontsize=9)
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=8)
    return figure
