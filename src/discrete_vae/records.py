"""How records with tensors print: the shapes, not the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

_LONGEST = 80  # characters of one value


class ShowsShapes:
    """Gives a dataclass, declared with ``repr=False``, a repr of one line that holds no tensor.

    Examples:
        >>> import torch
        >>> from dataclasses import dataclass
        >>> @dataclass(repr=False)
        ... class Draw(ShowsShapes):
        ...     z: torch.Tensor
        ...     step: int
        >>> Draw(torch.zeros(100, 64), 3)
        Draw(z=<float32 (100, 64)>, step=3)
    """

    def __repr__(self) -> str:
        values = (f"{field.name}={_shown(getattr(self, field.name))}" for field in fields(self))  # pyright: ignore[reportArgumentType]
        return f"{type(self).__name__}({', '.join(values)})"


def _shown(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"<{str(dtype).removeprefix('torch.')} {tuple(shape)}>"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_shown(each)}' for key, each in value.items())}}}"
    text = repr(value)
    return text if len(text) <= _LONGEST and "\n" not in text else f"<{type(value).__name__}>"
