"""Speed of block Gibbs sampling: this library against plain torch and against other libraries.

All contenders of a table run in turn, round after round, each in a process of its own. Peers run with the interpreter
of .bench-venv, which `make bench` fills; one that cannot run is listed with the reason. Writes RESULTS.md and
block_gibbs.png beside this file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from block_gibbs_plot import draw
from contest import HERE, Case, Result, compete
from growth import CHAINS, SWEEPS, UNITS, growth_table, measure
from results import describe_machine, table, write_section
from startup import startup_table

OURS, FLOOR = "discrete_vae", "torch_uniform"
PEERS = ["rbms", "thrml", "dwave_block", "dwave_bipartite", "sklearn"]
CASES = [Case(64, 64), Case(100, 100), Case(200, 200), Case(61, 37)]
PEER_PYTHON = HERE.parent / ".bench-venv" / "bin" / "python"
NOTE = """An update is one draw of one unit of one chain. A run is 100 sweeps of 2000 chains, or fewer sweeps where that
takes long; ours includes building its tables and returning a copy of the states. "Times torch" compares with the
fastest plain form (`addmm`, `sigmoid`, `uniform_`, `<`). Memory is the growth of the process's peak. Deviation is
the largest difference of a unit's mean from ours after the last run, in standard errors: all contenders sample the
same machine."""


def deviation(result: Result, ours: Result, num_chains: int) -> float:
    """The largest difference of unit means, in standard errors; a contender may return the left side only."""
    return max(
        abs(a - b) / max((a * (1 - a) + b * (1 - b)) / num_chains, 1e-12) ** 0.5
        for a, b in zip(result.mean, ours.mean, strict=False)
    )


def contest_table(case: Case, results: dict[str, Result]) -> str:
    ours, floor = results[OURS], results[FLOOR]
    rows = []
    for result in results.values():
        if result.failure is not None:
            rows.append([f"{result.name}: could not run ({result.failure})", *["—"] * 7])
            continue
        rows.append(
            [
                f"{result.name} {result.version}",
                f"{result.best / 1e9:.4f}",
                f"{result.median / 1e9:.4f}",
                f"{result.best / floor.best:.2f}",
                f"{result.median / floor.median:.2f}",
                str(result.num_sweeps),
                f"{result.memory:.0f}",
                f"{deviation(result, ours, case.num_chains):.1f}",
            ]
        )
    head = [f"{case.label} units", "10⁹ updates/s, best", "median", "times torch, best", "median", "sweeps"]
    return table([*head, "memory, MiB", "deviation"], rows)


def beside_torch(*, seconds: float, num_threads: int) -> str:
    """What a training loop pays for alternating between torch and the sampler."""
    names = ["product", OURS, "product_and_sampling"]
    python = Path(sys.executable)
    results = compete(
        [(name, python) for name in names], Case(64, 64), seconds=seconds, num_threads=num_threads
    )
    product, ours, both = (min(results[name].seconds) for name in names)
    return (
        f"Beside torch: a product of matrices of 1000 rows and columns {1e3 * product:.2f} ms, sampling "
        f"{1e3 * ours:.2f} ms, one after the other {1e3 * both:.2f} ms, {both / (product + ours):.2f} times the sum."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="seconds of rounds for each table")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of each contender")
    parser.add_argument("--folder", type=Path, default=HERE, help="where to write the page and the picture")
    options = parser.parse_args()
    seconds, threads, load = options.seconds, options.threads, os.getloadavg()[0]
    if load > (os.cpu_count() or 1) / 4:
        print(f"Other programs are running (load {load:.1f}): only ratios mean anything, and little.\n")

    parts: list[str] = []

    def add(part: str) -> None:
        parts.append(part)
        print(part, end="\n\n", flush=True)

    add(describe_machine(threads))
    own = [(name, Path(sys.executable)) for name in (OURS, FLOOR)]
    others = [("torch_bernoulli", Path(sys.executable)), *((name, PEER_PYTHON) for name in PEERS)]
    contest = {}
    for case in CASES:
        names = own if contest else own + others
        results = compete(names, case, seconds=seconds * (1 if contest else 3), num_threads=threads)
        contest = contest or results
        add(contest_table(case, results))
    counts = sorted({1, threads})
    ours = measure(OURS, UNITS, threads=counts, seconds=seconds)
    floor = measure(FLOOR, UNITS, threads=counts, seconds=seconds / 2)
    add(growth_table("units on each side", 64, [case.num_left for case in UNITS], UNITS, ours, floor))
    for what, base, cases in (("chains", 2000, CHAINS), ("sweeps", 100, SWEEPS)):
        values = [getattr(case, f"num_{what}") for case in cases]
        best = measure(OURS, cases, threads=counts, seconds=seconds / 2)
        add(growth_table(what, base, values, cases, best))
    add(beside_torch(seconds=seconds / 3, num_threads=threads))
    add(startup_table())
    draw(options.folder / "block_gibbs.png", contest, UNITS, ours, floor)
    parts[1:1] = [NOTE, "![Speed of block Gibbs sampling](block_gibbs.png)"]
    write_section(options.folder / "RESULTS.md", "Block Gibbs", "\n\n".join(parts))
    print(f"Written to {options.folder}")


if __name__ == "__main__":
    main()
