"""The course of a run's training in few rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_QUANTITIES = (
    "elbo",
    "kl_discrete",
    "kl_continuous",
    "validation_elbo",
    "validation_score",
    "log_partition",
    "beta",
    "learning_rate",
)
_DIGITS = 7


def thinned_course(records: Sequence[Mapping[str, Any]], max_rows: int = 200) -> dict[str, np.ndarray]:
    """At most so many steps of a run's log, the last one and validations before others.

    Args:
        records: Lines of ``metrics.jsonl``; a step may have several.
        max_rows: Rows, at least 2.

    Returns:
        Columns: step, epoch, seconds, and the quantities that the run logged, NaN where a step has none.

    Examples:
        >>> lines = [{"step": 1, "epoch": 0.5, "seconds": 1.0, "elbo": -9.0}]
        >>> thinned_course(lines + [{"step": 1, "epoch": 0.5, "seconds": 1.1, "validation_elbo": -8.0}])
        {'step': array([1]), 'epoch': array([0.5]), 'seconds': array([1.1]), 'elbo': array([-9.]),
        'validation_elbo': array([-8.])}
    """
    by_step: dict[int, dict[str, Any]] = {}
    for line in records:
        by_step.setdefault(line["step"], {}).update(line)
    steps = sorted(by_step)
    validated = [step for step in steps if "validation_elbo" in by_step[step]]
    kept = set(_spread(validated, max_rows // 2)) | set(steps[-1:])
    kept |= set(_spread([step for step in steps if step not in kept], max_rows - len(kept)))
    rows = [by_step[step] for step in sorted(kept)]
    names = [name for name in ("epoch", "seconds", *_QUANTITIES) if any(name in row for row in rows)]
    columns = {name: np.array([_rounded(row.get(name, np.nan)) for row in rows]) for name in names}
    return {"step": np.array(sorted(kept), np.int64)} | columns


def _spread(steps: Sequence[int], count: int) -> list[int]:
    """At most so many of them, evenly, the last one included."""
    if len(steps) <= count:
        return list(steps)
    places = np.linspace(len(steps) - 1, 0, count, endpoint=False).round().astype(int)
    return [steps[place] for place in places]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
