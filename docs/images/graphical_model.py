"""Draw graphical-model.svg: posterior and generative model with binary and continuous latents.

Source: Rolfe 2017, fig. full-graphical-model. Run it from anywhere: python docs/images/graphical_model.py
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from discrete_vae.figures import save_figure
from discrete_vae.figures.style import BLUE, VERMILION, Picture

DISCRETE, CONTINUOUS, DATA = BLUE, VERMILION, "0.25"
RADIUS = 0.3
LATENTS = {
    "z": (0.0, 1.2, "$z$", DISCRETE),
    "zeta": (0.0, 0.0, r"$\zeta$", DISCRETE),
    "h1": (1.6, 0.0, "$h_1$", CONTINUOUS),
    "h2": (2.9, 0.0, "$h_2$", CONTINUOUS),
    "h3": (4.2, 0.0, "$h_3$", CONTINUOUS),
}
# (from, to, bend)
CHAIN = [
    ("z", "zeta", 0.0),
    ("zeta", "h1", 0.0),
    ("zeta", "h2", 0.38),
    ("zeta", "h3", 0.42),
    ("h1", "h2", 0.0),
    ("h1", "h3", 0.42),
    ("h2", "h3", 0.0),
]


def draw(path: Path) -> None:
    """Write the picture to a file."""
    figure = Picture((7.6, 3.15), layout="constrained")
    left, right = figure.subplots(1, 2)
    _panel(
        left,
        r"approximating posterior  $q(z, \zeta, h \mid x)$",
        (2.1, 2.6),
        [*CHAIN, ("x", "z", 0.0), ("x", "h1", 0.0), ("x", "h2", 0.0), ("x", "h3", 0.0)],
    )
    _panel(
        right,
        r"generative model  $p(z)\, r(\zeta \mid z)\, p(h \mid \zeta)\, p(x \mid \zeta, h)$",
        (2.1, -1.9),
        [*CHAIN, ("zeta", "x", 0.0), ("h1", "x", 0.0), ("h2", "x", 0.0), ("h3", "x", 0.0)],
    )
    binary = {"ha": "left", "va": "bottom", "color": DISCRETE, "fontsize": 9}
    left.text(-0.6, 1.9, "binary,\n$k$ groups", **binary)
    right.text(-0.6, 1.9, "Boltzmann machine, smoothed", **binary)
    for axes, x, y in ((left, 3.4, 1.5), (right, 3.4, -1.5)):
        axes.text(x, y, "Gaussian\nlayers", ha="left", va="center", color=CONTINUOUS, fontsize=9)
    save_figure(figure, path)


def _panel(
    axes: Axes, title: str, place_of_x: tuple[float, float], edges: list[tuple[str, str, float]]
) -> None:
    nodes = LATENTS | {"x": (*place_of_x, "$x$", DATA)}
    box = FancyBboxPatch(
        (-0.5, -0.5), 1.0, 2.2, boxstyle="round,pad=0.12", facecolor="0.93", edgecolor="none"
    )
    axes.add_patch(box)
    circles = {}
    for name, (x, y, label, color) in nodes.items():
        fill = "0.85" if name == "x" else "white"
        circles[name] = Circle((x, y), RADIUS, facecolor=fill, edgecolor=color, linewidth=1.6, zorder=3)
        axes.add_patch(circles[name])
        axes.text(x, y, label, ha="center", va="center", fontsize=13, zorder=4)
    up = place_of_x[1] < 0  # bends keep clear of the arrows from or to x
    for start, end, bend in edges:
        arrow = FancyArrowPatch(
            nodes[start][:2],
            nodes[end][:2],
            connectionstyle=f"arc3,rad={-bend if up else bend}",
            arrowstyle="-|>",
            mutation_scale=11,
            color="0.35",
            linewidth=1.1,
            patchA=circles[start],
            patchB=circles[end],
            shrinkA=0,
            shrinkB=1,
            zorder=2,
        )
        axes.add_patch(arrow)
    axes.set_title(title, fontsize=9.5)
    axes.set(xlim=(-0.75, 5.0), ylim=(-2.3, 2.3) if up else (-1.5, 3.1), aspect="equal")
    axes.axis("off")


if __name__ == "__main__":
    draw(Path(__file__).with_name("graphical-model.svg"))
