"""Draw rbm-samples.png: digits, samples of an RBM that is trained on them, and digits that it completes.

The blocks of docs/train-an-rbm.md make it, up to the one that completes digits. Run it from anywhere:
python docs/images/rbm_samples.py
"""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import torch

from discrete_vae.figures import save_figure
from discrete_vae.figures.style import VERMILION, Picture

PAGE = Path(__file__).parents[1] / "train-an-rbm.md"
LAST = "completed ="
ROWS = ("training\nimages", "samples of\nthe RBM", "test\nimages", "lower half\ncompleted")
COLUMNS = 10


def draw(path: Path) -> None:
    """Write the picture to a file."""
    rows = _rows()
    figure = Picture((7.6, 3.1), layout="constrained")
    grid = figure.subplots(len(ROWS), COLUMNS)
    for label, images, line in zip(ROWS, rows, grid, strict=True):
        for image, axes in zip(images, line, strict=True):
            axes.imshow(image.view(8, 8).numpy(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("0.7")
            if label == ROWS[-1]:
                axes.axhline(3.5, color=VERMILION, linewidth=1.2)
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
    save_figure(figure, path)


def _rows() -> list[torch.Tensor]:
    """The images of each row, (image, pixel), made by the page's blocks."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, str(PAGE), "exec"), names)
        if LAST in block:
            break
    digits, places = names["digits"], slice(0, COLUMNS)
    ink = torch.bernoulli(digits.train[places], generator=torch.Generator().manual_seed(0))
    samples = names["images"][:: len(names["images"]) // COLUMNS][places].reshape(COLUMNS, 64)
    return [ink, samples, names["start"][places, :64], names["completed"][places, :64]]


if __name__ == "__main__":
    draw(Path(__file__).with_name("rbm-samples.png"))
