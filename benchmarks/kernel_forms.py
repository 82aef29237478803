"""The CPU kernel, the same in plain numba, and plain torch: is what is written in LLVM's instructions worth it?

All three run in turn, round after round, each in a process of its own. Writes a section of RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from contest import HERE, Case, compete
from results import describe_machine, table, write_section

OURS, PLAIN, FLOOR = "discrete_vae", "plain_numba", "torch_uniform"
CASES = [Case(64, 64), Case(100, 100), Case(200, 200), Case(61, 37), Case(256, 256), Case(512, 512)]
NOTE = """2000 chains, up to 100 sweeps per run; 10⁹ updates per second, best and median. The plain form packs spins in
bytes and adds a row of a table per byte of the other side, for all units of a chain at once; LLVM makes vector
instructions of its loops. The library's form holds a tile of 16 units in one vector and names the instructions. It
reads 96 bytes of table rows per byte of spins: up to 128 units a side from tables made once per call, above from rows
that are made for four tiles of the other side at a time, 32 KiB, and then serve all chains from the first-level cache.
"""


def measure(case: Case, *, seconds: float, num_threads: int) -> list[str]:
    """A row of the table."""
    names = [(name, Path(sys.executable)) for name in (OURS, PLAIN, FLOOR)]
    results = compete(names, case, seconds=seconds, num_threads=num_threads)
    ours, plain, floor = (results[name] for name in (OURS, PLAIN, FLOOR))
    speeds = [
        f"{speed / 1e9:.3f}" for result in (ours, plain, floor) for speed in (result.best, result.median)
    ]
    ratios = [f"{ours.best / plain.best:.2f}", f"{ours.median / plain.median:.2f}"]
    ratios += [f"{ours.best / floor.best:.1f}", f"{ours.median / floor.median:.1f}"]
    return [case.label, *speeds, *ratios]


def write(rows: list[list[str]], machine: str, folder: Path) -> None:
    """Write the section."""
    head = ["units", "ours, best", "(median)", "plain numba, best", "(median)", "torch, best", "(median)"]
    head += ["ours / plain, best", "(median)", "ours / torch, best", "(median)"]
    text = "\n\n".join([machine, NOTE.strip(), table(head, rows)])
    write_section(folder / "RESULTS.md", "Block Gibbs, two forms of the kernel", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="seconds of rounds for each size")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of each contender")
    parser.add_argument("--folder", type=Path, default=HERE, help="where to write the page")
    options = parser.parse_args()
    machine, rows = describe_machine(options.threads), []
    for case in CASES:
        rows.append(measure(case, seconds=options.seconds, num_threads=options.threads))
        print(*rows[-1], flush=True)
    write(rows, machine, options.folder)


if __name__ == "__main__":
    main()
