"""Figure 10: repeated estimates of log Z of the four main runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import repeat_log_partition
from discrete_vae.figures.curves import (
    LogPartitionHistogram,
    draw_log_partition_histograms,
    log_partition_histogram_table,
)
from discrete_vae.load import load_run
from discrete_vae.log_partition.bridge import bennett_log_partition
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.runs.run_directory import RunDirectory
from reproduction.campaign import RECORDS, Places
from reproduction.main_runs import main_runs
from reproduction.notes import notes_of
from reproduction.paper_values import LOG_PARTITION_SPREAD
from reproduction.planned_run import PlannedRun
from reproduction.record import RecordStore, RunRecord
from reproduction.table import Cell, Column, ResultTable, Value
from reproduction.wanted import Made, Reproduction, Result, Wanted

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
    """What has been estimated of one run.

    Attributes:
        checkpoint: The best of the run, as its record names it.
        std_error: To which standard error each was made, nats.
        found: The estimates.
    """

    checkpoint: dict[str, Any]
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
                float(each["value"]),
                float(each["std_error"]),
                each["method"],
                int(each["num_samples"]),
                num_sweeps=each["num_sweeps"],
                seconds=each["seconds"],
                converged=each["converged"],
            )
            for each in fields["estimates"]
        ]
        checkpoint = {name: fields[name] for name in ("step", "validation_elbo")}
        return _Estimates(checkpoint, float(fields["std_error"]), estimates)
    except (KeyError, TypeError, ValueError):
        raise InvalidInputError(str(path), "must hold estimates of log Z", "other fields", repair) from None


def _usable(planned: PlannedRun, places: Places, record: RunRecord) -> list[LogPartition]:
    """The estimates that are as today's would be: of the recorded run, to the same error."""
    known = _known(planned, places)
    if known is None or not record.is_of(known.checkpoint) or known.std_error != _std_error(planned):
        return []
    return known.found


def _needs_model(planned: PlannedRun, places: Places) -> bool:
    stored = RecordStore(places.out / RECORDS).read(planned)
    return stored is None or len(_usable(planned, places, stored.record)) < _repeats(planned)


def _estimates(planned: PlannedRun, made: Made) -> list[LogPartition]:
    """Make the estimates that are missing, each kept at once; their seeds do not depend on when they are made."""
    known = _usable(planned, made.places, made.runs[planned].record)
    if len(known) < _repeats(planned):
        known = _make_estimates(planned, made, known)
    return known


def _make_estimates(planned: PlannedRun, made: Made, known: list[LogPartition]) -> list[LogPartition]:
    loaded = load_run(RunDirectory(made.places.runs / planned.name), device=made.places.device)
    config, path, total = loaded.config.evaluation, _path(planned, made.places), _repeats(planned)
    record = made.runs[planned].record
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
                "step": record.step,
                "validation_elbo": record.validation_elbo,
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
    short = 0
    for planned in main_runs(wanted):
        found = _estimates(planned, made)
        short += sum(each.converged is False for each in found)
        table = log_partition_histogram_table([e.value for e in found], [e.std_error for e in found])
        tables[planned.experiment] = table
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
    missed = f"{short} of them have not reached it" if short else "which all have reached"
    error = _std_error(main_runs(wanted)[0])
    notes = [
        "Bridge sampling with unrelated seeds, tuning included, of the best checkpoint of each main run, each estimate "
        f"to {error:g} nats, {missed}. The paper's repeats differ by no more than about 0.1 nats (section "
        "log-partition-function).",
        *notes_of(made.of(main_runs(wanted))),
    ]
    picture = draw_log_partition_histograms(tables)
    return Result(
        "Figure 10: repeated estimates of log Z", notes, ResultTable(_COLUMNS, tuple(rows)), picture
    )


FIGURE_10 = Reproduction(_make, main_runs, _needs_model)
