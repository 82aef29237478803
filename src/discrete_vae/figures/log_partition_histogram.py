"""The spread of repeated estimates of log Z."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.saving import check_picture_path, save_figure

_BLUE, _VERMILION, _GREEN = "#0072B2", "#D55E00", "#009E73"
_MANY = 30  # so few values are shown one by one below the bars as well


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


def log_partition_histogram(
    values: Sequence[float], std_errors: Sequence[float], *, exact: float | None = None
) -> LogPartitionHistogram:
    """The table behind the figure.

    Args:
        values: Estimates of log Z, nats.
        std_errors: Their standard errors.
        exact: The true value, where it is known.

    Raises:
        InvalidInputError: If there are fewer than two estimates, or the lengths differ.

    Examples:
        >>> log_partition_histogram([1.0, 1.1], [0.05, 0.05]).value
        array([1. , 1.1])
    """
    value, error = np.asarray(values, np.float64), np.asarray(std_errors, np.float64)
    if len(value) < 2 or value.shape != error.shape:
        raise InvalidInputError(
            "values",
            "must hold at least two estimates, each with its error",
            f"{len(value)} and {len(error)}",
            "Ask for more repeats.",
        )
    return LogPartitionHistogram(value, error, exact)


def draw_log_partition_histogram(table: LogPartitionHistogram, path: str | Path, *, name: str = "") -> None:
    """Draw the distribution of the estimates about their mean, and the normal law that their errors promise.

    Source: Rolfe 2017, fig. log-partition-function-hist.

    Args:
        table: What `log_partition_histogram` returned.
        path: File to write, ending in .png, .pdf or .svg.
        name: Name of the run, for the title.

    Raises:
        InvalidInputError: If the path breaks its rule; nothing is written.
    """
    from matplotlib.figure import Figure

    check_picture_path(path)
    mean, spread = float(table.value.mean()), float(table.value.std(ddof=1))
    stated = float(np.sqrt(np.square(table.std_error).mean()))
    deviation = table.value - mean
    reach = 1.15 * max(float(np.abs(deviation).max()), 3 * stated, 1e-6)
    if table.exact is not None:
        reach = max(reach, 1.15 * abs(table.exact - mean))
    bins = max(5, min(40, round(2 * len(deviation) ** 0.5)))
    edges = np.linspace(-reach, reach, 2 * bins + 1)
    figure = Figure(figsize=(6.4, 3.6), dpi=150, facecolor="white", layout="constrained")
    axes = figure.subplots()
    share = np.full(len(deviation), 1 / len(deviation))
    axes.hist(
        deviation, edges.tolist(), weights=share, color=_BLUE, alpha=0.6, label=f"{len(deviation)} estimates"
    )
    if len(deviation) <= _MANY:
        axes.plot(deviation, np.zeros_like(deviation), "|", color=_BLUE, markersize=12, clip_on=False)
    if stated > 0:
        x = np.linspace(-reach, reach, 400)
        density = np.exp(-0.5 * (x / stated) ** 2) / (stated * np.sqrt(2 * np.pi)) * (edges[1] - edges[0])
        axes.plot(x, density, color=_VERMILION, label=f"stated standard error {stated:.4f}")
    if table.exact is not None:
        axes.axvline(table.exact - mean, color=_GREEN, linestyle="--", label="exact value")
    title = f"log Z of {name}: " if name else "log Z: "
    axes.set_title(f"{title}mean {mean:.3f}, spread {spread:.4f} nats", fontsize=10, loc="left")
    axes.set(
        xlabel="log Z \N{MINUS SIGN} mean (nats)",
        ylabel="fraction of the estimates",
        xlim=(-reach, reach),
        ylim=(0, None),
    )
    axes.legend(frameon=False, fontsize=8)
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    save_figure(figure, path)
