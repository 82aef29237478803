"""Speed of block Gibbs sampling: this library against plain torch.

All contenders run in turn, round after round, each in a process of its own; a run is 100 sweeps of 2000 chains. Writes
RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from contest import HERE, Case, Result, compete
from results import describe_machine, table, write_section

CASES = [Case(64, 64), Case(100, 100), Case(200, 200), Case(61, 37)]
OURS, FLOOR = "discrete_vae", "torch_uniform"
CONTENDERS = [OURS, FLOOR, "torch_bernoulli"]


def row(result: Result, floor: Result) -> list[str]:
    if result.failure is not None:
        return [result.name, "could not run: " + result.failure, *[""] * 4]
    return [
        f"{result.name} {result.version}",
        f"{result.best / 1e9:.3f}",
        f"{result.median / 1e9:.3f}",
        f"{result.best / floor.best:.2f}",
        f"{result.median / floor.median:.2f}",
        str(result.num_sweeps),
    ]


def contest_table(case: Case, *, seconds: float, num_threads: int) -> str:
    python = Path(sys.executable)
    results = compete([(name, python) for name in CONTENDERS], case, seconds=seconds, num_threads=num_threads)
    head = [case.label, "10⁹ updates/s, best", "median", "times torch, best", "median", "sweeps a run"]
    return table(head, [row(result, results[FLOOR]) for result in results.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="seconds of rounds for each machine")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each contender")
    parser.add_argument("--page", type=Path, default=HERE / "RESULTS.md", help="page to write")
    options = parser.parse_args()
    if (load := os.getloadavg()[0]) > os.cpu_count() / 4:
        print(f"Other programs are running (load {load:.1f}): only ratios mean anything, and they little.\n")
    parts = [describe_machine(options.threads)]
    for case in CASES:
        parts.append(contest_table(case, seconds=options.seconds, num_threads=options.threads))
        print(parts[-1], end="\n\n", flush=True)
    write_section(options.page, "Block Gibbs", "\n\n".join(parts))
    print(f"Written to {options.page}")


if __name__ == "__main__":
    main()
