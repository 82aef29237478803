"""The picture of the block-Gibbs benchmark."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from contest import Case, Result
from growth import updates

OURS_COLOR, OTHER_COLOR = "#1f5fa8", "#9aa5b1"


def draw(
    path: Path,
    contest: dict[str, Result],
    units: list[Case],
    ours: dict[int, list[float]],
    floor: dict[int, list[float]],
) -> None:
    """Bars of the contest on the left, speed against size on the right."""
    figure, (bars, lines) = plt.subplots(
        1, 2, figsize=(10, 3.8), layout="constrained", width_ratios=[1.25, 1]
    )
    shown = sorted((r for r in contest.values() if r.failure is None), key=lambda result: result.best)
    colors = [OURS_COLOR if result.name == "discrete-vae" else OTHER_COLOR for result in shown]
    drawn = bars.barh([result.name for result in shown], [result.best for result in shown], color=colors)
    bars.bar_label(drawn, [f" {result.best:.1e}" for result in shown], fontsize=8)
    bars.set_xscale("log")
    bars.set_xlim(right=max(result.best for result in shown) * 12)
    bars.set_xlabel("spin updates per second, 64 + 64 units, 2000 chains")
    sizes = [case.num_left for case in units]
    for best, color, name in ((ours, OURS_COLOR, "discrete-vae"), (floor, OTHER_COLOR, "torch")):
        for count, style in zip(sorted(best), ("--", "-"), strict=False):
            speed = [updates(case) / seconds for case, seconds in zip(units, best[count], strict=True)]
            label = f"{name}, {count} thread{'s' * (count > 1)}"
            lines.plot(sizes, speed, style, marker="o", markersize=4, color=color, label=label)
    lines.set(xscale="log", yscale="log", xlabel="units on each side", ylabel="spin updates per second")
    lines.set_xticks(sizes, [str(size) for size in sizes])
    lines.minorticks_off()
    lines.legend(frameon=False, fontsize=8)
    for axes in (bars, lines):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
