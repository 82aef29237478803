"""The four runs that most tables and figures share: one per data set, and the same without the RBM."""

from __future__ import annotations

from discrete_vae.reproduction.paper_values import MAIN_EXPERIMENTS
from discrete_vae.reproduction.planned_run import PlannedRun
from discrete_vae.reproduction.wanted import Wanted

WITHOUT_RBM = {"model.prior": ["factorial"]}


def main_runs(wanted: Wanted) -> list[PlannedRun]:
    """The runs of the four data sets, seed after seed."""
    return [wanted.run(name, seed) for seed in wanted.seeds for name in MAIN_EXPERIMENTS]


def main_runs_of(name: str, wanted: Wanted, *, with_rbm: bool = True) -> list[PlannedRun]:
    """The runs of one data set, a seed each."""
    return [wanted.run(name, seed, None if with_rbm else WITHOUT_RBM) for seed in wanted.seeds]
