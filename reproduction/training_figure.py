"""How the main runs trained: bounds against time, the gap between them, and how much more size paper computes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discrete_vae.config import ExperimentConfig
from discrete_vae.model import count_weights
from discrete_vae.presets import load_experiment
from discrete_vae.training.schedules import first_importance_step
from reproduction.drawings import tidy
from reproduction.main_runs import main_runs, main_runs_of
from reproduction.notes import notes_of
from reproduction.paper_values import MAIN_EXPERIMENTS, MAIN_RESULTS
from reproduction.record import StoredRun
from reproduction.table import Cell, Column, ResultTable, Value
from reproduction.wanted import Made, Reproduction, Result, Wanted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from discrete_vae.figures.style import Picture

_BLUE, _VERMILION = "#0072B2", "#D55E00"  # Okabe and Ito's: told apart with any color vision
_SHOWN_FROM = 0.05  # of a run; before, bounds rise by more than all that follows
_COLUMNS = (
    Column("data set", "data_set"),
    Column("minutes", "minutes", digits=0),
    Column("validation ELBO at half of them", "validation_elbo_half"),
    Column("at three quarters", "validation_elbo_three_quarters"),
    Column("at the end", "validation_elbo"),
    Column("training less validation ELBO", "gap", signed=True),
    Column("test log-likelihood", "log_likelihood"),
    Column("less the paper's", "difference", signed=True),
    Column("products of size paper", "work_of_paper", digits=0),
)


def _make(wanted: Wanted, made: Made) -> Result:
    runs = {name: made.of(main_runs_of(name, wanted))[0] for name in MAIN_EXPERIMENTS}
    rows: list[tuple[Cell, ...]] = []
    for name, run in runs.items():
        minutes, valid = _points(run, "validation_elbo")
        half, later = np.interp([0.5 * minutes[-1], 0.75 * minutes[-1]], minutes, valid)
        ours, error = run.record.log_likelihood.value, run.record.total_std_error
        rows.append(
            (
                name,
                run.record.seconds / 60,
                float(half),
                float(later),
                float(valid[-1]),
                _gap(run),
                Value(ours, error),
                Value(ours - MAIN_RESULTS[name].log_likelihood, error),
                _work(load_experiment(name, "paper")) / _work(run.record.config),
            )
        )
    notes = [
        "ELBOs in nats per example, with one sample per example; validation ELBOs between validations are "
        "interpolated, and a training ELBO is a mean over the steps of a line of the log. Where the picture has a "
        "dotted line, training counts the bound of several importance samples from there on, which lies above the "
        "ELBO; the difference of training and validation is that before it, of other runs that at the end. The last "
        "column says how many times the multiplications of ours size paper takes, counted as weights times training "
        "examples that pass through them; further importance samples are not counted.",
        *notes_of(list(runs.values())),
    ]
    return Result(
        "Training of the main runs: bounds against time",
        notes,
        ResultTable(_COLUMNS, tuple(rows)),
        _draw(runs, wanted),
    )


def _points(run: StoredRun, quantity: str) -> tuple[np.ndarray, np.ndarray]:
    """Minutes and values where the run's course has the quantity."""
    values = run.course[quantity]
    there = ~np.isnan(values)
    return run.course["seconds"][there] / 60, values[there]


def _gap(run: StoredRun) -> float:
    """Training less validation ELBO where training counts the ELBO for the last time; NaN if none is known by then."""
    first = first_importance_step(run.record.config.training, run.record.num_steps)
    counted = run.course["step"] <= (run.record.num_steps if first is None else first)
    last = []
    for quantity in ("elbo", "validation_elbo"):
        values = run.course[quantity]
        last.append(values[counted & ~np.isnan(values)][-1:])
    training, validation = last
    return float((training - validation)[0]) if training.size and validation.size else math.nan


def _work(config: ExperimentConfig) -> float:
    """Weights times training examples, up to a factor of the data set; what costs a run its time."""
    return float(count_weights(config.model)) * config.training.num_epochs


def _draw(runs: dict[str, StoredRun], wanted: Wanted) -> Picture:
    from discrete_vae.figures.style import Picture

    figure = Picture((7.2, 5.6), layout="constrained")
    figure.suptitle(f"Training of the main runs, {wanted.in_words}", fontsize=10, x=0.01, ha="left")
    panels = list(figure.subplots(2, 2, squeeze=False).flat)
    for axes, (name, run) in zip(panels, runs.items(), strict=True):
        _draw_run(axes, run)
        axes.set_title(name, fontsize=9, loc="left")
    for axes in panels[2:]:
        axes.set_xlabel("minutes of training")
    for axes in panels[::2]:
        axes.set_ylabel("ELBO (nats per example)")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    return figure


def _draw_run(axes: Axes, run: StoredRun) -> None:
    shown = []
    for quantity, color, label in (
        ("elbo", _BLUE, "training"),
        ("validation_elbo", _VERMILION, "validation"),
    ):
        minutes, values = _points(run, quantity)
        axes.plot(minutes, values, color=color, linewidth=1.3, label=label)
        shown.append(values[minutes >= _SHOWN_FROM * minutes[-1]])
    settings = run.record.config.training
    if settings.num_importance_samples > 1:
        steps, minutes = run.course["step"], run.course["seconds"] / 60
        start = float(np.interp(settings.importance_start * run.record.num_steps, steps, minutes))
        axes.axvline(
            start, color="0.45", linewidth=1.2, linestyle=":", label="importance samples from here on"
        )
    low, high = min(map(np.min, shown)), max(map(np.max, shown))
    margin = max(0.06 * (high - low), 0.5)
    axes.set(xlim=(0, None), ylim=(low - margin, high + margin))
    tidy(axes)


TRAINING_REPRODUCTION = Reproduction(_make, main_runs)
