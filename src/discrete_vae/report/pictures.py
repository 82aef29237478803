"""Grids of examples as small PNG pictures that show on light and on dark paper."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from discrete_vae.report.html import Markup, element

# Okabe and Ito's colors: told apart with any color vision.
_BLUE, _VERMILION = (0, 114, 178), (213, 94, 0)
_MISSING = 255  # of the palette: what has no value
_TINT = (150, 170, 200, 110)
INK = np.array([(0, 0, 0, level * 255 // 254) for level in range(255)] + [_TINT], np.uint8)
"""From clear to black; the style sheet turns it to white on dark paper."""
SIGNED = np.array(
    [(*(_BLUE if level > 127 else _VERMILION), abs(level - 127) * 255 // 127) for level in range(255)]
    + [_TINT],
    np.uint8,
)
"""From vermilion, for -1, over clear to blue, for 1."""


def ink_levels(values: np.ndarray) -> np.ndarray:
    """Levels of `INK` for ink in [0, 1]; NaN is what has no value."""
    return _levels(254 * np.clip(values, 0, 1), values)


def signed_levels(values: np.ndarray, most: float) -> np.ndarray:
    """Levels of `SIGNED` for values in [-most, most]; NaN is what has no value."""
    scaled = np.clip(values / most if most > 0 else 0 * values, -1, 1)
    return _levels(127 + 127 * scaled, values)


def grid(levels: np.ndarray, *, blank: int) -> np.ndarray:
    """Images in rows and columns as one, with gaps of a fourteenth of their height.

    Args:
        levels: (row, column, height, width) uint8.
        blank: The level between them, of no color.

    Examples:
        >>> grid(np.ones((2, 3, 4, 4), np.uint8), blank=0).shape
        (9, 14)
    """
    rows, columns, height, width = levels.shape
    gap = max(1, height // 14)
    padded = np.full((rows, columns, height + gap, width + gap), blank, np.uint8)
    padded[:, :, :height, :width] = levels
    joined = padded.transpose(0, 2, 1, 3).reshape(rows * (height + gap), columns * (width + gap))
    return joined[: joined.shape[0] - gap, : joined.shape[1] - gap]


def png(levels: np.ndarray, palette: np.ndarray) -> bytes:
    r"""A PNG file of levels of a palette with opacity.

    Args:
        levels: (height, width) uint8.
        palette: (level, 4) uint8, red, green, blue and opacity.

    Examples:
        >>> png(np.zeros((2, 3), np.uint8), INK)[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    height, width = levels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), levels], 1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [
        (b"IHDR", head),
        (b"PLTE", palette[:, :3].tobytes()),
        (b"tRNS", palette[:, 3].tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def image(levels: np.ndarray, palette: np.ndarray, *, alt: str, zoom: int = 3, class_: str = "") -> Markup:
    """An element that shows levels, each as a square of `zoom` pixels where there is room."""
    source = "data:image/png;base64," + base64.b64encode(png(levels, palette)).decode()
    height, width = levels.shape
    kind = "ink" if palette is INK else "signed"
    return element(
        "img",
        src=source,
        alt=alt,
        width=width * zoom,
        height=height * zoom,
        class_=f"{kind} {class_}".strip(),
    )


def ink_scale(words: str = "0 to 1") -> Markup:
    """The scale of ink, which turns with the paper."""
    return element(
        "span", element("span", class_="ramp ink", aria_hidden="true"), f" {words}", class_="scale"
    )


def signed_scale(most: float) -> Markup:
    """The scale of signed changes."""
    sign = "\N{MINUS SIGN}"
    ramp = element("span", class_="ramp diverging", aria_hidden="true")
    return element("span", f"{sign}{most:.2g} ", ramp, f" +{most:.2g}", class_="scale")


def _levels(scaled: np.ndarray, values: np.ndarray) -> np.ndarray:
    missing = np.isnan(values)
    return np.where(missing, _MISSING, np.rint(np.where(missing, 0, scaled))).astype(np.uint8)
