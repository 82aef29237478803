"""The four runs that most tables and figures share: one per data set."""

from __future__ import annotations

from reproduction.paper_values import MAIN_EXPERIMENTS
from reproduction.planned_run import PlannedRun
from reproduction.wanted import Wanted


def main_runs(wanted: Wanted) -> list[PlannedRun]:
    """The runs of the four data sets, seed after seed."""
    return [wanted.run(name, seed) for seed in wanted.seeds for name in MAIN_EXPERIMENTS]


def main_runs_of(name: str, wanted: Wanted) -> list[PlannedRun]:
    """The runs of one data set, a seed each."""
    return [wanted.run(name, seed) for seed in wanted.seeds]
