"""Samplers of the negative phase compared by training runs: validation ELBO, error of the logged log Z, time.

python benchmarks/samplers.py digits --epochs 200 --seeds 3 --threads 1

Runs lie in runs/samplers and go on where they were stopped: call it again with the same words. All runs of an
experiment have the same data and number of steps, those of a seed the same first weights. Test examples are never read.
"""

from __future__ import annotations

import json
import math
import textwrap
import time
import warnings
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import PAGE, describe_machine, table, write_section

from discrete_vae import bennett_log_partition, exact_log_partition, load_run, train
from discrete_vae.boltzmann.base import BoltzmannMachine, LogPartition, num_enumerated_units
from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.config.overrides import apply_overrides
from discrete_vae.data.splits import DataSplits
from discrete_vae.evaluation.evaluate import evaluate_elbo
from discrete_vae.log_partition.estimate import quick_log_partition
from discrete_vae.presets import Size, load_experiment
from discrete_vae.runs.io import write_json
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.samplers.gibbs import TellsLogPartition

HERE = Path(__file__).parent
PLAIN = "block-gibbs"
SAMPLERS = (PLAIN, "parallel-tempering", "trajectory-tempering")
_MAX_ENUMERATED, _DRAWS = 16, 10
HEAD = ("sampler", "chains", "validation ELBO", "more than plain", "± over seeds", "error of log Z")
HEAD += ("(stated)", "largest error / stated", "seconds per log Z", "ms per step, median", "(of it chains)")


@dataclass(frozen=True)
class LoggedLogZ:
    """What the log would say of log Z at one checkpoint, and how far off it is."""

    step: int  # of the checkpoint
    error: float  # the value less the reference, nats
    std_error: float  # the error that it states, with that of the reference, nats
    seconds: float  # that it took


@dataclass(frozen=True)
class Outcome:
    """One run."""

    elbo: float  # of validation, of the best checkpoint with the reference log Z, nats
    num_chains: int  # of its sampler
    logged: tuple[LoggedLogZ, ...]  # at each checkpoint that the run keeps
    step_ms: float  # median over the log's lines of the time of a step, ms
    chains_ms: float  # likewise of the chains in it

    @classmethod
    def read(cls, path: Path) -> Outcome | None:
        """What `measure` wrote; None if there is no such file."""
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        return cls(**found | {"logged": tuple(LoggedLogZ(**each) for each in found["logged"])})


def sampler_config(name: str, size: Size, sampler: str, epochs: int | None, seed: int) -> ExperimentConfig:
    """The experiment with a sampler; trajectory tempering has as many chains as plain chains have."""
    base = load_experiment(name, size)
    words: list[tuple[str, list[str]]] = [("seed", [str(seed)])]
    if epochs is not None:
        slope = base.training.beta_bound.slope * base.training.num_epochs / epochs
        words += [("training.num-epochs", [str(epochs)]), ("training.beta-bound.slope", [repr(slope)])]
    if sampler != PLAIN:
        words.append(("training.sampler", [sampler]))
    if sampler == "trajectory-tempering":
        words.append(("training.sampler.num-chains", [str(base.training.sampler.num_chains)]))
    return apply_overrides(base, words)


def reference_log_partition(prior: BoltzmannMachine, chains: torch.Tensor) -> LogPartition:
    """Exact where a side has few units, else by bridge sampling from the chains."""
    if num_enumerated_units(prior) <= _MAX_ENUMERATED:
        return exact_log_partition(prior)
    return bennett_log_partition(prior, std_error=0.005, start=chains, max_sweeps=20_000)


def logged_log_partition(folder: Path, step: int) -> LoggedLogZ:
    """The value that the log of training would show at a checkpoint: the sampler's own, else a short annealing's."""
    run = load_run(folder, step)
    start = time.perf_counter()
    if isinstance(run.chains, TellsLogPartition):
        logged = run.chains.log_partition()
    else:
        logged = quick_log_partition(
            run.model.prior, num_chains=200, num_temperatures=300, max_enumerated=0, seed=step
        )
    seconds = time.perf_counter() - start
    true = reference_log_partition(run.model.prior, run.chains.z)
    error = math.hypot(logged.std_error, true.std_error)
    return LoggedLogZ(step, logged.value - true.value, error, seconds)


