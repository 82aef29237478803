"""Draw diagnose.png: the course of a healthy run on digits beside that of two sick ones.

From the table diagnose.csv: python docs/images/diagnose.py
Anew from runs, which are trained first, some seconds each: python docs/images/diagnose.py FOLDER
"""

import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt

from discrete_vae import load_dataset
from discrete_vae.cli import main
from discrete_vae.figures import save_figure, training_curves_table
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
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"


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
    """Write the picture of the table as a PNG file."""
    with TABLE.open() as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]

    def curve(run: str, quantity: str) -> tuple[list[int], list[float]]:
        found = [row for row in rows if row[:2] == (run, quantity)]
        return [int(row[2]) for row in found], [float(row[3]) for row in found]

    shape = {"height_ratios": (2, 1), "layout": "constrained", "sharey": "row"}
    figure, axes = plt.subplots(2, len(RUNS), figsize=(9.6, 4.6), **shape)
    for (upper, lower), name in zip(axes.T, RUNS, strict=True):
        upper.plot(*curve(name, "elbo"), color=BLUE, label="training")
        upper.plot(*curve(name, "validation_elbo"), "o--", color=VERMILION, markersize=3, label="validation")
        (baseline,) = curve(name, BASELINE)[1]
        upper.axhline(baseline, color="0.4", linewidth=0.8, linestyle=":", label=BASELINE)
        upper.set(title=name, ylim=(-30, -22), xticklabels=[])
        lower.plot(*curve(name, "kl_discrete"), color=GREEN)
        lower.set(xlabel="step", ylim=(0, 9))
        for each in (upper, lower):
            each.grid(color="0.9")
            each.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("ELBO (nats)")
    axes[1, 0].set_ylabel("KL (nats)")
    axes[0, 0].legend(loc="lower right", frameon=False, fontsize="small")
    save_figure(figure, path)
    plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with TABLE.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *measure(Path(sys.argv[1]))])
    draw(Path(__file__).with_name("diagnose.png"))
