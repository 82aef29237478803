"""Grids of examples, drawn pixel by pixel: ink on paper, groups kept apart."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from discrete_vae.checks import check_tensor, check_unit_interval
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.saving import check_picture_path, save_figure
from discrete_vae.memory import check_memory

MAX_WIDTH, MAX_HEIGHT = 1500, 1600  # pixels that a grid is scaled up to; one with more cells gets larger
_LARGEST_SIDE = 50_000  # of what matplotlib can draw, 2^16, with room for the text
_PER_PIXEL = 24  # bytes: the values, the canvas, and what matplotlib makes of it
_STRIP_WIDTH = 256  # features in a line of a strip
_MAX_SCALE, _MAX_THICKNESS = 12, 12
_THIN, _ROW, _WIDE = 1, 4, 7  # pixels between the members of a group, rows of images, and groups
_GAP_COLOR = (205, 218, 234)  # tinted, so that it cannot be taken for gray ink
_MIN_FIGURE_WIDTH, _FIGURE_INCHES = 560, 9.6
_FONT, _CAPTION_FONT = 7.5, 8.5  # points
_PAD = 8


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


def cell_shape(num_features: int, image_shape: tuple[int, int] | None) -> tuple[int, int]:
    """Height and width of one example, in features.

    Args:
        num_features: Features of an example.
        image_shape: (height, width) of an image; None for examples that are no images, which become a strip with a
            new line every 256 features.

    Raises:
        InvalidInputError: If the shape is not two positive integers whose product is the number of features.
    """
    if image_shape is None:
        return -(-num_features // _STRIP_WIDTH), min(num_features, _STRIP_WIDTH)
    sides = tuple(image_shape)
    whole = all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in sides)
    if len(sides) != 2 or not whole or sides[0] * sides[1] != num_features:
        rule = f"must be (height, width) with a product of {num_features}, the number of features"
        raise InvalidInputError(
            "image_shape", rule, repr(image_shape), "Give None if the examples are no images."
        )
    return sides[0], sides[1]


def check_grid(
    shape: tuple[int, int, int, int], image_shape: tuple[int, int] | None, *, stacked: bool = False
) -> None:
    """Check that a grid of examples makes a picture that can be drawn and fits the memory, one pixel per feature.

    Args:
        shape: Rows, groups, members of a group, features.
        image_shape: As in `draw_image_grid`.
        stacked: As in `draw_image_grid`.

    Raises:
        InvalidInputError: If the picture would be too large, or the image shape breaks its rule.

    Examples:
        >>> check_grid((2, 3, 40_000, 64), (8, 8))
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: images must make a picture of at most 50000 pixels a side; received
        1080021 x 32. Show fewer rows, groups or members of a group.
    """
    num_rows, num_groups, num_members, num_features = shape
    cell = cell_shape(num_features, image_shape)
    below, beside = (num_members, 1) if stacked or image_shape is None else (1, num_members)
    width = num_groups * (beside * (cell[1] + _THIN) + _WIDE)
    height = num_rows * (below * (cell[0] + _THIN) + _WIDE)
    repair = "Show fewer rows, groups or members of a group."
    if max(width, height) > _LARGEST_SIDE:
        rule = f"must make a picture of at most {_LARGEST_SIDE} pixels a side"
        raise InvalidInputError("images", rule, f"{width} x {height}", repair)
    check_memory("images", _PER_PIXEL * width * height, repair, what="for the picture")


def draw_image_grid(
    images: Tensor,
    image_shape: tuple[int, int] | None,
    path: str | Path,
    *,
    text: GridText,
    stacked: bool = False,
) -> None:
    """Draw examples in rows of groups: 0 is paper, 1 is ink, and every feature is a rectangle of whole pixels.

    Args:
        images: (row, group, member, feature), in [0, 1]; NaN leaves a feature's place empty.
        image_shape: (height, width); None draws each example as a strip, one mark per feature.
        path: File to write, ending in .png, .pdf or .svg.
        text: What is written around the grid.
        stacked: Whether the members of a group lie below each other. Side by side otherwise; strips are always
            stacked, so that members can be compared feature by feature.

    Raises:
        InvalidInputError: If an argument breaks its rule; nothing is written.
    """
    check_tensor("images", images, ("row", "group", "member", "feature"))
    if images.numel() == 0:
        raise InvalidInputError(
            "images", "must hold at least one example", f"shape {tuple(images.shape)}", "Give more examples."
        )
    check_unit_interval("images", images.nan_to_num(0.0))
    cell = cell_shape(images.shape[-1], image_shape)
    check_picture_path(path)
    rows, groups, members, features = images.shape
    check_grid((rows, groups, members, features), image_shape, stacked=stacked)
    strips = image_shape is None
    canvas, places = _paint(images, cell, stacked=stacked or strips, strips=strips)
    for name, labels, counts in (
        ("text.row_labels", text.row_labels, {len(places.rows), len(places.lines)}),
        ("text.group_labels", text.group_labels, {len(places.groups)}),
    ):
        if labels and len(labels) not in counts:
            rule = f"must be empty or {' or '.join(map(str, sorted(counts)))} labels"
            raise InvalidInputError(name, rule, f"{len(labels)} labels", "Give one per row, line or group.")
    _write(canvas, places, text, path)


@dataclass(frozen=True)
class _Places:
    """Pixel centers of rows, of the lines of all rows and of groups."""

    rows: list[float]
    lines: list[float]
    groups: list[float]


def _paint(
    images: Tensor, cell: tuple[int, int], *, stacked: bool, strips: bool
) -> tuple[np.ndarray, _Places]:
    """The grid as (height, width, 3) uint8."""
    num_rows, num_groups, num_members, num_features = images.shape
    lines, columns = (num_members, 1) if stacked else (1, num_members)
    ink = images.detach().cpu().double().numpy()
    missing = cell[0] * cell[1] - num_features
    ink = np.pad(ink, [(0, 0)] * 3 + [(0, missing)], constant_values=np.nan)
    ink = ink.reshape(num_rows, num_groups, num_members, *cell)

    wide_rows, wide_groups = lines > 1 or strips, columns > 1 or strips
    row_gap, group_gap = (_WIDE if wide_rows else _ROW), (_WIDE if wide_groups else _ROW)
    across = (MAX_WIDTH - num_groups * (group_gap + columns)) // (num_groups * columns * cell[1])
    down = (MAX_HEIGHT - num_rows * (row_gap + lines)) // (num_rows * lines * cell[0])
    if strips:
        scale = (max(1, min(down, _MAX_THICKNESS)), max(1, min(across, _MAX_SCALE)))
    else:
        scale = (max(1, min(across, down, _MAX_SCALE)),) * 2
    height, width = cell[0] * scale[0], cell[1] * scale[1]

    tops = _starts(num_rows, lines, height, row_gap)
    lefts = _starts(num_groups, columns, width, group_gap)
    canvas = np.empty((int(tops[-1, -1]) + height, int(lefts[-1, -1]) + width, 3), np.uint8)
    canvas[:] = _GAP_COLOR
    for row, group, member in np.ndindex(num_rows, num_groups, num_members):
        line, column = (member, 0) if stacked else (0, member)
        block = ink[row, group, member].repeat(scale[0], axis=0).repeat(scale[1], axis=1)
        top, left = int(tops[row, line]), int(lefts[group, column])
        target = canvas[top : top + height, left : left + width]
        seen = ~np.isnan(block)
        target[seen] = np.rint(255 * (1 - block[seen]))[:, None].astype(np.uint8)
    line_centers = tops + height / 2
    return canvas, _Places(
        rows=line_centers.mean(1).tolist(),
        lines=line_centers.ravel().tolist(),
        groups=(lefts.mean(1) + width / 2).tolist(),
    )


def _starts(num_groups: int, num_members: int, size: int, gap: int) -> np.ndarray:
    """First pixel of each member, (group, member)."""
    pitch = num_members * size + (num_members - 1) * _THIN + gap
    return np.arange(num_groups)[:, None] * pitch + np.arange(num_members) * (size + _THIN)


def _write(canvas: np.ndarray, places: _Places, text: GridText, path: str | Path) -> None:
    """Put text around the grid and write the file; all lengths are pixels."""
    from matplotlib.figure import Figure

    height, width = canvas.shape[:2]
    dpi = max(150.0, width / _FIGURE_INCHES)  # text grows with the picture
    em, caption_em = _FONT * dpi / 72, _CAPTION_FONT * dpi / 72
    per_line = len(text.row_labels) not in (0, len(places.rows))
    rows = _thinned(
        places.lines if per_line else places.rows, text.row_labels, 1.2 * em, all_or_none=per_line
    )
    longest = max(map(len, text.group_labels), default=0)
    groups = _thinned(places.groups, text.group_labels, 0.62 * em * longest + em)
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
    size = ((total_width + 1e-3) / dpi, (total_height + 1e-3) / dpi)
    figure = Figure(figsize=size, dpi=dpi, facecolor="white")
    box = (left / total_width, _PAD / total_height, width / total_width, height / total_height)
    axes = figure.add_axes(box)
    axes.imshow(canvas, interpolation="nearest", aspect="auto", extent=(0, width, height, 0))
    axes.set_yticks([place for place, _ in rows], [label for _, label in rows], fontsize=_FONT)
    axes.set_xticks([place for place, _ in groups], [label for _, label in groups], fontsize=_FONT)
    axes.tick_params(length=0, pad=0.25 * _FONT, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    if row_title:
        figure.text(
            (_PAD + 0.6 * em) / total_width,
            (_PAD + height / 2) / total_height,
            row_title,
            fontsize=_FONT,
            rotation=90,
            ha="center",
            va="center",
        )
    figure.text(
        _PAD / total_width,
        1 - _PAD / total_height,
        "\n".join(caption),
        fontsize=_CAPTION_FONT,
        ha="left",
        va="top",
    )
    save_figure(figure, path)


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
