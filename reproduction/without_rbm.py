"""What removing the RBM does: the main runs beside the same with independent binary latents."""

from __future__ import annotations

from reproduction.drawings import OURS, PAPER, Series, draw_rows
from reproduction.estimates import mean_log_likelihood, paired_difference
from reproduction.notes import notes_of
from reproduction.paper_values import MAIN_EXPERIMENTS, MAIN_RESULTS, RESULTS
from reproduction.planned_run import PlannedRun
from reproduction.scales import NARROW
from reproduction.table import Cell, Column, ResultTable, Value
from reproduction.wanted import Made, Reproduction, Result, Wanted

_COLUMNS = (
    Column("data set", "data_set"),
    Column("with RBM", "with_rbm"),
    Column("without", "without_rbm"),
    Column("without less with", "difference", signed=True),
    Column("paper's", "paper_difference", signed=True),
    Column("difference of the two", "difference_from_paper", signed=True),
)


_WITHOUT_RBM = {"model.prior": ["factorial"]}
_ELSE = {True: " and nothing else changed", False: ""}  # with a budget their epochs differ


def _runs_of(name: str, wanted: Wanted, *, with_rbm: bool) -> list[PlannedRun]:
    """The runs of one data set, a seed each; those with RBM are the main runs, but in size short narrower."""
    scale = NARROW[name] if wanted.size == "short" else None
    return [wanted.run(name, seed, None if with_rbm else _WITHOUT_RBM, scale) for seed in wanted.seeds]


def _plan(wanted: Wanted) -> list[PlannedRun]:
    pairs = [
        (_runs_of(name, wanted, with_rbm=True)[seed], _runs_of(name, wanted, with_rbm=False)[seed])
        for seed in wanted.seeds
        for name in MAIN_EXPERIMENTS
    ]
    return [run for pair in pairs for run in pair]


def _make(wanted: Wanted, made: Made) -> Result:
    rows: list[tuple[Cell, ...]] = []
    ours: list[Value] = []
    for name in MAIN_EXPERIMENTS:
        with_rbm = made.of(_runs_of(name, wanted, with_rbm=True))
        without = made.of(_runs_of(name, wanted, with_rbm=False))
        found, paper = paired_difference(with_rbm, without), -MAIN_RESULTS[name].without_rbm
        ours.append(found)
        rows.append(
            (
                name,
                mean_log_likelihood(with_rbm),
                mean_log_likelihood(without),
                found,
                paper,
                Value(found.value - paper, found.std_error),
            )
        )
    picture = draw_rows(
        list(MAIN_EXPERIMENTS),
        [
            Series("ours, with standard error", OURS, [v.value for v in ours], [v.std_error for v in ours]),
            Series("paper", PAPER, [-MAIN_RESULTS[name].without_rbm for name in MAIN_EXPERIMENTS]),
        ],
        title=f"Without the RBM, {wanted.in_words}",
        xlabel="test log-likelihood without the RBM less that with it (nats)",
    )
    notes = [
        f"The runs without RBM have --model.prior factorial{_ELSE[wanted.budget is None]}. The paper's values: "
        f"{RESULTS}.",
        *notes_of(list(made.runs.values())),
    ]
    return Result(
        "Without the RBM: test log-likelihood, nats per example",
        notes,
        ResultTable(_COLUMNS, tuple(rows)),
        picture,
    )


WITHOUT_RBM_REPRODUCTION = Reproduction(_make, _plan)
