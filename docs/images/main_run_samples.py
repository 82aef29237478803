"""The first rows of the samples of the four main runs, which the page of reproductions shows.

python docs/images/main_run_samples.py writes main-run-samples.png beside this file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.image import imread

from discrete_vae.figures.style import Picture, save_figure

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "reproduction" / "results"
SHOWN = {
    "dynamic MNIST": "figure-5-cpu.png",
    "static MNIST": "figure-11-cpu.png",
    "Omniglot": "figure-12-cpu.png",
    "Caltech-101 Silhouettes": "figure-13-cpu.png",
}
ROWS = 3
_GAP = np.array([205, 218, 234])  # the color between rows


def first_rows(path: Path) -> np.ndarray:
    """The first rows of a grid of samples without the text around it, (height, width, 3), 0 to 255."""
    canvas = np.rint(255 * imread(path)[..., :3])
    gap = (canvas == _GAP).all(-1)
    columns = np.flatnonzero(gap.any(0))
    left, right = columns[0], columns[-1] + 1
    between = gap[:, left:right].mean(1) > 0.9
    ends = np.flatnonzero(between & ~np.roll(between, 1))  # the first line below each row
    height = ends[1] - ends[0]
    return canvas[ends[0] - height + between[ends[0] : ends[1]].sum() : ends[ROWS - 1], left:right]


def draw(path: Path) -> None:
    """Write the picture."""
    grids = {name: first_rows(RESULTS / file) for name, file in SHOWN.items()}
    figure = Picture((7.2, 4.6), dpi=200, layout="constrained")
    for axes, (name, grid) in zip(figure.subplots(len(grids), 1), grids.items(), strict=True):
        axes.imshow(grid / 255)
        axes.set_axis_off()
        axes.set_title(name, fontsize=9, loc="left", pad=3)
    save_figure(figure, path)


if __name__ == "__main__":
    draw(HERE / "main-run-samples.png")
