"""Speed of block Gibbs sampling: this library against plain torch and against other libraries.

All contenders of a table run in turn, round after round, each in a process of its own. Peers run with the interpreter
of .bench-venv, which `make bench` fills; one that cannot run is listed with the reason. Writes RESULTS.md and
block_gibbs.svg beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contest import HERE, Case, Result, compete
from growth import CHAINS, SWEEPS, UNITS, growth_table, measure, updates
from results import describe_machine, table, write_section

from discrete_vae.figures.style import BLUE, VERMILION, Picture, save_figure, tidy

OURS, FLOOR = "discrete_vae", "torch_uniform"
PEERS = ["rbms", "thrml", "dwave_block", "dwave_bipartite", "sklearn"]
CASES = [Case(64, 64), Case(100, 100), Case(200, 200), Case(61, 37)]
PEER_PYTHON = HERE.parent / ".bench-venv" / "bin" / "python"
NOTE = """An update is one draw of one unit of one chain. A run is 100 sweeps of 2000 chains, or fewer sweeps where that
takes long; ours includes building its tables and returning a copy of the states. "Times torch" compares with the
fastest plain form (`addmm`, `sigmoid`, `uniform_`, `<`). Memory is the growth of the process's peak. Deviation is
the largest difference of a unit's mean from ours after the last run, in standard errors: all contenders sample the
same Boltzmann machine."""
PICTURE = """![On a logarithmic axis discrete-vae lies a factor of ten beyond all others](block_gibbs.svg)

*On two threads block Gibbs sampling is ten times as fast as plain PyTorch up to 128 + 128 units. Above: every
contender. Below: speed against size.*"""

COLORS = {"discrete-vae": BLUE, "torch": VERMILION, "torch, uniform_": VERMILION}
OTHER = "0.35"
CODE = """
import json, time, torch
from discrete_vae import RBM
from discrete_vae.kernels.gibbs import run_sweeps

def first(**options):
    wall, cpu = time.perf_counter(), time.process_time()
    run_sweeps(RBM(5, 4), torch.zeros(4, 9), 1, key=1, first_sweep=1, **options)
    return time.perf_counter() - wall, time.process_time() - cpu

plain = first()
other = first(inverse_temperature=torch.ones(4), clamped=torch.ones(9).bool())
print(json.dumps([plain, other]))
"""


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
                f"{result.best / 1e9:.3g}",
                f"{result.median / 1e9:.3g}",
                f"{result.best / floor.best:.2f}",
                f"{result.median / floor.median:.2f}",
                str(result.num_sweeps),
                f"{result.memory:.0f}",
                f"{deviation(result, ours, case.num_chains):.1f}",
            ]
        )
    head = [f"{case.label} units", "10⁹ updates/s, best", "(median)", "times torch, best", "(median)"]
    return table([*head, "sweeps", "memory, MiB", "deviation"], rows)


def beside_torch(*, seconds: float, num_threads: int) -> str:
    """What a training loop pays for alternating between torch and the sampler."""
    names, python = ["product", OURS, "product_and_sampling"], Path(sys.executable)
    contenders = [(name, python) for name in names]
    results = compete(contenders, Case(64, 64), seconds=seconds, num_threads=num_threads)
    product, ours, both = (min(results[name].seconds) for name in names)
    return (
        f"Beside torch: a product of matrices of 1000 rows and columns {1e3 * product:.2f} ms, sampling "
        f"{1e3 * ours:.2f} ms, one after the other {1e3 * both:.2f} ms, {both / (product + ours):.2f} times the sum."
    )


def startup_table() -> str:
    """What the first call costs: with an empty cache of compiled code, and with a full one."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty cache", "full cache"):
            environment, command = {**os.environ, "NUMBA_CACHE_DIR": cache}, [sys.executable, "-c", CODE]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            (wall, cpu), (other, _) = json.loads(done.stdout)
            rows.append([name, f"{wall:.2f}", f"{cpu:.2f}", f"{other:.3f}"])
    head = ["first call of a process", "seconds", "of processor time", "tempered and clamped after it"]
    return table(head, rows)


def draw(
    path: Path,
    speeds: Mapping[str, float],
    sizes: Sequence[int],
    curves: Mapping[str, Mapping[int, Sequence[float]]],
) -> None:
    """A dot per contender above, updates per second; below them these at each size, by name and number of threads.

    Sizes are units on each side.
    """
    figure = Picture((7.2, 6.0), layout="constrained")
    dots, lines = figure.subplots(2, 1, height_ratios=[1, 1.1])
    beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    order = sorted(speeds.items(), key=lambda pair: pair[1])
    for place, (name, speed) in enumerate(order):
        dots.plot(speed, place, "o", color=COLORS.get(name, OTHER), markersize=6)
        words = f"{speed / 1e6:,.0f} million" if speed < 1e9 else f"{speed / 1e9:.1f} billion"
        dots.annotate(words, (speed, place), (8, 0), **beside)
    dots.set_yticks(range(len(order)), [name for name, _ in order])
    dots.set(xscale="log", xlim=(order[0][1] / 2, order[-1][1] * 6), ylim=(-0.6, len(order) - 0.4))
    dots.set_xlabel("unit updates per second, 64 + 64 units, 2,000 chains", fontsize=9)
    for name, by_threads in curves.items():
        styles = ("--", "-")[-len(by_threads) :]
        for (count, speed), style in zip(sorted(by_threads.items()), styles, strict=True):
            lines.plot(sizes, speed, style, marker="o", markersize=4, color=COLORS.get(name, OTHER))
            label = f"{name}, {count} thread{'s' * (count > 1)}"
            lines.annotate(label, (sizes[-1], speed[-1]), (8, 0), **beside)
    lines.set(xscale="log", yscale="log", xlim=(sizes[0] * 0.9, sizes[-1] * 3))
    lines.set_xlabel("units on each side", fontsize=9)
    lines.set_ylabel("unit updates per second", fontsize=9)
    lines.set_xticks(sizes, [str(size) for size in sizes])
    lines.minorticks_off()
    for axes in (dots, lines):
        tidy(axes)
    save_figure(figure, path)


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
    ours, floor = measure((OURS, FLOOR), UNITS, threads=counts, seconds=2 * seconds)
    add(growth_table("units on each side", 64, [case.num_left for case in UNITS], UNITS, ours, floor))
    for what, base, cases in (("chains", 2000, CHAINS), ("sweeps", 100, SWEEPS)):
        values = [getattr(case, f"num_{what}") for case in cases]
        [best] = measure((OURS,), cases, threads=counts, seconds=seconds / 2)
        add(growth_table(what, base, values, cases, best))
    add(beside_torch(seconds=seconds / 3, num_threads=threads))
    add(startup_table())
    speeds = {result.name: result.best for result in contest.values() if result.failure is None}
    curves = {
        name: {
            count: [updates(case) / s for case, s in zip(UNITS, each, strict=True)]
            for count, each in best.items()
        }
        for name, best in (("discrete-vae", ours), ("torch", floor))
    }
    draw(options.folder / "block_gibbs.svg", speeds, [case.num_left for case in UNITS], curves)
    parts[1:1] = [NOTE, PICTURE]
    write_section(options.folder / "RESULTS.md", "Block Gibbs", "\n\n".join(parts))
    print(f"Written to {options.folder}")


if __name__ == "__main__":
    main()
