"""Nats of each measure of training: runs with and without it, compared on validation examples alone.

python benchmarks/nats.py mnist-static --minutes 25 --seeds 3 --measures averaged importance-5
python benchmarks/nats.py mnist-static-rbm128 --minutes 10 --measures estimators
python benchmarks/nats.py digits --steps 2400 --add slow "--training.optimizer.prior-learning-rate-factor 0.1"

Runs lie in runs/nats and go on where they were stopped: call it again with the same words. With --minutes each measure
has as many steps as its own speed allows, with --steps all have the same. Test examples are never read.
"""

from __future__ import annotations

import json
import shlex
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from nats_report import Outcome, by_measure, draw, gain, report
from results import describe_machine, write_section

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.config.overrides import apply_overrides, split_overrides
from discrete_vae.data.splits import DataSplits, subset_indices
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_elbo, evaluate_log_likelihood
from discrete_vae.log_partition.estimate import estimate_log_partition
from discrete_vae.presets import load_experiment
from discrete_vae.runs.io import write_json
from discrete_vae.runs.load import load_run
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.refit import RunRefit
from discrete_vae.training.run import train

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # the checkout
from reproduction.budget import time_parts, with_length  # noqa: E402

PLAIN = "as it is"
MEASURES = {
    PLAIN: "",
    "averaged": "--training.averaging.decay 0.999",
    "averaged-0.9998": "--training.averaging.decay 0.9998",
    "importance-5": "--training.num-importance-samples 5",
    "importance-20-at-the-end": "--training.num-importance-samples 20 --training.importance-start 0.9",
    "cosine": "--training.optimizer.rate cosine",
    "steps": "--training.optimizer.rate steps",
    "rise": "--training.optimizer.rise 0.05",
    "prior-slow": "--training.optimizer.prior-learning-rate-factor 0.3",
    "prior-fast": "--training.optimizer.prior-learning-rate-factor 3",
    "layers-decay": "--training.optimizer.layers-weight-decay 0.1",
    "batch-50": "--training.batch-size 50",
    "batch-200": "--training.batch-size 200",
}
ESTIMATORS = {
    "spike-slab": "--model.smoothing spike-slab",
    "ramps": "--model.smoothing ramps",
    "overlapping-exponential": "--model.smoothing overlapping-exponential",
    "overlapping-power": "--model.smoothing overlapping-power",
    "overlapping-power-5": "--model.smoothing overlapping-power --training.num-importance-samples 5 "
    "--training.importance-start 0",
    "spike-gaussian": "--model.smoothing spike-gaussian --model.smoothing.prior-loc 2",
    "disarm": "--training.gradient disarm",
    "reinforce": "--training.gradient reinforce --training.gradient.baseline learned",
}
"""Ways to have a gradient, where the measure is the transformation or the estimator; not part of the default."""
REFIT = "refit"
"""The measure that trains nothing: it fits the posteriors of the runs without a measure anew, by `dvae refit`."""
HEAD = """# Nats per measure

What single measures of training bring, from runs of `benchmarks/nats.py`. Validation examples alone are read.
"""
CAPTION = "Gain of each measure, the best on top, with its standard error."
_ALL_ESTIMATORS = "estimators"
_VALIDATIONS = 12


def measured_config(base: ExperimentConfig, options: str, seed: int) -> ExperimentConfig:
    """The experiment with further options and a seed."""
    rest, overrides = split_overrides(shlex.split(options))
    if rest:
        raise InvalidInputError("measure", "must be options with a dot", " ".join(rest), "See --settings.")
    return apply_overrides(base, overrides).model_copy(update={"seed": seed})


