"""Pictures beside a verb's result: codes, gaps filled, paths, neighbors, scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from discrete_vae.data.rows import labeled
from discrete_vae.data.splits import picture_shape
from discrete_vae.errors import plot_text
from discrete_vae.figures.style import (
    BLUE,
    VERMILION,
    GridText,
    Picture,
    draw_image_grid,
    grayscale_for,
    in_rows,
    tidy,
)
from discrete_vae.inference.encode import Codes
from discrete_vae.inference.generate import LatentPath
from discrete_vae.inference.score import Scores
from discrete_vae.sparse import Examples

if TYPE_CHECKING:
    from discrete_vae.inference.encode import Neighbors
    from discrete_vae.inference.impute import Imputed


_MOST_LABELS, _MOST_ROWS, _MOST_UNITS = 40, 300, 40


def draw_codes(codes: Codes, labels: np.ndarray | None = None) -> Picture:
    """Draw the probabilities of the units: their mean by label, or those of single examples, alike beside alike.

    Labels are (row,). By label, the units are shown that are on more often for one label than for the others, below
    the label that each is on for. Without labels, or with more than 40 different ones, examples are shown.
    """
    names = [] if labels is None or labels.ndim != 1 else np.unique(labels[labeled(labels)]).tolist()
    by_label = 1 < len(names) <= _MOST_LABELS
    if by_label:
        means = np.stack([codes.probabilities[labels == name].mean(0) for name in names])
        units = _telling_units(means)
        shown = means[:, units]
        title = f"How often a unit is on, by label: the {len(units)} units that tell most about a label"
    else:
        from scipy.cluster.hierarchy import leaves_list, linkage  # here, since it takes a while

        count = min(_MOST_ROWS, len(codes.probabilities))
        some = codes.probabilities[np.arange(count) * len(codes.probabilities) // count]
        # neighbors are alike in the order of the leaves of a tree of clusters
        shown = some[leaves_list(linkage(some, "average"))] if count > 1 else some
        units = np.zeros(0, int)
        title = f"Probability that a unit is on: {count} examples, similar ones side by side"
    height = min(6.0, 1.4 + 0.24 * len(shown)) if by_label else 4.2
    figure = Picture((7.6, height), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, vmax=1)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("unit", fontsize=9)
    axes.set_ylabel("label" if by_label else "example", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.set_yticks([])
    if by_label:
        axes.set_yticks(range(len(names)), [plot_text(str(name)[:20]) for name in names])
        axes.set_xticks(range(len(units)), units.tolist(), rotation=90)
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.ax.tick_params(labelsize=8)
    bar.set_label("probability", fontsize=9)
    return figure


def _telling_units(means: np.ndarray) -> np.ndarray:
    """Up to 40 units in the order of the labels that they are on for, of their means (label, unit).

    A unit belongs to the label with the greatest mean; what it tells is how far that lies above the mean of the others.
    Each label gets as many units as any other, as far as it has some.
    """
    count = len(means)
    owner = means.argmax(0)
    told = (means.max(0) - means.mean(0)) * count / (count - 1)
    strongest = np.argsort(-told, kind="stable")
    room = max(1, _MOST_UNITS // count)
    return np.concatenate([strongest[owner[strongest] == label][:room] for label in range(count)])


_IMAGES, _STRIPS, _COLUMNS = 40, 6, 20


def draw_denoised(
    clean: Tensor | None, noisy: Tensor, denoised: np.ndarray, image_shape: tuple[int, int] | None
) -> Picture:
    """Draw examples (row, feature) in columns: as they were where that is known, noisy, and denoised (row, *event)."""
    count = min(_STRIPS if image_shape is None else _IMAGES, len(noisy))
    places = torch.arange(count) * len(noisy) // count
    gray = grayscale_for(noisy, per_feature=image_shape is None)
    after = torch.from_numpy(denoised.reshape(len(noisy), -1))
    kinds = ({} if clean is None else {"clean": clean}) | {"noisy": noisy, "denoised": after}
    members = torch.stack([gray(values[places].float()) for values in kinds.values()], 1)
    grid = in_rows(members, min(_COLUMNS, count) if image_shape is not None else 1)
    text = GridText(
        caption=f"Examples before and after noise was taken out, from above: {', '.join(kinds)}, the last as means "
        f"given the noisy one; {gray.words}.",
        row_labels=[*kinds] * len(grid),
    )
    return draw_image_grid(grid, image_shape, text=text, stacked=True)


_IMPUTED_IMAGES, _IMPUTED_STRIPS, _DRAWS = 16, 8, 3


def draw_imputed(x: Tensor, imputed: Imputed, image_shape: tuple[int, int] | None = None) -> Picture:
    """Draw examples with gaps, filled, and below them a few draws if there are some.

    Of x, (example, feature) with NaN in the gaps, those with gaps are shown, from the first on; without any, the first.
    """
    most = _IMPUTED_STRIPS if image_shape is None else _IMPUTED_IMAGES
    chosen = x.isnan().any(1).nonzero().flatten()[:most]
    chosen = chosen if len(chosen) else torch.arange(min(1, len(x)))
    shown, filled = x[chosen], torch.from_numpy(imputed.filled)[chosen].flatten(1)
    draws = np.zeros((len(x), 0)) if imputed.draws is None else imputed.draws[:, :_DRAWS]
    drawn = torch.from_numpy(draws)[chosen].reshape(len(chosen), -1, x.shape[1])
    gray = grayscale_for(torch.cat([shown, filled]), per_feature=image_shape is None)
    rows = [gray(shown), gray(filled), *(gray(one.to(x.dtype)) for one in drawn.unbind(1))]
    labels = ["observed", "filled", *(f"draw {number + 1}" for number in range(len(rows) - 2))]
    text = GridText(
        caption=f"Examples with gaps, which are tinted, and below them the same filled; {gray.words}.",
        row_labels=labels if image_shape is not None else labels * len(chosen),
    )
    grid = torch.stack(rows, 1)[:, None] if image_shape is None else torch.stack(rows)[:, :, None]
    return draw_image_grid(grid, image_shape, text=text)


def draw_latent_paths(
    paths: Sequence[LatentPath],
    ends: Sequence[tuple[Tensor, Tensor]],
    numbers: Sequence[tuple[int, int]],
    *,
    num_frames: int = 11,
) -> Picture:
    """Draw a row per path between images: the first example, means evenly spaced along the path, the last example."""
    rows = []
    for path, (first, last) in zip(paths, ends, strict=True):
        places = np.linspace(0, len(path.energy) - 1, num_frames).round().astype(int)
        frames = torch.from_numpy(path.mean.reshape(len(path.mean), -1)[places])
        rows.append(torch.cat([first[None].flatten(1), frames, last[None].flatten(1)]))
    images = torch.stack(rows)
    gray = grayscale_for(images.flatten(0, 1), per_feature=False)
    shares = [f"{round(100 * share)} %" for share in np.linspace(0, 1, num_frames)]
    how = "smoothed latents that go evenly from the one to the other"
    if any((path.flipped >= 0).any() for path in paths):
        how = (
            "codes in which one bit after the other is flipped, in an order that keeps the prior's energy low"
        )
    text = GridText(
        caption=f"Between two examples, left and right: means E[x | ζ, h] along {how}; {gray.words}.",
        row_labels=[f"{first} to {last}" for first, last in numbers],
        group_labels=["x", *shares, "x"],
    )
    return draw_image_grid(gray(images)[:, :, None], picture_shape(paths[0].mean.shape[1:]), text=text)


_MOST_QUERIES, _MOST_NEIGHBORS = 10, 10


def draw_neighbors(
    queries: Examples, among: Examples, found: Neighbors, image_shape: tuple[int, int] | None = None
) -> Picture:
    """Draw the first queries (query, feature), each at the start of a row of its neighbors among (row, feature)."""
    indices = torch.from_numpy(found.indices[:_MOST_QUERIES, :_MOST_NEIGHBORS])
    shown = queries[: len(indices)][:, None]
    examples = torch.cat([shown, among[indices.flatten()].unflatten(0, indices.shape)], 1)
    gray = grayscale_for(examples.flatten(0, 1), per_feature=image_shape is None)
    images = gray(examples)
    distances = found.distances[: len(indices), : indices.shape[1]]
    where = "the upper strip of each group" if image_shape is None else "left"
    text = GridText(
        caption=f"Examples ({where}) and those whose codes differ from theirs in the fewest units, nearest first; "
        f"numbers of units: {distances.min()} to {distances.max()}. {gray.words.capitalize()}.",
        group_labels=["query", *map(str, range(1, indices.shape[1] + 1))] if image_shape is not None else [],
    )
    grid = images[:, None] if image_shape is None else images[:, :, None]
    return draw_image_grid(grid, image_shape, text=text)


_NEW_EXAMPLES_COLUMNS, _ROWS, _NEW_EXAMPLES_STRIPS = 12, 12, 20


def draw_new_examples(
    x: np.ndarray, labels: np.ndarray | None, image_shape: tuple[int, int] | None, statistic: str = "sample"
) -> Picture:
    """Draw the first examples of x, (example, *event), of each class where there are classes.

    Labels, (example,), are sorted by class; the statistic is what x is of p(x | latents), for the caption.
    """
    rows = torch.from_numpy(x).flatten(1)
    gray = grayscale_for(rows, per_feature=image_shape is None)
    kinds = {"sample": "drawn from p(x | ζ, h)", "mean": "means E[x | ζ, h]", "mode": "modes of p(x | ζ, h)"}
    what = kinds[statistic]
    if labels is None:
        count = min(len(rows), _NEW_EXAMPLES_STRIPS if image_shape is None else _NEW_EXAMPLES_COLUMNS * _ROWS)
        width = 1 if image_shape is None else min(_NEW_EXAMPLES_COLUMNS, count)
        chosen, names = torch.arange(count - count % width), []
        which, where = "", "states of the prior"
    else:
        starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
        per_class = len(labels) // len(starts)
        width = 1 if image_shape is None else min(_NEW_EXAMPLES_COLUMNS, per_class)
        first = torch.from_numpy(starts[:_NEW_EXAMPLES_STRIPS])
        chosen, names = (first[:, None] + torch.arange(width)).flatten(), [str(labels[at]) for at in first]
        which, where = " of the class beside each row", "latents of their class"
    images = gray(rows[chosen]).unflatten(0, (-1, width))
    caption = f"New examples{which}, {what} at {where}; {gray.words}."
    text = GridText(caption=caption, row_title="class" if names else "", row_labels=names)
    return draw_image_grid(images[:, :, None], image_shape, text=text)


_BINS = 60
_LEVEL = 0.01  # whose threshold is shown


def draw_scores(
    scores: Scores, reference: Scores | None = None, *, names: tuple[str, str] = ("examples", "reference")
) -> Picture:
    """Draw the histogram of scores, and of those of familiar examples beside it; the names are those of the two."""
    kinds = [(scores, names[0], VERMILION, "-")]
    if reference is not None:
        kinds.insert(0, (reference, names[1], BLUE, "--"))
    low = min(np.quantile(each.value, 0.002) for each, *_ in kinds)  # what lies below is in the first bin
    high = max(each.value.max() for each, *_ in kinds)
    if low == high:
        low, high = low - 1, high + 1
    edges = np.linspace(low, high, _BINS + 1)
    figure = Picture((6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for each, name, color, line in kinds:
        weights = np.full(len(each.value), 100 / len(each.value))
        label = f"{plot_text(name)}: {len(each.value):,}, mean {each.mean:.1f} nats"
        style = {"histtype": "step", "color": color, "linestyle": line, "linewidth": 1.4}
        axes.hist(each.value.clip(low, high), edges, weights=weights, label=label, **style)
    axes.margins(y=0.12)
    if reference is not None:
        threshold = float(np.quantile(reference.value, _LEVEL, method="lower"))
        axes.axvline(threshold, color="0.3", linewidth=1, linestyle=":")
        largest = (1 + (reference.value < threshold).sum()) / (1 + len(reference.value))  # left of the line
        text = f"← lowest {100 * _LEVEL:.0f} % of {plot_text(names[1])}, p-value {largest:.2g}"
        place = {"xytext": (4, -2), "textcoords": "offset points", "va": "top", "fontsize": 8, "color": "0.3"}
        axes.annotate(text, (threshold, 1), xycoords=("data", "axes fraction"), **place)
    axes.set_xlabel("ELBO (nats)" if scores.is_bound else "log-likelihood (nats)", fontsize=9)
    axes.set_ylabel(f"examples in {edges[1] - edges[0]:.2g} nats (%)", fontsize=9)
    tidy(axes)
    figure.legend(loc="outside upper left", ncols=1, frameon=False, fontsize=8)
    return figure
