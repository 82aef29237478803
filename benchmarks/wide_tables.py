"""Times of the verbs encode, score and evaluate on tables of 500, 2,000 and 20,000 columns; a section of RESULTS.md.

Each round takes the tables in turn, each in a process of its own, which trains a model for a few steps, calls each verb
once to warm up and then measures it. With --columns it measures one table and prints a line of JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import torch
from results import PAGE, describe_machine, table, write_section

from discrete_vae.cli import main as dvae

COLUMNS, ROWS = (500, 2_000, 20_000), 100
VERBS = ("encode", "score", "evaluate")
SETTINGS = "--model.prior.num-left 8 --model.prior.num-right 8 --training.num-epochs 1"  # log Z takes no time
NOTE = (
    f"`benchmarks/wide_tables.py`: the verbs with their defaults on {ROWS} rows of random bits, the model that "
    "`dvae train --data FILE` makes but for a prior of 8 + 8 units; `score` draws 100 importance samples per row, "
    "`evaluate` 1,000. Seconds per call, the best of all rounds, in a process that has called the verb before."
)


def call(*words: object) -> float:
    """Seconds that a command takes."""
    start, said = time.perf_counter(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = dvae(list(map(str, words)))
    if status:
        raise SystemExit(said.getvalue())
    return time.perf_counter() - start


def measure(columns: int) -> dict[str, float]:
    """Seconds of each verb."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        run, file, out = (Path(folder, name) for name in ("run", "x.npz", "out.npz"))
        parts = {"train": 2 * ROWS, "valid": ROWS, "test": ROWS}
        np.savez(file, **{name: random.random((rows, columns)) < 0.2 for name, rows in parts.items()})
        call("train", "--data", file, "--run-dir", run, *SETTINGS.split())
        outs = {"encode": out, "score": out, "evaluate": out.with_suffix(".json")}
        times = {
            verb: [call(verb, run, "--out", outs[verb], "--seed", seed) for seed in range(2)]
            for verb in VERBS
        }
    return {verb: seconds[-1] for verb, seconds in times.items()}


def write_page(page: Path, rounds: int, threads: int) -> None:
    """Measure all tables, and write the section of the page."""
    machine = describe_machine(threads)
    found: dict[int, list[dict[str, float]]] = {columns: [] for columns in COLUMNS}
    for _ in range(rounds):
        for columns, each in found.items():
            command = [sys.executable, __file__, "--columns", str(columns), "--threads", str(threads)]
            each.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    rows = [
        [f"{columns:,}", *(f"{min(one[verb] for one in each):.2f}" for verb in VERBS)]
        for columns, each in found.items()
    ]
    shown = table(["columns", *(f"{verb}, seconds" for verb in VERBS)], rows)
    write_section(page, "Wide tables", "\n\n".join([machine, NOTE, shown]))
    print(f"{shown}\n\nWritten to {page}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, help="one table alone")
    parser.add_argument("--rounds", type=int, default=3, help="processes per table")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    if options.columns is None:
        write_page(options.page, options.rounds, options.threads)
        return
    torch.set_num_threads(options.threads)
    print(json.dumps(measure(options.columns)))


if __name__ == "__main__":
    main()
