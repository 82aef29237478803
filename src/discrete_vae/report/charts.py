"""Charts of the report as paths of SVG, and pictures as small PNG files, which show on light and on dark paper."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from matplotlib.image import imsave
from matplotlib.ticker import MaxNLocator

Values: TypeAlias = Sequence[float] | np.ndarray

_WIDTHS = {"wide": 680, "narrow": 340}  # the style sheet shows the one that fits, so text keeps its size
_EM = 7.0  # width of a letter at 12 pixels, about
_PIXELS_PER_X_TICK, _PIXELS_PER_Y_TICK = 58, 28
_LONGEST_TICK = 12  # letters, from which on powers of ten are written
_MOST_POINTS = 240  # of a line on a screen


@dataclass(frozen=True)
class Axis:
    """One axis."""

    low: float
    high: float  # above `low`
    label: str  # the quantity, with the unit
    whole: bool = False  # whether only whole numbers have a meaning

    @classmethod
    def around(cls, values: Iterable[float], label: str, *, span: float = 0.0, zero: bool = False) -> Axis:
        """An axis that holds the finite ones of values with a margin.

        It has a range of at least `span`, so that what does not change looks so, or begins at zero.
        """
        found = np.array([value for value in values if math.isfinite(value)] or [0.0, 1.0])
        low, high = float(found.min()), float(found.max())
        if zero:
            return cls(0.0, 1.06 * high or 1.0, label)
        least = (0.05 * abs(high) or 0.5) if high == low else 0.0
        margin = max(0.06 * (high - low), (span - (high - low)) / 2, least)
        return cls(low - margin, high + margin, label)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Round values inside the range with their labels, at most so many.

        Examples:
            >>> Axis(0.0, 52.0, "epoch").ticks(6)
            [(0.0, '0'), (10.0, '10'), (20.0, '20'), (30.0, '30'), (40.0, '40'), (50.0, '50')]
            >>> Axis(1.0, 3.0, "unit", whole=True).ticks(6)
            [(1.0, '1'), (2.0, '2'), (3.0, '3')]
        """
        locator = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=self.whole)
        values = [each for each in locator.tick_values(self.low, self.high) if self.low <= each <= self.high]
        written = [np.format_float_positional(each, 9, fractional=False, trim="-") for each in values]
        digits = max((len(each.partition(".")[2]) for each in written), default=0)
        form = f",.{digits}f" if max(map(len, written), default=0) <= _LONGEST_TICK else ".9g"
        return [(float(each), f"{each + 0.0:{form}}".replace("-", "\N{MINUS SIGN}")) for each in values]


class Mark(NamedTuple):
    """Strokes of one kind, each a line through points (x, y); a stroke of one point is a dot or a cross."""

    kind: str
    strokes: Sequence[tuple[Values, Values]]
    radius: float = 0.0


