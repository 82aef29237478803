"""The distribution of each column of a table, generated values beside those of the data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from discrete_vae.checks import check_tensor
from discrete_vae.data.batches import binarize
from discrete_vae.data.splits import fixed_permutation
from discrete_vae.errors import InvalidInputError, plot_text
from discrete_vae.figures.run import samples_of_run
from discrete_vae.figures.style import BLUE, Drawing, FigureRequest, FigureRun, Picture
from discrete_vae.rng import keyed_generator
from discrete_vae.samplers.gibbs import Sampler

_STREAM = 0x636F6C75
_MOST_COLUMNS, _PER_ROW = 24, 4
_MOST_ROWS = 100_000  # of the training data
_MOST_VALUES = 8  # with bars of their own; more numbers are binned, more words are counted together
_BINS, _TAIL = 20, 0.01  # of the data on each side, which the end bins hold with all beyond
_LINE = 90  # letters of the caption
_DATA = "0.72"  # gray


@dataclass(frozen=True, eq=False)
class ColumnDistribution:
    """The distribution of one column.

    Attributes:
        name: Its name.
        labels: Words or numbers that have a bar each, (bar,); empty for bins.
        edges: Ends of the bins, (bar + 1,), the first and last bin with all beyond them; empty for values.
        data: Share of the observed values of the data in each bar, (bar,).
        samples: Share of the generated values, (bar,).
    """

    name: str
    labels: tuple[str, ...]
    edges: np.ndarray
    data: np.ndarray
    samples: np.ndarray

    @property
    def distance(self) -> float:
        """Share of the values that stand in other bars: half the sum of the differences (total variation)."""
        return float(np.abs(self.data - self.samples).sum() / 2)


@dataclass(frozen=True, eq=False)
class ColumnDistributions:
    """Distributions of the columns that a picture shows.

    Attributes:
        shown: In the order of the table; where there are more than 24 columns, those that differ most.
        num_columns: Columns with values, those that are not shown included.
        num_examples: Rows of the data.
        num_samples: Rows that were generated.
    """

    shown: tuple[ColumnDistribution, ...]
    num_columns: int
    num_examples: int
    num_samples: int

    def columns(self) -> dict[str, np.ndarray]:
        """A row per bar: column, value or ends of the bin, and the share of both."""
        counts = [len(each.data) for each in self.shown]
        labels = [each.labels or ("",) * len(each.data) for each in self.shown]
        edges = [np.full(len(each.data) + 1, np.nan) if each.labels else each.edges for each in self.shown]
        return {
            "column": np.repeat([each.name for each in self.shown], counts),
            "value": np.concatenate([np.array(each, dtype=str) for each in labels]),
            "low": np.concatenate([each[:-1] for each in edges]),
            "high": np.concatenate([each[1:] for each in edges]),
            "data": np.concatenate([each.data for each in self.shown]),
            "samples": np.concatenate([each.samples for each in self.shown]),
        }


def column_distributions_table(
    x: Tensor,
    samples: Tensor,
    *,
    names: Sequence[str] = (),
    words: Sequence[tuple[str, ...] | None] = (),
    weights: np.ndarray | None = None,
) -> ColumnDistributions:
    """Count the values of each column in data and in what a model generates.

    Words are counted one by one, and so are numbers where data and samples have the same few; other numbers in 20 bins
    of equal width between the percentiles 1 and 99 of the data, whose ends hold all beyond.

    Args:
        x: Data, (example, feature), at least one observed value; NaN marks missing values, which count nowhere.
        samples: Generated rows, (sample, feature).
        names: Names of the features; without them they are numbered.
        words: For each feature what its codes 0, 1, ... mean, None for numbers; without them all are numbers.
        weights: How often each example counts, (example,); None counts all alike.
    """
    num_features = check_tensor("x", x, ("example", "feature")).shape[1]
    check_tensor("samples", samples, ("sample", num_features))
    names = names or [f"feature {number}" for number in range(num_features)]
    words = words or [None] * num_features
    for name, given in (("names", names), ("words", words)):
        if len(given) != num_features:
            rule = f"must be one per feature, {num_features}"
            raise InvalidInputError(name, rule, len(given), "Give one per column of x.")
    weight = np.ones(len(x)) if weights is None else weights
    data, drawn = x.detach().cpu().double().numpy(), samples.detach().cpu().double().numpy()
    found = []
    for name, meanings, own, generated in zip(names, words, data.T, drawn.T, strict=True):
        seen = ~np.isnan(own)
        if weight[seen].sum() > 0:
            found.append(_distribution(name, meanings, own[seen], weight[seen], generated))
    if not found or not len(drawn):
        received = f"{len(found)} columns with values, {len(drawn)} samples"
        raise InvalidInputError("x", "must hold a value, beside a sample at least", received, "Give more.")
    worst = np.argsort([-each.distance for each in found], kind="stable")[:_MOST_COLUMNS]
    shown = tuple(found[place] for place in np.sort(worst))
    return ColumnDistributions(shown, len(found), len(x), len(drawn))


def _distribution(
    name: str, words: tuple[str, ...] | None, data: np.ndarray, weight: np.ndarray, samples: np.ndarray
) -> ColumnDistribution:
    """Of a column without gaps: data and weight, (example,), samples (sample,)."""
    pairs, values = [(data, weight), (samples, np.ones(len(samples)))], np.unique(data)
    if words is None and len(values) <= _MOST_VALUES and np.isin(samples, values).all():
        words = tuple(f"{value:g}" for value in values)
        pairs = [(np.searchsorted(values, own), each) for own, each in pairs]
    if words is None:
        edges = _edges(data, is_whole=bool((data == data.round()).all()))
        counts = [np.histogram(own.clip(edges[0], edges[-1]), edges, weights=each)[0] for own, each in pairs]
        return ColumnDistribution(name, (), edges, *(each / each.sum() for each in counts))
    counts = [np.bincount(own.round().astype(np.int64), each, len(words)) for own, each in pairs]
    shares, labels = [each / each.sum() for each in counts], words
    if len(words) > _MOST_VALUES:
        often = np.sort(np.argsort(-shares[0], kind="stable")[: _MOST_VALUES - 1])
        labels = (*[words[place] for place in often], f"{len(words) - len(often)} others")
        shares = [np.append(share[often], max(0.0, 1 - share[often].sum())) for share in shares]
    return ColumnDistribution(name, tuple(labels), np.empty(0), *shares)


def _edges(data: np.ndarray, *, is_whole: bool) -> np.ndarray:
    """Ends of bins of equal width; of whole numbers as many numbers in each."""
    low, high = np.quantile(data, [_TAIL, 1 - _TAIL])
    if is_whole:
        width = max(1.0, np.ceil((high - low + 1) / _BINS))
        return low.round() - 0.5 + width * np.arange(math.ceil((high.round() - low.round() + 1) / width) + 1)
    if high - low <= 0:
        low, high = data.min(), data.max()
    margin = 0.5 * max(abs(low), 1.0) if high <= low else 0.0
    return np.linspace(low - margin, high + margin, _BINS + 1)


def draw_column_distributions(table: ColumnDistributions, *, name: str = "") -> Picture:
    """Draw a panel per column: bars of the data in gray, of what was generated in blue; a run's name is for the title.

    Beside a column's name stands the share of its values that would have to change for both to be alike.
    """
    count = len(table.shown)
    across = min(_PER_ROW, count)
    down = -(-count // across)
    figure = Picture((6.4, 0.8 + 1.25 * down), layout="constrained")
    of = f" of {plot_text(name)}" if name else ""
    text = f"Generated values{of} (blue; {table.num_samples:,} rows) beside data (gray; {table.num_examples:,} rows). "
    text += "The percentage is the share of a column's values that would have to change for both to be alike."
    if any(len(each.edges) for each in table.shown):
        text += " The end bins of numbers hold all beyond."
    if left_out := table.num_columns - count:
        text += f" These are the {count} columns that differ most; {left_out:,} others are left out."
    figure.suptitle(textwrap.fill(text, _LINE), fontsize=8, x=0.01, ha="left")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, column in zip(panels, table.shown, strict=False):
        _draw(axes, column)
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure


def _draw(axes: Axes, column: ColumnDistribution) -> None:
    """One panel: bars that lie for values, so that words can be read, and stand for bins."""
    title = plot_text(_short(column.name, 16))
    axes.set_title(f"{title}  {100 * column.distance:.0f} %", fontsize=8, loc="left", pad=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7.5, length=2, pad=2)
    if column.labels:
        place = np.arange(len(column.labels))
        axes.barh(place - 0.2, column.data, 0.4, color=_DATA)
        axes.barh(place + 0.2, column.samples, 0.4, color=BLUE)
        axes.set_yticks(place, [plot_text(_short(label, 9)) for label in column.labels])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=3)
        axes.set_xlim(left=0)
        return
    axes.stairs(column.data, column.edges, fill=True, color=_DATA)
    axes.stairs(column.samples, column.edges, color=BLUE, linewidth=1.3)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=4)
    axes.set_ylim(bottom=0)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def make_column_distributions(request: FigureRequest, chains: Sampler | None = None, **sizes: Any) -> Drawing:
    """The figure of a run: training data beside samples, in the sizes of `samples_of_run`."""
    run = request.run
    drawn = samples_of_run(run, chains, **sizes, seed=request.seed)
    table = column_distributions_of(run, drawn.flatten(0, 1), seed=request.seed)
    return Drawing(table, draw_column_distributions(table, name=run.title), run.note)


def column_distributions_of(run: FigureRun, samples: Tensor, *, seed: int) -> ColumnDistributions:
    """Count the columns of a run's training data and of samples, (sample, feature), with the names of its table.

    Exposures are given, not generated, and are left out.
    """
    dataset, schema = run.dataset, run.dataset.schema
    rows = np.sort(fixed_permutation(len(dataset.train), 0, _STREAM)[:_MOST_ROWS])
    x = dataset.train[rows]
    if dataset.dynamic:
        x = binarize(x, missing=True, generator=keyed_generator(seed, _STREAM))
    weights = dataset.weights.get("train")
    weights = None if weights is None else weights[rows]
    if schema is None:
        return column_distributions_table(x, samples, names=dataset.description.columns, weights=weights)
    kept = {place: each for place, each in enumerate(schema.columns) if each.kind != "exposure"}
    names = [each.name for each in kept.values()]
    words = [getattr(each, "values", None) for each in kept.values()]
    x, samples = x[:, [*kept]], samples[:, [*kept]]
    return column_distributions_table(x, samples, names=names, words=words, weights=weights)