def measure(folder: Path, dataset: DataSplits) -> Outcome:
    """What a finished run is worth."""
    run, store = load_run(folder), RunDirectory.open(folder).checkpoints()
    true = reference_log_partition(run.model.prior, run.chains.z)
    elbo = evaluate_elbo(run.model, dataset.valid, log_partition=true.value, num_samples=_DRAWS)
    logged = [logged_log_partition(folder, step) for step in store.steps()]
    lines = [line for line in RunDirectory.open(folder).metrics().read() if line.get("examples_per_second")]
    steps = [1000 * run.config.training.batch_size / line["examples_per_second"] for line in lines]
    chains = [ms * line["chains_share"] for ms, line in zip(steps, lines, strict=True)]
    times = float(np.median(steps)), float(np.median(chains))
    return Outcome(elbo.elbo, run.chains.num_chains, tuple(logged), *times)


def outcomes(name: str, epochs: int | None, args: Namespace) -> Iterator[tuple[str, int, Outcome]]:
    """Train and measure what is not there yet, seed after seed, so that a break leaves whole seeds."""
    for seed in range(args.seeds):
        for sampler in args.samplers:
            config = sampler_config(name, args.size, sampler, epochs, seed)
            place = args.runs / f"{name}-{args.size}-{config.training.num_epochs}-epochs"
            folder = place / f"{sampler}-{seed}"
            found = Outcome.read(folder.with_suffix(".json"))
            if found is None:
                place.mkdir(parents=True, exist_ok=True)
                print(f"{sampler}, seed {seed}: {folder}", flush=True)
                dataset = instantiate(config.data, data_dir=args.data_dir)
                train(config, dataset, folder)
                found = measure(folder, dataset)
                write_json(folder.with_suffix(".json"), asdict(found))
            yield sampler, seed, found


def report(found: Mapping[str, Mapping[int, Outcome]]) -> str:
    """The table: a row per sampler, compared with plain chains seed by seed."""
    return table(HEAD, [_row(sampler, seeds, found.get(PLAIN, {})) for sampler, seeds in found.items()])


def _row(sampler: str, seeds: Mapping[int, Outcome], plain: Mapping[int, Outcome]) -> list[str]:
    more = [seeds[seed].elbo - plain[seed].elbo for seed in sorted(seeds.keys() & plain.keys())]
    error = float(np.std(more, ddof=1)) / math.sqrt(len(more)) if len(more) > 1 else math.nan
    logged = [each for outcome in seeds.values() for each in outcome.logged]
    compared = sampler != PLAIN and more
    return [
        sampler,
        "/".join(sorted({str(outcome.num_chains) for outcome in seeds.values()})),
        f"{np.mean([outcome.elbo for outcome in seeds.values()]):.3f}",
        f"{np.mean(more):+.3f}" if compared else "",
        ("unknown" if math.isnan(error) else f"{error:.3f}") if compared else "",
        f"{math.sqrt(np.mean([each.error**2 for each in logged])):.3f}",
        f"{math.sqrt(np.mean([each.std_error**2 for each in logged])):.3f}",
        f"{max(abs(each.error) / each.std_error for each in logged):.1f}",
        f"{np.median([each.seconds for each in logged]):.3f}",
        f"{np.median([outcome.step_ms for outcome in seeds.values()]):.2f}",
        f"{np.median([outcome.chains_ms for outcome in seeds.values()]):.2f}",
    ]


def main(words: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--size", default="short")
    parser.add_argument("--epochs", type=int, nargs="+", help="of each experiment; default: as it has them")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=SAMPLERS)
    parser.add_argument("--threads", type=int, help="of torch; default as torch has it")
    parser.add_argument("--data-dir")
    parser.add_argument("--runs", type=Path, default=HERE.parent / "runs" / "samplers")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)
    lengths: list[Any] = args.epochs or [None] * len(args.experiments)
    for name, epochs in zip(args.experiments, lengths, strict=True):
        found: dict[str, dict[int, Outcome]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sampler, seed, outcome in outcomes(name, epochs, args):
                found.setdefault(sampler, {})[seed] = outcome
        length = epochs or load_experiment(name, args.size).training.num_epochs
        about = (
            "Training runs that differ by the sampler alone, all of the same number of steps, by "
            "`benchmarks/samplers.py`. The ELBO is that of the validation examples by the best checkpoint, nats, mean "
            f"over {args.seeds} seeds; log Z is exact where a side of the prior has up to {_MAX_ENUMERATED} units, "
            "else by bridge sampling. The error of log Z is that of the value which the log of training shows, a "
            "short annealing or the sampler's own, at the checkpoints that the run keeps (root mean square). Times "
            "are medians over the lines of the log, on a machine that may do other things too."
        )
        shown, machine = report(found), describe_machine(torch.get_num_threads())
        title = f"Samplers of the negative phase: {name}, {args.size}, {length} epochs"
        write_section(args.page, title, f"{machine}\n\n{textwrap.fill(about, 120)}\n\n{shown}")
        print(shown)


if __name__ == "__main__":
    main()
