"""Charts of the report in SVG, and its HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from discrete_vae.errors import printable

# HTML by functions: every text is escaped, control characters too, but what is `Markup` already.


_KEPT = "\n\t\N{NO-BREAK SPACE}"
_VOID = {"br", "col", "hr", "img", "link", "meta"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = str | Iterable["Child"] | None


def markup(*children: Child) -> Markup:
    r"""Join children; strings that are not `Markup` are escaped.

    Examples:
        >>> markup("a < b ", Markup("<br>"), [None, "c"])
        'a &lt; b <br>c'
        >>> print(markup("bad \x1b[2J name"))
        bad \x1b[2J name
    """
    parts: list[str] = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(html.escape(printable(child, keep=_KEPT), quote=False))
        elif child is not None:
            parts.append(markup(*child))
    return Markup("".join(parts))


def element(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element of HTML or SVG.

    Args:
        tag: Its name.
        children: What stands inside.
        attributes: By name, with _ for - and a trailing _ where Python has the word; None and False leave one out,
            True gives it no value.

    Examples:
        >>> element("p", "1 < 2", class_="note", hidden=True, title=None)
        '<p class="note" hidden>1 &lt; 2</p>'
        >>> element("img", src="data:,", alt='a "b"')
        '<img src="data:," alt="a &quot;b&quot;">'
    """
    said = []
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            said.append(f" {key}")
        elif value is not None and value is not False:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            said.append(f' {key}="{html.escape(printable(text, keep=_KEPT))}"')
    start = f"<{tag}{''.join(said)}>"
    return Markup(start if tag in _VOID else f"{start}{markup(*children)}</{tag}>")


# Axes: their range and where their ticks are.


_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        low: Its least value.
        high: Its greatest, above `low`.
        label: What it shows, with the unit.
        whole: Whether only whole numbers have a meaning.
    """

    low: float
    high: float
    label: str
    whole: bool = False

    @classmethod
    def around(cls, values: Iterable[float], label: str, *, span: float = 0.0, zero: bool = False) -> Axis:
        """An axis that holds values with a margin.

        Args:
            values: Numbers; those that are not finite count nowhere.
            label: See above.
            span: The least range, so that what does not change looks so.
            zero: Whether it begins at 0, for values that are not negative.
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
        rough = (self.high - self.low) / most
        rough = max(rough, 1.0) if self.whole else rough
        unit = 10.0 ** math.floor(math.log10(rough))
        steps = [each * unit for each in _STEPS if not self.whole or (each * unit).is_integer()]
        step = next(each for each in steps if each >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        digits += not math.isclose(step * 10**digits, round(step * 10**digits), rel_tol=1e-6)
        values = [step * number for number in range(first, last + 1)]
        return [(value, f"{value + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")) for value in values]


# A chart in two widths, of which the style sheet shows the one that fits: text keeps its size.


_WIDTHS = {"wide": 680, "narrow": 340}
_EM = 7.0  # width of a letter at 12 pixels, about
_PIXELS_PER_TICK = {"x": 58, "y": 32}


@dataclass(frozen=True)
class Frame:
    """Where the axes of one width lie, in pixels.

    Attributes:
        x: The horizontal axis.
        y: The vertical one.
        left: Where it begins.
        right: Where it ends.
        top: Where the vertical one ends.
        bottom: Where it begins.
    """

    x: Axis
    y: Axis
    left: float
    right: float
    top: float
    bottom: float

    def across(self, value: float) -> float:
        """Pixels from the left of a value of x."""
        return round(
            self.left + (value - self.x.low) / (self.x.high - self.x.low) * (self.right - self.left), 2
        )

    def down(self, value: float) -> float:
        """Pixels from the top of a value of y."""
        return round(
            self.bottom - (value - self.y.low) / (self.y.high - self.y.low) * (self.bottom - self.top), 2
        )


def chart(
    x: Axis,
    y: Axis,
    draw: Callable[[Frame], Iterable[Markup]],
    *,
    label: str,
    legend: Sequence[tuple[str, str]] = (),
    height: int = 230,
    half: bool = False,
) -> Markup:
    """A chart with axes, grid and legend.

    Args:
        x: The horizontal axis.
        y: The vertical one.
        draw: Gives the marks for a frame.
        label: What it shows, for screen readers.
        legend: The class of a mark and its meaning, one after the other; a chart of one kind needs none.
        height: Pixels.
        half: Whether it takes half of the page's width, beside another one.
    """
    entries = [
        element("li", element("span", class_=f"key {kind}", aria_hidden="true"), words)
        for kind, words in legend
    ]
    keys = element("ul", entries, class_="legend") if entries else None
    widths = {"half": _WIDTHS["narrow"]} if half else _WIDTHS
    drawn = [_svg(x, y, draw, label, kind, width, height) for kind, width in widths.items()]
    return element("div", keys, drawn, class_="chart")


def _svg(
    x: Axis,
    y: Axis,
    draw: Callable[[Frame], Iterable[Markup]],
    label: str,
    kind: str,
    width: int,
    height: int,
) -> Markup:
    top, bottom = 22.0, height - 40.0
    y_ticks = y.ticks(max(2, int((bottom - top) / _PIXELS_PER_TICK["y"])))
    left = 10.0 + _EM * max((len(text) for _, text in y_ticks), default=0)
    frame = Frame(x, y, left, width - 12.0, top, bottom)
    x_ticks = x.ticks(max(2, int((frame.right - left) / _PIXELS_PER_TICK["x"])))
    grid = [
        element("line", x1=left, x2=frame.right, y1=frame.down(value), y2=frame.down(value), class_="grid")
        for value, _ in y_ticks
    ]
    texts = [
        element("text", text, x=left - 6, y=frame.down(value) + 4, text_anchor="end")
        for value, text in y_ticks
    ]
    texts += [
        element("text", text, x=frame.across(value), y=bottom + 17, text_anchor="middle")
        for value, text in x_ticks
    ]
    base = element("line", x1=left, x2=frame.right, y1=bottom, y2=bottom, class_="axis")
    names = [
        element("text", y.label, x=2, y=12, class_="name"),
        element("text", x.label, x=frame.right, y=height - 6, text_anchor="end", class_="name"),
    ]
    return element(
        "svg",
        element("title", label),
        grid,
        base,
        list(draw(frame)),
        texts,
        names,
        viewBox=f"0 0 {width} {height}",
        class_=kind,
        role="img",
        aria_label=label,
    )


# Marks of a chart: lines, dots, bars, errors.


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
