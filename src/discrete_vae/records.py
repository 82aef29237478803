"""Printed and notebook forms of records: numbers with their errors, and of tensors the shapes."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

_LONGEST = 80  # characters of one value


class ShowsTable:
    """Lets a notebook show a dataclass as a small table, a value beside its standard error.

    The error of a field ``NAME`` is the field ``NAME_std_error``, that of ``value`` is ``std_error``. Records inside a
    record have their rows below its name.
    """

    def _repr_html_(self) -> str:
        style = ' style="text-align:left"'
        rows = "".join(
            f"<tr><th{style}>{html.escape(name)}</th><td{style}>{html.escape(text)}</td></tr>"
            for name, text in _rows(self)
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


class ShowsShapes:
    """Gives a dataclass, declared with ``repr=False``, a repr of one line that holds no tensor."""

    def __repr__(self) -> str:
        values = (f"{field.name}={_shown(getattr(self, field.name))}" for field in fields(self) if field.repr)  # pyright: ignore[reportArgumentType]
        return f"{type(self).__name__}({', '.join(values)})"


def digits_of(std_error: float, digits: int) -> int:
    """Digits behind the point, so many or as many more, up to six, as keep an error from being rounded to 0."""
    if 0 < std_error < math.inf:
        return min(6, max(digits, -math.floor(math.log10(std_error))))
    return digits


def with_error(value: float, std_error: float, digits: int, unit: str = "") -> str:
    """A value for a line of output with its standard error, which gets more digits where these would round it to 0.

    Without one where it is not known, as of one example.
    """
    digits = digits_of(std_error, digits)
    error = "" if math.isnan(std_error) else f" ± {std_error:.{digits}f}{unit}"
    return f"{value:.{digits}f}{unit}{error}"


def some(names: Sequence[str], most: int) -> str:
    """The first few of some names."""
    return ", ".join([*names[:most], *["..."] * (len(names) > most)])


def _rows(record: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values of a dataclass, those of records inside it with dotted names."""
    values = {field.name: getattr(record, field.name) for field in fields(record) if field.repr}  # pyright: ignore[reportArgumentType]
    errors = {name: "std_error" if name == "value" else f"{name}_std_error" for name in values}
    paired = {error for name, error in errors.items() if isinstance(values.get(error), float)}
    for name, value in values.items():
        if name in paired:
            continue
        if isinstance(value, ShowsTable):
            yield from _rows(value, f"{prefix}{name}.")
        elif isinstance(value, float):
            yield f"{prefix}{name}", _rounded(value, values.get(errors[name]))
        elif value is not None:
            yield f"{prefix}{name}", _shown(value)


def _rounded(value: float, std_error: object) -> str:
    """A value and its error, both rounded to the error's second digit."""
    if not isinstance(std_error, float) or not 0 < std_error < math.inf:
        return f"{value:.6g}" + (" (exact)" if std_error == 0 else "")
    digits = min(6, max(0, 1 - math.floor(math.log10(std_error))))
    return f"{value:.{digits}f} ± {std_error:.{digits}f}"


def _shown(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"<{str(dtype).removeprefix('torch.')} {tuple(shape)}>"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_shown(each)}' for key, each in value.items())}}}"
    text = repr(value)
    return text if len(text) <= _LONGEST and "\n" not in text else f"<{type(value).__name__}>"
