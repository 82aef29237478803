"""Figure 10: repeated estimates of log Z of the four main runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.repeats import repeat_log_partition
from discrete_vae.figures.log_partition_histogram import (
    LogPartitionHistogram,
    draw_log_partition_histograms,
    log_partition_histogram_table,
)
from discrete_vae.log_partition.bennett import bennett_log_partition
from discrete_vae.reproduction.campaign import RECORDS, Places
from discrete_vae.reproduction.main_runs import main_runs
from discrete_vae.reproduction.notes import notes_of
from discrete_vae.reproduction.paper_values import LOG_PARTITION_SPREAD
from discrete_vae.reproduction.planned_run import PlannedRun
from discrete_vae.reproduction.table import Cell, Column, ResultTable, Value
from discrete_vae.reproduction.wanted import Made, Reproduction, Result, Wanted
from discrete_vae.runs.json_files import read_json, write_json
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.load import load_run

_REPEATS, _SMOKE_REPEATS = 50, 3
# nats, of one estimate; a third of it, as evaluations have it, takes ten times as long
_STD_ERROR = 0.01
_COLUMNS = (
    Column("data set", "data_set"),
    Column("mean of log Z", "mean", digits=4),
    Column("repeats", "repeats"),
    Column("their spread", "spread", digits=4),
    Column("stated error", "stated_error", digits=4),
    Column("largest less smallest", "range", digits=4),
    Column("paper's, about", "paper_range", digits=1),
)


class _Estimates(NamedTuple):
    """What has been estimated of one run: of which checkpoint, to which standard error in nats."""

    step: int
    std_error: float
    found: list[LogPartition]


def _repeats(planned: PlannedRun) -> int:
    return _SMOKE_REPEATS if planned.size == "smoke" else _REPEATS


def _path(planned: PlannedRun, places: Places) -> Path:
    return places.out / RECORDS / f"{planned.name}-log-partition.json"


def _std_error(planned: PlannedRun) -> float:
    return max(_STD_ERROR, planned.config.evaluation.log_partition_std_error)


def _known(planned: PlannedRun, places: Places) -> _Estimates | None:
    """The estimates that are there, if any.

    Raises:
        InvalidInputError: If the file is damaged.
    """
    path = _path(planned, places)
    if not path.exists():
        return None
    repair = "Move the file away to have the estimates made anew."
    fields = read_json(path, repair=repair)
    try:
        estimates = [
            LogPartition(
                float(each["value"]), float(each["std_error"]), each["method"], int(each["num_samples"])
            )
            for each in fields["estimates"]
        ]
        return _Estimates(int(fields["step"]), float(fields["std_error"]), estimates)
    except (KeyError, TypeError, ValueError):
        raise InvalidInputError(str(path), "must hold estimates of log Z", "other fields", repair) from None


def _usable(planned: PlannedRun, places: Places, step: int | None = None) -> list[LogPartition]:
    """The estimates that are as today's would be: to the same error and, where a step is given, of that checkpoint."""
    known = _known(planned, places)
    if known is None or known.std_error != _std_error(planned) or step not in (None, known.step):
        return []
    return known.found


def _needs_model(planned: PlannedRun, places: Places) -> bool:
    return len(_usable(planned, places)) < _repeats(planned)


def _estimates(planned: PlannedRun, made: Made) -> LogPartitionHistogram:
    """Make the estimates that are missing, each kept at once; their seeds do not depend on when they are made."""
    known = _usable(planned, made.places, made.runs[planned].record.step)
    if len(known) < _repeats(planned):
        known = _make_estimates(planned, made, known)
    return log_partition_histogram_table([e.value for e in known], [e.std_error for e in known])


def _make_estimates(planned: PlannedRun, made: Made, known: list[LogPartition]) -> list[LogPartition]:
    loaded = load_run(RunDirectory(made.places.runs / planned.name), device=made.places.device)
    config, path, total = loaded.config.evaluation, _path(planned, made.places), _repeats(planned)
    start = loaded.chains.step(config.num_chain_sweeps)
    found = list(known)

    def estimate(seed: int) -> LogPartition:
        made.check()
        return bennett_log_partition(
            loaded.model.prior,
            std_error=_std_error(planned),
            max_sweeps=config.max_tempered_sweeps,
            start=start,
            seed=seed,
        )

    def keep(number: int, each: LogPartition) -> None:
        found.append(each)
        made.say(f"{planned}: log Z {number} of {total}: {each.value:.4f} ± {each.std_error:.4f} nats")
        plain = [{key: value for key, value in asdict(e).items() if key in _KEPT} for e in found]
        write_json(
            path,
            {
                "run": planned.name,
                "step": loaded.step,
                "std_error": _std_error(planned),
                "estimates": plain,
            },
        )

    repeat_log_partition(estimate, total, done=known, seed=config.seed, report=keep)
    return found


_KEPT = ("value", "std_error", "method", "num_samples", "num_sweeps", "seconds", "converged")


def _make(wanted: Wanted, made: Made) -> Result:
    tables: dict[str, LogPartitionHistogram] = {}
    rows: list[tuple[Cell, ...]] = []
    for planned in main_runs(wanted):
        table = tables[planned.experiment] = _estimates(planned, made)
        count, spread = len(table.value), float(table.value.std(ddof=1))
        rows.append(
            (
                planned.experiment,
                Value(float(table.value.mean()), spread / count**0.5),
                count,
                spread,
                float(np.sqrt(np.square(table.std_error).mean())),
                float(np.ptp(table.value)),
                LOG_PARTITION_SPREAD,
            )
        )
    notes = [
        "Bridge sampling with unrelated seeds, tuning included, of the best checkpoint of each main run, each estimate "
        "to the stated error; evaluations go to a third of it, which takes ten times as long. The paper's repeats "
        "differ by no more than about 0.1 nats (section log-partition-function).",
        *notes_of(made.of(main_runs(wanted))),
    ]
    picture = draw_log_partition_histograms(tables)
    return Result(
        "Figure 10: repeated estimates of log Z", notes, ResultTable(_COLUMNS, tuple(rows)), picture
    )


FIGURE_10 = Reproduction(_make, main_runs, _needs_model)
