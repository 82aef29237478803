"""A grid of examples with what is written around it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from discrete_vae.checks import check_tensor, check_unit_interval
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.pixels import PixelGrid, check_grid, paint
from discrete_vae.shown import plot_text

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture

_MIN_FIGURE_WIDTH, _FIGURE_INCHES = 560, 9.6
_FONT, _CAPTION_FONT = 7.5, 8.5  # points
_PAD = 8  # pixels


@dataclass(frozen=True)
class GridText:
    """What is written around a grid.

    Attributes:
        caption: What rows and columns are, in a sentence or two; stands above.
        row_title: What the row labels count, written upwards at the left.
        row_labels: One per row, or one per line of a row; none leaves them out.
        group_labels: One per group; none leaves them out.
    """

    caption: str
    row_title: str = ""
    row_labels: Sequence[str] = ()
    group_labels: Sequence[str] = ()

    def check(self, grid: PixelGrid) -> None:
        """Check that there are as many labels as places.

        Raises:
            InvalidInputError: If there are not.
        """
        for name, labels, counts in (
            ("text.row_labels", self.row_labels, {len(grid.rows), len(grid.lines)}),
            ("text.group_labels", self.group_labels, {len(grid.groups)}),
        ):
            if labels and len(labels) not in counts:
                rule = f"must be empty or {' or '.join(map(str, sorted(counts)))} labels"
                raise InvalidInputError(
                    name, rule, f"{len(labels)} labels", "Give one per row, line or group."
                )


def draw_image_grid(
    images: Tensor, image_shape: tuple[int, int] | None, *, text: GridText, stacked: bool = False
) -> Picture:
    """Draw examples in rows of groups: 0 is paper, 1 is ink, and every feature is a rectangle of whole pixels.

    Args:
        images: (row, group, member, feature), in [0, 1]; NaN leaves a feature's place empty.
        image_shape: (height, width); None draws each example as a strip, one mark per feature.
        text: What is written around the grid.
        stacked: Whether the members of a group lie below each other. Side by side otherwise; strips are always
            stacked, so that members can be compared feature by feature.

    Returns:
        The figure; saved with its own dots per inch, it has the grid pixel by pixel.

    Raises:
        InvalidInputError: If an argument breaks its rule.
    """
    check_tensor("images", images, ("row", "group", "member", "feature"))
    if images.numel() == 0:
        raise InvalidInputError(
            "images", "must hold at least one example", f"shape {tuple(images.shape)}", "Give more examples."
        )
    check_unit_interval("images", images.nan_to_num(0.0))
    rows, groups, members, features = images.shape
    check_grid((rows, groups, members, features), image_shape, stacked=stacked)
    grid = paint(images, image_shape, stacked=stacked)
    text.check(grid)
    return _with_text(grid, text)


def _with_text(grid: PixelGrid, text: GridText) -> Picture:
    """Put text around a grid; all lengths are pixels."""
    from discrete_vae.figures.picture import Picture

    caption, row_title = plot_text(text.caption), plot_text(text.row_title)
    labels, heads = [[plot_text(label) for label in each] for each in (text.row_labels, text.group_labels)]
    text = GridText(caption, row_title, labels, heads)
    height, width = grid.canvas.shape[:2]
    dpi = max(150.0, width / _FIGURE_INCHES)  # text grows with the picture
    em, caption_em = _FONT * dpi / 72, _CAPTION_FONT * dpi / 72
    per_line = len(text.row_labels) not in (0, len(grid.rows))
    rows = _thinned(grid.lines if per_line else grid.rows, text.row_labels, 1.2 * em, all_or_none=per_line)
    longest = max(map(len, text.group_labels), default=0)
    groups = _thinned(grid.groups, text.group_labels, 0.62 * em * longest + em)
    left = _PAD + (1.6 * em if text.row_title else 0)
    left += max((len(label) for _, label in rows), default=0) * 0.62 * em + (0.6 * em if rows else 0)
    left = round(left)
    total_width = max(left + width + _PAD, _MIN_FIGURE_WIDTH)
    row_title, written = text.row_title, text.caption
    if 0.6 * em * len(row_title) > height:  # too long to stand beside so low a grid
        row_title, written = "", f"{written} Rows are labeled with {row_title}."
    caption = _wrap(written, int((total_width - 2 * _PAD) / (0.58 * caption_em)))
    top = round(_PAD + len(caption) * 1.3 * caption_em + (1.7 * em if groups else 0.4 * em))
    total_height = top + height + _PAD

    # The excess keeps the number of pixels when inches are turned back into pixels and rounded down.
    figure = Picture(((total_width + 1e-3) / dpi, (total_height + 1e-3) / dpi), dpi=dpi)
    x, y = (lambda pixels: pixels / total_width), (lambda pixels: pixels / total_height)
    axes = figure.add_axes((x(left), y(_PAD), x(width), y(height)))
    axes.imshow(grid.canvas, interpolation="nearest", aspect="auto", extent=(0, width, height, 0))
    axes.set_yticks([place for place, _ in rows], [label for _, label in rows], fontsize=_FONT)
    axes.set_xticks([place for place, _ in groups], [label for _, label in groups], fontsize=_FONT)
    axes.tick_params(length=0, pad=0.25 * _FONT, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    if row_title:
        middle = x(_PAD + 0.6 * em), y(_PAD + height / 2)
        figure.text(*middle, row_title, fontsize=_FONT, rotation=90, ha="center", va="center")
    figure.text(x(_PAD), 1 - y(_PAD), "\n".join(caption), fontsize=_CAPTION_FONT, ha="left", va="top")
    return figure


def _wrap(text: str, width: int) -> list[str]:
    """Lines of about equal length, as few as fit the width in letters; terms like E[x | z] stay whole."""
    text = text.replace(" | ", "\N{NO-BREAK SPACE}|\N{NO-BREAK SPACE}")
    lines = textwrap.wrap(text, width)
    while len(narrower := textwrap.wrap(text, width - 1)) == len(lines) > 1:
        lines, width = narrower, width - 1
    return lines


def _thinned(
    places: Sequence[float], labels: Sequence[str], room: float, *, all_or_none: bool = False
) -> list[tuple[float, str]]:
    """Places with their labels, every k-th where there is no room for all of them."""
    pairs = list(zip(places, labels, strict=True)) if labels else []
    if len(pairs) < 2 or room <= places[1] - places[0]:
        return pairs
    return [] if all_or_none else pairs[:: int(-(-room // (places[1] - places[0])))]
