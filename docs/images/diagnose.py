"""Draw diagnose.png: the course of a healthy run on digits beside that of two sick ones.

Trains what is not there yet, some seconds each: python docs/images/diagnose.py FOLDER
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from discrete_vae import load_dataset
from discrete_vae.cli import main
from discrete_vae.figures import save_figure, training_curves_table
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.run import validation_baseline

RUNS = {
    "healthy": ("Healthy", ()),
    "overfit": (
        "Overfitting: 100 training examples",
        ("--training.num-examples", "100", "--training.batch-size", "50", "--training.num-epochs", "1200"),
    ),
    "large": ("Steps too large", ("--training.optimizer.learning-rate", "1")),
}
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"


def draw(folder: Path, path: Path) -> None:
    """Write the picture as a PNG file."""
    figure, axes = plt.subplots(
        2, 3, figsize=(9.6, 4.6), height_ratios=(2, 1), layout="constrained", sharey="row"
    )
    for column, (name, (title, settings)) in zip(axes.T, RUNS.items(), strict=True):
        if not (folder / name).exists():
            main(["train", "digits", "--run-dir", str(folder / name), *settings])
        run = RunDirectory.open(folder / name)
        curves = training_curves_table(run.metrics().read())
        config = run.read_experiment()
        baseline = validation_baseline(config, load_dataset("digits")).value
        upper, lower = column
        upper.plot(curves.elbo.step, curves.elbo.value, color=BLUE, label="training")
        upper.plot(
            curves.validation_elbo.step,
            curves.validation_elbo.value,
            "o--",
            color=VERMILION,
            markersize=3,
            label="validation",
        )
        upper.axhline(baseline, color="0.4", linewidth=0.8, linestyle=":", label="independent features")
        upper.set(title=title, ylim=(-30, -22), xticklabels=[])
        lower.plot(curves.kl_discrete.step, curves.kl_discrete.value, color=GREEN)
        lower.set(xlabel="step", ylim=(0, 9))
        for each in column:
            each.grid(color="0.9")
            each.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("ELBO (nats)")
    axes[1, 0].set_ylabel("KL (nats)")
    axes[0, 0].legend(loc="lower right", frameon=False, fontsize="small")
    save_figure(figure, path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(__file__).with_name("diagnose.png"))
