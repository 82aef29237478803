"""Arrays of any real type as float32, refused where the values or their differences would be lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from discrete_vae.errors import InvalidInputError

_BLOCK = 1 << 22  # values that are looked at together
_LARGEST_WHOLE = 2**24  # up to which float32 holds every whole number
_RESOLUTION = 1e-3  # largest rounding error, as a share of a feature's range
_SMALLEST, _LARGEST = 1e-30, 1e30  # magnitudes of values in the wrong byte order lie beyond


def as_float32(name: str, array: np.ndarray, columns: Sequence[str] = ()) -> np.ndarray:
    """Convert values to float32, row by row of the examples.

    Args:
        name: What messages call the array.
        array: (example, ...), booleans, integers or real numbers; NaN marks missing values.
        columns: Names of the features, for messages.

    Returns:
        (example, feature) float32.

    Raises:
        InvalidInputError: If the array holds something else; if it holds whole numbers throughout and one of them is
            not the same in float32; if a value is too large for float32, or the rounding exceeds a thousandth of its
            feature's range; or if the values make sense in the other byte order alone.

    Examples:
        >>> as_float32("x", np.array([[1, 2], [3, 2**24]])).dtype
        dtype('float32')
        >>> as_float32("x", np.array([[1, 2], [3, 2**24 + 1]]))
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: x must hold whole numbers of at most 16,777,216, beyond which float32
        rounds; received 16777217 (feature 1). Give smaller units, or subtract an offset.
    """
    if array.dtype.kind not in "buif":
        repair = "Convert it with .astype(float)."
        raise InvalidInputError(name, "must hold booleans or real numbers", f"dtype {array.dtype}", repair)
    _check_byte_order(name, array)
    rows = array.reshape(len(array), -1)
    result = np.empty(rows.shape, np.float32)
    num_features = rows.shape[1]
    exact = array.dtype.itemsize < 4 or array.dtype == np.float32
    low, high = np.full(num_features, np.inf), np.full(num_features, -np.inf)
    error, whole = np.zeros(num_features), array.dtype.kind != "f"
    step = max(1, _BLOCK // num_features)
    for first in range(0, len(rows), step):
        block, into = rows[first : first + step], result[first : first + step]
        with np.errstate(over="ignore", invalid="ignore"):
            into[:] = block
            if exact:
                continue
            wide = block.astype(np.float64)
            _check_range(name, wide, into, columns)
            error = np.fmax(error, np.fmax.reduce(np.abs(into - wide), 0))  # infinities differ by NaN
            low, high = np.fmin(low, np.fmin.reduce(wide, 0)), np.fmax(high, np.fmax.reduce(wide, 0))
    if exact or not error.any():
        return result
    whole = whole or all(
        bool((part == np.trunc(part))[np.isfinite(part)].all())
        for part in (rows[first : first + step] for first in range(0, len(rows), step))
    )
    worst = int(error.argmax())
    if whole and error[worst] > 0:
        column = rows[:, worst]
        value = column[np.nanargmax(np.abs(column.astype(np.float64) - result[:, worst]))]
        rule = f"must hold whole numbers of at most {_LARGEST_WHOLE:,}, beyond which float32 rounds"
        repair = "Give smaller units, or subtract an offset."
        raise InvalidInputError(name, rule, f"{value:.0f} ({_feature(worst, columns)})", repair)
    span = high - low
    lost = np.flatnonzero((span > 0) & (error > _RESOLUTION * span))
    if len(lost):
        worst = int(lost[0])
        rule = "must hold values whose differences float32 keeps"
        received = f"{_feature(worst, columns)} from {low[worst]:.12g} to {high[worst]:.12g}"
        raise InvalidInputError(name, rule, received, "Subtract an offset from this feature.")
    return result


def _check_range(name: str, wide: np.ndarray, narrow: np.ndarray, columns: Sequence[str]) -> None:
    lost = np.isinf(narrow) & np.isfinite(wide)
    if lost.any():
        row, feature = (int(place[0]) for place in np.nonzero(lost))
        received = f"{wide[row, feature]:g} ({_feature(feature, columns)})"
        raise InvalidInputError(name, "must hold values that float32 can hold", received, "Scale the values.")


def _check_byte_order(name: str, array: np.ndarray) -> None:
    """Refuse values that are odd as they stand and plain in the other byte order: a changed letter of the header."""
    if array.dtype.itemsize == 1 or array.size == 0:
        return
    with np.errstate(invalid="ignore"):
        if _is_plain(array) or not _is_plain(array.view(array.dtype.newbyteorder())):
            return
    received = "values that are plain in the other byte order alone"
    repair = "The file is damaged: copy it again, or write it with numpy.save."
    raise InvalidInputError(name, "must hold values in the byte order of its header", received, repair)


def _is_plain(array: np.ndarray) -> bool:
    """Real values: of magnitudes that are met; integers: small, which in the wrong order no one is but 0."""
    if array.dtype.kind == "f":
        size = np.abs(array[np.isfinite(array)])
        least = max(_SMALLEST, float(np.finfo(array.dtype).tiny))
        return not bool(
            (((size > 0) & (size < least)) | (size > min(_LARGEST, float(np.finfo(array.dtype).max)))).any()
        )
    most = 1 if array.dtype.itemsize == 2 else 255  # 16-bit intensities may well be multiples of 256
    return -most <= int(array.min()) and int(array.max()) <= most


def _feature(index: int, columns: Sequence[str]) -> str:
    return f"column {columns[index]!r}" if columns else f"feature {index}"
