"""Draw diagnose.svg: the course of a healthy run on digits beside that of two sick ones.

From the table diagnose.csv: python docs/images/diagnose.py
Anew from runs, which are trained first, some seconds each: python docs/images/diagnose.py FOLDER
"""

import csv
import sys
from pathlib import Path

from discrete_vae import load_dataset
from discrete_vae.cli import main
from discrete_vae.figures import save_figure, training_curves_table
from discrete_vae.figures.style import BLUE, GREEN, VERMILION, Picture, tidy
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.run import validation_baseline

RUNS = {
    "Healthy": (),
    "Overfitting: 100 training examples": (
        *("--training.num-examples", "100"),
        *("--training.batch-size", "50"),
        *("--training.num-epochs", "1200"),
    ),
    "Steps too large": ("--training.optimizer.learning-rate", "1"),
}
TABLE = Path(__file__).with_name("diagnose.csv")
BASELINE, COLUMNS = "independent features", ("run", "quantity", "step", "nats")
LOWEST = -34  # nats, where the axis of the bounds begins
ARROW = {"arrowstyle": "->", "color": BLUE, "linewidth": 0.8}


def measure(folder: Path) -> list[tuple[str, str, int, float]]:
    """A row per run, quantity and step, of runs in a folder."""
    rows = []
    for number, (name, settings) in enumerate(RUNS.items()):
        if not (folder / str(number)).exists():
            main(["train", "digits", "--run-dir", str(folder / str(number)), *settings])
        run = RunDirectory.open(folder / str(number))
        curves = training_curves_table(run.metrics().read())
        for quantity in ("elbo", "validation_elbo", "kl_discrete"):
            curve = getattr(curves, quantity)
            values = zip(curve.step, curve.value, strict=True)
            rows += [(name, quantity, int(step), round(float(value), 4)) for step, value in values]
        baseline = validation_baseline(run.read_experiment(), load_dataset("digits"))
        rows.append((name, BASELINE, 0, round(baseline.value, 4)))
    return rows


def draw(path: Path) -> None:
    """Write the picture of the table to a file."""
    with TABLE.open() as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]

    def curve(run: str, quantity: str) -> tuple[list[int], list[float]]:
        found = [row for row in rows if row[:2] == (run, quantity)]
        return [int(row[2]) for row in found], [float(row[3]) for row in found]

    figure = Picture((7.6, 4.4), layout="constrained")
    axes = figure.subplots(2, len(RUNS), height_ratios=(2, 1), sharey="row", sharex=True)
    for (upper, lower), name in zip(axes.T, RUNS, strict=True):
        steps, bounds = curve(name, "elbo")
        upper.plot(steps, bounds, color=BLUE)
        upper.plot(*curve(name, "validation_elbo"), "o--", color=VERMILION, markersize=3)
        (baseline,) = curve(name, BASELINE)[1]
        upper.axhline(baseline, color="0.4", linewidth=1, linestyle=":")
        if bounds[0] < LOWEST:
            text = f"training starts\nat \N{MINUS SIGN}{-bounds[0]:.0f} nats"
            upper.annotate(text, (150, LOWEST), (420, LOWEST + 0.6), color=BLUE, fontsize=8, arrowprops=ARROW)
        upper.set_title(name.replace(": ", ":\n"), fontsize=9.5)
        upper.set(ylim=(LOWEST, -22))
        lower.plot(*curve(name, "kl_discrete"), color=GREEN)
        lower.set(ylim=(0, 10))
        lower.set_xlabel("training step", fontsize=9)
        for each in (upper, lower):
            tidy(each)
    first = axes[0, 0]
    for x, y, text, color in (
        (1300, -23.1, "training", BLUE),
        (750, -25.6, "validation", VERMILION),
        (600, -27.9, "independent columns", "0.35"),
    ):
        first.text(x, y, text, color=color, fontsize=8.5)
    first.set_ylabel("ELBO (nats)", fontsize=9)
    axes[1, 0].set_ylabel("KL of the binary\nlatents (nats)", fontsize=9)
    save_figure(figure, path)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with TABLE.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *measure(Path(sys.argv[1]))])
    draw(Path(__file__).with_name("diagnose.svg"))