def line(x: Values, y: Values, kind: str) -> Mark:
    """A line through points, thinned evenly to what a screen shows."""
    every = -(-len(x) // _MOST_POINTS)
    chosen = sorted({*range(0, len(x), every), len(x) - 1}) if len(x) else []
    return Mark(f"line {kind}", [([x[index] for index in chosen], [y[index] for index in chosen])])


def dots(x: Values, y: Values, kind: str, *, radius: float = 3.0) -> Mark:
    """A dot per point; a cross where the kind is one."""
    return Mark(f"dot {kind}", [([a], [b]) for a, b in zip(x, y, strict=True)], radius)


def errors(x: Values, y: Values, std_error: Values, kind: str) -> list[Mark]:
    """Dots with bars of one standard error to either side."""
    bars = [([a, a], [b - e, b + e]) for a, b, e in zip(x, y, std_error, strict=True)]
    return [Mark(f"line {kind}", bars), dots(x, y, kind, radius=4.0)]


def steps(edges: np.ndarray, heights: np.ndarray, kind: str) -> Mark:
    """A histogram as a filled outline."""
    return Mark(f"area {kind}", [(np.repeat(edges, 2), [0.0, *np.repeat(heights, 2), 0.0])])


@dataclass(frozen=True)
class Chart:
    """A chart with axes and grid; what leaves the axes is cut off."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    label: str  # for screen readers
    legend: Sequence[tuple[str, str]] = ()  # class of a mark and its meaning; none for a chart of one kind
    height: int = 230  # pixels
    half: bool = False  # whether it takes half of the page's width, beside another one

    def drawn(self) -> list[Drawn]:
        """The chart in each of its widths."""
        widths = {"half": _WIDTHS["narrow"]} if self.half else _WIDTHS
        return [Drawn(self, name, width) for name, width in widths.items()]


class Drawn:
    """A chart in one width; all lengths in pixels."""

    def __init__(self, chart: Chart, name: str, width: int) -> None:
        self.name, self.width = name, width
        self.top, self.bottom, self.right = 22.0, chart.height - 40.0, width - 12.0
        self._x, self._y = chart.x, chart.y
        y_ticks = chart.y.ticks(max(2, int((self.bottom - self.top) / _PIXELS_PER_Y_TICK)))
        # the same for most charts, so that those below each other have the same ticks of x
        self.left = 10.0 + _EM * max(5, *(len(text) for _, text in y_ticks))
        x_ticks = chart.x.ticks(max(2, int((self.right - self.left) / _PIXELS_PER_X_TICK)))
        self.x_ticks = [(self._across(value), text) for value, text in x_ticks]
        self.y_ticks = [(self._down(value), text) for value, text in y_ticks]
        self.paths = [  # class, outline and width of the pen, 0 for that of the style sheet
            (mark.kind, self._outline(mark, *stroke), 2 * mark.radius)
            for mark in chart.marks
            for stroke in mark.strokes
        ]

    def _across(self, value: float) -> float:
        share = (float(value) - self._x.low) / (self._x.high - self._x.low)
        return round(self.left + share * (self.right - self.left), 2)

    def _down(self, value: float) -> float:
        share = (float(value) - self._y.low) / (self._y.high - self._y.low)
        return round(self.bottom - share * (self.bottom - self.top), 2)

    def _outline(self, mark: Mark, x: Values, y: Values) -> str:
        parts, pen = [], "M"
        for a, b in zip(x, y, strict=True):
            if self._y.low <= b <= self._y.high:  # which NaN is not
                parts.append(f"{pen}{self._across(a):g} {self._down(b):g}")
                pen = "L"
            else:
                pen = "M"
        if len(x) == 1 and parts:
            r = mark.radius
            cross = f"m{-r:g} {-r:g}l{2 * r:g} {2 * r:g}m{-2 * r:g} 0l{2 * r:g} {-2 * r:g}"
            parts.append(cross if "cross" in mark.kind else "h0")
        return "".join(parts)


# Pictures: pixels with opacity, which the style sheet turns on dark paper.


_BLUE, _VERMILION = (0, 114, 178), (213, 94, 0)  # as in `discrete_vae.figures.style`
_MISSING = (150, 170, 200, 110)  # what has no value


class Picture(NamedTuple):
    """A picture inside the page."""

    source: str
    width: int
    height: int
    alt: str
    kind: str


def grayscale(values: np.ndarray) -> np.ndarray:
    """A raster of values in [0, 1], from clear to black; (..., 4) uint8."""
    raster = np.zeros((*values.shape, 4), np.uint8)
    raster[..., 3] = np.rint(255 * np.clip(np.nan_to_num(values), 0, 1))
    raster[np.isnan(values)] = _MISSING
    return raster


def signed(values: np.ndarray, most: float) -> np.ndarray:
    """A raster of values from -most, vermilion, over 0, clear, to most, blue; (..., 4) uint8."""
    scaled = np.clip(np.nan_to_num(values) / most if most > 0 else 0 * values, -1, 1)
    raster = np.zeros((*values.shape, 4), np.uint8)
    raster[..., :3] = np.where(scaled[..., None] > 0, _BLUE, _VERMILION)
    raster[..., 3] = np.rint(255 * np.abs(scaled))
    raster[np.isnan(values)] = _MISSING
    return raster


def grid(raster: np.ndarray) -> np.ndarray:
    """Images (row, column, height, width, 4) as one, with clear gaps of a fourteenth of their height."""
    rows, columns, height, width, _ = raster.shape
    gap = max(1, height // 14)
    padded = np.pad(raster, ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0)))
    joined = padded.transpose(0, 2, 1, 3, 4).reshape(rows * (height + gap), columns * (width + gap), 4)
    return joined[:-gap, :-gap]


def picture(raster: np.ndarray, kind: str, *, alt: str, zoom: int = 3) -> Picture:
    """A raster (height, width, 4) as a picture, each as a square of `zoom` pixels where there is room."""
    file = io.BytesIO()
    imsave(file, np.ascontiguousarray(raster), format="png", metadata={"Software": "discrete-vae"})
    height, width, _ = raster.shape
    source = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return Picture(source, width * zoom, height * zoom, alt, kind)
