"""A chart in two widths, of which the style sheet shows the one that fits: text keeps its size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from discrete_vae.report.charts.axis import Axis
from discrete_vae.report.html import Markup, element

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
