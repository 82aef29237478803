"""The simplified models of the supplement: static MNIST, binary latents alone."""

from __future__ import annotations

from statistics import fmean

from reproduction.drawings import OURS, PAPER, Series, draw_rows
from reproduction.estimates import mean_limit, mean_log_likelihood, paired_difference
from reproduction.notes import notes_of
from reproduction.paper_values import SIMPLIFIED, SUPPLEMENT
from reproduction.planned_run import PlannedRun
from reproduction.table import Cell, Column, ResultTable, Value
from reproduction.wanted import Made, Reproduction, Result, Wanted

_COLUMNS = (
    Column("model", "experiment"),
    Column("ours", "log_likelihood"),
    Column("paper", "paper"),
    Column("ours less paper", "difference", signed=True),
    Column("gap to the row above", "gap", signed=True),
    Column("paper's gap", "paper_gap", signed=True),
    Column("sharp limit", "log_likelihood_limit"),
    Column("ELBO", "elbo"),
    Column("last doubling", "doubling_gain"),
)
_WORDS = {
    "mnist-static-factorial": "200 independent units, factorial posterior, linear decoder",
    "mnist-static-factorial-prior": "200 independent units, linear decoder",
    "mnist-static-rbm128-linear": "RBM 128, linear decoder",
    "mnist-static-rbm200-linear": "RBM 200, linear decoder",
    "mnist-static-rbm128": "RBM 128, deep decoder",
    "mnist-static-rbm200": "RBM 200, deep decoder",
}


def _plan(wanted: Wanted) -> list[PlannedRun]:
    return [wanted.run(name, seed) for seed in wanted.seeds for name in SIMPLIFIED]


def _make(wanted: Wanted, made: Made) -> Result:
    found = {name: made.of([wanted.run(name, seed) for seed in wanted.seeds]) for name in SIMPLIFIED}
    rows: list[tuple[Cell, ...]] = []
    before: str | None = None
    for name, runs in found.items():
        ours, paper = mean_log_likelihood(runs), SIMPLIFIED[name]
        elbo = fmean(run.record.elbo for run in runs)
        doubling = max(run.record.doubling_gain for run in runs)
        gap = None if before is None else paired_difference(found[before], runs)
        papers_gap = None if before is None else paper - SIMPLIFIED[before]
        difference = Value(ours.value - paper, ours.std_error)
        rows.append((name, ours, paper, difference, gap, papers_gap, mean_limit(runs), elbo, doubling))
        before = name
    ours = [mean_log_likelihood(runs) for runs in found.values()]
    picture = draw_rows(
        [_WORDS[name] for name in found],
        [
            Series("ours, with standard error", OURS, [v.value for v in ours], [v.std_error for v in ours]),
            Series("paper", PAPER, list(SIMPLIFIED.values())),
        ],
        title=f"Simplified models, static MNIST, {wanted.in_words}",
        xlabel="test log-likelihood (nats)",
    )
    notes = [
        f"The paper's values: {SUPPLEMENT}, which gives neither widths nor lengths. Gaps are paired by test image.",
        *notes_of(list(made.runs.values())),
    ]
    title = "Simplified models: test log-likelihood on static MNIST, nats per example"
    return Result(title, notes, ResultTable(_COLUMNS, tuple(rows)), picture)


SIMPLIFIED_REPRODUCTION = Reproduction(_make, _plan)
