"""Draw graphical-model.png: posterior and generative model with binary and continuous latents.

Source: Rolfe 2017, fig. full-graphical-model. Run it from anywhere: python docs/images/graphical_model.py
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

# Okabe and Ito's blue and vermilion, told apart with any color vision.
DISCRETE, CONTINUOUS, DATA = "#0072B2", "#D55E00", "0.25"
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
    """Write the picture as a PNG file."""
    figure = Figure(figsize=(9.6, 3.1), layout="constrained")
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
    left.text(-0.95, 0.6, "binary,\n$k$ groups", ha="right", va="center", color=DISCRETE, fontsize=9)
    right.text(
        -0.95, 0.6, "Boltzmann\nmachine,\nsmoothed", ha="right", va="center", color=DISCRETE, fontsize=9
    )
    for axes in (left, right):
        axes.text(4.65, 0.0, "Gaussian", ha="left", va="center", color=CONTINUOUS, fontsize=9)
    figure.savefig(path, dpi=150, metadata={"Software": None})


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
    axes.set_title(title, fontsize=11)
    axes.set(xlim=(-2.3, 5.9), ylim=(-2.4, 1.9) if up else (-1.2, 3.1), aspect="equal")
    axes.axis("off")


if __name__ == "__main__":
    draw(Path(__file__).with_name("graphical-model.png"))
