"""How the time grows with units, chains, sweeps and threads."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from contest import PAUSE, Case, Worker
from results import table

BASE = Case(64, 64)
UNITS = [replace(BASE, num_left=n, num_right=n, num_sweeps=25) for n in (16, 32, 64, 128, 256, 512)]
CHAINS = [replace(BASE, num_chains=n) for n in (500, 1000, 2000, 4000, 8000)]
SWEEPS = [replace(BASE, num_sweeps=n) for n in (25, 50, 100, 200, 400)]


def measure(module: str, cases: list[Case], *, threads: list[int], seconds: float) -> dict[int, list[float]]:
    """The fastest time of each case, by number of threads; cases and threads run in turn for so many seconds."""
    workers = {count: Worker(module, Path(sys.executable), count) for count in threads}
    best = {count: [float("inf")] * len(cases) for count in threads}
    begin, rounds = time.monotonic(), 0
    while rounds < 2 or time.monotonic() < begin + seconds:
        rounds += 1
        for i, case in enumerate(cases):
            for count, worker in workers.items():
                worker.ask(
                    "prepare", num_left=case.num_left, num_right=case.num_right, num_chains=case.num_chains
                )
                worker.ask("run", num_sweeps=1)  # may compile
                best[count][i] = min(best[count][i], worker.ask("run", num_sweeps=case.num_sweeps)["seconds"])
                time.sleep(PAUSE)
    for worker in workers.values():
        worker.close()
    return best


def updates(case: Case) -> int:
    return case.num_sweeps * case.num_chains * (case.num_left + case.num_right)


def growth_table(
    what: str, base_value: int, values: list[int], cases: list[Case], best: dict[int, list[float]]
) -> str:
    """Time, speed, and time an update relative to the case of the base value."""
    rows = []
    most, base = max(best), values.index(base_value)
    for i, (value, case) in enumerate(zip(values, cases, strict=True)):
        per_update = [best[most][k] / updates(cases[k]) for k in (i, base)]
        rows.append(
            [
                str(value),
                f"{1e3 * best[most][i]:.2f}",
                *(f"{updates(case) / best[count][i] / 1e9:.2f}" for count in sorted(best)),
                f"{per_update[0] / per_update[1]:.2f}",
            ]
        )
    speeds = [f"10⁹ updates/s, {count} thread{'s' * (count > 1)}" for count in sorted(best)]
    return table([what, f"ms, {most} threads", *speeds, "time an update, relative"], rows)
