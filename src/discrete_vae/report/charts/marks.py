"""Marks of a chart: lines, dots, bars, errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from discrete_vae.report.charts.chart import Frame
from discrete_vae.report.html import Markup, element

_MOST_POINTS = 240


def line(frame: Frame, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, kind: str) -> Markup:
    """A line through points, thinned evenly to what a screen shows, cut off where it leaves the axes."""
    every = -(-len(x) // _MOST_POINTS)
    chosen = sorted({*range(0, len(x), every), len(x) - 1}) if len(x) else []
    low, high = frame.y.low, frame.y.high
    path, pen = [], "M"
    for index in chosen:
        if not math.isfinite(y[index]) or not low <= y[index] <= high:
            pen = "M"
            continue
        path.append(f"{pen}{frame.across(float(x[index])):g} {frame.down(float(y[index])):g}")
        pen = "L"
    return element("path", d="".join(path), class_=f"line {kind}")


def dots(
    frame: Frame,
    x: Sequence[float] | np.ndarray,
    y: Sequence[float] | np.ndarray,
    kind: str,
    *,
    radius: float = 3.0,
) -> list[Markup]:
    """A dot per point; a cross where the kind is one."""
    made = []
    for a, b in zip(x, y, strict=True):
        across, down = frame.across(float(a)), frame.down(float(b))
        if "cross" in kind:
            r = radius + 1
            path = f"M{across - r:g} {down - r:g}l{2 * r:g} {2 * r:g}m{-2 * r:g} 0l{2 * r:g} {-2 * r:g}"
            made.append(element("path", d=path, class_=f"line {kind}"))
        else:
            made.append(element("circle", cx=across, cy=down, r=radius, class_=f"dot {kind}"))
    return made


def errors(
    frame: Frame, x: Sequence[float] | np.ndarray, y: Sequence[float], std_error: Sequence[float], kind: str
) -> list[Markup]:
    """Dots with bars of one standard error to either side."""
    bars = [
        element(
            "line",
            x1=frame.across(float(a)),
            x2=frame.across(float(a)),
            y1=frame.down(b - e),
            y2=frame.down(b + e),
            class_=f"line {kind}",
        )
        for a, b, e in zip(x, y, std_error, strict=True)
    ]
    return [*bars, *dots(frame, x, y, kind, radius=4.0)]


def steps(frame: Frame, edges: np.ndarray, heights: np.ndarray, kind: str) -> Markup:
    """A histogram as a filled outline."""
    path = [f"M{frame.across(float(edges[0])):g} {frame.bottom:g}"]
    for first, last, height in zip(edges[:-1], edges[1:], heights, strict=True):
        down = frame.down(float(height))
        path.append(f"L{frame.across(float(first)):g} {down:g}L{frame.across(float(last)):g} {down:g}")
    path.append(f"L{frame.across(float(edges[-1])):g} {frame.bottom:g}Z")
    return element("path", d="".join(path), class_=f"area {kind}")


def level(frame: Frame, value: float, kind: str) -> Markup:
    """A line across all of the chart at a value of y."""
    down = frame.down(value)
    return element("line", x1=frame.left, x2=frame.right, y1=down, y2=down, class_=f"line {kind}")


def diagonal(frame: Frame) -> Markup:
    """Where x and y are equal."""
    low, high = max(frame.x.low, frame.y.low), min(frame.x.high, frame.y.high)
    ends = (frame.across(low), frame.down(low)), (frame.across(high), frame.down(high))
    return element("line", x1=ends[0][0], y1=ends[0][1], x2=ends[1][0], y2=ends[1][1], class_="line faint")


def finite(values: Iterable[float]) -> list[float]:
    """Those that can be drawn."""
    return [value for value in values if math.isfinite(value)]
