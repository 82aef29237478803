"""The spread of repeated estimates of log Z."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.request import Drawing
from discrete_vae.runs.results import kept_log_partitions
from discrete_vae.shown import plot_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from discrete_vae.figures.picture import Picture
    from discrete_vae.figures.request import FigureRequest

_BLUE, _VERMILION, _GREEN = "#0072B2", "#D55E00", "#009E73"
_FEWEST_IN_BARS = 20  # fewer are shown one by one
_PANELS = 2  # side by side


@dataclass(frozen=True, eq=False)
class LogPartitionHistogram:
    """Repeated estimates of one log Z.

    Attributes:
        value: The estimates, (repeat,), nats.
        std_error: What each states, (repeat,), nats.
        exact: log Z where it is known, nats.
    """

    value: np.ndarray
    std_error: np.ndarray
    exact: float | None

    def columns(self) -> dict[str, np.ndarray]:
        """A row per repeat: the estimate, its error, and the exact value, NaN where it is not known."""
        exact = np.full(len(self.value), np.nan if self.exact is None else self.exact)
        return {"value": self.value, "std_error": self.std_error, "exact": exact}


def log_partition_histogram_table(
    values: Sequence[float], std_errors: Sequence[float], *, exact: float | None = None
) -> LogPartitionHistogram:
    """The table behind the figure.

    Args:
        values: Estimates of log Z, nats.
        std_errors: Their standard errors.
        exact: The true value, where it is known.

    Raises:
        InvalidInputError: If there is no estimate, or the lengths differ.

    Examples:
        >>> log_partition_histogram_table([1.0, 1.1], [0.05, 0.05]).value
        array([1. , 1.1])
    """
    value, error = np.asarray(values, np.float64), np.asarray(std_errors, np.float64)
    if len(value) == 0 or value.shape != error.shape:
        raise InvalidInputError(
            "values",
            "must hold at least one estimate, each with its error",
            f"{len(value)} and {len(error)}",
            "Give as many errors as estimates.",
        )
    return LogPartitionHistogram(value, error, exact)


def draw_log_partition_histogram(table: LogPartitionHistogram, *, name: str = "") -> Picture:
    """Draw the estimates, and whether they spread as their stated errors promise.

    Fewer than 20 are dots with their standard errors; more are a histogram about their mean, with the normal law that
    the errors promise. A dashed line is the exact value.

    Source: Rolfe 2017, fig. log-partition-function-hist.

    Args:
        table: What `log_partition_histogram_table` returned.
        name: Name of the run, for the title.

    Returns:
        The figure.
    """
    from discrete_vae.figures.picture import Picture

    figure = Picture((6.4, 3.6), layout="constrained")
    _draw_panel(figure.subplots(), table, name)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)  # never over the data
    return figure


def draw_log_partition_histograms(tables: Mapping[str, LogPartitionHistogram]) -> Picture:
    """Draw the estimates of several runs, a panel each, two side by side.

    Source: Rolfe 2017, fig. log-partition-function-hist.

    Args:
        tables: What `log_partition_histogram_table` returned, by the name of the run.

    Returns:
        The figure.
    """
    from discrete_vae.figures.picture import Picture

    rows = -(-len(tables) // _PANELS)
    figure = Picture((_PANELS * 5.2, 0.4 + 3.2 * rows), layout="constrained")
    places = list(figure.subplots(rows, _PANELS, squeeze=False).flat)
    for axes, (name, table) in zip(places, tables.items(), strict=False):
        _draw_panel(axes, table, name)
        axes.set_title(_title(table, name).replace(": ", "\n"), fontsize=9, loc="left")  # half as wide
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False, fontsize=7)
    for axes in places[len(tables) :]:
        axes.set_axis_off()
    return figure


def histogram_of_result(fields: Mapping[str, Any]) -> LogPartitionHistogram:
    """The table of a result of `dvae log-partition`, as a run keeps it.

    Args:
        fields: A result that was checked when it was read.
    """
    values, errors = ([found[name] for found in fields["estimates"]] for name in ("value", "std_error"))
    return log_partition_histogram_table(values, errors, exact=fields["exact"])


def make_log_partition_histogram(request: FigureRequest) -> Drawing:
    """The figure of a run, of the fullest of its results; nothing is estimated.

    Raises:
        InvalidInputError: If the run has none.
    """
    directory = request.run.directory
    fields = kept_log_partitions(directory).fullest()
    if fields is None:
        repair = f"Make some: dvae log-partition {directory.path} --repeats 20."
        raise InvalidInputError("RUN", "must have estimates of log Z", f"{directory.path} without", repair)
    table = histogram_of_result(fields)
    return Drawing(table, draw_log_partition_histogram(table, name=directory.read_experiment().name))


def _draw_panel(axes: Axes, table: LogPartitionHistogram, name: str) -> None:
    if len(table.value) < _FEWEST_IN_BARS:
        _draw_dots(axes, table)
    else:
        _draw_bars(axes, table)
    axes.set_title(_title(table, name), fontsize=10, loc="left")
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _title(table: LogPartitionHistogram, name: str) -> str:
    value, count = table.value, len(table.value)
    start = f"log Z of {plot_text(name)}: " if name else "log Z: "
    if count == 1:
        return f"{start}{value[0]:.4f} \N{PLUS-MINUS SIGN} {table.std_error[0]:.4f} nats"
    return f"{start}mean {value.mean():.4f}, spread {value.std(ddof=1):.4f} nats over {count} repeats"


def _draw_dots(axes: Axes, table: LogPartitionHistogram) -> None:
    count = len(table.value)
    number = np.arange(1, count + 1)
    label = f"estimate{'s' * (count > 1)} with standard error"
    axes.errorbar(
        number, table.value, table.std_error, fmt="o", color=_BLUE, markersize=5, capsize=3, label=label
    )
    if count > 1:
        axes.axhline(float(table.value.mean()), color=_BLUE, linewidth=1, alpha=0.5, label="mean")
    if table.exact is not None:
        axes.axhline(table.exact, color=_GREEN, linestyle="--", label="exact value")
    axes.set(xlabel="repeat", ylabel="log Z (nats)", xlim=(0.5, count + 0.5), xticks=number)
    axes.margins(y=0.15)
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")


def _draw_bars(axes: Axes, table: LogPartitionHistogram) -> None:
    count, mean = len(table.value), float(table.value.mean())
    std_error = float(np.sqrt(np.square(table.std_error).mean()))
    deviation = table.value - mean
    reach = 1.15 * max(float(np.abs(deviation).max()), 3 * std_error, 1e-6)
    if table.exact is not None:
        reach = max(reach, 1.15 * abs(table.exact - mean))
    edges = np.linspace(-reach, reach, 2 * min(20, round(1.3 * count**0.5)) + 2)
    share = np.full(count, 1 / count)
    axes.hist(
        deviation,
        edges.tolist(),
        weights=share,
        color=_BLUE,
        alpha=0.6,
        edgecolor="white",
        label=f"{count} estimates",
    )
    if std_error > 0:
        x = np.linspace(-reach, reach, 400)
        density = (
            np.exp(-0.5 * (x / std_error) ** 2) / (std_error * np.sqrt(2 * np.pi)) * (edges[1] - edges[0])
        )
        axes.plot(x, density, color=_VERMILION, label=f"normal law of the stated error, {std_error:.4f} nats")
    if table.exact is not None:
        axes.axvline(table.exact - mean, color=_GREEN, linestyle="--", label="exact value")
    axes.set(
        xlabel="log Z \N{MINUS SIGN} mean (nats)",
        ylabel="fraction of the estimates",
        xlim=(-reach, reach),
        ylim=(0, None),
    )