def budgeted_steps(
    path: Path, base: ExperimentConfig, measures: Mapping[str, str], dataset: DataSplits, minutes: float
) -> dict[str, int]:
    """Steps of each measure, all timed before the first run: the times of all are taken under one load.

    They are kept in ``path``, so that a later call gives every seed the same. Measures are options by name; one that
    does not fit the experiment says so. The minutes are those of each run.
    """
    steps: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    for name, options in measures.items():
        if name in steps or name == REFIT:
            continue
        try:
            config = measured_config(base, options, 0)
            costs = time_parts(config, dataset)
            steps[name] = costs.num_steps(config.training, 60 * minutes, validations=_VALIDATIONS)
        except InvalidInputError as error:
            print(f"{name} does not fit: {error}", flush=True)
            continue
        print(f"{name}: {steps[name]} steps in {minutes:g} minutes", flush=True)
        write_json(path, steps)
    return steps


def outcome_path(folder: Path) -> Path:
    """The file beside a run that says what validation examples make of it."""
    return folder.with_name(f"{folder.name}.json")  # a measure's name may hold a dot


def validate(folder: Path, dataset: DataSplits, num_examples: int, num_samples: int) -> None:
    """Log-likelihoods of validation examples by the run's best checkpoint, into a file beside the run."""
    loaded = load_run(folder)
    rows = subset_indices(len(dataset.valid), min(num_examples, len(dataset.valid)))
    x = dataset.valid[torch.from_numpy(rows)]
    log_z = estimate_log_partition(
        loaded.model.prior, chains=loaded.chains.z, std_error=0.01, max_sweeps=10_000, num_temperatures=500
    )
    asked = {"log_partition": log_z.value, "num_samples": num_samples, "indices": rows.tolist()}
    found = evaluate_log_likelihood(loaded.model, x, **asked)
    elbo = evaluate_elbo(loaded.model, x, log_partition=log_z.value, num_samples=10)
    limit = {}
    if loaded.model.smoothing.sharp_limit() is not None:
        limit["sharp_limit"] = evaluate_log_likelihood(loaded.model.discretized(), x, **asked).value
    assert found.examples is not None
    outcome = {
        "step": loaded.step,
        "sums": loaded.sums,
        "elbo": elbo.elbo,
        "num_samples": num_samples,
        "index": rows.tolist(),
        "log_likelihood": found.examples.value.tolist(),
        **limit,
        "log_partition": log_z.value,
        "log_partition_std_error": log_z.std_error,
    }
    write_json(outcome_path(folder), outcome)


def validated(folder: Path, dataset: DataSplits, args: Namespace) -> Outcome:
    """What validation examples say of a run, found anew unless it is there in these numbers."""
    wanted = args.num_samples, min(args.num_examples, len(dataset.valid))
    found, sums = Outcome.read(outcome_path(folder)), load_run(folder).sums
    if found is None or (found.num_samples, len(found.index), found.sums) != (*wanted, sums):
        validate(folder, dataset, args.num_examples, args.num_samples)
        found = Outcome.read(outcome_path(folder))
    assert found is not None
    return found


def refitted(plain: Path, folder: Path, dataset: DataSplits, seed: int) -> int:
    """Fit the posterior of a run anew, unless that is done; returns the steps of run and refit together."""
    run = RunDirectory.open(plain)
    if not folder.exists():
        RunRefit(run, load_run(run), dataset, folder, seed=seed).run()
    found = json.loads(RunDirectory.open(folder).refit_path.read_text())
    return run.checkpoints().steps()[-1] + found["config"]["num_steps"]


