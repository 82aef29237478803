"""Figures 5, 11, 12 and 13: samples of the main runs along the chains of their priors."""

from __future__ import annotations

from functools import partial

from discrete_vae.figures.run import make_evolution
from discrete_vae.figures.style import FigureRequest, FigureRun
from discrete_vae.load import load_run
from discrete_vae.runs.run_directory import RunDirectory
from reproduction.main_runs import main_runs_of
from reproduction.notes import notes_of
from reproduction.planned_run import PlannedRun
from reproduction.wanted import Made, Reproduction, Result, Wanted

_ROWS, _SMOKE_ROWS = 20, 3


def _plan(experiment: str, wanted: Wanted) -> list[PlannedRun]:
    return main_runs_of(experiment, wanted)[:1]


def _make(number: int, experiment: str, wanted: Wanted, made: Made) -> Result:
    (planned,) = _plan(experiment, wanted)
    folder = RunDirectory(made.places.runs / planned.name)
    run = FigureRun(
        folder, partial(load_run, folder, device=made.places.device), data_dir=made.places.data_dir
    )
    num_rows = _SMOKE_ROWS if wanted.size == "smoke" else _ROWS
    drawing = make_evolution(FigureRequest((run,)), num_rows=num_rows)
    notes = [
        "Chains start where training left them and take 100 sweeps from row to row; the five images of a group share "
        "one state of the RBM and differ in their continuous layers, as in the paper.",
        *notes_of(made.of([planned])),
    ]
    return Result(f"Figure {number}: samples along the chains, {experiment}", notes, picture=drawing.picture)


def _reproduction(number: int, experiment: str) -> Reproduction:
    return Reproduction(
        partial(_make, number, experiment), partial(_plan, experiment), lambda planned, places: True
    )


FIGURE_5 = _reproduction(5, "mnist-dynamic")
FIGURE_11 = _reproduction(11, "mnist-static")
FIGURE_12 = _reproduction(12, "omniglot")
FIGURE_13 = _reproduction(13, "caltech101-silhouettes")
