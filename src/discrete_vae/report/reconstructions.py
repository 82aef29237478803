"""Examples beside what the model makes of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from discrete_vae.figures.ink import ink_for
from discrete_vae.noise import keyed_generator
from discrete_vae.report.html import Markup, markup
from discrete_vae.report.numbers import number, percent
from discrete_vae.report.pictures import INK, grid, image, ink_levels, ink_scale
from discrete_vae.report.section import Section, Verdict, bar, figure, table, verdict_line
from discrete_vae.report.source import ReportSource

_STREAM = 0x7265636E
_MEASURED, _BATCH = 1000, 250  # examples
_PAIRS, _PER_ROW = 20, 10
_LISTED = 8  # features from each end
_POOR = 0.1  # of the variance


def reconstructions(source: ReportSource) -> Section:
    """Pairs of an example and its reconstruction; of a table the features that are told best and worst."""
    x = source.test[:_MEASURED]
    means = _reconstructed(source, x)
    share, of_feature = explained(x.double().cpu(), means)
    text = f"reconstructions explain {percent(share)} of the variance of {len(x):,} test examples."
    verdict = Verdict(share >= _POOR, text)
    shape = source.image_shape
    picture = _features(source, of_feature) if shape is None else _pairs(source, x.cpu(), means, shape)
    return Section("reconstructions", "Reconstructions", markup(verdict_line(verdict), picture), verdict)


def explained(x: Tensor, means: Tensor) -> tuple[float, Tensor]:
    """The share of the variance that reconstructions explain, in all and of each feature.

    Args:
        x: (example, feature) float64; NaN marks missing values, which count nowhere.
        means: Their reconstructions, likewise.

    Returns:
        1 less the squared error over the squared distance to the feature's mean, summed over all features, and
        (feature,); NaN for features that do not vary.

    Examples:
        >>> x = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> explained(x, torch.tensor([[0.0, 1.0], [0.5, 1.0]]))
        (0.5, tensor([0.5000,    nan]))
    """
    error = (x - means).square().nansum(0)
    spread = (x - x.nanmean(0)).square().nansum(0)
    share = torch.where(spread > 0, 1 - error / spread, torch.nan)
    total = float(spread.sum())
    return (1 - float(error.sum()) / total if total > 0 else 0.0), share


def _reconstructed(source: ReportSource, x: Tensor) -> Tensor:
    parts = []
    for first in range(0, len(x), _BATCH):
        generator = keyed_generator(source.seed, _STREAM, first, device=x.device)
        parts.append(source.model.reconstruct(x[first : first + _BATCH], generator=generator).flatten(1))
    return torch.cat(parts).double().cpu()


def _pairs(source: ReportSource, x: Tensor, means: Tensor, shape: tuple[int, int]) -> Markup:
    count = min(_PAIRS, len(x))
    ink = ink_for(source.dataset.test, per_feature=False)
    levels = np.stack([ink_levels(ink(part[:count].float()).double().numpy()) for part in (x, means)], 1)
    blocks = []
    for first in range(0, count, _PER_ROW):
        rows = levels[first : first + _PER_ROW].swapaxes(0, 1)
        alt = f"{rows.shape[1]} test examples, each with its reconstruction below it."
        blocks.append(image(grid(rows.reshape(2, -1, *shape), blank=0), INK, alt=alt, class_="whole"))
    reading = markup(
        "Above test examples, below the mean of x given one draw of their latents (",
        ink_scale(),
        "). Healthy: the same object with the same strokes. Sick: another object, or the same blur below all of them.",
    )
    return figure(blocks, reading)


def _features(source: ReportSource, share: Tensor) -> Markup:
    known = [(float(value), index) for index, value in enumerate(share) if not bool(value.isnan())]
    ranked = sorted(known, reverse=True)
    chosen = ranked if len(ranked) <= 2 * _LISTED else [*ranked[:_LISTED], *ranked[-_LISTED:]]
    rows = [
        (source.feature_names[index], number(value, 3), bar(value, "s1" if value >= 0 else "s2"))
        for value, index in chosen
    ]
    picture = table(
        ("Feature", "explained", ""),
        rows,
        caption="Share of each feature's variance that is explained",
        class_="bars",
    )
    left_out = len(ranked) - len(chosen)
    reading = (
        "Share of a feature's variance over test examples that reconstructions explain, 1 at best, the best "
        f"features first{f' and the worst last ({left_out:,} between them left out)' if left_out else ''}. "
        "Healthy: features that hang together are told well. Sick: all near 0, as for features that are noise "
        "each on its own."
    )
    return figure(picture, reading)
