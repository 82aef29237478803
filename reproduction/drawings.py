"""Pictures of results: ours beside the paper's."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from discrete_vae.figures.style import Picture

# Okabe and Ito's colors: told apart with any color vision; markers tell series apart without color.
OURS, PAPER, OTHER = ("#0072B2", "o"), ("#D55E00", "D"), ("#009E73", "s")
_ROW_HEIGHT, _FRAME_HEIGHT = 0.45, 1.25
_LABEL_WIDTH = 24  # characters


@dataclass(frozen=True)
class Series:
    """Points of one origin.

    Attributes:
        name: For the legend.
        look: Color and marker.
        value: At each place, NaN where there is none.
        std_error: Of each; None draws no bars.
    """

    name: str
    look: tuple[str, str]
    value: Sequence[float]
    std_error: Sequence[float] | None = None


def draw_rows(labels: Sequence[str], series: Sequence[Series], *, title: str, xlabel: str) -> Picture:
    """A row per label, a point per series in it.

    Args:
        labels: Of the rows, from the top.
        series: Their points, a value per row each.
        title: Of the picture.
        xlabel: What the points are, with its unit.
    """
    from matplotlib.ticker import MaxNLocator

    from discrete_vae.figures.style import Picture

    figure = Picture((7.2, _FRAME_HEIGHT + _ROW_HEIGHT * len(labels)), layout="constrained")
    axes = figure.subplots()
    shift = np.linspace(-0.14, 0.14, len(series)) if len(series) > 1 else [0.0]
    for each, up in zip(series, shift, strict=True):
        _points(axes, each, np.arange(len(labels)) + up, horizontal=True)
    axes.set_yticks(range(len(labels)), [textwrap.fill(label, _LABEL_WIDTH) for label in labels])
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.set(xlabel=xlabel, ylim=(len(labels) - 0.5, -0.5))
    axes.margins(x=0.08)
    _finish(figure, axes, title)
    return figure


def draw_curves(
    x: Sequence[tuple[Series, Sequence[float]]], *, title: str, xlabel: str, ylabel: str
) -> Picture:
    """Points joined by lines over a logarithmic axis of what was varied.

    Args:
        x: The series, and where its points are.
        title: Of the picture.
        xlabel: What was varied.
        ylabel: What the points are, with its unit.
    """
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

    from discrete_vae.figures.style import Picture

    figure = Picture((6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.axhline(0.0, color="0.75", linewidth=0.8, zorder=0)
    for series, places in x:
        _points(axes, series, np.asarray(places, np.float64), horizontal=False)
    ticks = sorted({place for _, places in x for place in places})
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.margins(y=0.12)
    _finish(figure, axes, title)
    return figure


def _points(axes: Axes, series: Series, places: np.ndarray, *, horizontal: bool) -> None:
    color, marker = series.look
    value = np.asarray(series.value, np.float64)
    error = None if series.std_error is None else np.nan_to_num(np.asarray(series.std_error, np.float64))
    hollow = "white" if series.look != OURS else color
    style = {"color": color, "markersize": 5.5, "capsize": 3, "label": series.name, "markerfacecolor": hollow}
    style["zorder"] = 3 if series.look == OURS else 2  # where both are the same, ours shows within
    if horizontal:
        axes.errorbar(value, places, xerr=error, fmt=marker, **style)
    else:
        line = "-" if series.look == OURS else "--"
        axes.errorbar(places, value, yerr=error, fmt=marker, linestyle=line, linewidth=1.2, **style)


def tidy(axes: Axes) -> None:
    """A light grid behind the data, small numbers, no frame."""
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _finish(figure: Picture, axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    tidy(axes)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)  # never over the data
