"""Matplotlib's figure without pyplot."""

from __future__ import annotations

import io
from typing import Literal

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that no pyplot knows of: making one switches no backend, and a notebook shows it all the same.

    Args:
        size: Width and height in inches.
        dpi: Dots per inch, in files and in notebooks.
        layout: As matplotlib's.
    """

    def __init__(
        self, size: tuple[float, float], *, dpi: float = 150, layout: Literal["constrained"] | None = None
    ) -> None:
        super().__init__(figsize=size, dpi=dpi, facecolor="white", layout=layout)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=self.dpi)
        return content.getvalue()
