"""How the time grows: of sampling with units, chains, sweeps and threads; of a training step with the model's sizes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contest import PAUSE, Case, Worker
from results import table

BASE = Case(64, 64)
UNITS = [replace(BASE, num_left=n, num_right=n, num_sweeps=25) for n in (16, 32, 64, 128, 256, 512)]
CHAINS = [replace(BASE, num_chains=n) for n in (500, 1000, 2000, 4000, 8000)]
SWEEPS = [replace(BASE, num_sweeps=n) for n in (25, 50, 100, 200, 400)]
STEP_CASES = {
    "units on each side": {
        n: ["--model.prior.num-left", str(n), "--model.prior.num-right", str(n)] for n in (16, 64, 256)
    },
    "groups": {n: ["--model.posterior.groups", str(n)] for n in (1, 2, 4, 8)},
    "Gaussian layers": {n: ["--model.hierarchy.num-layers", str(n)] for n in (1, 4, 16)},
    "width of the posterior's networks": {
        n: [
            *("--model.posterior.hidden", str(n), str(n)),
            *("--model.hierarchy.posterior-hidden", str(n), str(n)),
        ]
        for n in (100, 400, 1600)
    },
    "examples per batch": {n: ["--training.batch-size", str(n)] for n in (25, 100, 400)},
}


def measure(
    modules: Sequence[str], cases: list[Case], *, threads: list[int], seconds: float
) -> list[dict[int, list[float]]]:
    """The fastest time of each case, by number of threads, of each module; all run in turn for so many seconds."""
    best = [{count: [float("inf")] * len(cases) for count in threads} for _ in modules]
    workers = [
        (Worker(module, Path(sys.executable), count), own[count])
        for module, own in zip(modules, best, strict=True)
        for count in threads
    ]
    begin, rounds = time.monotonic(), 0
    while rounds < 2 or time.monotonic() < begin + seconds:
        rounds += 1
        for i, case in enumerate(cases):
            for worker, found in workers:
                worker.prepare(case)
                worker.ask("run", num_sweeps=1)  # may compile
                found[i] = min(found[i], worker.ask("run", num_sweeps=case.num_sweeps)["seconds"])
                time.sleep(PAUSE)
    for worker, _ in workers:
        worker.close()
    return best


def updates(case: Case) -> int:
    return case.num_sweeps * case.num_chains * (case.num_left + case.num_right)


def growth_table(
    what: str,
    base_value: int,
    values: list[int],
    cases: list[Case],
    best: dict[int, list[float]],
    floor: dict[int, list[float]] | None = None,
) -> str:
    """Time, speed, time an update relative to the case of the base value, and speed relative to a floor if given."""
    most, base = max(best), values.index(base_value)
    rows = []
    for i, value in enumerate(values):
        one_update, one_base_update = (best[most][k] / updates(cases[k]) for k in (i, base))
        rows.append(
            [
                str(value),
                f"{1e3 * best[most][i]:.2f}",
                *(f"{updates(cases[i]) / best[count][i] / 1e9:.2f}" for count in sorted(best)),
                f"{one_update / one_base_update:.2f}",
                *(f"{floor[count][i] / best[count][i]:.1f}" for count in sorted(floor or {}) if floor),
            ]
        )
    speeds = [f"10⁹ updates/s, {_threads(count)}" for count in sorted(best)]
    ratios = [f"times torch, {_threads(count)}" for count in sorted(floor or {})]
    return table([what, f"ms, {_threads(most)}", *speeds, "time per update, relative", *ratios], rows)


def step_growth_table(what: str, measured: Mapping[int, Sequence[Mapping[str, Any]]]) -> str:
    """Times of a training step, one row per value, the precisions side by side."""
    rows = []
    for value, found in measured.items():
        row = [str(value), f"{found[0]['num_weights'] / 1e6:.2f}"]
        for name in ("step_ms", "chains_ms", "floor_ms"):
            row += [f"{each[name]:.1f}" for each in found]
        row += [f"{(each['step_ms'] - each['chains_ms']) / each['floor_ms']:.2f}" for each in found]
        row += [str(each["peak_memory_mib"]) for each in found]
        rows.append(row)
    first, *others = [each["precision"] for each in next(iter(measured.values()))]
    head = [what, "M weights"]
    for name in ("ms per step", "of it chains", "floor", "rest / floor", "peak memory, MiB"):
        head += [f"{name}, {first}", *(f"({other})" for other in others)]
    return table(head, rows)


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"
