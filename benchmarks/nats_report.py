"""What runs with and without a measure say of it: a table of nats with errors, and a picture of the gains."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from results import table

from discrete_vae.figures.style import BLUE, Picture, save_figure, tidy


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run on validation examples."""

    num_samples: int  # importance samples per example
    index: tuple[int, ...]  # numbers of the examples
    log_likelihood: np.ndarray  # of each, nats
    log_partition_std_error: float  # of log Z, which shifts them all, nats
    elbo: float  # mean, nats
    # mean log p(x) in the limit of infinitely sharp smoothing, nats; NaN where there is none
    sharp_limit: float = math.nan
    measure: str = ""
    seed: int = 0
    num_steps: int = 0
    sums: tuple[str, ...] = ()  # of the checkpoint's files

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
            sums=tuple(found.get("sums", ())),
        )

    def of(self, measure: str, seed: int, num_steps: int) -> Self:
        """The same with its run."""
        return replace(self, measure=measure, seed=seed, num_steps=num_steps)


@dataclass(frozen=True)
class Gain:
    """What a measure brought, nats, over the seeds that both have."""

    value: float  # mean over seeds and examples of log p(x) with it less that without
    seed_error: float  # standard error over seeds; NaN with one
    example_error: float  # standard error over examples, of the means over seeds
    log_partition_error: float  # standard error from those of log Z
    num_seeds: int


def gain(measured: Mapping[int, Outcome], plain: Mapping[int, Outcome]) -> Gain:
    """Compare runs with a measure and without, by seed, pair by pair: seed with seed, example with example."""
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
    """The table with what its columns mean, and the options of each measure."""
    runs, rows, log_partition_errors = by_measure(found), [], [0.0]
    for name, seeds in runs.items():
        outcomes = list(seeds.values())
        gained = ["", "", ""]
        if name != plain:
            g = gain(seeds, runs[plain])
            gained = [f"{g.value:+.3f}", *map(_error, (g.seed_error, g.example_error))]
            log_partition_errors.append(g.log_partition_error)
        rows.append(
            [
                name,
                f"{np.mean([o.log_likelihood.mean() for o in outcomes]):.3f}",
                _error(_standard_error(np.mean([o.log_likelihood for o in outcomes], 0))),
                _or_none(float(np.mean([o.sharp_limit for o in outcomes]))),
                *gained,
                f"{np.mean([o.elbo for o in outcomes]):.2f}",
                f"{np.mean([o.num_steps for o in outcomes]):.0f}",
                str(len(outcomes)),
            ]
        )
    head = ["measure", "log p(x)", "±", "sharp limit", "gain", "error over seeds", "over examples"]
    head += ["ELBO", "steps", "seeds"]
    first = found[0]
    meanings = [f"- {name}: `{options[name]}`" for name in runs if options[name]]
    return (
        f"Nats per validation example, {len(first.index)} of them with {first.num_samples} importance samples, by the "
        "best checkpoint, ± over examples, and in the limit of sharp smoothing where there is one. The gain is "
        "the mean difference from the run without the measure, seed by seed and example by example, with the same "
        "noise. Its "
        "errors are those over seeds and over examples (of the means over seeds); log Z adds at most "
        f"{max(log_partition_errors):.3f}. Test examples were not read.\n\n"
        + table(head, rows)
        + "\n\n"
        + "\n".join(meanings)
    )


def _error(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3f}"


def _or_none(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def draw(gains: Mapping[str, Gain], plain: str, title: str, path: Path) -> None:
    """Draw what each measure gained over runs called ``plain``, a dot with its error each, the best on top."""
    figure = Picture((7.2, 1.2 + 0.27 * len(gains)), layout="constrained")
    axes = figure.subplots()
    order = sorted(gains, key=lambda name: gains[name].value)
    over_seeds = all(g.num_seeds > 1 for g in gains.values())
    for place, name in enumerate(order):
        g = gains[name]
        # runs of several seeds have errors of log Z of their own, which their spread contains
        error = g.seed_error if over_seeds else math.hypot(g.example_error, g.log_partition_error)
        axes.errorbar(g.value, place, xerr=error, fmt="o", color=BLUE, markersize=5, capsize=3)
    axes.axvline(0, color="0.3", linewidth=1)
    axes.set_yticks(range(len(order)), order)
    of = f"over {max(g.num_seeds for g in gains.values())} seeds" if over_seeds else "over examples, one seed"
    words = f"gain in validation log p(x) over \N{LEFT DOUBLE QUOTATION MARK}{plain}\N{RIGHT DOUBLE QUOTATION MARK}"
    axes.set_xlabel(f"{words}, nats, ± standard error {of}", fontsize=9)
    axes.set_title(title, fontsize=10, loc="left")
    axes.margins(y=0.5 / len(order))
    tidy(axes)
    save_figure(figure, path)