def outcomes(args: Namespace, measures: Mapping[str, str]) -> Iterator[Outcome]:
    """Train and validate what is not there yet, seed after seed, so that a break leaves whole seeds."""
    base = measured_config(load_experiment(args.experiment, size=args.size), args.base, 0)
    dataset = instantiate(base.data, data_dir=args.data_dir)
    budget = f"{args.steps}-steps" if args.steps else f"{args.minutes:g}-minutes"
    runs = args.runs / _file_name(args, budget)
    runs.mkdir(parents=True, exist_ok=True)
    if args.steps:
        steps = dict.fromkeys(measures, args.steps)
    else:
        steps = budgeted_steps(runs / "steps.json", base, measures, dataset, args.minutes)
    unfit = set(measures) - {*steps, REFIT}
    for seed in range(args.seeds):
        for name, options in measures.items():
            if name in unfit:
                continue
            folder = runs / f"{name.replace(' ', '-')}-{seed}"
            if name == REFIT:
                print(f"{name}, seed {seed}: {folder}", flush=True)
                plain = folder.with_name(f"{PLAIN.replace(' ', '-')}-{seed}")
                num_steps = refitted(plain, folder, dataset, seed)
                yield validated(folder, dataset, args).of(name, seed, num_steps)
                continue
            try:
                config = measured_config(base, options, seed)
                config = with_length(config, dataset, steps[name], validations=_VALIDATIONS)
            except InvalidInputError as error:
                print(f"{name} does not fit: {error}", flush=True)
                unfit.add(name)
                continue
            print(f"{name}, seed {seed}: {config.training.num_epochs} epochs in {folder}", flush=True)
            result = train(config, dataset, folder)
            if result.step < result.num_steps:
                raise SystemExit("stopped; the same words go on")
            yield validated(folder, dataset, args).of(name, seed, result.num_steps)


def _file_name(args: Namespace, budget: str) -> str:
    """What the runs are about, as a file may be called."""
    changed = args.base.replace("--", "").split()
    return "-".join([args.experiment, args.size, *changed, budget]).replace("/", "-")


def main(words: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("--size", default="short")
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--minutes", type=float, help="of training, for each run")
    budget.add_argument("--steps", type=int, help="of each run")
    known = [*MEASURES, REFIT, *ESTIMATORS, _ALL_ESTIMATORS]
    taken = {"choices": known, "default": [*MEASURES, REFIT], "help": ", ".join(known)}
    parser.add_argument("--measures", nargs="+", metavar="NAME", **taken)
    parser.add_argument("--add", nargs=2, action="append", default=[], metavar=("NAME", "OPTIONS"))
    parser.add_argument("--base", default="", metavar="OPTIONS", help="of all runs, for example a hierarchy")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--num-examples", type=int, default=1000, help="validation examples")
    parser.add_argument("--num-samples", type=int, default=500, help="importance samples per example")
    parser.add_argument("--threads", type=int, help="of torch; default as torch has it")
    parser.add_argument("--data-dir")
    parser.add_argument("--runs", type=Path, default=HERE.parent / "runs" / "nats")
    parser.add_argument("--page", type=Path, default=HERE / "NATS.md")
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)
    named = [*args.measures, *(ESTIMATORS if _ALL_ESTIMATORS in args.measures else ())]
    options = MEASURES | ESTIMATORS | {REFIT: "dvae refit RUN"}
    chosen = {name: options[name] for name in named if name != _ALL_ESTIMATORS}
    measures = {PLAIN: ""} | chosen | dict(args.add)
    found = list(outcomes(args, measures))
    budget = f"{args.steps} steps" if args.steps else f"{args.minutes:g} minutes"
    title = f"{args.experiment}, size {args.size}, {budget}" + (f", {args.base}" if args.base else "")
    text = f"{describe_machine(torch.get_num_threads())}\n\n{report(found, measures, PLAIN)}"
    runs = by_measure(found)
    gains = {name: gain(seeds, runs[PLAIN]) for name, seeds in runs.items() if name != PLAIN}
    if len(gains) > 1:  # one is said by the table
        picture = args.page.with_name(f"nats-{_file_name(args, budget.replace(' ', '-'))}.svg")
        draw(gains, PLAIN, title, picture)
        text += f"\n\n![Gain of each measure in nats, with its error]({picture.name})\n\n*{CAPTION}*"
    if not args.page.exists():
        args.page.write_text(HEAD)
    write_section(args.page, title, text)
    print(args.page.read_text())


if __name__ == "__main__":
    main()
