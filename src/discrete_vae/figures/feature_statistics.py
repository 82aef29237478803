"""Feature means and pair correlations, in the data against a model's samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from discrete_vae.checks import check_finite, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.generated import generated_examples, num_chains_that_fit
from discrete_vae.figures.request import Drawing
from discrete_vae.shown import plot_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from discrete_vae.figures.picture import Picture
    from discrete_vae.figures.request import FigureRequest
    from discrete_vae.samplers.protocol import Sampler

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
class FeatureStatistics:
    """What data and a model's samples have in common.

    Attributes:
        means: Mean of each feature.
        correlations: Pearson's correlation of each pair of features that both vary, at most those of 256 features.
        num_examples: Rows of the data.
        num_samples: Draws of x.
        in_unit_interval: Whether all data lie in [0, 1]; means count in standard deviations of the data otherwise.
    """

    means: Comparison
    correlations: Comparison
    num_examples: int
    num_samples: int
    in_unit_interval: bool = True

    def columns(self) -> dict[str, np.ndarray]:
        """A row per quantity: its kind, what it is in data and samples, and the error of the difference."""
        both = (self.means, self.correlations)
        kinds = np.repeat(["mean", "correlation"], [len(found.data) for found in both])
        parts = {
            part: np.concatenate([getattr(found, part) for found in both])
            for part in ("data", "samples", "std_error")
        }
        return {"kind": kinds, **parts}


def feature_statistics_table(x: Tensor, samples: Tensor) -> FeatureStatistics:
    """Compare data with what a model generates.

    Means count in standard deviations of their feature in the data, unless all data lie in [0, 1]. Missing values count
    nowhere: a correlation is that of the examples that have both features.

    Args:
        x: Data that the model was not trained on, (example, feature); NaN marks missing values.
        samples: Draws of x, (row, chain, feature), as those of `generated_examples`; chains are independent.

    Returns:
        The table.

    Raises:
        InvalidInputError: If the arguments do not fit, an entry is infinite, there is no example, or there are fewer
            than two samples.

    Examples:
        >>> import torch
        >>> draw = lambda *shape: torch.bernoulli(torch.full(shape, 0.3), generator=torch.Generator().manual_seed(0))
        >>> found = feature_statistics_table(draw(500, 6), draw(4, 50, 6))
        >>> len(found.means.data), len(found.correlations.data)
        (6, 15)
    """
    check_tensor("x", x, ("example", "feature"))
    _check_finite("x", x.masked_fill(x.isnan(), 0))
    _check_finite("samples", check_tensor("samples", samples, ("row", "chain", x.shape[1])))
    data = x.detach().cpu().double().numpy()
    drawn = samples.detach().cpu().double().numpy().swapaxes(0, 1).reshape(-1, x.shape[1])
    for name, what, count, least in (("x", "example", len(data), 1), ("samples", "samples", len(drawn), 2)):
        if count < least:
            raise InvalidInputError(name, f"must hold at least {least} {what}", count, "Give more of them.")
    seen = ~np.isnan(data)
    counts = seen.sum(0)
    there = counts > 0
    data, drawn, seen, counts = data[:, there], drawn[:, there], seen[:, there], counts[there]
    mean = np.where(seen, data, 0).sum(0) / counts
    deviation = np.sqrt((np.where(seen, data - mean, 0) ** 2).sum(0) / counts)
    in_unit_interval = bool(((data >= 0) & (data <= 1) | ~seen).all())
    unit = 1.0 if in_unit_interval else np.where(deviation > 0, deviation, 1.0)
    blocks = np.array_split(drawn, min(_BLOCKS, len(drawn)))
    spread = np.std([block.mean(0) for block in blocks], 0, ddof=1) / np.sqrt(len(blocks))
    error = np.sqrt(drawn.var(0) / counts + spread**2)
    means = Comparison(mean / unit, drawn.mean(0) / unit, error / unit)
    standard = np.where(seen, (data - mean) / np.where(deviation > 0, deviation, 1.0), 0.0)
    varies = np.flatnonzero(deviation > 0)
    count = min(len(varies), _MAX_FEATURES)
    shown = varies[np.arange(count) * len(varies) // max(count, 1)]
    correlations = _correlations(standard[:, shown], seen[:, shown].astype(np.float64), drawn[:, shown])
    return FeatureStatistics(means, correlations, len(data), len(drawn), in_unit_interval)


def _correlations(z: np.ndarray, seen: np.ndarray, drawn: np.ndarray) -> Comparison:
    """Of standardized data, 0 where they are missing, and of draws; (example, feature) each."""
    first, second = np.triu_indices(z.shape[1], 1)
    both_seen = seen.T @ seen
    kept = both_seen[first, second] > 1
    pairs = first[kept], second[kept]
    count = both_seen.clip(1)
    in_data = z.T @ z / count
    # the spread of a correlation's influence function, z_i z_j - r (z_i^2 + z_j^2) / 2
    square, mixed, fourth = z**2, (z**3).T @ z / count, (z**4).sum(0) / seen.sum(0).clip(1)
    both = square.T @ square / count
    variance = both - in_data * (mixed + mixed.T) + in_data**2 / 4 * (fourth + fourth[:, None] + 2 * both)
    blocks = np.array_split(drawn, min(_BLOCKS, len(drawn)))
    spread = np.std([_correlation(block)[pairs] for block in blocks], 0, ddof=1)
    error = np.sqrt((variance / count)[pairs].clip(0) + spread**2 / len(blocks))
    return Comparison(in_data[pairs], _correlation(drawn)[pairs], error)


def _correlation(x: np.ndarray) -> np.ndarray:
    """Correlations of the columns, (feature, feature); 0 for those of a constant column."""
    centered = x - x.mean(0)
    deviation = centered.std(0)
    standard = centered / np.where(deviation > 0, deviation, 1.0)
    return standard.T @ standard / len(x)


def _check_finite(name: str, value: Tensor) -> None:
    check_finite(name, value, repair="Remove infinite entries.")


def draw_feature_statistics(table: FeatureStatistics, *, name: str = "") -> Picture:
    """Draw means and correlations as clouds of points around the diagonal.

    Args:
        table: What `feature_statistics_table` returned.
        name: What was trained, for the title.

    Returns:
        The figure.
    """
    from discrete_vae.figures.picture import Picture

    figure = Picture((7.6, 4.35), layout="constrained")
    of = f"Samples of {plot_text(name)}" if name else "Samples"
    text = f"{of} against the data: {table.num_samples:,} samples, {table.num_examples:,} test examples."
    text += "\nA point is a feature or a pair of features; the band is ± 2 standard errors around equality."
    figure.suptitle(text, fontsize=9, x=0.01, ha="left")
    left, right = figure.subplots(1, 2)
    if table.in_unit_interval:
        _draw(left, table.means, "mean", "features", (0.0, 1.0))
    else:
        _draw(left, table.means, "mean / deviation", "features", _range(table.means))
    _draw(right, table.correlations, "correlation", "pairs of features", None)
    return figure


def make_feature_statistics(
    request: FigureRequest,
    chains: Sampler | None = None,
    *,
    num_rows: int = 20,
    num_sweeps: int = 100,
    num_chains: int | None = None,
) -> Drawing:
    """The figure of a run: samples against its test data.

    Args:
        request: Names the run.
        chains: Chains of its prior; None takes those of training, where they were left.
        num_rows: As in `generated_examples`.
        num_sweeps: As in `generated_examples`.
        num_chains: How many of the chains to use; None means as many as fit 80 MB of samples.
    """
    run = request.run
    chains = chains or run.loaded.chains
    used = num_chains or num_chains_that_fit(chains.num_chains, run.dataset.num_features, num_rows)
    sizes = {"num_rows": num_rows, "num_sweeps": num_sweeps, "num_chains": used, "seed": request.seed}
    table = feature_statistics_table(run.dataset.test, generated_examples(run.loaded.model, chains, **sizes))
    return Drawing(table, draw_feature_statistics(table, name=run.title), run.loaded.note)


def _range(found: Comparison) -> tuple[float, float]:
    """What both axes have to show, with a margin."""
    low, high = (float(end([end(found.data), end(found.samples)])) for end in (np.min, np.max))
    margin = max(0.06 * (high - low), 0.1)
    return low - margin, high + margin


def _draw(
    axes: Axes, found: Comparison, quantity: str, things: str, limits: tuple[float, float] | None
) -> None:
    """One cloud, with the diagonal and a band of two standard errors."""
    count = len(found.data)
    axes.set(xlabel=f"{quantity}, samples", ylabel=f"{quantity}, test data", box_aspect=1)
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
