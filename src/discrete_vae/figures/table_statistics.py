"""Feature means and pair correlations of a table, in the data against a model's samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from discrete_vae.checks import check_tensor, check_unit_interval
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.saving import check_picture_path, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE = "#0072B2"
_MAX_FEATURES = 256  # whose pairs are looked at, evenly spaced over all
_BLOCKS = 20  # of samples, at most, whose spread gives their error


@dataclass(frozen=True, eq=False)
class Comparison:
    """One kind of quantity, estimated from the data and from the samples.

    Attributes:
        data: (quantity,) float64.
        samples: (quantity,) float64.
        std_error: Of the difference, if the model were right, (quantity,) float64.
    """

    data: np.ndarray
    samples: np.ndarray
    std_error: np.ndarray

    @property
    def distance(self) -> float:
        """Root mean square of the differences."""
        return float(np.sqrt(((self.data - self.samples) ** 2).mean()))

    @property
    def share_inside(self) -> float:
        """Share of the quantities that differ by at most two standard errors; 0.95 in a model that is right."""
        return float((np.abs(self.data - self.samples) <= 2 * self.std_error).mean())


@dataclass(frozen=True, eq=False)
class TableStatistics:
    """What a table and a model's samples have in common.

    Attributes:
        means: Mean of each feature.
        correlations: Pearson's correlation of each pair of features that both vary, at most those of 256 features.
        num_examples: Rows of the data.
        num_samples: States of the prior that were decoded.
    """

    means: Comparison
    correlations: Comparison
    num_examples: int
    num_samples: int


def table_statistics(x: Tensor, means: Tensor) -> TableStatistics:
    """Compare data with what a model generates.

    A sample enters by its mean of x given the latents. Given these the features are independent, so the samples' second
    moments need no drawn bits.

    Args:
        x: Data that the model was not trained on, (example, feature), in {0,1}.
        means: E[x | zeta, h] of samples, (row, chain, feature), as those of `evolution`; chains are independent.

    Returns:
        The table.

    Raises:
        InvalidInputError: If the arguments do not fit, there is no example, or there are fewer than two samples.

    Examples:
        >>> import torch
        >>> x = torch.bernoulli(torch.full((500, 6), 0.3), generator=torch.Generator().manual_seed(0))
        >>> found = table_statistics(x, torch.full((4, 50, 6), 0.3))
        >>> len(found.means.data), len(found.correlations.data)
        (6, 15)
    """
    check_unit_interval("x", check_tensor("x", x, ("example", "feature")))
    check_unit_interval("means", check_tensor("means", means, ("row", "chain", x.shape[1])))
    data = x.detach().cpu().double().numpy()
    samples = means.detach().cpu().double().numpy().swapaxes(0, 1).reshape(-1, x.shape[1])
    for name, what, count, least in (("x", "example", len(data), 1), ("means", "samples", len(samples), 2)):
        if count < least:
            raise InvalidInputError(name, f"must hold at least {least} {what}", count, "Give more of them.")
    blocks = np.array_split(samples, min(_BLOCKS, len(samples)))
    p = samples.mean(0)
    spread = np.std([block.mean(0) for block in blocks], 0, ddof=1) / np.sqrt(len(blocks))
    compared = Comparison(data.mean(0), p, np.sqrt(p * (1 - p) / len(data) + spread**2))
    return TableStatistics(compared, _correlations(data, samples), len(data), len(samples))


def _correlations(data: np.ndarray, samples: np.ndarray) -> Comparison:
    varies = np.flatnonzero(np.ptp(data, 0) > 0)
    count = min(len(varies), _MAX_FEATURES)
    shown = varies[np.arange(count) * len(varies) // max(count, 1)]
    pairs = np.triu_indices(len(shown), 1)
    values, samples = data[:, shown], samples[:, shown]
    z = (values - values.mean(0)) / values.std(0)
    in_data = z.T @ z / len(z)
    # the spread of a correlation's influence function, z_i z_j - r (z_i^2 + z_j^2) / 2
    square, mixed, fourth = z**2, (z**3).T @ z / len(z), (z**4).mean(0)
    both = square.T @ square / len(z)
    variance = both - in_data * (mixed + mixed.T) + in_data**2 / 4 * (fourth + fourth[:, None] + 2 * both)
    blocks = np.array_split(samples, min(_BLOCKS, len(samples)))
    spread = np.std([_of_means(block)[pairs] for block in blocks], 0, ddof=1)
    error = np.sqrt(variance[pairs].clip(0) / len(z) + spread**2 / len(blocks))
    return Comparison(in_data[pairs], _of_means(samples)[pairs], error)


def _of_means(means: np.ndarray) -> np.ndarray:
    """Correlations of bits that are independent given their means, (feature, feature); the diagonal has no meaning."""
    p = means.mean(0)
    deviation = np.sqrt((p * (1 - p)).clip(1e-12))
    return ((means - p).T @ (means - p) / len(means)) / np.outer(deviation, deviation)


def draw_table_statistics(table: TableStatistics, path: str | Path, *, name: str = "") -> None:
    """Draw means and correlations as clouds of points around the diagonal.

    Args:
        table: What `table_statistics` returned.
        path: File to write, ending in .png, .pdf or .svg.
        name: What was trained, for the title.

    Raises:
        InvalidInputError: If the path breaks its rule; nothing is written.
    """
    from matplotlib.figure import Figure

    check_picture_path(path)
    figure = Figure(figsize=(7.6, 4.35), dpi=150, facecolor="white", layout="constrained")
    of = f"Samples of {name}" if name else "Samples"
    text = f"{of} against the data: {table.num_samples:,} samples, {table.num_examples:,} test examples."
    text += "\nA point is a feature or a pair of features; the band is ± 2 standard errors around equality."
    figure.suptitle(text, fontsize=9, x=0.01, ha="left")
    left, right = figure.subplots(1, 2)
    _draw(left, table.means, "mean", "features", (0.0, 1.0))
    _draw(right, table.correlations, "correlation", "pairs of features", None)
    save_figure(figure, path)


def _draw(
    axes: Axes, found: Comparison, quantity: str, things: str, limits: tuple[float, float] | None
) -> None:
    """One cloud, with the diagonal and a band of two standard errors."""
    count = len(found.data)
    axes.set(xlabel=f"{quantity} in the samples", ylabel=f"{quantity} in the test data", box_aspect=1)
    if count == 0:
        axes.text(0.5, 0.5, f"no {things} that vary", transform=axes.transAxes, ha="center")
        return
    if limits is None:
        reach = max(0.1, 1.1 * float(np.abs([found.data, found.samples]).max()))
        limits = (-min(reach, 1.0), min(reach, 1.0))
    # the band at a place is that of the quantities there
    order = np.argsort(found.samples)
    groups = np.array_split(order, min(max(count // 20, 1), 25))
    place = np.array([found.samples[group].mean() for group in groups])
    half = 2 * np.array([np.sqrt((found.std_error[group] ** 2).mean()) for group in groups])
    ends = np.array(limits)
    place = np.concatenate([ends[:1], place, ends[1:]])
    half = np.concatenate([half[:1], half, half[-1:]])
    axes.fill_between(place, place - half, place + half, color="0.88", linewidth=0)
    axes.plot(limits, limits, color="0.45", linewidth=0.8)
    size = 14.0 if count <= 500 else 4.0
    dots = {"s": size, "alpha": float(np.clip(800 / count, 0.08, 0.7)), "linewidths": 0, "rasterized": True}
    axes.scatter(found.samples, found.data, color=_BLUE, **dots)
    title = f"{count:,} {things}; RMS difference {found.distance:.3f}\n"
    title += f"{100 * found.share_inside:.0f} % in the band; a perfect model: 95 %"
    axes.set_title(title, fontsize=8, loc="left")
    axes.set(xlim=limits, ylim=limits)
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
