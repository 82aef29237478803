"""What runs with and without a measure say of it: a table of nats with errors, and nats against minutes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from results import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of lines that are told apart, colour-blind safe (Okabe & Ito); one of them is black.
_COLORS = [
    "#000000",
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#999999",
    "#661100",
]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run on validation examples.

    Attributes:
        num_samples: Importance samples per example.
        index: Numbers of the examples.
        log_likelihood: Of each, nats.
        log_partition_std_error: Of log Z, which shifts them all, nats.
        elbo: Mean, nats.
        sharp_limit: Mean log p(x) in the limit of infinitely sharp smoothing, nats; NaN where there is none.
        measure: Name of the measure.
        seed: Seed of the run.
        num_steps: Its steps.
        course: Minutes and validation ELBO, (point, 2).
    """

    num_samples: int
    index: tuple[int, ...]
    log_likelihood: np.ndarray
    log_partition_std_error: float
    elbo: float
    sharp_limit: float = math.nan
    measure: str = ""
    seed: int = 0
    num_steps: int = 0
    course: np.ndarray | None = None

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What `nats.validate` wrote; None if there is no such file."""
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        return cls(
            found["num_samples"],
            tuple(found["index"]),
            np.array(found["log_likelihood"]),
            found["log_partition_std_error"],
            found["elbo"],
            found.get("sharp_limit", math.nan),
        )

    def of(self, measure: str, seed: int, num_steps: int, course: np.ndarray) -> Self:
        """The same with its run."""
        return replace(self, measure=measure, seed=seed, num_steps=num_steps, course=course)


_Runs: TypeAlias = Mapping[str, Mapping[int, Outcome]]


@dataclass(frozen=True)
class Gain:
    """What a measure brought, nats, over the seeds that both have.

    Attributes:
        value: Mean over seeds and examples of log p(x) with it less that without.
        seed_error: Standard error over seeds; NaN with one.
        example_error: Standard error over examples, of the means over seeds.
        log_partition_error: Standard error from those of log Z.
        num_seeds: Seeds.
    """

    value: float
    seed_error: float
    example_error: float
    log_partition_error: float
    num_seeds: int


def gain(measured: Mapping[int, Outcome], plain: Mapping[int, Outcome]) -> Gain:
    """Compare runs pair by pair: seed with seed, example with example.

    Args:
        measured: Runs with the measure, by seed.
        plain: Runs without.
    """
    seeds = sorted(measured.keys() & plain.keys())
    for seed in seeds:
        if measured[seed].index != plain[seed].index:
            raise ValueError("the runs were validated on other examples")
    differences = np.array([measured[s].log_likelihood - plain[s].log_likelihood for s in seeds])
    errors = [part[s].log_partition_std_error for s in seeds for part in (measured, plain)]
    return Gain(
        value=float(differences.mean()),
        seed_error=_standard_error(differences.mean(1)),
        example_error=_standard_error(differences.mean(0)),
        log_partition_error=math.hypot(*errors) / len(seeds),
        num_seeds=len(seeds),
    )


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def by_measure(found: Iterable[Outcome]) -> dict[str, dict[int, Outcome]]:
    """Runs by measure and seed."""
    sorted_out: dict[str, dict[int, Outcome]] = {}
    for outcome in found:
        sorted_out.setdefault(outcome.measure, {})[outcome.seed] = outcome
    return sorted_out


def report(found: Sequence[Outcome], options: Mapping[str, str], plain: str) -> str:
    """The table with what its columns mean."""
    runs, rows = by_measure(found), []
    for name, seeds in runs.items():
        outcomes = list(seeds.values())
        brought = ["", "", "", ""]
        if name != plain:
            g = gain(seeds, runs[plain])
            brought = [
                f"{g.value:+.3f}",
                *map(_error, (g.seed_error, g.example_error, g.log_partition_error)),
            ]
        rows.append(
            [
                f"{name}: `{options[name]}`" if options[name] else name,
                f"{np.mean([o.log_likelihood.mean() for o in outcomes]):.3f}",
                _error(_standard_error(np.mean([o.log_likelihood for o in outcomes], 0))),
                _or_none(float(np.mean([o.sharp_limit for o in outcomes]))),
                *brought,
                f"{np.mean([o.elbo for o in outcomes]):.3f}",
                f"{np.mean([o.num_steps for o in outcomes]):.0f}",
                f"{np.mean([_minutes(o) for o in outcomes]):.1f}",
                str(len(outcomes)),
            ]
        )
    head = [
        "measure",
        "log p(x)",
        "±",
        "sharp limit",
        "brought",
        "± over seeds",
        "± over examples",
        "± of log Z",
        "ELBO",
        "steps",
        "minutes",
        "seeds",
    ]
    first = found[0]
    return (
        f"Nats per validation example, {len(first.index)} of them with {first.num_samples} importance samples, by the "
        "best checkpoint, ± over examples, and in the limit of sharp smoothing where there is one. What a measure "
        "brought is the mean difference from the run without it, seed by seed and example by example, with the same "
        "noise; its errors are those over seeds, over examples (of the means over seeds) and of log Z. Test examples "
        "were not read.\n\n" + table(head, rows)
    )


def _error(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3f}"


def _or_none(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def _minutes(outcome: Outcome) -> float:
    course = outcome.course
    return float(course[-1, 0]) if course is not None and len(course) else math.nan


def read_course(records: Iterable[Mapping[str, Any]]) -> np.ndarray:
    """Minutes and validation ELBO of each validation in metrics.jsonl, (point, 2)."""
    points = [(r["seconds"] / 60, r["validation_elbo"]) for r in records if "validation_elbo" in r]
    return np.array(points, float).reshape(-1, 2)


def draw(found: Sequence[Outcome], plain: str, title: str, path: Path) -> None:
    """What each measure brought, with errors; beside it ELBO against minutes where lines can be told apart.

    Args:
        found: The runs.
        plain: Name of the runs without a measure.
        title: Of the picture.
        path: Its file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    runs = by_measure(found)
    few = len(runs) <= len(_COLORS)
    figure = Figure(figsize=(7 + 4 * few, max(3.0, 0.3 * len(runs) + 1.4)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    colors = dict(zip(runs, _COLORS if few else ["#0072b2"] * len(runs), strict=False)) | {plain: "black"}
    panels = figure.subplots(1, 1 + few, squeeze=False)[0]
    _draw_gains(panels[0], runs, plain, colors)
    if few:
        _draw_courses(panels[1], runs, colors)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _draw_gains(axes: Axes, runs: _Runs, plain: str, colors: Mapping[str, str]) -> None:
    """A dot per measure, the best on top."""
    gains = {name: gain(seeds, runs[plain]) for name, seeds in runs.items() if name != plain}
    order = sorted(gains, key=lambda name: gains[name].value)
    over_seeds = all(g.num_seeds > 1 for g in gains.values())
    for place, name in enumerate(order):
        g = gains[name]
        error = math.hypot(g.seed_error if over_seeds else g.example_error, g.log_partition_error)
        axes.errorbar(g.value, place, xerr=error, fmt="o", color=colors[name], capsize=3)
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(range(len(order)), order)
    many = max((g.num_seeds for g in gains.values()), default=1)
    of = f"over {many} seeds" if over_seeds else "over examples"
    axes.set_xlabel(f"log p(x) more than {plain}, nats, \u00b1 standard error {of}")
    axes.grid(axis="x", alpha=0.3)
    axes.margins(y=0.5 / max(1, len(order)))


def _draw_courses(axes: Axes, runs: _Runs, colors: Mapping[str, str]) -> None:
    """A line per measure, the mean over seeds, and each seed thin behind it."""
    lowest, highest = [], []
    for name, seeds in runs.items():
        courses = [o.course for o in seeds.values() if o.course is not None and len(o.course)]
        if not courses:
            continue
        count = min(len(course) for course in courses)
        mean = np.mean([course[:count] for course in courses], 0)
        for course in courses:
            axes.plot(course[:, 0], course[:, 1], color=colors[name], linewidth=0.5, alpha=0.4)
        axes.plot(mean[:, 0], mean[:, 1], color=colors[name], label=name)
        highest.append(mean[:, 1].max())
        lowest.append(np.quantile(mean[:, 1], 0.25))
    spread = max(highest) - min(lowest)
    axes.set_ylim(min(lowest) - 0.1 * spread, max(highest) + 0.05 * max(spread, 0.1))
    axes.set(xlabel="minutes of training", ylabel="validation ELBO, nats")
    axes.legend(fontsize="small")
