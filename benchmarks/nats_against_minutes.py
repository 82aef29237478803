"""Nats against minutes: stored runs that `dvae evaluate` has seen, on the clock of an idle machine.

python benchmarks/nats_against_minutes.py runs/four-minutes-0 runs/eleven-minutes-0 runs/thirty-minutes-0

Runs may have been made beside other work, which changes their time and nothing else, so steps count here and not their
own clocks: 500 steps of each kind are timed anew, log lines included, and validations are added as long as they took
then. Call it on an idle machine. The log-likelihoods are those that `dvae evaluate` has left in the runs, of the latest
checkpoint that it has seen.
"""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import PAGE, describe_machine, table, write_section

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.config.overrides import apply_overrides
from discrete_vae.data.splits import training_subset
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.run import train

TITLE = "Nats against minutes"
_NO_VALIDATION, _TIMED_STEPS = 10**6, 500


@dataclass(frozen=True, eq=False)
class TimedRun:
    """A finished run with its nats and minutes."""

    name: str  # of its folder
    config: ExperimentConfig
    pace: tuple[float, float]  # seconds per step before and after importance samples begin
    minutes: np.ndarray  # of training at each validation
    num_steps: int  # of the whole run
    elbo: np.ndarray  # of each validation, nats
    evaluation: dict[str, Any]  # what `dvae evaluate` has found

    @property
    def seed(self) -> int:
        return self.config.seed


@cache
def step_seconds(config: ExperimentConfig, data_dir: str | None, *, late: bool) -> float:
    """Seconds per step of a short run, log lines included, where the config's run is early or late in its course."""
    dataset = instantiate(config.data, data_dir=data_dir)
    epoch = -(-len(training_subset(dataset, config.training).train) // config.training.batch_size)
    changes = [
        ("training.num-epochs", [str(-(-_TIMED_STEPS // epoch))]),
        ("training.validate-every", [str(_NO_VALIDATION)]),
        ("training.importance-start", ["0.0"]),
        *([] if late else [("training.num-importance-samples", ["1"])]),
    ]
    config = apply_overrides(config, changes)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(config, dataset, run)
        lines = [line for line in RunDirectory.open(run).metrics().read() if "elbo" in line]
    first, last = lines[0], lines[-1]  # the first line's steps hold what is compiled and recorded
    return (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])


def pace(config: ExperimentConfig, data_dir: str | None) -> tuple[float, float]:
    """Seconds per step early and late; runs that differ in seed and length alone share one measurement."""
    same = [
        ("seed", ["0"]),
        ("training.num-epochs", ["1"]),
        ("training.beta-bound.slope", ["0.0"]),
        ("training.warm-up.epochs", ["0"]),
    ]
    kind = apply_overrides(config, same)
    early = step_seconds(kind, data_dir, late=False)
    has_late = config.training.num_importance_samples > 1
    return early, step_seconds(kind, data_dir, late=True) if has_late else early


def last_evaluation(run: RunDirectory) -> dict[str, Any]:
    """What `dvae evaluate` found for the latest of the checkpoints that it has seen."""
    found = [json.loads(path.read_text()) for path in (run.path / "evaluations").glob("*.json")]
    if not found:
        raise SystemExit(f"{run.path} was not evaluated: dvae evaluate {run.path}")
    return max(found, key=lambda each: (each["step"], each["log_likelihood"]["num_samples"]))


def read_run(path: Path, data_dir: str | None) -> TimedRun:
    """A run with the minutes that it would have taken here."""
    run = RunDirectory.open(path)
    config = run.read_experiment()
    early, late = pace(config, data_dir)
    lines = run.metrics().read()
    num_steps = lines[-1]["step"]
    turn = config.training.importance_start * num_steps
    minutes, elbo, validating = [], [], 0.0
    for before, line in pairwise(lines):
        if "validation_elbo" in line:
            validating += line["seconds"] - before["seconds"]
            step = line["step"]
            minutes.append((early * min(step, turn) + late * max(step - turn, 0.0) + validating) / 60)
            elbo.append(line["validation_elbo"])
    found = np.array(minutes), num_steps, np.array(elbo), last_evaluation(run)
    return TimedRun(path.name, config, (early, late), *found)


def report(runs: Sequence[TimedRun]) -> str:
    """The table."""
    rows = []
    for run in runs:
        likelihood, elbo = run.evaluation["log_likelihood"], run.evaluation["elbo"]
        rows.append(
            [
                run.name,
                str(run.seed),
                f"{run.num_steps:,} of {run.config.training.batch_size}",
                " to ".join(f"{1e3 * seconds:.1f}" for seconds in dict.fromkeys(run.pace)),
                f"{run.minutes[-1]:.1f}",
                f"{run.elbo.max():.2f}",
                f"{likelihood['value']:.2f} ± {likelihood['std_error']:.2f}",
                f"{elbo['elbo']:.2f}",
            ]
        )
    head = ["run", "seed", "steps of so many examples", "ms per step, at the end with importance samples"]
    return table([*head, "minutes", "validation ELBO", "test log p(x)", "test ELBO"], rows)


def main(words: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data-dir")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(words)
    runs = [read_run(path, args.data_dir) for path in args.runs]
    runs.sort(key=lambda run: (run.minutes[-1], run.seed))
    found = runs[0].evaluation["log_likelihood"]
    about = (
        f"`{runs[0].config.name}`; times of steps include the lines of the log. Test log-likelihoods of "
        f"{found['num_examples']} images with {found['num_samples']} importance samples, standard errors over images."
    )
    text = "\n\n".join([describe_machine(torch.get_num_threads()), about, report(runs)])
    write_section(args.page, TITLE, text)
    print(text)


if __name__ == "__main__":
    main()
