"""Examples as pixels: rows of groups, where every feature is a rectangle of whole pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import check_memory

MAX_WIDTH, MAX_HEIGHT = 1500, 1600  # pixels that a grid is scaled up to; one with more cells gets larger
_LARGEST_SIDE = 50_000  # of what matplotlib can draw, 2^16, with room for the text
_PER_PIXEL = 24  # bytes: the values, the canvas, and what matplotlib makes of it
_STRIP_WIDTH = 256  # features in a line of a strip
_MAX_SCALE, _MAX_STRIP_SCALE = 12, 24  # pixels per feature; a line of a strip is as high as its label needs
_THIN, _ROW, _WIDE = 1, 4, 7  # pixels between the members of a group, rows of images, and groups
_GAP = 256  # what is no ink, and its color: tinted, so that it cannot be taken for gray
_PALETTE = np.array([[gray] * 3 for gray in range(_GAP)] + [(205, 218, 234)], np.uint8)


@dataclass(frozen=True, eq=False)
class PixelGrid:
    """A painted grid.

    Attributes:
        canvas: (height, width, 3) uint8.
        rows: Where the centers of rows are, in pixels from the top.
        lines: The same for the lines of all rows.
        groups: Where the centers of groups are, in pixels from the left.
    """

    canvas: np.ndarray
    rows: list[float]
    lines: list[float]
    groups: list[float]


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
        image_shape: As in `paint`.
        stacked: As in `paint`.

    Raises:
        InvalidInputError: If the picture would be too large, or the image shape does not fit the features.

    Examples:
        >>> check_grid((2, 3, 40_000, 64), (8, 8))
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: images must make a picture of at most 50000 pixels per side; received
        1080021 x 32. Show fewer rows, groups or members of a group.
    """
    num_rows, num_groups, num_members, num_features = shape
    cell = cell_shape(num_features, image_shape)
    below, beside = (num_members, 1) if stacked or image_shape is None else (1, num_members)
    width = num_groups * (beside * (cell[1] + _THIN) + _WIDE)
    height = num_rows * (below * (cell[0] + _THIN) + _WIDE)
    repair = "Show fewer rows, groups or members of a group."
    if max(width, height) > _LARGEST_SIDE:
        rule = f"must make a picture of at most {_LARGEST_SIDE} pixels per side"
        raise InvalidInputError("images", rule, f"{width} x {height}", repair)
    check_memory("images", _PER_PIXEL * width * height, repair, what="for the picture")


def paint(images: Tensor, image_shape: tuple[int, int] | None, *, stacked: bool = False) -> PixelGrid:
    """Paint examples, as large as the bounds of a grid allow: 0 is paper, 1 is ink.

    Args:
        images: (row, group, member, feature), in [0, 1]; NaN leaves a feature's place empty.
        image_shape: (height, width) of an example; None makes strips.
        stacked: Whether the members of a group lie below each other; those of strips always do.
    """
    num_rows, num_groups, num_members, num_features = images.shape
    strips, cell = image_shape is None, cell_shape(num_features, image_shape)
    lines, columns = (num_members, 1) if stacked or strips else (1, num_members)
    row_gap, group_gap = (_WIDE if many > 1 or strips else _ROW for many in (lines, columns))
    down = (MAX_HEIGHT - num_rows * (row_gap + lines)) // (num_rows * lines * cell[0])
    across = (MAX_WIDTH - num_groups * (group_gap + columns)) // (num_groups * columns * cell[1])
    scales = (down, across) if strips else (min(down, across),) * 2
    largest = _MAX_STRIP_SCALE if strips else _MAX_SCALE
    y, x = (max(1, min(scale, largest)) for scale in scales)

    ink = images.detach().cpu().double().numpy()
    codes = np.where(np.isnan(ink), _GAP, np.rint(255 * (1 - np.nan_to_num(ink)))).astype(np.uint16)
    codes = np.pad(codes, [(0, 0)] * 3 + [(0, cell[0] * cell[1] - num_features)], constant_values=_GAP)
    codes = codes.reshape(num_rows, num_groups, lines, columns, *cell).repeat(y, 4).repeat(x, 5)
    codes = codes.transpose(0, 2, 4, 1, 3, 5)  # row, line, pixel down; group, column, pixel across
    for axis, gap in ((4, _THIN), (3, group_gap), (1, _THIN), (0, row_gap)):
        codes = _joined(codes, axis, gap)
    tops = _starts(num_rows, lines, cell[0] * y, row_gap) + cell[0] * y / 2
    lefts = _starts(num_groups, columns, cell[1] * x, group_gap) + cell[1] * x / 2
    return PixelGrid(_PALETTE[codes], tops.mean(1).tolist(), tops.ravel().tolist(), lefts.mean(1).tolist())


def _joined(codes: np.ndarray, axis: int, gap: int) -> np.ndarray:
    """Make one axis of two, with a gap between the entries of the first."""
    widths = [(0, gap if each == axis + 1 else 0) for each in range(codes.ndim)]
    padded = np.pad(codes, widths, constant_values=_GAP)
    length = codes.shape[axis] * padded.shape[axis + 1] - gap  # the last one needs none
    joined = padded.reshape(*codes.shape[:axis], -1, *codes.shape[axis + 2 :])
    return joined.take(range(length), axis)


def _starts(num_groups: int, num_members: int, size: int, gap: int) -> np.ndarray:
    """First pixel of each member, (group, member)."""
    pitch = num_members * size + (num_members - 1) * _THIN + gap
    return np.arange(num_groups)[:, None] * pitch + np.arange(num_members) * (size + _THIN)
